//! Requests that say which one they are, for whoever sees the calls made on their behalf.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;
mod http2_common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use arrow_array::types::{UInt32Type, UInt64Type};
use bytes::Bytes;
use engine_common::{LONG, column, finish};
use gpusize_engine::engine::Session;
use gpusize_engine::spec::{LevelPlan, Segment, TargetSpec};
use http::{HeaderMap, Response};
use http2_common::{Call, Rules};

type Traces = Arc<Mutex<Vec<String>>>;

fn target(port: u16, more: &str) -> TargetSpec {
    serde_json::from_str(&format!(r#"{{"host":"127.0.0.1","port":{port},"path":"/p"{more}}}"#)).unwrap()
}

fn plan(visit: u32, concurrency: u32, count: u64) -> LevelPlan {
    let load = format!(r#"{{"closed":{{"concurrency":{concurrency}}}}}"#);
    serde_json::from_str(&format!(r#"{{"visit":{visit},"load":{load},"stop":{{"count":{count}}}}}"#)).unwrap()
}

/// The traces of requests 0 to `count` of a visit.
fn expected(visit: u32, count: u64) -> BTreeSet<String> {
    (0..count).map(|seq| format!("00-6770{visit:08x}0000{seq:016x}-{:016x}-01", seq + 1)).collect()
}

fn heard(traces: &Traces) -> Vec<String> {
    std::mem::take(&mut *traces.lock().unwrap())
}

/// Two visits and a probe before them; each request is of one row, and every one says its own trace.
fn check(target: &TargetSpec, traces: &Traces, segments: &[Segment], field: &[u8], workers: usize) {
    let session = Session::open(target.clone(), segments.to_vec(), vec![vec![field.to_vec()]], workers).unwrap();
    assert!(session.probe().unwrap().wait(LONG).is_some());
    assert_eq!(heard(traces), Vec::from_iter(expected(u32::MAX, 1)));
    for visit in [2, 3] {
        let (outcome, rows) = finish(&session.level(plan(visit, 5, 60)).unwrap());
        assert_eq!(outcome.outcomes, [("ok", 60)].into(), "{:?}", outcome.errors);
        let traces = heard(traces);
        assert_eq!(traces.len(), 60, "no request went twice");
        assert_eq!(BTreeSet::from_iter(traces), expected(visit, 60));
        assert_eq!(BTreeSet::from_iter(column::<UInt64Type>(&rows, "seq")), (0..60).collect());
        assert_eq!(column::<UInt32Type>(&rows, "visit"), vec![visit; 60]);
    }
}

/// A server of HTTP/1.1 that reads each body to its end, checks its length and keeps the traces.
fn serve(body_bytes: usize) -> (u16, Traces) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let traces = Traces::default();
    let kept = traces.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, kept) = (stream.unwrap(), kept.clone());
            std::thread::spawn(move || answer(stream, body_bytes, &kept));
        }
    });
    (port, traces)
}

fn answer(mut stream: TcpStream, body_bytes: usize, traces: &Traces) -> Option<()> {
    let (mut held, mut room) = (Vec::new(), vec![0; 65_536]);
    loop {
        let end = loop {
            if let Some(at) = held.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            let n = stream.read(&mut room).ok().filter(|n| *n > 0)?;
            held.extend_from_slice(&room[..n]);
        };
        let head = String::from_utf8(held.drain(..end).collect()).unwrap();
        let field = |name: &str| {
            let of_name = head.lines().filter_map(|line| line.split_once(": ")).filter(|(n, _)| *n == name);
            of_name.map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
        };
        let length: usize = field("Content-Length")[0].parse().unwrap();
        while held.len() < length {
            let n = stream.read(&mut room).ok().filter(|n| *n > 0)?;
            held.extend_from_slice(&room[..n]);
        }
        let whole = length >= body_bytes && held[..body_bytes].iter().all(|b| *b == b'x');
        let status = if whole { 200 } else { 400 };
        held.drain(..length);
        traces.lock().unwrap().extend(field("traceparent"));
        stream.write_all(format!("HTTP/1.1 {status} OK\r\nContent-Length: 2\r\n\r\nok").as_bytes()).ok()?;
    }
}

#[test]
fn every_request_over_http1_has_its_own_whatever_its_body() {
    for (bytes, workers) in [(10, 1), (10, 2), (50_000, 1)] {
        for more in [vec![], vec![Segment::Counter { start: 7 }]] {
            let (port, traces) = serve(bytes);
            let segments = [vec![Segment::Field(0)], more].concat();
            check(&target(port, r#","trace":true"#), &traces, &segments, &vec![b'x'; bytes], workers);
        }
    }
}

#[test]
fn every_request_over_http2_has_its_own() {
    for streams in [1, 4] {
        let traces = Traces::default();
        let kept = traces.clone();
        let server = http2_common::serve(Rules::default(), move |call: Call| {
            keep(&kept, &call);
            async { call.say(200, "text/plain", "ok") }
        });
        let more = format!(r#","transport":"http2","streams":{streams},"trace":true"#);
        check(&target(server.port, &more), &traces, &[Segment::Field(0)], b"question", 1);
    }
}

#[test]
fn every_call_over_grpc_has_its_own() {
    let traces = Traces::default();
    let kept = traces.clone();
    let server = http2_common::serve(Rules::default(), move |mut call: Call| {
        keep(&kept, &call);
        async move {
            let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
            let mut stream = call.respond.send_response(head, false).unwrap();
            stream.send_data(Bytes::from_static(b"\0\0\0\0\x01x"), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            stream.send_trailers(trailers).unwrap();
        }
    });
    check(&target(server.port, r#","transport":"grpc","trace":true"#), &traces, &[Segment::Field(0)], b"question", 1);
}

fn keep(traces: &Traces, call: &Call) {
    let said = call.request.headers().get_all("traceparent").iter().map(|v| v.to_str().unwrap().to_owned());
    traces.lock().unwrap().extend(said);
}

#[test]
fn without_it_there_is_no_such_header_but_the_users_own() {
    for (more, want) in [("", vec![]), (r#","headers":[["traceparent","mine"]]"#, vec!["mine"; 4])] {
        let (port, traces) = serve(10);
        let session =
            Session::open(target(port, more), vec![Segment::Field(0)], vec![vec![vec![b'x'; 10]]], 1).unwrap();
        let (outcome, _) = finish(&session.level(plan(0, 2, 4)).unwrap());
        assert_eq!(outcome.outcomes, [("ok", 4)].into());
        assert_eq!(heard(&traces), want);
        let both = TargetSpec { trace: true, ..target(port, more) };
        assert_eq!(Session::open(both, vec![], vec![vec![]], 1).is_err(), !want.is_empty());
    }
}
