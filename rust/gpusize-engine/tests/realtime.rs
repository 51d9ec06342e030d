//! The engine against a small HTTP server of plain threads.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow_array::Array;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type, UInt64Type};
use engine_common::{LONG, at_rate, column, finish, hello, nowhere, open, plan, serve, target};
use gpusize_engine::engine::{Level, LevelOutcome, Session};
use gpusize_engine::spec::{Segment, TargetSpec};

#[test]
fn a_closed_loop_sends_exactly_the_count_with_any_number_of_workers() {
    let (port, seen) = serve(hello);
    for workers in [1, 2, 3] {
        let before = seen.load(Ordering::SeqCst);
        let session = open(port, workers);
        let level = session.level(plan(r#"{"closed":{"concurrency":5}}"#, r#"{"count":203}"#)).unwrap();
        let (outcome, rows) = finish(&level);
        assert_eq!(outcome.outcomes, [("ok", 203)].into());
        assert_eq!((outcome.stop_reason, outcome.rows, outcome.due, outcome.sent), ("count", 203, 203, 203));
        assert_eq!(seen.load(Ordering::SeqCst) - before, 203);
        let mut seq = column::<UInt64Type>(&rows, "seq");
        seq.sort_unstable();
        assert_eq!(seq, (0..203).collect::<Vec<_>>());
        let sent = column::<Int64Type>(&rows, "sent_ns");
        for (name, bound) in [("due_ns", &sent), ("fired_ns", &sent)] {
            assert!(column::<Int64Type>(&rows, name).iter().zip(bound).all(|(a, b)| a <= b), "{name}");
        }
        let first = column::<Int64Type>(&rows, "first_byte_ns");
        let end = column::<Int64Type>(&rows, "end_ns");
        assert!(sent.iter().zip(&first).zip(&end).all(|((s, f), e)| s <= f && f <= e));
        let (row, due) = (column::<UInt32Type>(&rows, "row"), column::<Int64Type>(&rows, "due_ns"));
        assert!(row.iter().all(|r| *r < 3));
        assert!(due.iter().all(|d| *d >= outcome.start_ns));
        assert_eq!((outcome.connects, outcome.reconnects), (5, 0));
        let connects = rows.iter().map(|b| b.num_rows() - b.column_by_name("connect_ns").unwrap().null_count());
        assert_eq!(connects.sum::<usize>(), 0, "connections were open before the window");
    }
}

#[test]
fn levels_go_on_without_a_pause_and_keep_their_connections() {
    let (port, _) = serve(hello);
    let session = open(port, 1);
    let levels: Vec<Level> = [2, 6, 3]
        .iter()
        .map(|c| {
            let load = format!(r#"{{"closed":{{"concurrency":{c},"start":"staggered","stagger_ns":1000000}}}}"#);
            session.level(plan(&load, r#"{"duration_ns":100000000}"#)).unwrap()
        })
        .collect();
    let ends: Vec<LevelOutcome> = levels.iter().map(|l| finish(l).0).collect();
    for pair in ends.windows(2) {
        assert!(pair[1].start_ns >= pair[0].close_ns);
    }
    for end in &ends {
        assert_eq!(end.stop_reason, "duration");
        assert_eq!(end.close_ns - end.start_ns, 100_000_000);
        // A thread that was stopped through a whole level has sent nothing in it.
        assert_eq!((end.due, end.rows), (end.sent, end.sent));
        assert!(end.outcomes.keys().all(|name| *name == "ok"), "{:?}", end.outcomes);
    }
    let connects: Vec<u64> = ends.iter().map(|e| e.connects).collect();
    assert_eq!(connects, [2, 4, 0], "a level opens only what it lacks");
}

#[test]
fn an_open_loop_sends_what_the_schedule_says() {
    let (port, seen) = serve(hello);
    for process in ["constant", "poisson"] {
        let mut schedules = Vec::new();
        for workers in [1, 2] {
            let before = seen.load(Ordering::SeqCst);
            let session = open(port, workers);
            let load = at_rate(2000, process, r#","connections":8"#);
            let level = session.level(plan(&load, r#"{"duration_ns":200000000}"#)).unwrap();
            let (outcome, rows) = finish(&level);
            let mut due: Vec<i64> = column::<Int64Type>(&rows, "due_ns").iter().map(|d| d - outcome.start_ns).collect();
            due.sort_unstable();
            assert_eq!(outcome.rows, due.len() as u64);
            assert_eq!(seen.load(Ordering::SeqCst) - before, due.len());
            assert!(due.iter().all(|d| (0..200_000_000).contains(d)));
            schedules.push(due);
        }
        assert!(schedules[0] == schedules[1], "the schedule depends on the number of workers");
        if process == "constant" {
            assert_eq!(schedules[0].len(), 400);
        }
    }
}

#[test]
fn what_finds_no_room_is_shed_and_counted() {
    let (port, _) = serve(|_, stream| {
        std::thread::park_timeout(Duration::from_millis(50));
        hello(0, stream)
    });
    let session = open(port, 1);
    let load = at_rate(2000, "constant", r#","connections":2,"queue":3"#);
    let level = session.level(plan(&load, r#"{"count":100,"max_error_share":0.0}"#)).unwrap();
    let (outcome, rows) = finish(&level);
    assert_eq!((outcome.rows, outcome.stop_reason), (100, "count"), "what was shed is no failure of the target");
    assert_eq!(outcome.outcomes["ok"] + outcome.outcomes["shed"], 100);
    assert!(outcome.outcomes["shed"] > 50, "{:?}", outcome.outcomes);
    let shed = rows[0].column_by_name("sent_ns").unwrap().null_count();
    assert_eq!(shed as u64, outcome.outcomes["shed"]);
}

#[test]
fn the_first_failure_closes_a_strict_level() {
    let (port, _) = serve(|n, stream| {
        if n == 7 {
            stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 21\r\n\r\n{\"message\":\"too busy\"}").is_ok()
        } else {
            hello(n, stream)
        }
    });
    let session = open(port, 1);
    let level =
        session.level(plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":1000,"max_error_share":0.0}"#)).unwrap();
    let (outcome, _) = finish(&level);
    assert_eq!((outcome.stop_reason, outcome.rows), ("errors", 8));
    let error = &outcome.errors[0];
    assert_eq!((error.status, error.message.as_str(), error.count), (503, "too busy", 1));
}

#[test]
fn a_closed_connection_is_replaced_and_the_request_not_lost() {
    // Every second answer says close; every fifth is followed by an unannounced one.
    let (port, seen) = serve(|n, stream| {
        if n % 2 == 1 {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
            return false;
        }
        hello(n, stream) && n % 5 != 0
    });
    let session = open(port, 1);
    let level = session.level(plan(r#"{"closed":{"concurrency":2}}"#, r#"{"count":100}"#)).unwrap();
    let (outcome, rows) = finish(&level);
    assert_eq!(outcome.outcomes, [("ok", 100)].into(), "{:?}", outcome.errors);
    assert!(outcome.connects >= 50 && seen.load(Ordering::SeqCst) == 100);
    let connects = rows[0].column_by_name("connect_ns").unwrap();
    assert_eq!((connects.len() - connects.null_count()) as u64 + 2, outcome.connects);
    assert_eq!(outcome.reconnects, outcome.connects - 2);
}

#[test]
fn stop_drains_then_cancels_and_keeps_everything() {
    let (port, _) = serve(|n, stream| {
        n < 3 && hello(n, stream) || {
            std::thread::park();
            false
        }
    });
    let session = open(port, 1);
    let level = session.level(plan(r#"{"closed":{"concurrency":3}}"#, r#"{"count":1000}"#)).unwrap();
    while level.poll().sent < 6 {
        std::thread::yield_now();
    }
    level.stop(20_000_000);
    let (outcome, rows) = finish(&level);
    assert_eq!(outcome.stop_reason, "cancelled");
    assert_eq!(outcome.outcomes, [("ok", 3), ("cancelled", 3)].into());
    assert_eq!(column::<UInt8Type>(&rows, "outcome").len(), 6);
}

#[test]
fn a_silent_server_is_a_timeout() {
    let (port, _) = serve(|_, _| {
        std::thread::park();
        false
    });
    let session = Session::open(target(port, r#","timeout_ns":30000000"#), vec![], vec![vec![]], 1).unwrap();
    let level = session.level(plan(r#"{"closed":{"concurrency":2}}"#, r#"{"count":4}"#)).unwrap();
    let (outcome, rows) = finish(&level);
    assert_eq!(outcome.outcomes, [("timeout", 4)].into());
    let (sent, end) = (column::<Int64Type>(&rows, "sent_ns"), column::<Int64Type>(&rows, "end_ns"));
    assert!(sent.iter().zip(end).all(|(s, e)| e - s >= 30_000_000));
}

#[test]
fn a_refused_connection_is_an_outcome_with_its_reason() {
    let (port, _kept) = nowhere();
    let session = open(port, 1);
    let probe = session.probe().unwrap();
    let probe = std::iter::from_fn(|| Some(probe.wait(LONG))).flatten().next().unwrap();
    assert_eq!(probe.outcome, "connect_error");
    assert!(probe.message.unwrap().contains("refused"));
}

#[test]
fn a_stream_is_stamped_event_by_event() {
    let (port, _) = serve(|_, stream| {
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        if stream.write_all(head).is_err() {
            return false;
        }
        for data in [r#"{"c":""}"#, r#"{"c":"a"}"#, r#"{"c":"b"}"#, r#"{"c":"c","u":{"o":3}}"#, "[DONE]"] {
            let event = format!("data: {data}\n\n");
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            let (a, b) = chunk.split_at(chunk.len() / 2);
            if stream.write_all(a.as_bytes()).is_err() || stream.write_all(b.as_bytes()).is_err() {
                return false;
            }
        }
        stream.write_all(b"0\r\n\r\n").is_ok()
    });
    let response = r#","response":{"content":["/c"],"tokens_out":"/u/o","end":"[DONE]"}"#;
    let segments = vec![Segment::Static("x".into())];
    let session = Session::open(target(port, response), segments, vec![vec![]], 1).unwrap();
    let level = session.level(plan(r#"{"closed":{"concurrency":2}}"#, r#"{"count":20}"#)).unwrap();
    let (outcome, rows) = finish(&level);
    assert_eq!(outcome.outcomes, [("ok", 20)].into(), "{:?}", outcome.errors);
    assert_eq!(column::<UInt32Type>(&rows, "events"), vec![3; 20]);
    assert_eq!(column::<UInt32Type>(&rows, "tokens_out"), vec![3; 20]);
    let gaps: u64 = outcome.histograms["itl"].iter().map(|b| b.2).sum();
    assert_eq!(gaps, 40);
}

#[test]
fn plans_that_cannot_be_meant_are_refused() {
    let (port, _) = serve(hello);
    let session = open(port, 1);
    for (load, stop) in [
        (r#"{"closed":{"concurrency":0}}"#.to_owned(), r#"{"count":1}"#),
        (r#"{"closed":{"concurrency":1}}"#.to_owned(), "{}"),
        (at_rate(0, "constant", ""), r#"{"count":1}"#),
        (at_rate(1, "constant", ""), r#"{"duration_ns":0}"#),
    ] {
        assert!(session.level(plan(&load, stop)).is_err(), "{load} {stop}");
    }
    assert!(Session::open(target(port, ""), vec![], vec![vec![]], 0).is_err());
    let nowhere = TargetSpec { host: "no-such-host.invalid".into(), ..target(port, "") };
    assert!(Session::open(nowhere, vec![], vec![vec![]], 1).is_err());
}
