//! Requests that are due and find no free connection: who sends them, and what becomes of them when nobody answers.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use arrow_array::types::{Int64Type, UInt64Type};
use engine_common::{at_rate, column, finish, plan, serve, target};
use gpusize_engine::engine::Session;

const REQUESTS: u64 = 40;

fn silent(_: usize, _: &mut TcpStream) -> bool {
    std::thread::park();
    false
}

/// Answers nothing on its first connection until all other requests have been answered.
fn stalls_on_the_first_connection() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answered = Arc::new((Mutex::new(0), Condvar::new()));
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (Ok(mut stream), answered) = (stream, answered.clone()) else { return };
            std::thread::spawn(move || {
                let (count, changed) = &*answered;
                let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    held.extend_from_slice(&buffer[..n]);
                    while let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") {
                        held.drain(..end + 4);
                        if number == 0 {
                            let all = |count: &mut u64| *count < REQUESTS - 1;
                            drop(changed.wait_while(count.lock().unwrap(), all).unwrap());
                        }
                        *count.lock().unwrap() += 1;
                        changed.notify_all();
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
                    }
                }
            });
        }
    });
    port
}

#[test]
fn what_waits_behind_a_stalled_connection_is_sent_by_the_other_worker() {
    let port = stalls_on_the_first_connection();
    // Every second request belongs to the worker whose only connection stalls.
    let target = target(port, r#","timeout_ns":20000000000"#);
    let session = Session::open(target, vec![], vec![vec![]], 2).unwrap();
    let load = at_rate(500, "constant", r#","connections":2,"queue":1000"#);
    let (outcome, rows) = finish(&session.level(plan(&load, &format!(r#"{{"count":{REQUESTS}}}"#))).unwrap());
    assert_eq!(outcome.outcomes, [("ok", REQUESTS)].into());
    let mut seqs = column::<UInt64Type>(&rows, "seq");
    seqs.sort_unstable();
    assert_eq!(seqs, (0..REQUESTS).collect::<Vec<_>>(), "each once");
}

#[test]
fn a_silent_servers_queue_ends_with_its_level_and_not_after_thousands_of_timeouts() {
    let (port, _) = serve(silent);
    let target = target(port, r#","timeout_ns":50000000"#);
    let session = Session::open(target, vec![], vec![vec![]], 1).unwrap();
    let load = at_rate(20_000, "constant", r#","connections":2,"queue":1000000"#);
    let (outcome, rows) = finish(&session.level(plan(&load, r#"{"duration_ns":100000000}"#)).unwrap());
    assert_eq!((outcome.due, &outcome.outcomes), (2_000, &[("timeout", 2_000)].into()));
    assert!(outcome.sent < 100, "{} of 2,000 were sent, each for a timeout of its own", outcome.sent);
    assert_eq!(rows.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), 2_000);
}

#[test]
fn a_timeout_of_5_ms_is_not_one_of_10() {
    let (port, _) = serve(silent);
    let target = target(port, r#","timeout_ns":5000000"#);
    let session = Session::open(target, vec![], vec![vec![]], 1).unwrap();
    let load = r#"{"closed":{"concurrency":1}}"#;
    let level = session.level(plan(load, r#"{"count":60}"#)).unwrap();
    assert!(level.wait(Duration::from_secs(60)));
    let rows = level.rows().unwrap();
    let (sent, end) = (column::<Int64Type>(&rows, "sent_ns"), column::<Int64Type>(&rows, "end_ns"));
    let took_ns = sent.iter().zip(&end).map(|(sent, end)| end - sent);
    // However busy the machine is, some of them find it idle.
    let least_ns = took_ns.min().unwrap();
    assert!((5_000_000..7_500_000).contains(&least_ns), "{least_ns} ns");
}
