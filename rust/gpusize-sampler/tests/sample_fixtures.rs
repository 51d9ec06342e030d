//! Groups are found and read on machines of every layout: v1 apart and together, v2, hybrids, namespaces, several runtimes.

mod sample_common;

use sample_common::{ID, MEMORY_V1, PID, Tree, V2, mount_v1, mount_v2, why};
use serde_json::json;

fn v1_names(cpu: &str, path: &str) -> String {
    format!("9:memory:{path}\n8:{cpu}:{path}\n7:pids:{path}\n6:blkio:{path}\n1:name=systemd:{path}\n")
}

#[test]
fn docker_on_v1_with_controllers_apart() {
    let tree = Tree::new();
    let group = format!("docker/{ID}");
    let mounts: String = ["cpu", "cpuacct", "memory", "pids", "blkio"].map(mount_v1).concat();
    let member = format!("{}5:cpuacct:/{group}\n", v1_names("cpu", &format!("/{group}")));
    tree.machine(&mounts, &member)
        .v1("memory", &group, MEMORY_V1)
        .v1("memory", &group, &[("memory.use_hierarchy", "0\n")])
        .v1("cpuacct", &group, &[("cpuacct.usage", "123456789\n"), ("cpuacct.stat", "user 7\nsystem 3\n")])
        .v1(
            "cpu",
            &group,
            &[
                ("cpu.stat", "nr_periods 8\nnr_throttled 2\nthrottled_time 70\n"),
                ("cpu.cfs_quota_us", "150000\n"),
                ("cpu.cfs_period_us", "100000\n"),
            ],
        )
        .v1("pids", &group, &[("pids.current", "4\n"), ("pids.max", "max\n")])
        .v1("blkio", &group, &[("blkio.throttle.io_service_bytes", "8:0 Read 100\n8:0 Write 50\nTotal 150\n")]);
    let facts = tree.look();
    assert_eq!(facts["layout"]["mode"], "v1");
    assert_eq!(
        facts["last"],
        json!({
            "cpu_ns": 123_456_789, "cpu_user_ns": 70_000_000, "cpu_system_ns": 30_000_000, "cpu_periods": 8,
            "cpu_throttled_periods": 2, "cpu_throttled_ns": 70, "mem_bytes": 20000, "mem_peak_bytes": 25000,
            "mem_inactive_file_bytes": 4000, "mem_active_file_bytes": 3000, "mem_anon_bytes": 7000,
            "mem_file_bytes": 9000, "mem_shmem_bytes": 200, "swap_bytes": 30, "mem_max_events": 3,
            "oom_kill_events": 1, "io_read_bytes": 100, "io_write_bytes": 50, "pids": 4,
        })
    );
    assert_eq!(facts["limits"]["cpu_cores"], json!({"value": 1.5, "group": format!("/{group}")}));
    assert_eq!(facts["limits"]["memory_bytes"], json!(null));
    assert!(facts["layout"]["notes"][0].as_str().expect("a note").starts_with("memory.use_hierarchy is 0"));
    assert_eq!(why(&facts, "cpu_some_ns"), "cgroup v1 does not have it");
}

#[test]
fn cpu_and_cpuacct_mounted_together() {
    let tree = Tree::new();
    let group = format!("kubepods/burstable/podab12/{ID}");
    let mounts = format!("{}{}", mount_v1("cpu,cpuacct"), mount_v1("memory"));
    tree.machine(&mounts, &v1_names("cpu,cpuacct", &format!("/{group}")))
        .v1(
            "cpu,cpuacct",
            &group,
            &[("cpuacct.usage", "77\n"), ("cpu.stat", "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n")],
        )
        .v1("memory", &group, MEMORY_V1)
        .v1(
            "memory",
            "kubepods/burstable/podab12",
            &[("memory.limit_in_bytes", "64000\n"), ("memory.usage_in_bytes", "21000\n")],
        )
        .v1("memory", "kubepods", &[("memory.limit_in_bytes", "900000\n")]);
    std::os::unix::fs::symlink("cpu,cpuacct", tree.path("/sys/fs/cgroup/cpu")).expect("a link");
    std::os::unix::fs::symlink("cpu,cpuacct", tree.path("/sys/fs/cgroup/cpuacct")).expect("a link");
    let facts = tree.look();
    assert_eq!((&facts["last"]["cpu_ns"], &facts["last"]["cpu_periods"]), (&json!(77), &json!(1)));
    let limit = json!({"value": 64000.0, "group": "/kubepods/burstable/podab12"});
    assert_eq!(facts["limits"]["memory_bytes"], limit);
    let above: Vec<_> =
        facts["limits"]["ancestors"].as_array().expect("a list").iter().map(|level| &level["group"]).collect();
    assert_eq!(above, ["/kubepods/burstable/podab12", "/kubepods"]);
    assert_eq!(facts["limits"]["ancestors"][0]["memory_current_bytes"], 21000);
    // Mounted by nobody: said, and no guess.
    assert_eq!(why(&facts, "pids"), "no cgroup has it");
}

