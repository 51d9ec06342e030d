//! gRPC calls under load and outside of it: framing, statuses, and servers that break the rules.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;
mod http2_common;

use std::time::Duration;

use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use engine_common::{column, finish, plan};
use gpusize_base::error::Error;
use gpusize_engine::engine::{LevelOutcome, Session, grpc_call};
use gpusize_engine::spec::{ContentSign, Segment, Sign, Signs, TargetSpec};
use http::{HeaderMap, Response};
use http2_common::{CERTIFICATE, Call, Rules, serve};

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const LONG: Duration = Duration::from_secs(60);

fn target(port: u16, framing: &str, more: &str) -> TargetSpec {
    let json = format!(
        r#"{{"host":"127.0.0.1","port":{port},"path":"{INFER}","transport":"grpc","headers":[["x-key","k"]],
            "response":{{"framing":"{framing}"}}{more}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

fn run(target: TargetSpec, count: u32) -> (LevelOutcome, Vec<RecordBatch>) {
    let rows = vec![vec![b"question".to_vec()]];
    let session = Session::open(target, vec![Segment::Field(0)], rows, 1).unwrap();
    let level = session.level(plan(r#"{"closed":{"concurrency":4}}"#, &format!(r#"{{"count":{count}}}"#))).unwrap();
    finish(&level)
}

/// Outcome, first message and rows of 20 calls.
fn told(target: TargetSpec) -> (Vec<(&'static str, u64)>, String, Vec<RecordBatch>) {
    let (outcome, rows) = run(target, 20);
    let message = outcome.errors.first().map_or(String::new(), |e| e.message.clone());
    (outcome.outcomes.into_iter().collect(), message, rows)
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8][..], content].concat()
}

/// A `ModelInferResponse`.
fn infer(outputs: bool) -> Vec<u8> {
    let named = field(1, b"model");
    if outputs { [named, field(5, &field(1, b"OUT"))].concat() } else { named }
}

fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|m| [&[0][..], &(m.len() as u32).to_be_bytes(), m].concat()).collect()
}

fn trailers(code: &str, text: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", code.parse().unwrap());
    fields.insert("grpc-message", text.parse().unwrap());
    fields
}

/// Check the request, say `body` in pieces of `step`, and end with a status, or without.
async fn reply(mut call: Call, body: Vec<u8>, step: usize, end: Option<(&'static str, &'static str)>) {
    let headers = call.request.headers();
    assert_eq!(
        (call.request.uri().path(), &headers["te"], &headers["x-key"]),
        (INFER, &"trailers".parse().unwrap(), &"k".parse().unwrap())
    );
    assert_eq!(call.body, framed(&[b"question".to_vec()]));
    let mut stream = call.head(200, "application/grpc+proto");
    for piece in body.chunks(step.max(1)) {
        stream.send_data(Bytes::copy_from_slice(piece), false).unwrap();
        tokio::task::yield_now().await;
    }
    match end {
        Some((code, text)) => stream.send_trailers(trailers(code, text)).unwrap(),
        None => stream.send_data(Bytes::new(), true).unwrap(),
    }
}

#[test]
fn replies_are_counted_and_stamped_however_their_frames_are_cut() {
    let stream = |messages: &[Vec<u8>]| framed(&messages.iter().map(|m| field(2, m)).collect::<Vec<_>>());
    for (framing, body, events) in [
        ("kserve", framed(&[infer(true)]), 1),
        ("kserve", framed(&[infer(false)]), 0),
        ("kserve_stream", stream(&[infer(true), infer(true), infer(false)]), 2),
        ("kserve_stream", vec![], 0),
        ("auto", framed(&[b"any".to_vec(), b"thing".to_vec(), vec![]]), 2),
    ] {
        for streams in [1, 8] {
            let said = body.clone();
            let server = serve(Rules::default(), move |call: Call| {
                let (said, step) = (said.clone(), 1 + call.number % 40);
                reply(call, said, step, Some(("0", "")))
            });
            let (outcomes, message, rows) = told(target(server.port, framing, &format!(r#","streams":{streams}"#)));
            assert_eq!(outcomes, [("ok", 20)], "{framing}: {message}");
            assert_eq!(column::<UInt32Type>(&rows, "events"), vec![events; 20], "{framing}");
            assert_eq!(column::<UInt64Type>(&rows, "bytes_in"), vec![body.len() as u64; 20]);
            assert_eq!(column::<UInt64Type>(&rows, "bytes_out"), vec![13; 20]);
            assert_eq!(column::<UInt16Type>(&rows, "status"), vec![200; 20]);
            if events > 0 {
                assert_eq!(
                    rows.iter().map(|b| b.column_by_name("first_token_ns").unwrap().null_count()).sum::<usize>(),
                    0
                );
                let (first, end) = (column::<Int64Type>(&rows, "first_token_ns"), column::<Int64Type>(&rows, "end_ns"));
                assert!(first.iter().zip(end).all(|(f, e)| *f <= e));
            }
            if events == 2 {
                // One gap a call, of its own: from its first event to its last.
                let ns = |name| column::<Int64Type>(&rows, name);
                let gaps: Vec<_> = ns("last_token_ns").iter().zip(ns("first_token_ns")).map(|(l, f)| l - f).collect();
                assert_eq!((ns("itl_min_ns"), ns("itl_max_ns")), (gaps.clone(), gaps), "{framing}");
            }
        }
    }
}

#[test]
fn replies_without_outputs_are_no_success_where_content_is_wanted() {
    let stream = |messages: &[Vec<u8>]| framed(&messages.iter().map(|m| field(2, m)).collect::<Vec<_>>());
    for (framing, body, outcome) in [
        ("kserve", framed(&[infer(true)]), "ok"),
        ("kserve", framed(&[infer(false)]), "api_error"),
        ("kserve_stream", stream(&[infer(false), infer(true)]), "ok"),
        ("kserve_stream", stream(&[infer(false)]), "api_error"),
        ("kserve_stream", vec![], "api_error"),
    ] {
        let server = serve(Rules::default(), move |call: Call| reply(call, body.clone(), 9, Some(("0", ""))));
        let mut wanted = target(server.port, framing, "");
        wanted.response.success_if = Signs(vec![Sign::Content(ContentSign::Content)]);
        let (outcomes, message, _) = told(wanted);
        assert_eq!(outcomes, [(outcome, 20)], "{framing}");
        assert_eq!(message.contains("outputs"), outcome != "ok", "{message}");
    }
}

#[test]
fn trailers_decide_how_a_call_ended() {
    let said = framed(&[infer(true)]);
    for (end, outcome, words) in [
        (Some(("5", "no%20model%20'x'")), "api_error", "NOT_FOUND: no model 'x'"),
        (Some(("14", "")), "api_error", "UNAVAILABLE"),
        (Some(("what", "x")), "api_error", "UNKNOWN: x"),
        (None, "truncated", "without a grpc-status"),
    ] {
        let said = said.clone();
        let server = serve(Rules::default(), move |call: Call| reply(call, said.clone(), 99, end));
        let (outcomes, message, rows) = told(target(server.port, "kserve", ""));
        assert_eq!(outcomes, [(outcome, 20)]);
        assert!(message.contains(words), "{message}");
        assert_eq!(column::<UInt16Type>(&rows, "status"), vec![200; 20]);
        assert_eq!(column::<UInt32Type>(&rows, "events"), vec![1; 20]);
    }
}

#[test]
fn an_answer_may_be_all_trailers_or_no_grpc_at_all() {
    for (status, fields, outcome, words) in [
        (
            200,
            &[("grpc-status", "12"), ("grpc-message", "no such method")][..],
            "api_error",
            "UNIMPLEMENTED: no such method",
        ),
        (200, &[("content-type", "text/html")], "protocol_error", "'text/html'"),
        (403, &[("content-type", "text/plain")], "http_error", "forbidden"),
    ] {
        let server = serve(Rules::default(), move |mut call: Call| async move {
            let mut head = Response::builder().status(status);
            for (name, value) in fields {
                head = head.header(*name, *value);
            }
            let all = fields.len() > 1;
            let mut stream = call.respond.send_response(head.body(()).unwrap(), all).unwrap();
            if !all {
                stream.send_data(Bytes::from_static(b"forbidden"), true).unwrap();
            }
        });
        let (outcomes, message, rows) = told(target(server.port, "kserve", ""));
        assert_eq!(outcomes, [(outcome, 20)], "{message}");
        assert!(message.contains(words), "{message}");
        assert_eq!(column::<UInt16Type>(&rows, "status"), vec![status; 20]);
        let error = grpc_call(&target(server.port, "auto", ""), INFER, b"question", LONG);
        match error {
            Ok(reply) => assert_eq!((reply.code, reply.message.as_str(), outcome), (12, "no such method", "api_error")),
            Err(Error::Target { what, .. }) => assert!(what.contains(words) || what.contains("403"), "{what}"),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn replies_that_break_the_rules_are_outcomes() {
    let failed = field(1, b"out of memory");
    let whole = framed(&[infer(true)]);
    for (framing, body, outcome, words) in [
        ("kserve_stream", framed(&[field(2, &infer(true)), failed]), "api_error", "out of memory"),
        ("kserve", [&[1][..], &whole[1..]].concat(), "protocol_error", "compressed"),
        ("kserve", framed(&[b"{\"not\":1}".to_vec()]), "protocol_error", "not a protobuf"),
        ("kserve_stream", framed(&[field(2, b"\xff")]), "protocol_error", "not a protobuf"),
        ("kserve", framed(&[vec![b'x'; 2_000]]), "protocol_error", "longer than 1000 bytes"),
        ("kserve", vec![], "protocol_error", "0 replies"),
        ("kserve", framed(&[infer(true), infer(true)]), "protocol_error", "2 replies"),
        ("kserve_stream", whole[..whole.len() - 1].to_vec(), "truncated", "inside a message"),
    ] {
        let server = serve(Rules::default(), move |call: Call| {
            let (body, step) = (body.clone(), 1 + call.number * 3);
            // A client that has seen enough resets the stream.
            async move { drop(tokio::spawn(reply(call, body, step, Some(("0", "")))).await) }
        });
        let (outcomes, message, _) = told(target(server.port, framing, r#","max_body_bytes":1000"#));
        assert_eq!(outcomes, [(outcome, 20)], "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_message_of_many_frames_arrives_whole() {
    let tensor = vec![7_u8; 30 << 20];
    let length = tensor.len() as u32;
    let mut body = vec![6 << 3 | 2];
    let mut left = length;
    while left >= 128 {
        body.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    body.push(left as u8);
    body.extend_from_slice(&tensor);
    let body = Bytes::from(framed(&[body]));
    let said = body.clone();
    let server = serve(Rules::default(), move |mut call: Call| {
        let said = said.clone();
        async move {
            let mut stream = call.head(200, "application/grpc");
            stream.send_data(said, false).unwrap();
            stream.send_trailers(trailers("0", "")).unwrap();
        }
    });
    let (outcome, rows) = run(target(server.port, "kserve", ""), 4);
    assert_eq!(outcome.outcomes, [("ok", 4)].into(), "{:?}", outcome.errors);
    assert_eq!(column::<UInt64Type>(&rows, "bytes_in"), vec![body.len() as u64; 4]);
    let reply = grpc_call(&target(server.port, "auto", ""), INFER, b"question", LONG).unwrap();
    assert_eq!((reply.code, reply.body.len()), (0, body.len() - 5));
}

#[test]
fn one_call_outside_the_load_brings_its_reply_or_says_why_not() {
    let tls = format!(r#","tls":{{"server_name":"localhost","ca_file":"{CERTIFICATE}"}}"#);
    for (alpn, more) in [(None, ""), (Some(vec!["h2"]), tls.as_str())] {
        let server = serve(Rules { alpn, ..Rules::default() }, |call: Call| {
            reply(call, framed(&[infer(true)]), 3, Some(("0", "")))
        });
        let reply = grpc_call(&target(server.port, "auto", more), INFER, b"question", LONG).unwrap();
        assert_eq!((reply.code, reply.message.as_str(), reply.body), (0, "", infer(true)));
    }
    let silent = serve(Rules::default(), async |_: Call| std::future::pending::<()>().await);
    let cut =
        serve(Rules { cut_after: Some(1), ..Rules::default() }, async |_: Call| std::future::pending::<()>().await);
    let (http1, _) = engine_common::serve(engine_common::hello);
    for (port, words) in [(silent.port, "no reply within 0.05 s"), (cut.port, "connection"), (http1, "HTTP/1.1")] {
        let wait = if port == silent.port { Duration::from_millis(50) } else { LONG };
        let error = grpc_call(&target(port, "auto", ""), INFER, b"question", wait).unwrap_err();
        let Error::Target { what, place, .. } = error else { panic!("{error:?}") };
        assert!(what.contains(words) && place.contains(INFER), "{what} {place}");
    }
}
