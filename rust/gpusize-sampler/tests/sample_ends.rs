//! What ends and begins anew: groups, high-water marks, processes whose numbers are given out again.

mod sample_common;

use std::fs;

use arrow_array::Array;
use gpusize_sampler::{Plan, Sampler};
use sample_common::{MEMORY_V1, PID, Tree, V2, column, mount_v1, mount_v2, stat};
use serde_json::{Value, json};

/// A group that was made as `new` becomes `job`: a kernel's files are there with their directory, all at once.
fn appears(tree: &Tree, mount: &str) {
    let dir = tree.path("/sys/fs/cgroup").join(mount).join("new");
    fs::rename(&dir, dir.with_file_name("job")).expect("a rename");
}

/// A sampler of one source named `it` that looks only when it is told to, by a mark.
fn told(tree: &Tree, mut source: Value) -> Sampler {
    source["name"] = json!("it");
    let rarely = 3_600_000_000_000_u64;
    let plan = json!({
        "root": tree.0, "interval_ns": rarely, "medium_ns": rarely, "slow_ns": rarely, "sources": [source],
    });
    Sampler::start(serde_json::from_value::<Plan>(plan).expect("a plan")).expect("a sampler")
}

/// Let it look, and say what it knows then.
fn look(sampler: &Sampler) -> Value {
    sampler.mark("a look");
    sampler.facts()["sources"]["it"].clone()
}

#[test]
fn another_directory_at_the_path_is_a_restart() {
    let tree = Tree::new();
    tree.machine(&mount_v2("/sys/fs/cgroup"), "0::/job\n").v2("", "job", V2);
    let sampler = tree.sampler(json!({"kind": "cgroup", "path": "/sys/fs/cgroup/job"})).expect("a sampler");
    fs::rename(tree.path("/sys/fs/cgroup/job"), tree.path("/sys/fs/cgroup/old")).expect("a rename");
    while sampler.facts()["sources"]["it"]["gone"] == false {}
    let last = sampler.facts()["sources"]["it"]["last"].clone();
    assert_eq!(last["cpu_ns"], 5_000_000, "kept beyond the end");
    tree.v2("", "new", V2).v2("", "new", &[("cpu.stat", "usage_usec 1\n"), ("cgroup.events", "populated 1\n")]);
    appears(&tree, "");
    while sampler.facts()["sources"]["it"]["restarts"] == 0 {}
    let facts = sampler.stop()["sources"]["it"].clone();
    assert_eq!(
        (&facts["gone"], &facts["restarts"], &facts["last"]["cpu_ns"]),
        (&json!(false), &json!(1), &json!(1000))
    );
}

#[test]
fn a_restart_waits_for_all_hierarchies() {
    let tree = Tree::new();
    let mounts = format!("{}{}", mount_v1("memory"), mount_v1("cpuacct"));
    tree.machine(&mounts, "4:memory:/job\n2:cpuacct:/job\n").v1("memory", "job", MEMORY_V1);
    tree.v1("cpuacct", "job", &[("cpuacct.usage", "500\n")]);
    // It does not wait for ever, but for some looks.
    let sampler = told(&tree, json!({"kind": "cgroup", "pid": PID}));
    let state = || {
        let facts = look(&sampler);
        (facts["gone"].clone(), facts["restarts"].clone())
    };
    for mount in ["memory", "cpuacct"] {
        let dir = tree.path(&format!("/sys/fs/cgroup/{mount}/job"));
        fs::rename(&dir, dir.with_file_name("old")).expect("a rename");
    }
    assert_eq!(state(), (json!(true), json!(0)));
    tree.v1("memory", "new", &[("memory.usage_in_bytes", "7\n")]).v1("cpuacct", "new", &[("cpuacct.usage", "3\n")]);
    appears(&tree, "memory");
    for _ in 0..5 {
        assert_eq!(state(), (json!(true), json!(0)), "the other is not there yet");
    }
    appears(&tree, "cpuacct");
    assert_eq!(state(), (json!(false), json!(1)));
    let facts = sampler.stop()["sources"]["it"].clone();
    assert_eq!(facts["last"], json!({"mem_bytes": 7, "cpu_ns": 3}), "of the new group only");
    assert_eq!(facts["first"]["cpu_ns"], 500);
}