fn hybrid(v1: &str, v2: &str) -> Tree {
    let tree = Tree::new();
    let mounts = format!("{}{}{}", mount_v1("memory"), mount_v1("cpuacct"), mount_v2("/sys/fs/cgroup/unified"));
    tree.machine(&mounts, &format!("4:memory:{v1}\n2:cpuacct:{v1}\n0::{v2}\n"));
    let pressure: Vec<_> =
        V2.iter().copied().filter(|file| file.0.ends_with("pressure") || file.0 == "cpu.stat").collect();
    tree.v2("unified", v2, &pressure).file(&format!("/sys/fs/cgroup/unified/{v2}/cgroup.controllers"), "");
    tree
}

#[test]
fn a_hybrids_v2_side_adds_what_v1_lacks() {
    let group = format!("/docker/{ID}");
    let tree = hybrid(&group, &group);
    tree.v1("memory", &group, MEMORY_V1).v1("cpuacct", &group, &[("cpuacct.usage", "123456789\n")]);
    let facts = tree.look();
    assert_eq!(facts["layout"]["mode"], "hybrid");
    assert_eq!(facts["last"]["cpu_ns"], 123_456_789, "v1's nanoseconds and not v2's microseconds");
    assert_eq!(facts["last"]["cpu_user_ns"], 3_000_000, "which v1 does not give here");
    assert_eq!((&facts["last"]["cpu_some_ns"], &facts["last"]["mem_full_ns"]), (&json!(40_000), &json!(1_000)));
    assert_eq!(facts["last"]["mem_bytes"], 20000);
    assert_eq!(why(&facts, "oom_events"), "cgroup v1 does not have it");
}

#[test]
fn a_group_that_others_share_is_not_the_containers() {
    let group = format!("/docker/{ID}");
    let tree = hybrid(&group, "/user.slice/session-1.scope");
    tree.v1("memory", &group, MEMORY_V1)
        .v1("memory", &group, &[("cgroup.procs", "4711\n4712\n")])
        .v1("cpuacct", &group, &[("cpuacct.usage", "5\n")])
        .file("/sys/fs/cgroup/unified/user.slice/session-1.scope/cgroup.procs", "4711\n99\n");
    let facts = tree.look();
    assert_eq!(facts["last"]["cpu_some_ns"], json!(null));
    assert!(why(&facts, "cpu_some_ns").contains("also has processes that are not in"), "{facts}");

    // With the container's processes only, it is its own, whatever its name.
    tree.file("/sys/fs/cgroup/unified/user.slice/session-1.scope/cgroup.procs", "4711\n4712\n");
    assert_eq!(tree.look()["last"]["cpu_some_ns"], 40_000);
}

#[test]
fn the_root_group_is_not_a_group_of_the_process() {
    let tree = Tree::new();
    let mounts = format!("{}{}{}", mount_v1("memory"), mount_v1("cpuacct"), mount_v2("/sys/fs/cgroup/unified"));
    tree.machine(&mounts, "4:memory:/job\n2:cpuacct:/\n0::/\n")
        .v1("memory", "job", MEMORY_V1)
        .v1("cpuacct", "", &[("cpuacct.usage", "999\n")])
        .file("/sys/fs/cgroup/unified/cpu.stat", "usage_usec 999\n");
    let facts = tree.look();
    assert_eq!((&facts["last"]["mem_bytes"], &facts["last"]["cpu_ns"]), (&json!(20000), &json!(null)));
    assert_eq!(why(&facts, "cpu_ns"), "cpuacct: it is in the root group, which is the whole machine");

    tree.machine(&mounts, "4:memory:/\n2:cpuacct:/\n0::/\n");
    let error = tree.sampler(json!({"kind": "cgroup", "pid": PID})).expect_err("nothing is left");
    assert!(error.to_string().contains("no controller of this group can be read"), "{error}");
}

#[test]
fn docker_and_podman_on_v2() {
    for (member, group) in [
        (format!("/system.slice/docker-{ID}.scope"), format!("/system.slice/docker-{ID}.scope")),
        (format!("/machine.slice/libpod-{ID}.scope/container"), format!("/machine.slice/libpod-{ID}.scope")),
        (format!("/docker/{ID}/init.scope"), format!("/docker/{ID}")),
    ] {
        let tree = Tree::new();
        tree.machine(&mount_v2("/sys/fs/cgroup"), &format!("0::{member}\n"));
        tree.v2("", &group, V2).v2("", &member, &[]).v2("", &group, &[("cpu.max", "50000 100000\n")]);
        let facts = tree.look();
        assert_eq!(facts["layout"]["mode"], "v2");
        assert_eq!(facts["layout"]["controllers"][0]["path"], json!(group));
        assert_eq!(facts["layout"]["notes"].as_array().expect("a list").len(), usize::from(member != group));
        assert_eq!(facts["limits"]["cpu_cores"]["value"], 0.5);
        let last = &facts["last"];
        assert_eq!(last.as_object().expect("values").len(), 32, "every column but proportional memory: {last}");
        assert_eq!((&last["cpu_ns"], &last["cpu_throttled_ns"]), (&json!(5_000_000), &json!(70_000)));
        assert_eq!((&last["mem_peak_bytes"], &last["mem_kernel_bytes"]), (&json!(25000), &json!(600)));
        assert_eq!(
            (&last["oom_events"], &last["oom_kill_events"], &last["io_reads"]),
            (&json!(2), &json!(1), &json!(2))
        );
    }
}

