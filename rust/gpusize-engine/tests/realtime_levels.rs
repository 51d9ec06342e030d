//! Levels that follow, overlap and interrupt each other: nothing hangs, nothing is sent after a stop.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;
#[path = "../../gpusize-base/src/test_folder.rs"]
mod test_folder;

use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::types::UInt64Type;
use engine_common::{at_rate, column, finish, hello, open, plan, serve, target};
use gpusize_engine::engine::{Level, Session};
use gpusize_engine::spec::TargetSpec;
use gpusize_load::stop::Reason;

/// Far longer than anything here takes, far shorter than the pauses that must not be waited for.
const SOON: Duration = Duration::from_secs(20);

fn silent(_: usize, _: &mut TcpStream) -> bool {
    std::thread::park();
    false
}

fn closed(session: &Session, more: &str, stop: &str) -> Level {
    session.level(plan(&format!(r#"{{"closed":{{{more}}}}}"#), stop)).unwrap()
}

fn until(level: &Level, sent: u64) {
    while level.poll().sent < sent {
        std::thread::yield_now();
    }
}

#[test]
fn workers_without_a_slot_neither_hang_nor_keep_requests() {
    let (port, _) = serve(hello);
    let session = open(port, 4);
    let probe = session.probe().unwrap();
    assert_eq!(probe.wait(SOON).expect("the probe ends").outcome, "ok");
    for start in ["burst", "staggered"] {
        let levels: Vec<Level> = [2, 1, 6, 3, 4]
            .map(|c| {
                let load = format!(r#""concurrency":{c},"start":"{start}","stagger_ns":100000"#);
                closed(&session, &load, r#"{"count":51}"#)
            })
            .into();
        for level in levels {
            assert!(level.wait(SOON), "the level ended");
            let (outcome, rows) = finish(&level);
            assert_eq!((outcome.outcomes, outcome.workers), ([("ok", 51)].into(), 4));
            let mut seq = column::<UInt64Type>(&rows, "seq");
            seq.sort_unstable();
            assert_eq!(seq, (0..51).collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_seconds_of_a_level_add_up_to_its_outcome() {
    let (port, _) = serve(|n, stream| {
        if n % 5 == 0 {
            return stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").is_ok();
        }
        hello(n, stream)
    });
    let dir = test_folder::fresh("seconds");
    std::fs::create_dir_all(dir.join("records")).unwrap();
    let session = open(port, 2);
    let mut asked = plan(&at_rate(400, "poisson", r#","connections":4"#), r#"{"count":900}"#);
    asked.dir = Some(dir.join("records").display().to_string());
    asked.sample = 50;
    let level = session.level(asked).unwrap();
    let mut live = Vec::new();
    while !level.wait(Duration::from_millis(20)) {
        live.extend(level.seconds(live.len() as u32));
    }
    assert!(!live.is_empty(), "seconds are told while the level runs");
    let progress = level.poll();
    assert_eq!((progress.waiting, progress.shed, progress.close_after_ns), (0, 0, None));
    live.extend(level.seconds(live.len() as u32));
    let outcome = level.outcome().unwrap();
    assert!(live.iter().enumerate().all(|(i, second)| second.second as usize == i), "each once, in order");
    let sum = |of: &dyn Fn(&gpusize_engine::record::feed::Second) -> u64| live.iter().map(of).sum::<u64>();
    assert_eq!((sum(&|s| s.due), sum(&|s| s.sent), sum(&|s| s.done)), (900, 900, 900));
    for name in ["ok", "http_error"] {
        assert_eq!(sum(&|s| s.outcomes.get(name).copied().unwrap_or(0)), outcome.outcomes[name]);
    }
    for (metric, times) in &outcome.histograms {
        let all: u64 = times.iter().map(|b| b.2).sum();
        assert_eq!(sum(&|s| s.times[metric].iter().map(|b| b.2).sum()), all, "{metric}");
        let want = match *metric {
            "runtime" | "service" => outcome.outcomes["ok"],
            "lateness" | "pacer_late" | "no_connection" => 900,
            _ => 0,
        };
        assert_eq!(all, want, "{metric}");
    }
    assert_eq!(live.last().map(|s| s.in_flight), Some(0));
    assert_eq!((outcome.rows, outcome.sampled, outcome.outcomes.values().sum()), (18, 50, 900));
    assert!(outcome.second_parts.len() == 1 && outcome.histogram_parts == ["part-00000.parquet"]);
    assert!(dir.join("seconds/part-00000.parquet").is_file());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_think_time_holds_up_neither_the_end_nor_the_next_level() {
    let (port, _) = serve(hello);
    let session = open(port, 1);
    let hour = 3_600_000_000_000_i64;
    let first = closed(&session, &format!(r#""concurrency":2,"think":{{"fixed":{hour}}}"#), r#"{"count":2}"#);
    let late = closed(
        &session,
        &format!(r#""concurrency":4,"start":"staggered","stagger_ns":{hour}"#),
        r#"{"duration_ns":1000000000}"#,
    );
    let open = session.level(plan(&at_rate(1000, "constant", r#","connections":4"#), r#"{"count":20}"#)).unwrap();
    let again = closed(&session, r#""concurrency":3,"start":"staggered","stagger_ns":1000"#, r#"{"count":9}"#);
    for (level, ok) in [(&first, 2), (&late, 1), (&open, 20), (&again, 9)] {
        assert!(level.wait(SOON), "the level ended");
        let outcome = level.outcome().unwrap();
        assert!(outcome.outcomes["ok"] >= ok && outcome.outcomes.len() == 1, "{:?}", outcome.outcomes);
    }
}

/// Takes connections, and never shakes hands.
fn handshakes_that_hang() -> (TargetSpec, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = r#","tls":{"server_name":"localhost","insecure":true},"connect_timeout_ns":3600000000000"#;
    (target(listener.local_addr().unwrap().port(), tls), listener)
}

#[test]
fn a_stop_ends_a_level_whose_connections_do_not_open() {
    let (target, listener) = handshakes_that_hang();
    let session = Session::open(target, vec![], vec![vec![]], 2).unwrap();
    let level = closed(&session, r#""concurrency":3"#, r#"{"count":3}"#);
    let next = closed(&session, r#""concurrency":3"#, r#"{"count":3}"#);
    let _held: Vec<_> = (0..3).map(|_| listener.accept().unwrap()).collect();
    level.stop(3_600_000_000_000);
    assert!(level.wait(SOON), "there is nothing to drain");
    let outcome = level.outcome().unwrap();
    assert_eq!((outcome.stop_reason, outcome.due), ("stopped", 0));
    let _held: Vec<_> = (0..3).map(|_| listener.accept().unwrap()).collect();
    drop(session);
    assert!(next.wait(SOON) && next.outcome().unwrap().rows == 0);
}

#[test]
fn closing_the_session_records_what_runs_and_ends_what_waits() {
    let (port, _) = serve(silent);
    let mut session = open(port, 2);
    let running = closed(&session, r#""concurrency":3"#, r#"{"count":1000}"#);
    let queued = closed(&session, r#""concurrency":3"#, r#"{"count":1000}"#);
    until(&running, 3);
    session.close();
    let (outcome, _) = finish(&running);
    assert_eq!((outcome.stop_reason, outcome.outcomes), ("cancelled", [("cancelled", 3)].into()));
    assert_eq!(finish(&queued).0.stop_reason, "stopped");
    let more = plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":1}"#);
    assert!(session.level(more).is_err());
}

#[test]
fn each_of_queued_draining_and_running_levels_can_be_stopped() {
    let (port, _) = serve(silent);
    let session = open(port, 2);
    let stagger = r#""concurrency":3,"start":"staggered","stagger_ns":1000"#;
    let draining = closed(&session, stagger, r#"{"duration_ns":1000000000}"#);
    let running = closed(&session, r#""concurrency":8,"start":"staggered","stagger_ns":1000"#, r#"{"count":1000}"#);
    let queued = closed(&session, stagger, r#"{"count":1000}"#);
    queued.stop(0);
    assert_eq!((finish(&queued).0.stop_reason, queued.poll().state), ("stopped", "done"));
    until(&running, 5);
    assert_eq!(draining.poll().state, "draining");
    draining.stop(0);
    assert_eq!(finish(&draining).0.outcomes, [("cancelled", 3)].into());
    running.stop(3_600_000_000_000);
    assert!(!running.wait(Duration::from_millis(50)), "it drains");
    running.stop(0);
    let (outcome, _) = finish(&running);
    assert_eq!((outcome.stop_reason, outcome.due), ("cancelled", outcome.rows));
}

#[test]
fn a_reason_that_comes_after_the_end_changes_nothing() {
    // Each worker has a connection, and so many answers on each are given.
    let answers = Arc::new(AtomicUsize::new(10));
    let asked = Arc::<Mutex<HashMap<SocketAddr, usize>>>::default();
    let (given, counts) = (answers.clone(), asked.clone());
    let (port, seen) = serve(move |_, stream| {
        let number = {
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(stream.peer_addr().unwrap()).or_default();
            *count += 1;
            *count
        };
        while given.load(Ordering::SeqCst) < number {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        hello(0, stream)
    });
    let session = open(port, 2);
    let load = at_rate(20_000, "constant", r#","connections":2"#);
    let level = session.level(plan(&load, r#"{"count":100}"#)).unwrap();
    while level.poll().due < 100 {
        std::thread::yield_now();
    }
    // A worker that has read some answers after its last request was due has said that it is through.
    answers.store(15, Ordering::SeqCst);
    while asked.lock().unwrap().values().filter(|count| **count == 16).count() < 2 {
        std::thread::yield_now();
    }
    assert_eq!(level.poll().state, "draining");
    level.stop_for(0, Reason::Saturation);
    // What is asked for later is done later.
    let other = closed(&session, r#""concurrency":1"#, r#"{"count":1}"#);
    other.stop(0);
    finish(&other);
    answers.store(usize::MAX, Ordering::SeqCst);
    let (outcome, _) = finish(&level);
    assert_eq!((outcome.stop_reason, outcome.outcomes), ("count", [("ok", 100)].into()));
    assert_eq!(seen.load(Ordering::SeqCst), 100);
}

#[test]
fn what_waits_for_a_connection_is_not_sent_after_a_stop() {
    let (port, seen) = serve(|_, stream| {
        std::thread::park_timeout(Duration::from_millis(20));
        hello(0, stream)
    });
    let session = open(port, 1);
    let load = at_rate(5000, "constant", r#","connections":1,"queue":100000"#);
    let level = session.level(plan(&load, r#"{"count":100000}"#)).unwrap();
    while level.poll().due < 500 {
        std::thread::yield_now();
    }
    level.stop(3_600_000_000_000);
    let (outcome, _) = finish(&level);
    assert_eq!(outcome.outcomes["cancelled"], outcome.due - outcome.sent);
    assert_eq!(outcome.sent, seen.load(Ordering::SeqCst) as u64);
    assert!(outcome.sent * 5 < outcome.due, "{} of {}", outcome.sent, outcome.due);
}

#[test]
fn connects_that_fail_at_once_leave_the_thread_its_turn() {
    // TCP to a multicast address is refused by the system before anything is sent.
    let nowhere = TargetSpec { host: "224.0.0.1".into(), ..target(9, "") };
    let session = Session::open(nowhere, vec![], vec![vec![]], 1).unwrap();
    let level = closed(&session, r#""concurrency":2"#, r#"{"count":1000000000}"#);
    while level.poll().due < 10 {
        std::thread::yield_now();
    }
    level.stop(0);
    assert!(level.wait(SOON), "the stop was heard");
    assert!(level.outcome().unwrap().outcomes["connect_error"] >= 10);
}

#[test]
fn a_level_after_one_that_failed_runs_on() {
    let (port, _) = serve(|n, stream| {
        if n == 5 {
            stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").is_ok()
        } else {
            hello(n, stream)
        }
    });
    let session = open(port, 2);
    let strict = closed(&session, r#""concurrency":2"#, r#"{"count":100,"max_error_share":0.0}"#);
    let next = closed(&session, r#""concurrency":5,"start":"staggered""#, r#"{"count":50}"#);
    assert_eq!(finish(&strict).0.stop_reason, "errors");
    assert_eq!(finish(&next).0.outcomes["ok"], 50);
}
