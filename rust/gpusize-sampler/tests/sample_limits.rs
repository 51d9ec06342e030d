//! Limits of groups above, and `memory.high`: which held a group back, and when.

mod sample_common;

use std::fs;

use gpusize_sampler::Sampler;
use gpusize_sampler::groups::{Asked, group, mounts};
use sample_common::{MEMORY_V1, PID, Tree, V2, mount_v1, mount_v2};
use serde_json::{Value, json};

const POD: &str = "/kubepods/pod7";
const MIB: i64 = 1 << 20;

fn events(high: u32, max: u32) -> String {
    format!("low 0\nhigh {high}\nmax {max}\noom 0\noom_kill 0\noom_group_kill 0\n")
}

fn cpu_stat(throttled: u32) -> String {
    format!("usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 90\nnr_throttled {throttled}\nthrottled_usec 7\n")
}

/// A container in a pod that has limits, on v2; the counters below the pod are higher, as a neighbour met limits of its own.
fn pod() -> Tree {
    let tree = Tree::new();
    tree.machine(&mount_v2("/sys/fs/cgroup"), &format!("0::{POD}/box\n"))
        .v2("", &format!("{POD}/box"), V2)
        .v2("", &format!("{POD}/box"), &[("memory.high", "1048576000\n"), ("memory.events.local", &events(5, 3))])
        .v2(
            "",
            POD,
            &[
                ("memory.max", &format!("{}\n", 640 * MIB)),
                ("memory.high", &format!("{}\n", 512 * MIB)),
                ("memory.current", &format!("{}\n", 64 * MIB)),
                ("memory.events", &events(90, 70)),
                ("memory.events.local", &events(9, 7)),
                ("cpu.max", "150000 100000\n"),
                ("cpu.stat", &cpu_stat(40)),
            ],
        )
        .v2("", "kubepods", &[("memory.max", "max\n"), ("memory.events.local", &events(0, 1000))]);
    tree
}

fn held(sampler: &Sampler) -> Vec<(Value, Value, Value, Value)> {
    let facts = sampler.facts();
    let held = facts["sources"]["it"]["held"].as_array().expect("a list").clone();
    held.iter()
        .map(|one| (one["group"].clone(), one["kind"].clone(), one["limit"].clone(), one["times"].clone()))
        .collect()
}

/// One that reads only when it is told to.
fn idle(tree: &Tree) -> Sampler {
    idle_of(tree, "cgroup")
}

fn idle_of(tree: &Tree, kind: &str) -> Sampler {
    let plan = json!({
        "root": tree.0, "interval_ns": 3_600_000_000_000_i64, "medium_ns": 3_600_000_000_000_i64,
        "slow_ns": 3_600_000_000_000_i64, "sources": [{"name": "it", "kind": kind, "pid": PID}],
    });
    Sampler::start(serde_json::from_value(plan).expect("a plan")).expect("a sampler")
}

#[test]
fn limits_of_a_pod_that_were_met_meanwhile_are_told() {
    let tree = pod();
    let sampler = idle(&tree);
    sampler.mark("nothing happened");
    assert_eq!(held(&sampler), [], "what was counted before the sampling is not of it");

    tree.v2("", POD, &[("memory.events.local", &events(11, 8)), ("cpu.stat", &cpu_stat(43))]);
    // A neighbour meets a limit of its own, and one above the pod has none.
    tree.v2("", POD, &[("memory.events", &events(900, 700))]).v2(
        "",
        "kubepods",
        &[("memory.events.local", &events(0, 2000))],
    );
    sampler.mark("first");
    let first = [
        (json!(POD), json!("memory"), json!((640 * MIB) as f64), json!(1)),
        (json!(POD), json!("memory_high"), json!((512 * MIB) as f64), json!(2)),
        (json!(POD), json!("cpu"), json!(1.5), json!(3)),
    ];
    assert_eq!(held(&sampler), first);

    // A phase of its own; the group's own memory.high besides.
    tree.v2("", POD, &[("cpu.stat", &cpu_stat(44))]);
    tree.v2("", &format!("{POD}/box"), &[("memory.events.local", &events(6, 3))]);
    let facts = sampler.stop()["sources"]["it"].clone();
    let held = facts["held"].as_array().expect("a list");
    assert_eq!(held.len(), 5);
    let kinds: Vec<_> = held[3..].iter().map(|one| (&one["kind"], &one["above"], &one["times"])).collect();
    assert_eq!(kinds, [(&json!("memory_high"), &json!(false), &json!(1)), (&json!("cpu"), &json!(true), &json!(1))]);
    assert_eq!(held[0]["until_ns"], held[3]["from_ns"], "a mark parts what came before it from what came after");
    assert!(held[0]["from_ns"].as_i64() < held[0]["until_ns"].as_i64());
}