#[test]
fn a_monitor_beside_the_container_is_told_apart() {
    let tree = Tree::new();
    let mounts = format!("{}{}", mount_v1("memory"), mount_v1("cpuacct"));
    tree.machine(&mounts, "4:memory:/run/job\n2:cpuacct:/run/job\n");
    for (group, used) in [("run", "900\n"), ("run/job", "500\n")] {
        tree.v1("memory", group, MEMORY_V1).v1("cpuacct", group, &[("cpuacct.usage", used)]);
    }
    let sampler = told(&tree, json!({"kind": "cgroup", "pid": PID, "parent": "/run"}));
    assert_eq!(look(&sampler)["parent"]["monitors"], json!({}));
    // It is made when it likes, and works on when the container has ended.
    tree.v1("memory", "run/conmon", MEMORY_V1).v1("cpuacct", "run/conmon", &[("cpuacct.usage", "300\n")]);
    tree.v1("memory", "run/other", MEMORY_V1);
    assert_eq!(look(&sampler)["parent"]["monitors"]["conmon"]["cpu_ns"], 300);
    for mount in ["memory", "cpuacct"] {
        fs::remove_dir_all(tree.path("/sys/fs/cgroup").join(mount).join("run/job")).expect("a removal");
    }
    tree.v1("cpuacct", "run", &[("cpuacct.usage", "1100\n")]);
    tree.v1("cpuacct", "run/conmon", &[("cpuacct.usage", "450\n")]);
    let parent = sampler.stop()["sources"]["it"]["parent"].clone();
    assert_eq!((&parent["last"]["cpu_ns"], &parent["monitors"]["conmon"]["cpu_ns"]), (&json!(1100), &json!(450)));
    assert_eq!(parent["monitors"]["conmon"]["mem_peak_bytes"], 25000);
    assert_eq!(parent["monitors"].as_object().map(serde_json::Map::len), Some(1), "nothing else is taken off");

    // One whose group goes, too, leaves what was read while both were there.
    let sampler = told(&tree, json!({"kind": "cgroup", "path": "/run", "parent": "/run"}));
    for mount in ["memory", "cpuacct"] {
        fs::remove_dir_all(tree.path("/sys/fs/cgroup").join(mount).join("run/conmon")).expect("a removal");
    }
    tree.v1("cpuacct", "run", &[("cpuacct.usage", "9000\n")]);
    let parent = sampler.stop()["sources"]["it"]["parent"].clone();
    assert_eq!((&parent["last"]["cpu_ns"], &parent["monitors"]["conmon"]["cpu_ns"]), (&json!(1100), &json!(450)));
}

#[test]
fn a_mark_begins_a_new_high_water_mark_where_it_can_be_written() {
    let tree = Tree::new();
    tree.machine(&mount_v2("/sys/fs/cgroup"), "0::/job\n").v2("", "job", V2);
    let peak = tree.path("/sys/fs/cgroup/job/memory.peak");
    let sampler = tree.sampler(json!({"kind": "cgroup", "pid": PID})).expect("a sampler");
    assert_eq!(sampler.mark("loaded")["peak_reset"], json!(["it"]));
    assert!(fs::read_to_string(&peak).expect("a file").starts_with("reset\n"));
    drop(sampler);

    fs::write(&peak, "25000\n").expect("a file");
    let mut mode = fs::metadata(&peak).expect("metadata").permissions();
    mode.set_readonly(true);
    fs::set_permissions(&peak, mode).expect("read-only, as before kernel 6.12");
    let sampler = tree.sampler(json!({"kind": "cgroup", "pid": PID})).expect("a sampler");
    assert_eq!(sampler.mark("loaded")["peak_reset"], json!([]));
    assert_eq!(fs::read_to_string(&peak).expect("a file"), "25000\n");
    assert_eq!(sampler.stop()["sources"]["it"]["peak_resettable"], false);
}

