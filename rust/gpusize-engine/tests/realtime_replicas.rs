//! Several addresses of one service: who gets which request, and what one that is down does to the others.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;
mod http2_common;

use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use engine_common::{at_rate, column, finish, hello, nowhere, plan, serve};
use gpusize_engine::engine::{LevelOutcome, Session};
use gpusize_engine::outcome::Outcome;
use gpusize_engine::spec::TargetSpec;
use http2_common::{Call, Rules};

fn target(ports: &[u16], more: &str) -> TargetSpec {
    let replicas: Vec<String> = ports[1..].iter().map(|p| format!(r#"{{"host":"127.0.0.1","port":{p}}}"#)).collect();
    let (first, replicas) = (ports[0], replicas.join(","));
    let json =
        format!(r#"{{"host":"localhost","port":{first},"method":"GET","path":"/","replicas":[{replicas}]{more}}}"#);
    serde_json::from_str(&json).unwrap()
}

fn run(target: TargetSpec, workers: usize, load: &str, count: u32) -> (LevelOutcome, Vec<RecordBatch>) {
    let session = Session::open(target, vec![], vec![vec![]], workers).unwrap();
    finish(&session.level(plan(load, &format!(r#"{{"count":{count}}}"#))).unwrap())
}

fn closed(concurrency: u32) -> String {
    format!(r#"{{"closed":{{"concurrency":{concurrency}}}}}"#)
}

fn counts(rows: &[RecordBatch], addresses: usize) -> Vec<usize> {
    let chosen = column::<UInt16Type>(rows, "target");
    (0..addresses).map(|a| chosen.iter().filter(|t| usize::from(**t) == a).count()).collect()
}

#[test]
fn round_robin_gives_every_address_its_exact_share() {
    let servers = [serve(hello), serve(hello), serve(hello)];
    let ports = servers.each_ref().map(|s| s.0);
    for (workers, load) in [
        (1, closed(1)),
        (1, closed(7)),
        (2, closed(4)),
        (3, closed(64)),
        (2, at_rate(20_000, "constant", r#","connections":8"#)),
    ] {
        let before = servers.each_ref().map(|s| s.1.load(Ordering::SeqCst));
        let (outcome, rows) = run(target(&ports, ""), workers, &load, 301);
        assert_eq!(outcome.outcomes, [("ok", 301)].into(), "{:?}", outcome.errors);
        assert_eq!(counts(&rows, 3), [101, 100, 100]);
        let after = servers.each_ref().map(|s| s.1.load(Ordering::SeqCst));
        assert_eq!(after.iter().zip(before).map(|(a, b)| a - b).collect::<Vec<_>>(), [101, 100, 100]);
        let (seq, chosen) = (column::<UInt64Type>(&rows, "seq"), column::<UInt16Type>(&rows, "target"));
        assert!(seq.iter().zip(chosen).all(|(s, t)| s % 3 == u64::from(t)));
        assert_eq!(outcome.reconnects, 0, "a slot keeps a connection to each address");
    }
}

#[test]
fn first_connections_are_open_before_the_window() {
    let servers = [serve(hello), serve(hello)];
    let ports = servers.each_ref().map(|s| s.0);
    for (workers, streams) in [(1, 4), (2, 4)] {
        let (outcome, rows) = run(target(&ports, ""), workers, &closed(streams), streams);
        assert_eq!(outcome.connects, u64::from(streams));
        let connects = rows.iter().map(|b| b.num_rows() - b.column_by_name("connect_ns").unwrap().null_count());
        assert_eq!(connects.sum::<usize>(), 0);
    }
}

#[test]
fn the_least_outstanding_address_gets_the_request() {
    // It has four of eight and keeps them so long that a quarter of all would take it half a minute, whatever the other takes.
    let slow = |_: usize, stream: &mut TcpStream| {
        std::thread::park_timeout(Duration::from_secs(1));
        hello(0, stream)
    };
    let (fast, slow) = (serve(hello), serve(slow));
    let more = r#","balance":"least_outstanding""#;
    for workers in [1, 2] {
        let (outcome, rows) = run(target(&[slow.0, fast.0], more), workers, &closed(8), 400);
        assert_eq!(outcome.outcomes, [("ok", 400)].into());
        let shares = counts(&rows, 2);
        assert!(shares[0] > 0 && shares[1] > 3 * shares[0], "{shares:?}");
    }
    let (_, rows) = run(target(&[fast.0, serve(hello).0], more), 1, &closed(1), 100);
    assert_eq!(counts(&rows, 2), [50, 50], "equals take turns");
}

#[test]
fn an_address_that_is_down_fails_its_own_requests_only() {
    for transport in ["http1", "http2"] {
        let first = http2_common::serve(Rules::default(), async |call: Call| call.say(200, "application/json", "{}"));
        let port = if transport == "http1" { serve(hello).0 } else { first.port };
        let more = format!(r#","transport":"{transport}""#);
        let (nobody, _kept) = nowhere();
        let (outcome, rows) = run(target(&[port, nobody, port], &more), 2, &closed(6), 300);
        assert_eq!(outcome.outcomes, [("connect_error", 100), ("ok", 200)].into(), "{:?}", outcome.errors);
        let (chosen, outcomes) = (column::<UInt16Type>(&rows, "target"), column::<UInt8Type>(&rows, "outcome"));
        assert!(chosen.iter().zip(outcomes).all(|(t, o)| (*t == 1) == (o == Outcome::ConnectError as u8)));
    }
}

#[test]
fn shared_connections_are_shared_by_address() {
    let servers: Vec<_> = (0..2)
        .map(|_| http2_common::serve(Rules::default(), async |call: Call| call.say(200, "application/json", "{}")))
        .collect();
    let ports: Vec<u16> = servers.iter().map(|s| s.port).collect();
    let (outcome, rows) = run(target(&ports, r#","transport":"http2","streams":4"#), 1, &closed(8), 200);
    assert_eq!(outcome.outcomes, [("ok", 200)].into(), "{:?}", outcome.errors);
    assert_eq!(counts(&rows, 2), [100, 100]);
    for server in &servers {
        assert_eq!(server.requests.load(Ordering::SeqCst), 100);
        assert!((1..=2).contains(&server.connections.load(Ordering::SeqCst)), "8 slots in groups of 4");
    }
    let pairs = column::<UInt32Type>(&rows, "conn").into_iter().zip(column::<UInt16Type>(&rows, "target"));
    let of: std::collections::HashMap<u32, u16> = pairs.clone().collect();
    assert!(pairs.into_iter().all(|(c, t)| of[&c] == t), "a connection has one address");
}

#[test]
fn every_address_is_resolved_before_anything_is_sent() {
    let mut broken = target(&[serve(hello).0, 80], "");
    broken.replicas[0].host = "no-such-host.invalid".into();
    let error = Session::open(broken, vec![], vec![vec![]], 1).unwrap_err();
    let gpusize_base::error::Error::Target { place, .. } = error else { panic!("{error:?}") };
    assert_eq!(place, "no-such-host.invalid:80");
}
