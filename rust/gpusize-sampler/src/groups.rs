//! What cgroups there are, where one is and what limits it, asked once and not sampled.

use std::path::Path;

use serde_json::{Value, json};

use super::layout::{discover, mounted};
use super::limits;
use gpusize_base::error::Result;

pub use super::layout::Asked;

/// The mounted hierarchies: `mode` (`v1`, `v2`, `hybrid`), and of each of `mounts` its `point`, the group that is mounted there
/// (`group`) and its `controllers`, null for v2. `root` is the directory that stands for `/`.
///
/// # Errors
/// No `/proc`, or no hierarchy.
pub fn mounts(root: &Path) -> Result<Value> {
    let (mounts, mode) = mounted(root)?;
    let mounts: Vec<Value> = mounts
        .iter()
        .map(|mount| json!({"point": mount.point, "group": mount.root, "controllers": mount.v1}))
        .collect();
    Ok(json!({"mode": mode, "mounts": mounts}))
}

/// One group: its `layout` and `limits`, as in the facts of a sampler, and in `primary` which of its controllers it stands and
/// falls with, null where none can be read.
///
/// # Errors
/// As [`mounts`]; no such process.
pub fn group(root: &Path, asked: Asked<'_>) -> Result<Value> {
    let layout = discover(root, asked)?;
    let limits = limits::read(&layout.controllers);
    let primary = layout.primary().map(|group| group.controller);
    Ok(json!({"layout": layout, "primary": primary, "limits": limits}))
}