#[test]
fn a_number_that_was_given_out_again_is_another_process() {
    let tree = Tree::new();
    // No lists of children: the kernel was built without them.
    tree.file("/proc/10/stat", &stat(10, 1, 100, 0, 500))
        .file("/proc/11/stat", &stat(11, 10, 40, 0, 600))
        .file("/proc/12/stat", &stat(12, 11, 5, 0, 700))
        .file("/proc/99/stat", &stat(99, 1, 9000, 0, 1));
    // What the kernel does between two looks it does in far less time than passes between two of a sampler.
    let sampler = told(&tree, json!({"kind": "process", "pid": 10}));
    let tick_ns = 10_000_000;
    assert_eq!(sampler.facts()["sources"]["it"]["last"]["cpu_ns"], 145 * tick_ns);
    // 12 ends without being waited for, and its number goes to somebody else.
    tree.file("/proc/12/stat", &stat(12, 1, 7777, 0, 800));
    assert_eq!(look(&sampler)["processes"], 2);
    // 11 ends and is waited for: the kernel marks it, moves its time into its parent's, and then only takes it off the list.
    tree.file("/proc/11/stat", &stat(11, 10, 40, 0, 600).replace(") S ", ") X "));
    assert_eq!(look(&sampler)["last"]["cpu_ns"], 145 * tick_ns, "its parent does not have it yet");
    tree.file("/proc/10/stat", &stat(10, 1, 110, 40, 500));
    for _ in 0..20 {
        assert_eq!(look(&sampler)["last"]["cpu_ns"], 155 * tick_ns);
    }
    tree.file("/proc/11/stat", "");
    assert_eq!(look(&sampler)["processes"], 1);
    let facts = sampler.stop()["sources"]["it"].clone();
    let batch = sampler.drain().remove(0).1;
    assert_eq!(facts["last"]["cpu_ns"], (110 + 40 + 5) * tick_ns);
    assert_eq!(facts["last"]["pids"], 1);
    let cpu = column(&batch, "cpu_ns");
    assert!(cpu.is_sorted() && cpu.iter().all(|ns| *ns <= 155 * tick_ns), "{cpu:?}");
    assert_eq!(column(&batch, "mem_bytes")[0], 3 * 256 * 4096);
}

#[test]
fn what_those_used_who_were_born_since_the_last_search_is_not_told_as_used_at_once() {
    let tree = Tree::new();
    // Of so many threads, one process after the other, children are looked for once in a while only.
    let many = |pid, parent, ticks, children, start| {
        stat(pid, parent, ticks, children, start).replace(" 20 0 1 0 ", " 20 0 40 0 ")
    };
    tree.file("/proc/loadavg", "0.1 0.1 0.1 1/80 10\n").file("/proc/10/stat", &many(10, 1, 100, 0, 500));
    let source = json!({"kind": "process", "pid": 10, "name": "it"});
    let rarely = 3_600_000_000_000_u64;
    let plan = json!({
        "root": tree.0, "interval_ns": 1_000_000, "medium_ns": rarely, "slow_ns": rarely, "sources": [source],
    });
    let sampler = Sampler::start(serde_json::from_value::<Plan>(plan).expect("a plan")).expect("a sampler");
    let readings = || sampler.facts()["sources"]["it"]["readings"].as_u64().expect("a count");
    while readings() < 5 {}
    // A child lives and is waited for between two searches.
    tree.file("/proc/loadavg", "0.1 0.1 0.1 1/80 11\n").file("/proc/10/stat", &many(10, 1, 100, 30, 500));
    let seen = readings();
    while readings() < seen + 50 {}
    let last = sampler.stop()["sources"]["it"]["last"].clone();
    let batch = sampler.drain().remove(0).1;
    let cpu = batch.column_by_name("cpu_ns").expect("a column");
    assert_eq!(column(&batch, "mem_bytes").len(), batch.num_rows());
    assert!(cpu.null_count() >= 49, "not told while somebody may be missing, {} times", cpu.null_count());
    let told = column(&batch, "cpu_ns");
    assert!(told.len() >= 5, "told at every reading as long as nobody is born");
    assert!(told[..told.len() - 1].iter().all(|ns| *ns == 1_000_000_000), "{told:?}");
    assert_eq!((last["cpu_ns"].as_i64(), told.last()), (Some(1_300_000_000), Some(&1_300_000_000)));
    assert!(!cpu.is_null(batch.num_rows() - 1), "the last reading is a whole one");
}

#[test]
fn what_the_last_one_used_is_told_though_somebody_was_born_elsewhere() {
    let tree = Tree::new();
    let many = |ticks| stat(10, 1, ticks, 0, 500).replace(" 20 0 1 0 ", " 20 0 40 0 ");
    tree.file("/proc/loadavg", "0.1 0.1 0.1 1/80 10\n").file("/proc/10/stat", &many(100));
    let rarely = 3_600_000_000_000_u64;
    let plan = json!({
        "root": tree.0, "interval_ns": 1_000_000, "medium_ns": rarely, "slow_ns": rarely,
        "sources": [{"kind": "process", "pid": 10, "name": "it"}],
    });
    let sampler = Sampler::start(serde_json::from_value::<Plan>(plan).expect("a plan")).expect("a sampler");
    // A process of others is born; ours works on, and ends between two searches.
    tree.file("/proc/loadavg", "0.1 0.1 0.1 1/80 11\n");
    tree.file("/proc/10/stat", &many(170).replace(") S ", ") Z "));
    while sampler.facts()["sources"]["it"]["gone"] == false {}
    let last = sampler.stop()["sources"]["it"]["last"]["cpu_ns"].clone();
    assert_eq!(last, 1_700_000_000);
}