#[test]
fn without_marks_a_limit_that_is_met_again_and_again_is_one_entry() {
    let tree = pod();
    let sampler = tree.sampler(json!({"kind": "cgroup", "pid": PID})).expect("a sampler");
    for throttled in 41..60 {
        tree.v2("", POD, &[("cpu.stat.new", &cpu_stat(throttled))]);
        let dir = tree.path(&format!("/sys/fs/cgroup{POD}"));
        fs::rename(dir.join("cpu.stat.new"), dir.join("cpu.stat")).expect("a rename");
        let times = || held(&sampler).iter().map(|one| one.3.as_i64().expect("a number")).sum::<i64>();
        while times() < i64::from(throttled) - 40 {}
    }
    let held = held(&sampler);
    // Readings in which nothing came part it, and nothing is counted twice or lost.
    assert!(held.iter().all(|one| one.1 == "cpu"), "{held:?}");
    assert_eq!(held.iter().map(|one| one.3.as_i64().expect("a number")).sum::<i64>(), 19);
}

#[test]
fn memory_at_the_limit_of_a_group_above_is_told_where_nothing_is_counted() {
    let tree = pod();
    let counting = idle(&tree);
    let dir = tree.path(&format!("/sys/fs/cgroup{POD}"));
    for name in ["memory.events", "memory.events.local"] {
        fs::rename(dir.join(name), dir.join(format!("{name}.away"))).expect("a rename");
    }
    let sampler = idle(&tree);
    fs::rename(dir.join("memory.events.local.away"), dir.join("memory.events.local")).expect("a rename");
    tree.v2("", POD, &[("memory.current", &format!("{}\n", 640 * MIB))]);
    counting.mark("full");
    assert_eq!(held(&counting), [], "the kernel counted nothing");
    fs::remove_file(dir.join("memory.events.local")).expect("removed");
    tree.v2("", POD, &[("memory.current", &format!("{}\n", 640 * MIB))]);
    sampler.mark("full");
    let held: Vec<_> = held(&sampler).iter().map(|one| (one.1.clone(), one.3.clone())).collect();
    assert_eq!(held, [(json!("memory"), json!(0)), (json!("memory_high"), json!(0))]);
}

#[test]
fn a_process_is_held_by_the_limits_of_its_group_and_of_those_above() {
    let tree = pod();
    let process = format!("{PID} (p) S 1 1 1 0 -1 0 0 0 0 0 10 0 0 0 20 0 1 0 500 0 256\n");
    tree.file(&format!("/proc/{PID}/stat"), &process);
    let sampler = idle_of(&tree, "process");
    let limits = sampler.facts()["sources"]["it"]["limits"].clone();
    assert_eq!((&limits["cpu_cores"]["value"], &limits["cpu_cores"]["group"]), (&json!(1.5), &json!(POD)));
    let shared = limits["ancestors"].as_array().expect("a list");
    assert!(shared.len() >= 2 && shared.iter().all(|level| level["above"] == true), "{shared:?}");
    tree.v2("", POD, &[("cpu.stat", &cpu_stat(43))]);
    tree.v2("", &format!("{POD}/box"), &[("memory.events.local", &events(6, 3))]);
    sampler.stop();
    let expected = [
        (json!(format!("{POD}/box")), json!("memory_high"), json!(1_048_576_000.0), json!(1)),
        (json!(POD), json!("cpu"), json!(1.5), json!(3)),
    ];
    assert_eq!(held(&sampler), expected);
}

