//! The engine over HTTP/2, against servers built with the h2 crate.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;
mod http2_common;

use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};
use bytes::Bytes;
use engine_common::{column, finish, plan};
use gpusize_engine::engine::{LevelOutcome, Session};
use gpusize_engine::spec::{Segment, TargetSpec};
use h2::Reason;
use http2_common::{CERTIFICATE, Call, Rules, Server, serve};

const ROWS: [&str; 3] = ["one", "twotwo", ""];

fn target(port: u16, more: &str) -> TargetSpec {
    let json = format!(r#"{{"host":"127.0.0.1","port":{port},"path":"/p","transport":"http2"{more}}}"#);
    serde_json::from_str(&json).unwrap()
}

fn run(target: TargetSpec, segments: Vec<Segment>, concurrency: u32, count: u32) -> (LevelOutcome, Vec<RecordBatch>) {
    let rows = ROWS.iter().map(|r| vec![r.as_bytes().to_vec()]).collect();
    let session = Session::open(target, segments, rows, 1).unwrap();
    let load = format!(r#"{{"closed":{{"concurrency":{concurrency}}}}}"#);
    finish(&session.level(plan(&load, &format!(r#"{{"count":{count}}}"#))).unwrap())
}

fn fields() -> Vec<Segment> {
    vec![Segment::Field(0)]
}

fn counts(outcome: &LevelOutcome) -> Vec<(&'static str, u64)> {
    outcome.outcomes.iter().map(|(k, v)| (*k, *v)).collect()
}

fn message(outcome: &LevelOutcome) -> &str {
    outcome.errors.first().map_or("", |e| e.message.as_str())
}

/// Answers with what the request said.
async fn echo(call: Call) {
    assert_eq!(call.request.uri().path(), "/p");
    assert_eq!(call.request.headers()["content-length"], call.body.len().to_string());
    assert_eq!(call.request.uri().authority().unwrap().host(), "127.0.0.1");
    let body = format!(r#"{{"got":"{}"}}"#, String::from_utf8(call.body.clone()).unwrap());
    call.say(200, "application/json", body);
}

#[test]
fn slots_have_connections_of_their_own_or_share_them_in_groups() {
    for (concurrency, streams, connections) in [(1, 1, 1), (7, 1, 7), (64, 1, 64), (1, 8, 1), (64, 8, 8), (10, 4, 3)] {
        let server = serve(Rules::default(), echo);
        let (outcome, rows) = run(target(server.port, &format!(r#","streams":{streams}"#)), fields(), concurrency, 300);
        assert_eq!(counts(&outcome), [("ok", 300)], "{:?}", outcome.errors);
        assert_eq!(server.requests.load(Ordering::SeqCst), 300);
        assert_eq!((outcome.connects, outcome.reconnects), (connections, 0), "{concurrency} in groups of {streams}");
        let mut numbers = column::<UInt32Type>(&rows, "conn");
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() as u64 <= connections && numbers.last().copied() < Some(connections as u32));
        let (sent, first) = (column::<Int64Type>(&rows, "sent_ns"), column::<Int64Type>(&rows, "first_byte_ns"));
        let end = column::<Int64Type>(&rows, "end_ns");
        assert!(sent.iter().zip(&first).zip(&end).all(|((s, f), e)| s < f && f <= e));
        let (row, out) = (column::<UInt32Type>(&rows, "row"), column::<UInt64Type>(&rows, "bytes_out"));
        assert!(row.iter().zip(out).all(|(r, n)| ROWS[*r as usize].len() as u64 == n));
        let bytes = column::<UInt64Type>(&rows, "bytes_in");
        assert!(row.iter().zip(bytes).all(|(r, n)| ROWS[*r as usize].len() as u64 + 10 == n));
    }
}

#[test]
fn streams_of_events_are_stamped_however_their_frames_are_cut() {
    for streams in [1, 8] {
        let server = serve(Rules::default(), async |mut call: Call| {
            let mut stream = call.head(200, "text/event-stream; charset=utf-8");
            let events = [r#"{"c":""}"#, r#"{"c":"a"}"#, r#"{"c":"b"}"#, r#"{"c":"c","o":3}"#, "[DONE]"];
            let text = format!("data: {}\n\n", events.join("\n\ndata: "));
            let step = 1 + call.number % text.len();
            for piece in text.as_bytes().chunks(step) {
                stream.send_data(Bytes::copy_from_slice(piece), false).unwrap();
                tokio::task::yield_now().await;
            }
            stream.send_data(Bytes::new(), true).unwrap();
        });
        let more = format!(r#","streams":{streams},"response":{{"content":["/c"],"tokens_out":"/o","end":"[DONE]"}}"#);
        let (outcome, rows) = run(target(server.port, &more), fields(), 8, 100);
        assert_eq!(counts(&outcome), [("ok", 100)], "{:?}", outcome.errors);
        assert_eq!(column::<UInt32Type>(&rows, "events"), vec![3; 100]);
        assert_eq!(column::<UInt32Type>(&rows, "tokens_out"), vec![3; 100]);
    }
}

#[test]
fn over_tls_both_sides_must_agree_to_http2() {
    let tls = format!(r#","tls":{{"server_name":"localhost","ca_file":"{CERTIFICATE}"}}"#);
    let with = |alpn: &[&'static str]| serve(Rules { alpn: Some(alpn.to_vec()), ..Rules::default() }, echo);
    for streams in [1, 8] {
        let more = format!(r#"{tls},"streams":{streams}"#);
        let (outcome, rows) = run(target(with(&["http/1.1", "h2"]).port, &more), fields(), 8, 100);
        assert_eq!(counts(&outcome), [("ok", 100)], "{:?}", outcome.errors);
        assert_eq!(column::<UInt64Type>(&rows, "bytes_in").len(), 100);
        for alpn in [&[][..], &["http/1.1"]] {
            let (outcome, _) = run(target(with(alpn).port, &more), fields(), 2, 4);
            assert_eq!(counts(&outcome), [("tls_error", 4)], "{alpn:?}");
            assert!(!message(&outcome).is_empty());
        }
    }
}

#[test]
fn requests_survive_connections_that_the_server_ends_in_order() {
    for streams in [1, 8] {
        let server = serve(Rules { goaway_after: Some(5), ..Rules::default() }, echo);
        let (outcome, rows) = run(target(server.port, &format!(r#","streams":{streams}"#)), fields(), 8, 200);
        assert_eq!(counts(&outcome), [("ok", 200)], "{:?}", outcome.errors);
        assert!(outcome.connects >= 200 / 13 && outcome.reconnects > 0, "{}", outcome.connects);
        assert!(column::<UInt16Type>(&rows, "attempt").iter().all(|a| *a <= 1));
    }
}

#[test]
fn a_connection_that_breaks_off_is_an_outcome_and_is_replaced() {
    for streams in [1, 8] {
        let server = serve(Rules { cut_after: Some(3), ..Rules::default() }, echo);
        let (outcome, _) = run(target(server.port, &format!(r#","streams":{streams}"#)), fields(), 8, 100);
        let known = ["ok", "truncated"].map(|name| outcome.outcomes.get(name).copied().unwrap_or(0));
        // Of streams that come at once, the server may answer none before it goes.
        assert!(
            (known[0] > 0 || streams > 1) && known[0] + known[1] == 100,
            "{:?} {:?}",
            outcome.outcomes,
            outcome.errors
        );
        assert!(outcome.reconnects > 0);
    }
}

#[test]
fn a_refused_stream_is_asked_once_more_and_another_reset_is_not() {
    for streams in [1, 8] {
        let more = format!(r#","streams":{streams}"#);
        let server = serve(Rules::default(), async |mut call: Call| {
            if call.number.is_multiple_of(2) {
                call.respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                echo(call).await;
            }
        });
        let (outcome, rows) = run(target(server.port, &more), fields(), 1, 50);
        assert_eq!(counts(&outcome), [("ok", 50)], "{:?}", outcome.errors);
        assert_eq!(column::<UInt16Type>(&rows, "attempt"), vec![1; 50]);
        assert_eq!((outcome.connects, server.requests.load(Ordering::SeqCst)), (1, 100));
        for (reason, words) in [(Reason::REFUSED_STREAM, "REFUSED_STREAM"), (Reason::INTERNAL_ERROR, "INTERNAL_ERROR")]
        {
            let server = serve(Rules::default(), move |mut call: Call| async move { call.respond.send_reset(reason) });
            let (outcome, rows) = run(target(server.port, &more), fields(), 4, 20);
            assert_eq!(counts(&outcome), [("truncated", 20)]);
            assert!(message(&outcome).contains(words), "{}", message(&outcome));
            let attempt = u16::from(reason == Reason::REFUSED_STREAM);
            assert_eq!(column::<UInt16Type>(&rows, "attempt"), vec![attempt; 20]);
            assert!(outcome.connects <= 4, "a reset stream leaves its connection alone");
        }
    }
}

#[test]
fn an_answer_cut_off_by_a_reset_is_truncated() {
    let server = serve(Rules::default(), async |mut call: Call| {
        let mut stream = call.head(200, "application/json");
        stream.send_data(Bytes::from_static(b"{\"a\":"), false).unwrap();
        tokio::task::yield_now().await;
        stream.send_reset(Reason::INTERNAL_ERROR);
    });
    let (outcome, _) = run(target(server.port, ""), fields(), 4, 20);
    assert_eq!(counts(&outcome), [("truncated", 20)], "{:?}", outcome.errors);
}

#[test]
fn a_server_of_http1_is_recognised() {
    let (port, _) = engine_common::serve(|_, stream| {
        use std::io::Write;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").is_ok()
    });
    for streams in [1, 8] {
        let (outcome, _) = run(target(port, &format!(r#","streams":{streams}"#)), fields(), 2, 10);
        assert_eq!(counts(&outcome), [("protocol_error", 10)], "{:?}", outcome.errors);
        assert!(message(&outcome).contains("HTTP/1.1"), "{}", message(&outcome));
    }
}

#[test]
fn statuses_heads_and_bodies_beyond_their_limits_are_outcomes() {
    let server = serve(Rules::default(), async |call: Call| call.say(503, "text/plain", "too busy"));
    let (outcome, rows) = run(target(server.port, ""), fields(), 2, 10);
    assert_eq!((counts(&outcome), message(&outcome)), (vec![("http_error", 10)], "too busy"));
    assert_eq!(column::<UInt16Type>(&rows, "status"), vec![503; 10]);

    let server = serve(Rules::default(), async |call: Call| {
        call.say(200, &"x".repeat(9_000), "{}");
    });
    let (outcome, _) = run(target(server.port, r#","max_header_bytes":4096"#), fields(), 2, 10);
    assert_eq!(counts(&outcome), [("protocol_error", 10)], "{:?}", outcome.errors);
    assert!(message(&outcome).contains("longer than 4096 bytes"), "{}", message(&outcome));

    let server = serve(Rules::default(), async |call: Call| call.say(200, "application/json", "{\"a\":1}"));
    let (outcome, _) = run(target(server.port, r#","max_body_bytes":6"#), fields(), 2, 10);
    assert_eq!(counts(&outcome), [("protocol_error", 10)], "{:?}", outcome.errors);
    assert!(message(&outcome).contains("longer than 6 bytes"), "{}", message(&outcome));
}

#[test]
fn interim_answers_are_not_the_answer() {
    let server = serve(Rules::default(), async |mut call: Call| {
        let early = http::Response::builder().status(103).header("link", "</a>").body(()).unwrap();
        call.respond.send_informational(early).unwrap();
        tokio::task::yield_now().await;
        echo(call).await;
    });
    for streams in [1, 8] {
        let (outcome, rows) = run(target(server.port, &format!(r#","streams":{streams}"#)), fields(), 4, 40);
        assert_eq!(counts(&outcome), [("ok", 40)], "{:?}", outcome.errors);
        assert_eq!(column::<UInt16Type>(&rows, "status"), vec![200; 40]);
    }
}

#[test]
fn bodies_beyond_every_window_arrive_whole() {
    for streams in [1, 8] {
        let server = serve(Rules::default(), async |mut call: Call| {
            assert_eq!(call.body.len(), 3_000_000);
            let mut stream = call.head(200, "application/octet-stream");
            let piece = Bytes::from(vec![b'x'; 1 << 20]);
            for _ in 0..40 {
                stream.send_data(piece.clone(), false).unwrap();
            }
            stream.send_data(Bytes::from_static(b"."), true).unwrap();
        });
        let body = vec![Segment::Static("y".repeat(3_000_000))];
        let more = format!(r#","streams":{streams},"response":{{"json":"by_type"}}"#);
        let (outcome, rows) = run(target(server.port, &more), body, 2, 4);
        assert_eq!(counts(&outcome), [("ok", 4)], "{:?}", outcome.errors);
        assert_eq!(column::<UInt64Type>(&rows, "bytes_in"), vec![40 << 20 | 1; 4]);
        assert_eq!(column::<UInt64Type>(&rows, "bytes_out"), vec![3_000_000; 4]);
    }
}

#[test]
fn a_silent_stream_times_out_beside_others_that_are_answered() {
    for streams in [1, 4] {
        let server = serve(Rules::default(), async |call: Call| {
            if call.body == b"one" {
                std::future::pending::<()>().await;
            }
            echo(call).await;
        });
        let more = format!(r#","streams":{streams},"timeout_ns":2000000000"#);
        let (outcome, _) = run(target(server.port, &more), fields(), 4, 12);
        assert_eq!(counts(&outcome), [("ok", 8), ("timeout", 4)], "{:?}", outcome.errors);
    }
}

#[test]
fn a_server_that_allows_fewer_streams_gets_more_connections() {
    let server = serve(Rules { max_streams: Some(2), ..Rules::default() }, echo);
    let session =
        Session::open(target(server.port, r#","streams":8"#), fields(), vec![vec![b"a".to_vec()]], 1).unwrap();
    for _ in 0..2 {
        let level = session.level(plan(r#"{"closed":{"concurrency":8}}"#, r#"{"count":200}"#)).unwrap();
        let (outcome, rows) = finish(&level);
        assert_eq!(counts(&outcome), [("ok", 200)], "{:?}", outcome.errors);
        assert!(column::<UInt16Type>(&rows, "attempt").iter().all(|a| *a <= 1));
    }
    assert!((2..=8).contains(&server.connections.load(Ordering::SeqCst)));
}

#[test]
fn a_stopped_level_leaves_its_connections_to_the_next() {
    for streams in [1, 4] {
        let server = serve(Rules::default(), async |call: Call| {
            if call.number >= 20 && call.number < 24 {
                std::future::pending::<()>().await;
            }
            echo(call).await;
        });
        let target = target(server.port, &format!(r#","streams":{streams}"#));
        let session = Session::open(target, fields(), vec![vec![b"a".to_vec()]], 1).unwrap();
        let level = session.level(plan(r#"{"closed":{"concurrency":4}}"#, r#"{"count":1000}"#)).unwrap();
        while level.poll().sent < 24 {
            std::thread::yield_now();
        }
        level.stop(10_000_000);
        let (outcome, _) = finish(&level);
        assert_eq!(counts(&outcome), [("cancelled", 4), ("ok", 20)]);
        let (outcome, _) = finish(&session.level(plan(r#"{"closed":{"concurrency":4}}"#, r#"{"count":40}"#)).unwrap());
        assert_eq!((counts(&outcome), outcome.connects), (vec![("ok", 40)], 0), "{:?}", outcome.errors);
    }
}

#[test]
fn what_the_server_asks_of_an_idle_connection_is_answered() {
    let (pong, pongs) = std::sync::mpsc::channel();
    let tell = std::sync::Arc::new(tokio::sync::Notify::new());
    let server = serve(Rules { ping: Some((tell.clone(), pong)), ..Rules::default() }, echo);
    let session = Session::open(target(server.port, ""), fields(), vec![vec![b"a".to_vec()]], 1).unwrap();
    let (outcome, _) = finish(&session.level(plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":1}"#)).unwrap());
    assert_eq!(counts(&outcome), [("ok", 1)]);
    tell.notify_one();
    assert!(pongs.recv_timeout(engine_common::LONG).is_ok(), "a ping after the last answer");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let Server { port, .. } = serve(Rules::default(), echo);
    for more in [
        r#","streams":0"#,
        r#","response":{"framing":"kserve"}"#,
        r#","transport":"http1","streams":2"#,
        r#","transport":"grpc","response":{"framing":"sse"}"#,
        r#","headers":[["Connection","close"]]"#,
    ] {
        let json = format!(r#"{{"host":"127.0.0.1","port":{port},"path":"/p"{more}}}"#);
        let mut target: TargetSpec = serde_json::from_str(&json).unwrap();
        if !more.contains("transport") {
            target.transport = gpusize_engine::spec::Transport::Http2;
        }
        assert!(Session::open(target, fields(), vec![vec![vec![]]], 1).is_err(), "{more}");
    }
}

#[test]
fn a_mix_has_a_head_for_each_kind() {
    let server = serve(Rules::default(), async |call: Call| {
        let kind = call.request.headers().get("x-kind").map(|v| v.to_str().unwrap().to_owned());
        let said =
            format!("{} {:?} {}", call.request.uri().path(), kind, String::from_utf8(call.body.clone()).unwrap());
        let status = if ["/a None one", "/b Some(\"b\") fixed"].contains(&said.as_str()) { 200 } else { 400 };
        call.say(status, "text/plain", said);
    });
    let mix = r#"{"requests":[{"path":"/a","segments":[{"field":0}]},
        {"path":"/b","segments":[{"static":"fixed"}],"headers":[["X-Kind","b"]],"model":2}],"of_row":[0,1]}"#;
    let mix = serde_json::from_str(mix).unwrap();
    let rows = vec![vec![b"one".to_vec()], vec![]];
    let session = Session::open_mix(target(server.port, ""), vec![], rows, Some(mix), 1).unwrap();
    let (outcome, rows) = finish(&session.level(plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":4}"#)).unwrap());
    assert_eq!(counts(&outcome), [("ok", 4)], "{:?}", outcome.errors);
    assert_eq!(column::<UInt16Type>(&rows, "model"), [0, 2, 0, 2]);
}
