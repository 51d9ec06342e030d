//! What has threads, in a process forked from the one that started them.
#![allow(unsafe_code, clippy::unwrap_used)] // fork; a failed helper is a failed test

mod engine_common;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use engine_common::{LONG, hello, open, serve};
use gpusize_engine::null_server::NullServer;
use gpusize_sampler::Sampler;
use gpusize_simulator::{ClusterConfig, SimServer};

/// Do something in a child, which has to come to its end.
fn in_a_child(work: impl FnOnce()) {
    // SAFETY: the child only drops what it has and ends; glibc keeps its allocator usable after a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: plain system calls; an alarm ends a child that hangs, by a signal.
        unsafe { libc::alarm(60) };
        work();
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "status {status}");
}

/// What the thread of this name does: `S` is asleep, `R` runs or wants to. None until it has begun.
fn state_of(thread: &str) -> Option<String> {
    let stats = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("stat"));
    let stat = stats.filter_map(|path| std::fs::read_to_string(path).ok()).find(|stat| stat.contains(thread))?;
    Some(stat.rsplit_once(") ").unwrap().1[..1].to_owned())
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

#[test]
fn a_child_that_drops_its_parents_session_does_not_wait_for_threads_it_lacks() {
    let (port, _) = serve(hello);
    let mut session = open(port, 2);
    in_a_child(|| session.close());
    session.close();
}

#[test]
fn a_child_that_drops_its_parents_sampler_does_not_keep_the_parents_thread_awake() {
    let plan = r#"{"interval_ns": 3600000000000, "sources": [{"name": "a", "kind": "host"}]}"#;
    let mut sampler = Some(Sampler::start(serde_json::from_str(plan).unwrap()).unwrap());
    in_a_child(|| drop(sampler.take()));
    let begun = Instant::now();
    // A thread that a waker of the child's woke would find it ringing for ever.
    while state_of("gpusize-sampler").as_deref() != Some("S") {
        assert!(begun.elapsed() < LONG / 4, "the sampler's thread never sleeps again");
        std::thread::yield_now();
    }
    let facts = sampler.unwrap().stop();
    assert_eq!(facts["sources"]["a"]["readings"], 2, "the first reading and the last");
}

#[test]
fn a_child_that_drops_its_parents_servers_ends_and_leaves_them_serving() {
    let mut null = Some(NullServer::start(anywhere(), 2).unwrap());
    let mut cluster = Some(SimServer::start(ClusterConfig::default(), anywhere()).unwrap());
    in_a_child(|| {
        let cluster = cluster.take().unwrap();
        assert!(cluster.stats_json().is_err() && cluster.stop().is_err());
        drop((cluster, null.take()));
    });
    let (null, cluster) = (null.unwrap(), cluster.unwrap());
    for address in [null.local_addr(), cluster.local_addr()] {
        TcpStream::connect(address).unwrap();
    }
    assert!(cluster.stats_json().unwrap().starts_with('{'));
    null.stop();
    cluster.stop().unwrap();
}