#[test]
fn the_smallest_limit_of_all_groups_above_counts() {
    let tree = Tree::new();
    let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_12.slice";
    let group = format!("{pod}/cri-containerd-{ID}.scope");
    tree.machine(&mount_v2("/sys/fs/cgroup"), &format!("0::{group}\n"));
    tree.v2("", &group, V2)
        .v2("", &group, &[("memory.max", "900000\n"), ("memory.high", "50000\n"), ("cpuset.cpus.effective", "0-3,8\n")])
        .v2(
            "",
            pod,
            &[("memory.max", "64000\n"), ("memory.current", "30000\n"), ("memory.events", "low 0\nhigh 0\nmax 7\n")],
        )
        .v2(
            "",
            "kubepods.slice",
            &[("cpu.max", "250000 100000\n"), ("pids.max", "1000\n"), ("memory.swap.max", "0\n")],
        );
    let limits = tree.look()["limits"].clone();
    assert_eq!(limits["memory_bytes"], json!({"value": 64000.0, "group": pod}));
    assert_eq!(limits["memory_high_bytes"]["value"], 50000.0);
    assert_eq!(limits["cpu_cores"], json!({"value": 2.5, "group": "/kubepods.slice"}));
    assert_eq!((&limits["pids"]["value"], &limits["swap_bytes"]["value"]), (&json!(1000.0), &json!(0.0)));
    assert_eq!(limits["cpuset_cpus"]["value"], 5.0);
    let of_pod = &limits["ancestors"][1];
    assert_eq!((&of_pod["memory_current_bytes"], &of_pod["memory_max_events"]), (&json!(30000), &json!(7)));
}

#[test]
fn older_kernels_say_what_they_lack() {
    let tree = Tree::new();
    tree.machine(&mount_v2("/sys/fs/cgroup"), "0::/job\n").v2(
        "",
        "job",
        &[
            ("cgroup.controllers", "memory\n"),
            ("cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n"),
            ("memory.current", "20000\n"),
            ("memory.stat", "anon 5\nfile 6\nkernel_stack 16\nslab 50\nshmem 1\ninactive_file 2\nactive_file 3\n"),
        ],
    );
    let facts = tree.look();
    assert_eq!((&facts["last"]["cpu_ns"], &facts["last"]["mem_kernel_bytes"]), (&json!(5000), &json!(66)));
    assert!(why(&facts, "mem_peak_bytes").ends_with("needs kernel 5.19"), "{facts}");
    assert!(why(&facts, "cpu_some_ns").contains("psi=1"));
    assert!(why(&facts, "mem_slab_reclaimable_bytes").ends_with("memory.stat does not have it"));
    assert!(why(&facts, "cpu_periods").ends_with("cpu.stat does not have it"));
    assert_eq!(why(&facts, "pids"), "the controller pids is not switched on for this group (it has: memory)");
}

#[test]
fn cgroup_namespaces_are_seen_through_or_told() {
    // A sampler in a container, its own group mounted as the root.
    let tree = Tree::new();
    tree.machine(&mount_v2("/sys/fs/cgroup"), "0::/\n").v2("", "", V2);
    let facts = tree.look();
    assert_eq!((&facts["last"]["mem_bytes"], &facts["layout"]["controllers"][0]["path"]), (&json!(20000), &json!("/")));

    // A process in another container.
    tree.machine(&mount_v2("/sys/fs/cgroup"), &format!("0::/../{ID}\n"));
    let error = tree.sampler(json!({"kind": "cgroup", "pid": PID})).expect_err("it cannot be seen").to_string();
    assert!(error.contains("outside of this process's cgroup namespace (start with --cgroupns=host)"), "{error}");

    // The host's namespace, but only one container's part of the hierarchy is mounted.
    let mounts = format!("9 8 0:29 /docker/{ID} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    tree.machine(&mounts, &format!("4:memory:/docker/{ID}/inner\n"));
    for (name, text) in MEMORY_V1 {
        tree.file(&format!("/sys/fs/cgroup/memory/{name}"), text);
    }
    assert_eq!(tree.look()["last"]["mem_peak_bytes"], 25000);
    tree.machine(&mounts, "4:memory:/docker/other\n");
    let error = tree.sampler(json!({"kind": "cgroup", "pid": PID})).expect_err("it cannot be seen").to_string();
    assert!(error.contains("no mount shows the group /docker/other"), "{error}");
}