#[test]
fn a_pods_limits_on_v1_are_told_by_controller() {
    let tree = Tree::new();
    let mounts = ["memory", "cpu", "cpuacct"].map(mount_v1).concat();
    tree.machine(&mounts, &format!("4:memory:{POD}/box\n3:cpu:{POD}/box\n2:cpuacct:{POD}/box\n"))
        .v1("memory", &format!("{POD}/box"), MEMORY_V1)
        .v1("cpuacct", &format!("{POD}/box"), &[("cpuacct.usage", "5\n")])
        .v1("cpu", &format!("{POD}/box"), &[("cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")])
        .v1("memory", POD, &[("memory.limit_in_bytes", "67108864\n"), ("memory.failcnt", "10\n")])
        .v1("memory", POD, &[("memory.usage_in_bytes", "1000\n")])
        .v1("cpu", POD, &[("cpu.cfs_quota_us", "50000\n"), ("cpu.cfs_period_us", "100000\n")])
        .v1("cpu", POD, &[("cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 70\n")]);
    let sampler = idle(&tree);
    tree.v1("memory", POD, &[("memory.failcnt", "12\n")]);
    tree.v1("cpu", POD, &[("cpu.stat", "nr_periods 19\nnr_throttled 9\nthrottled_time 70\n")]);
    sampler.stop();
    let expected = [
        (json!(POD), json!("cpu"), json!(0.5), json!(5)),
        (json!(POD), json!("memory"), json!(67_108_864.0), json!(2)),
    ];
    assert_eq!(held(&sampler), expected);
}

#[test]
fn what_the_group_above_counted_last_is_read_when_the_group_is_gone() {
    let tree = pod();
    let sampler = tree.sampler(json!({"kind": "cgroup", "path": format!("{POD}/box")})).expect("a sampler");
    let dir = tree.path(&format!("/sys/fs/cgroup{POD}/box"));
    tree.v2("", POD, &[("memory.events.local", &events(9, 8))]);
    fs::rename(&dir, dir.with_file_name("old")).expect("a rename");
    while sampler.facts()["sources"]["it"]["gone"] == false {}
    assert_eq!(held(&sampler), [(json!(POD), json!("memory"), json!((640 * MIB) as f64), json!(1))]);
    let limits = sampler.stop()["sources"]["it"]["limits"].clone();
    assert_eq!(limits["ancestors"][0]["group"], format!("{POD}/box"), "kept beyond the end");
}

#[test]
fn looking_at_the_facts_reads_no_limits() {
    let tree = pod();
    let sampler = idle(&tree);
    tree.v2("", POD, &[("cpu.max", "50000 100000\n")]);
    let cores = || sampler.facts()["sources"]["it"]["limits"]["cpu_cores"]["value"].clone();
    assert_eq!((cores(), cores()), (json!(1.5), json!(1.5)));
    // A phase makes them due, and the next reading reads them.
    sampler.mark("a phase");
    sampler.mark("another");
    assert_eq!(cores(), 0.5);
}

#[test]
fn groups_are_told_without_sampling() {
    let tree = pod();
    let told = group(&tree.0, Asked::Pid(PID)).expect("a group");
    assert_eq!((&told["primary"], &told["limits"]["cpu_cores"]["value"]), (&json!("unified"), &json!(1.5)));
    assert_eq!(told["layout"]["controllers"][0]["path"], format!("{POD}/box"));
    let told = mounts(&tree.0).expect("mounts");
    let point = json!({"point": "/sys/fs/cgroup", "group": "/", "controllers": null});
    assert_eq!(told, json!({"mode": "v2", "mounts": [point]}));
    assert!(group(&tree.0, Asked::Pid(PID + 1)).is_err());

    // In the root group there is nothing to be told apart from the machine.
    tree.machine(&mount_v1("memory"), "4:memory:/\n").v1("memory", "", MEMORY_V1);
    assert_eq!(group(&tree.0, Asked::Pid(PID)).expect("no group")["primary"], json!(null));
}
