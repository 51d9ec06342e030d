//! A group above a container's, made for it alone: it outlives that, and keeps its totals.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cgroup::Cgroup;
use super::columns::Reading;
use super::layout::Asked;
use super::source::values;

/// Podman's monitor of a container stands in a group beside it, below the parent that was asked for: `conmon`, or
/// `libpod-conmon-ID.scope` under systemd. At the container's end it starts Podman to put things away, which takes a tenth
/// of a second of CPU time and 20 MiB.
const MONITOR: &str = "conmon";

/// The group above, and what in it is not the container's.
#[derive(Debug)]
pub struct Parent {
    root: PathBuf,
    path: String,
    group: std::result::Result<Box<Cgroup>, String>,
    monitors: BTreeMap<String, Cgroup>,
    last: Reading,
    last_of_monitors: BTreeMap<String, Reading>,
}

impl Parent {
    /// Open the group at a path below the mounts of its hierarchies; one that cannot be read says so in its facts.
    pub fn open(root: &Path, path: &str) -> Self {
        let group = Cgroup::open(root, Asked::Path(path), None).map(Box::new).map_err(|error| error.to_string());
        let mut parent = Self {
            root: root.to_owned(),
            path: path.to_owned(),
            group,
            monitors: BTreeMap::new(),
            last: Reading::default(),
            last_of_monitors: BTreeMap::new(),
        };
        parent.read();
        parent
    }

    /// Read the group, and then what is to be taken off: the other way round its use in between would be the container's.
    ///
    /// Of a monitor whose group has gone nobody knows how much of the parent's was its own: what was read with it stays.
    pub fn read(&mut self) {
        let Ok(group) = &mut self.group else { return };
        group.read_all();
        let listed = group.primary_dir().and_then(|dir| fs::read_dir(dir).ok());
        for entry in listed.into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.contains(MONITOR) || self.monitors.contains_key(&name) {
                continue;
            }
            if let Ok(monitor) = Cgroup::open(&self.root, Asked::Path(&format!("{}/{name}", self.path)), None) {
                self.monitors.insert(name, monitor);
            }
        }
        for monitor in self.monitors.values_mut() {
            monitor.read_all();
        }
        if self.monitors.values().all(|monitor| !monitor.is_gone()) {
            self.last = group.last().clone();
            self.last_of_monitors =
                self.monitors.iter().map(|(name, monitor)| (name.clone(), monitor.last().clone())).collect();
        }
    }

    /// What was read first and last, of the group whole and of the monitors in it.
    pub fn facts(&mut self) -> Value {
        self.read();
        let group = match &mut self.group {
            Ok(group) => group,
            Err(why) => return json!({"path": self.path, "why": why}),
        };
        let monitors: BTreeMap<_, _> =
            self.last_of_monitors.iter().map(|(name, reading)| (name, values(reading))).collect();
        json!({
            "path": self.path, "why": null, "limits": group.told_limits(), "gone": group.is_gone(),
            "first_ns": group.first().t_ns, "first": values(group.first()),
            "last_ns": self.last.t_ns, "last": values(&self.last), "monitors": monitors,
        })
    }
}
