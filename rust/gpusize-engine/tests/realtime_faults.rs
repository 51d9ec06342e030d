//! The engine against servers that misbehave: every request has one record, and each record says what happened.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use engine_common::{LONG, at_rate, column, finish, hello, plan, serve, target};
use gpusize_base::draw::Draw;
use gpusize_engine::engine::{LevelOutcome, Session};
use gpusize_engine::spec::{Segment, TargetSpec};

fn run(target: TargetSpec, segments: Vec<Segment>, load: &str, stop: &str) -> (LevelOutcome, Vec<RecordBatch>) {
    let session = Session::open(target, segments, vec![vec![]], 1).unwrap();
    finish(&session.level(plan(load, stop)).unwrap())
}

/// Outcomes and first message of `count` requests, one after another.
fn one_by_one(target: TargetSpec, count: u32) -> (Vec<&'static str>, String, Vec<RecordBatch>) {
    let stop = format!(r#"{{"count":{count}}}"#);
    let (outcome, rows) = run(target, vec![], r#"{"closed":{"concurrency":1}}"#, &stop);
    let names = column::<UInt8Type>(&rows, "outcome");
    let names = names.iter().map(|o| gpusize_engine::outcome::Outcome::ALL[*o as usize].name()).collect();
    (names, outcome.errors.first().map(|e| e.message.clone()).unwrap_or_default(), rows)
}

/// One of a dozen behaviours, by the request's number.
fn misbehave(draw: Draw, n: usize, stream: &mut TcpStream) -> bool {
    let mut say = |text: &[u8]| stream.write_all(text).is_ok();
    match draw.u64(n as u64) % 14 {
        0 => say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
        1 => !say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"),
        2 => !say(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"),
        3 => say(b"nonsense\r\n\r\n"),
        4 => say(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno"),
        5 => say(b"HTTP/1.1 204 None\r\n\r\n"),
        6 => !say(b"HTTP/1.1 100 Continue\r\n\r\n"),
        7 => say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
        8 => false,
        9 => {
            // Never answered: a timeout.
            std::thread::park_timeout(Duration::from_millis(100));
            false
        }
        10 => {
            let split = say(b"HTTP/1.1 200 OK\r\nContent-Le");
            std::thread::yield_now();
            split && stream.write_all(b"ngth: 3\r\n\r\nabc").is_ok()
        }
        _ => hello(n, stream),
    }
}

fn stamps_are_in_order(rows: &[RecordBatch]) {
    let names = ["due_ns", "fired_ns", "sent_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "end_ns"];
    for batch in rows {
        let columns = names.map(|name| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>());
        for row in 0..batch.num_rows() {
            let times: Vec<i64> = columns.iter().filter(|c| c.is_valid(row)).map(|c| c.value(row)).collect();
            assert!(times.is_sorted(), "row {row}: {times:?} of {names:?}");
            assert!(columns[6].is_valid(row), "a request without an end");
        }
    }
}

#[test]
fn every_request_has_one_record_whatever_the_server_does() {
    let loads = [
        r#"{"closed":{"concurrency":7}}"#.to_owned(),
        r#"{"closed":{"concurrency":2,"think":{"fixed":100000},"start":"staggered","stagger_ns":1000000}}"#.to_owned(),
        at_rate(4000, "poisson", r#","connections":5,"queue":20"#),
    ];
    for seed in 0..3_u64 {
        let draw = Draw::new(seed, 0, 0);
        let (port, _) = serve(move |n, stream| misbehave(draw, n, stream));
        let workers = 1 + seed as usize;
        let target = target(port, r#","timeout_ns":40000000"#);
        let session = Session::open(target, vec![], vec![vec![], vec![]], workers).unwrap();
        let levels = loads.each_ref().map(|load| session.level(plan(load, r#"{"count":150}"#)).unwrap());
        for level in &levels {
            let (outcome, rows) = finish(level);
            assert_eq!((outcome.due, outcome.rows, outcome.outcomes.values().sum()), (150, 150, 150_u64));
            let mut seq = column::<UInt64Type>(&rows, "seq");
            seq.sort_unstable();
            assert_eq!(seq, (0..150).collect::<Vec<_>>(), "seed {seed}");
            let named: u64 = outcome.errors.iter().map(|e| e.count).sum();
            let shed = outcome.outcomes.get("shed").unwrap_or(&0);
            let ok = outcome.outcomes.get("ok").unwrap_or(&0);
            assert_eq!(named + shed + ok, 150, "each failure has its message");
            stamps_are_in_order(&rows);
        }
    }
}

#[test]
fn an_answer_that_comes_before_the_request_is_out_is_read() {
    const BODY: usize = 32 << 20;
    for closes in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 64]).unwrap();
            let answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 21\r\n\r\n{\"message\":\"too big\"}";
            stream.write_all(answer).unwrap();
            if closes {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            stream
        });
        let segments = vec![Segment::Static("x".repeat(BODY))];
        let target = TargetSpec { method: "POST".into(), ..target(port, r#","timeout_ns":60000000000"#) };
        let (outcome, rows) = run(target, segments, r#"{"closed":{"concurrency":1}}"#, r#"{"count":1}"#);
        assert_eq!(outcome.outcomes, [("http_error", 1)].into(), "{:?}", outcome.errors);
        assert_eq!(outcome.errors[0].message, "too big");
        assert!(column::<UInt64Type>(&rows, "bytes_out")[0] < BODY as u64);
        drop(server.join().unwrap());
    }
}

#[test]
fn a_large_request_arrives_whole_and_its_connection_is_kept() {
    const BODY: usize = 9 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..2 {
            let (mut held, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
            while held.iter().rev().take_while(|b| **b == b'x').count() < BODY {
                let n = stream.read(&mut buffer).unwrap();
                held.extend_from_slice(&buffer[..n]);
            }
            assert!(hello(0, &mut stream));
        }
    });
    let segments = vec![Segment::Static("x".repeat(BODY))];
    let target = TargetSpec { method: "POST".into(), ..target(port, "") };
    let (outcome, rows) = run(target, segments, r#"{"closed":{"concurrency":1}}"#, r#"{"count":2}"#);
    assert_eq!((outcome.outcomes, outcome.connects), ([("ok", 2)].into(), 1));
    assert!(column::<UInt64Type>(&rows, "bytes_out").iter().all(|n| *n > BODY as u64));
    server.join().unwrap();
}

#[test]
fn a_server_that_works_and_then_hangs_up_is_not_asked_again() {
    let (port, seen) = serve(|n, stream| {
        if n == 1 {
            std::thread::park_timeout(Duration::from_millis(700));
        }
        n != 1 && hello(n, stream)
    });
    let (outcomes, ..) = one_by_one(target(port, ""), 3);
    assert_eq!(outcomes, ["ok", "truncated", "ok"]);
    assert_eq!(seen.load(std::sync::atomic::Ordering::SeqCst), 3);
}

#[test]
fn answers_without_a_body_and_odd_ends_are_told_apart() {
    let cases: [(&str, &[u8], &str); 9] = [
        ("GET", b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "ok"),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\n", "truncated"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "ok"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", "ok"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\nold", "ok"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", "truncated"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "truncated"),
        ("GET", b"\x16\x03\x01", "protocol_error"),
        ("GET", b"SSH-2.0-OpenSSH\r\n\r\n", "protocol_error"),
    ];
    for (method, wire, want) in cases {
        let (port, _) = serve(move |_, stream| stream.write_all(wire).is_err());
        let target = TargetSpec { method: method.into(), ..target(port, "") };
        let (outcomes, message, _) = one_by_one(target, 2);
        assert_eq!(outcomes, [want; 2], "{} {message}", String::from_utf8_lossy(wire));
    }
}

#[test]
fn limits_hold_and_what_is_within_them_is_read() {
    for (head, body, want) in [(900, 90_000, "ok"), (1_100, 9, "protocol_error"), (9, 100_001, "protocol_error")] {
        let (port, _) = serve(move |_, stream| {
            let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: {body}\r\n\r\n", "y".repeat(head));
            stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&vec![b'b'; body]).is_ok()
        });
        let (outcomes, message, _) = one_by_one(target(port, r#","max_header_bytes":1024,"max_body_bytes":100000"#), 2);
        assert_eq!(outcomes, [want; 2], "{message}");
    }
}

#[test]
fn a_last_line_without_its_end_is_content_too() {
    let (port, _) = serve(|_, stream| {
        let body = "{\"c\":\"a\"}\r\n{\"c\":\"b\"}";
        let head = format!("Content-Type: application/x-ndjson\r\nContent-Length: {}", body.len());
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").as_bytes()).is_ok()
    });
    let (outcomes, _, rows) = one_by_one(target(port, r#","response":{"content":["/c"]}"#), 2);
    assert_eq!((outcomes, column::<UInt32Type>(&rows, "events")), (vec!["ok"; 2], vec![2; 2]));
    stamps_are_in_order(&rows);
}

#[test]
fn an_answer_that_must_be_json_is_not_empty() {
    let (port, _) = serve(|n, stream| {
        let status = if n == 0 { "200 OK" } else { "204 No Content" };
        stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).is_ok()
    });
    let (outcomes, ..) = one_by_one(target(port, r#","response":{"tokens_out":"/n"}"#), 2);
    assert_eq!(outcomes, ["protocol_error", "ok"]);
}

#[test]
fn what_was_shed_has_an_end() {
    let (port, _) = serve(|_, _| {
        std::thread::park();
        false
    });
    let target = target(port, r#","timeout_ns":20000000"#);
    let load = at_rate(10_000, "constant", r#","connections":1,"queue":0"#);
    let (outcome, rows) = run(target, vec![], &load, r#"{"count":50}"#);
    assert!(outcome.outcomes["shed"] > 0);
    stamps_are_in_order(&rows);
}

#[test]
fn a_void_level_does_not_wait_for_timeouts() {
    // The first request fails, the others are never answered; their timeout is five minutes.
    let (port, _) = serve(|n, stream| {
        if n == 0 {
            return stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").is_ok();
        }
        std::thread::park();
        false
    });
    let load = r#"{"closed":{"concurrency":4}}"#;
    let (outcome, _) = run(target(port, ""), vec![], load, r#"{"count":100,"max_error_share":0.0}"#);
    assert_eq!((outcome.stop_reason, outcome.outcomes["http_error"], outcome.outcomes["cancelled"]), ("errors", 1, 3));
}

#[test]
fn what_waits_for_a_target_that_is_gone_fails_when_the_level_ends() {
    for answers in [0, 3] {
        // Pauses between connects grow to a second, and thousands wait: with them the level would go on for an hour.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let streams: Vec<TcpStream> = (0..answers).map(|_| listener.accept().unwrap().0).collect();
            // Before the first answer: a connect that a closing listener has not accepted yet is reset, not refused.
            drop(listener);
            for (n, mut stream) in streams.into_iter().enumerate() {
                let _ = stream.read(&mut [0; 512]).unwrap();
                assert!(hello(n, &mut stream));
            }
        });
        if answers == 0 {
            server.join().unwrap();
        }
        let load = at_rate(20_000, "constant", r#","connections":3,"queue":4000"#);
        let (outcome, rows) = run(target(port, ""), vec![], &load, r#"{"duration_ns":300000000}"#);
        assert_eq!((outcome.stop_reason, outcome.due, outcome.rows), ("duration", 6_000, 6_000));
        let [ok, shed, failed] = ["ok", "shed", "connect_error"].map(|name| outcome.outcomes.get(name).unwrap_or(&0));
        let others = outcome.outcomes.get("truncated").unwrap_or(&0);
        assert_eq!((*ok, ok + others + shed + failed), (answers, 6_000), "{:?}", outcome.outcomes);
        let sent = |b: &RecordBatch| b.num_rows() - b.column_by_name("sent_ns").unwrap().null_count();
        assert_eq!(rows.iter().map(sent).sum::<usize>() as u64, outcome.sent);
        assert!(*shed > 0 && *failed >= 4_000, "{:?}", outcome.outcomes);
        let refused: u64 = outcome.errors.iter().filter(|e| e.message.contains("refused")).map(|e| e.count).sum();
        assert_eq!(refused, *failed, "each says why: {:?}", outcome.errors);
        stamps_are_in_order(&rows);
    }
}

#[test]
fn load_ends_when_its_records_cannot_be_written() {
    let (port, _) = serve(hello);
    let session = Session::open(target(port, ""), vec![], vec![vec![]], 1).unwrap();
    let mut plan = plan(r#"{"closed":{"concurrency":2}}"#, r#"{"duration_ns":3600000000000}"#);
    plan.dir = Some("/nonexistent/folder".to_owned());
    let level = session.level(plan).unwrap();
    assert!(level.wait(LONG), "the level ended an hour early");
    let outcome = level.outcome().unwrap();
    assert_eq!(outcome.stop_reason, "failed");
    assert!(outcome.write_error.unwrap().contains("No such file"));
}
