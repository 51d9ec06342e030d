//! Trees of recorded files that stand for a machine: what kernels and container runtimes leave in `/proc` and `/sys/fs/cgroup`.
#![allow(dead_code)] // each test file uses a part

#[path = "../../../gpusize-base/src/test_folder.rs"]
mod test_folder;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use gpusize_base::error::Error;
use gpusize_sampler::{Plan, Sampler};
use serde_json::{Value, json};

/// The id of a container.
pub const ID: &str = "4f1c6a0b9d2e83755f1c6a0b9d2e83754f1c6a0b9d2e83755f1c6a0b9d2e8375";
/// The process that is watched.
pub const PID: u32 = 4711;

const STAT_V1: &str = "cache 500\nrss 1\nshmem 2\ninactive_file 1\ntotal_cache 9000\ntotal_rss 7000\ntotal_shmem 200\n\
                       total_swap 30\ntotal_inactive_file 4000\ntotal_active_file 3000\n";
/// A memory controller of v1.
pub const MEMORY_V1: &[(&str, &str)] = &[
    ("memory.usage_in_bytes", "20000\n"),
    ("memory.max_usage_in_bytes", "25000\n"),
    ("memory.stat", STAT_V1),
    ("memory.failcnt", "3\n"),
    ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
    ("memory.limit_in_bytes", "9223372036854771712\n"),
];
const STAT_V2: &str = "anon 7000\nfile 9000\nkernel 600\nshmem 200\ninactive_file 4000\nactive_file 3000\n\
                       slab_reclaimable 300\nslab_unreclaimable 100\n";
/// Everything that a group of v2 has.
pub const V2: &[(&str, &str)] = &[
    (
        "cpu.stat",
        "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 8\nnr_throttled 2\nthrottled_usec 70\n",
    ),
    ("memory.current", "20000\n"),
    ("memory.peak", "25000\n"),
    ("memory.stat", STAT_V2),
    ("memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n"),
    ("memory.swap.current", "30\n"),
    ("memory.max", "max\n"),
    ("pids.current", "4\n"),
    ("pids.peak", "6\n"),
    ("io.stat", "8:0 rbytes=100 wbytes=50 rios=2 wios=1 dbytes=0 dios=0\n"),
    (
        "cpu.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=40\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=10\n",
    ),
    (
        "memory.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=4\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    ),
    ("io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
];

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
        Self(test_folder::fresh("tree"))
    }

    /// Write a file and the directories above it. One that is there is never empty meanwhile, as a kernel's never is: a
    /// sampler may read it at any moment, by a descriptor that it keeps.
    pub fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a directory above")).expect("directories");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).expect("a file");
        file.write_all_at(text.as_bytes(), 0).expect("a text");
        file.set_len(text.len() as u64).expect("its length");
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
