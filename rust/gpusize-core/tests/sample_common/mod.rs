//! Trees of recorded files that stand for a machine: what kernels and container runtimes leave in `/proc` and `/sys/fs/cgroup`.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use gpusize_core::error::Error;
use gpusize_core::sample::{Plan, Sampler};
use serde_json::{Value, json};

/// The id of a container.
pub const ID: &str = "4f1c6a0b9d2e83755f1c6a0b9d2e83754f1c6a0b9d2e83755f1c6a0b9d2e8375";
/// The process that is watched.
pub const PID: u32 = 4711;

static TREES: AtomicU32 = AtomicU32::new(0);

/// A directory that stands for `/`.
pub struct Tree(pub PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Tree {
    /// An empty one.
    pub fn new() -> Self {
        let name = format!("gpusize-tree-{}-{}", std::process::id(), TREES.fetch_add(1, Ordering::Relaxed));
        let tree = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&tree.0).expect("a directory");
        tree
    }

    /// Write a file and the directories above it.
    pub fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a directory above")).expect("directories");
        fs::write(path, text).expect("a file");
        self
    }

    /// What is mounted, and the groups of the process.
    pub fn machine(&self, mountinfo: &str, cgroup: &str) -> &Self {
        self.file("/proc/self/mountinfo", mountinfo).file(&format!("/proc/{PID}/cgroup"), cgroup)
    }

    /// A group of v1, with the files of a controller.
    pub fn v1(&self, mount: &str, group: &str, files: &[(&str, &str)]) -> &Self {
        self.file(&format!("/sys/fs/cgroup/{mount}/release_agent"), "").group(mount, group, files)
    }

    /// A group of v2, with the files that every one has.
    pub fn v2(&self, mount: &str, group: &str, files: &[(&str, &str)]) -> &Self {
        self.group(
            mount,
            group,
            &[("cgroup.events", "populated 1\nfrozen 0\n"), ("cgroup.controllers", "cpu io memory pids\n")],
        );
        self.group(mount, group, files)
    }

    fn group(&self, mount: &str, group: &str, files: &[(&str, &str)]) -> &Self {
        for (name, text) in files {
            self.file(&format!("/sys/fs/cgroup/{mount}/{group}/{name}"), text);
        }
        self
    }

    /// A sampler of one source named `it`, of which every reading is a whole one.
    pub fn sampler(&self, mut source: Value) -> Result<Sampler, Error> {
        source["name"] = json!("it");
        let plan = json!({
            "root": self.0, "interval_ns": 1_000_000, "medium_ns": 1_000_000, "slow_ns": 1_000_000, "sources": [source],
        });
        Sampler::start(serde_json::from_value::<Plan>(plan).expect("a plan"))
    }

    /// What one look at the process's group gives: its facts and last values.
    pub fn look(&self) -> Value {
        let sampler = self.sampler(json!({"kind": "cgroup", "pid": PID})).expect("a sampler");
        sampler.stop()["sources"]["it"].clone()
    }

    /// The tree's own path of a directory.
    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
}

/// The values of a column, nulls left out.
pub fn column(batch: &RecordBatch, name: &str) -> Vec<i64> {
    let column = batch.column_by_name(name).expect("a column").as_primitive::<Int64Type>();
    (0..column.len()).filter(|row| !column.is_null(*row)).map(|row| column.value(row)).collect()
}

/// Why a column is not there.
pub fn why(facts: &Value, column: &str) -> String {
    facts["missing"][column].as_str().unwrap_or_default().to_owned()
}

/// A line of `mountinfo` of a hierarchy of v1.
pub fn mount_v1(name: &str) -> String {
    format!("32 31 0:29 / /sys/fs/cgroup/{name} rw,nosuid shared:9 - cgroup cgroup rw,{name}\n")
}

/// A line of `mountinfo` of the hierarchy of v2.
pub fn mount_v2(point: &str) -> String {
    format!("30 23 0:26 / {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n")
}

/// `/proc/PID/stat` of a process: parent, own ticks (user), children's ticks (user), start.
pub fn stat(pid: u32, parent: u32, own: i64, children: i64, start: i64) -> String {
    format!("{pid} (a b) S {parent} 1 1 0 -1 4194560 1 0 1 0 {own} 0 {children} 0 20 0 1 0 {start} 2322432 256 1 1 1\n")
}
