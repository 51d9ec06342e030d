//! Every request that a server of HTTP/2 or gRPC counted is in the records once, with the right outcome, or in the count of
//! those that were asked again: under each fault, on connections of their own and on shared ones, in closed and open loops.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;
mod frames_common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use arrow_array::types::{Int64Type, UInt16Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use engine_common::{at_rate, column, finish, plan};
use frames_common::{
    CANCEL, DATA, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, INITIAL_WINDOW_SIZE, INTERNAL_ERROR, MAX_CONCURRENT_STREAMS,
    NO_ERROR, PING, REFUSED_STREAM, Request, SETTINGS, Server, WINDOW_UPDATE, Wire, serve, serve_from,
};
use gpusize_engine::engine::{LevelOutcome, Session};
use gpusize_engine::spec::{Segment, TargetSpec};

const COUNT: u64 = 60;
/// Nearest that a level's number of requests must come to the requests that a fault is done to: every third.
const EVERY: usize = 3;

fn target(port: u16, transport: &str, streams: u32, more: &str) -> TargetSpec {
    let framing = if transport == "grpc" { r#","response":{"framing":"auto"}"# } else { "" };
    let json = format!(
        r#"{{"host":"127.0.0.1","port":{port},"path":"/p","transport":"{transport}","streams":{streams}{framing}{more}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

fn run(target: TargetSpec, load: &str, count: u64) -> (LevelOutcome, Vec<RecordBatch>) {
    let session = Session::open(target, vec![Segment::Field(0)], vec![vec![b"question".to_vec()]], 1).unwrap();
    finish(&session.level(plan(load, &format!(r#"{{"count":{count}}}"#))).unwrap())
}

/// A closed loop and an open one, in which requests overlap.
fn loads() -> [String; 2] {
    [r#"{"closed":{"concurrency":4}}"#.to_owned(), at_rate(2_000, "constant", r#","connections":4"#)]
}

/// The numbers by which a server's count and the records are held against each other.
#[derive(Debug, PartialEq)]
struct Balance {
    rows: u64,
    sent: u64,
    asked_again: u64,
}

fn balance(outcome: &LevelOutcome, rows: &[RecordBatch]) -> Balance {
    let left = rows.iter().map(|b| b.num_rows() - b.column_by_name("sent_ns").unwrap().null_count()).sum::<usize>();
    let attempts: u64 = column::<UInt16Type>(rows, "attempt").iter().map(|a| u64::from(*a)).sum();
    assert_eq!(outcome.asked_again, attempts, "the rows say the same as the count");
    assert_eq!(outcome.sent, left as u64, "what counts as sent has a time at which it was");
    let by_outcome: u64 = outcome.outcomes.values().sum();
    let rows = rows.iter().map(|b| b.num_rows() as u64).sum();
    assert_eq!((outcome.due, by_outcome), (rows, rows));
    Balance { rows, sent: outcome.sent, asked_again: outcome.asked_again }
}

type Act = Arc<dyn Fn(&mut Wire, u32) + Send + Sync>;

/// What a server does to a request, and what must become of it.
struct Fault {
    name: &'static str,
    act: Act,
    outcome: &'static str,
    /// It is asked again, and the second answer is good.
    again: bool,
    /// Other requests of a shared connection go with it.
    spreads: bool,
    transport: &'static str,
}

fn fault(name: &'static str, outcome: &'static str, act: impl Fn(&mut Wire, u32) + Send + Sync + 'static) -> Fault {
    Fault { name, act: Arc::new(act), outcome, again: false, spreads: false, transport: "http2" }
}

impl Fault {
    fn again(self) -> Self {
        Self { again: true, ..self }
    }

    fn spreads(self) -> Self {
        Self { spreads: true, ..self }
    }

    fn grpc(self) -> Self {
        Self { transport: "grpc", ..self }
    }
}

fn good(wire: &mut Wire, stream: u32, transport: &str) {
    if transport == "grpc" {
        grpc_begin(wire, stream);
        wire.trailers(stream, &[("grpc-status", "0")]);
    } else {
        wire.say(stream);
    }
}

fn grpc_begin(wire: &mut Wire, stream: u32) {
    wire.head(stream, &[("content-type", "application/grpc")], false);
    wire.data(stream, b"\0\0\0\0\x03abc", false);
}

fn json_head(wire: &mut Wire, stream: u32) {
    wire.head(stream, &[("content-type", "application/json")], false);
}

fn faults() -> Vec<Fault> {
    let resets = [
        ("reset before the head: NO_ERROR", NO_ERROR),
        ("reset before the head: INTERNAL_ERROR", INTERNAL_ERROR),
        ("reset before the head: CANCEL", CANCEL),
        ("reset before the head: ENHANCE_YOUR_CALM", ENHANCE_YOUR_CALM),
        ("reset before the head: HTTP_1_1_REQUIRED", 13),
        ("reset before the head: a code that nobody knows", 0x99),
    ];
    let mut all: Vec<Fault> = resets
        .into_iter()
        .flat_map(|(name, reason)| {
            let act = move |wire: &mut Wire, stream: u32| wire.reset(stream, reason);
            [fault(name, "truncated", act), fault(name, "truncated", act).grpc()]
        })
        .collect();
    all.extend(after_the_head());
    all.extend(ends_of_connections());
    all.extend(of_grpc());
    all
}

fn after_the_head() -> Vec<Fault> {
    let refused = |wire: &mut Wire, stream: u32| wire.reset(stream, REFUSED_STREAM);
    vec![
        fault("reset before the head: REFUSED_STREAM", "ok", refused).again(),
        fault("reset before the head: REFUSED_STREAM", "ok", refused).again().grpc(),
        fault("REFUSED_STREAM after the head", "truncated", |wire, stream| {
            json_head(wire, stream);
            wire.reset(stream, REFUSED_STREAM);
        }),
        fault("reset after the head", "truncated", |wire, stream| {
            json_head(wire, stream);
            wire.reset(stream, CANCEL);
        }),
        fault("reset inside the body", "truncated", |wire, stream| {
            json_head(wire, stream);
            wire.data(stream, b"{\"a\":", false);
            wire.reset(stream, NO_ERROR);
        }),
        fault("reset of a whole answer", "ok", |wire, stream| {
            wire.say(stream);
            wire.reset(stream, NO_ERROR);
        }),
        fault("body longer than its content-length", "protocol_error", |wire, stream| {
            wire.head(stream, &[("content-type", "application/json"), ("content-length", "2")], false);
            wire.data(stream, b"{\"a\":1}", true);
        }),
        fault("body shorter than its content-length", "protocol_error", |wire, stream| {
            wire.head(stream, &[("content-type", "application/json"), ("content-length", "20")], false);
            wire.data(stream, b"{\"a\":1}", true);
        }),
        fault("upper-case name in the head", "protocol_error", |wire, stream| {
            wire.head(stream, &[("Content-Type", "application/json")], true);
        })
        .spreads(),
        fault("window of a stream raised by 0", "protocol_error", |wire, stream| {
            wire.frame(WINDOW_UPDATE, 0, stream, &[0; 4]);
        })
        .spreads(),
        fault("frame of a kind that nobody knows", "ok", |wire, stream| {
            wire.frame(0xee, 0xff, stream, b"whatever");
            wire.say(stream);
        }),
    ]
}

fn ends_of_connections() -> Vec<Fault> {
    vec![
        fault("GOAWAY above the stream", "ok", |wire, stream| {
            wire.go_away(stream - 2, NO_ERROR);
            wire.hang_up();
        })
        .again()
        .spreads(),
        fault("GOAWAY that includes the stream, then the end", "truncated", |wire, stream| {
            wire.go_away(stream, INTERNAL_ERROR);
            wire.hang_up();
        })
        .spreads(),
        fault("GOAWAY NO_ERROR that includes the stream, then the end", "truncated", |wire, stream| {
            wire.go_away(stream, NO_ERROR);
            wire.hang_up();
        })
        .spreads(),
        fault("end of a used connection before any answer", "ok", |wire, _| wire.hang_up()).again().spreads(),
        fault("end inside the answer", "truncated", |wire, stream| {
            json_head(wire, stream);
            wire.data(stream, b"{\"a\":", false);
            wire.hang_up();
        })
        .spreads(),
        fault("DATA on stream 0", "protocol_error", |wire, _| wire.frame(DATA, 0, 0, b"x")).spreads(),
        fault("head that cannot be decompressed", "protocol_error", |wire, stream| {
            wire.frame(HEADERS, 4 | END_STREAM, stream, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        })
        .spreads(),
        fault("SETTINGS of a wrong length", "protocol_error", |wire, _| wire.frame(SETTINGS, 0, 0, b"abc")).spreads(),
        fault("PING of a wrong length", "protocol_error", |wire, _| wire.frame(PING, 0, 0, b"abc")).spreads(),
        fault("frame longer than was allowed", "protocol_error", |wire, stream| {
            wire.frame(DATA, 0, stream, &vec![0; (1 << 20) + 1]);
        })
        .spreads(),
        fault("answer on a stream that was never opened", "protocol_error", |wire, stream| {
            wire.head(stream + 1_000_000, &[], true);
        })
        .spreads(),
    ]
}

fn of_grpc() -> Vec<Fault> {
    vec![
        fault("no trailers", "truncated", |wire, stream| {
            grpc_begin(wire, stream);
            wire.data(stream, b"", true);
        })
        .grpc(),
        fault("trailers without a status", "truncated", |wire, stream| {
            grpc_begin(wire, stream);
            wire.trailers(stream, &[("x", "y")]);
        })
        .grpc(),
        fault("status UNAVAILABLE in the trailers", "api_error", |wire, stream| {
            grpc_begin(wire, stream);
            wire.trailers(stream, &[("grpc-status", "14")]);
        })
        .grpc(),
        fault("status RESOURCE_EXHAUSTED without an answer", "api_error", |wire, stream| {
            wire.head(stream, &[("content-type", "application/grpc"), ("grpc-status", "8")], true);
        })
        .grpc(),
        fault("reset between a message and its status", "truncated", |wire, stream| {
            grpc_begin(wire, stream);
            wire.reset(stream, INTERNAL_ERROR);
        })
        .grpc(),
        fault("compressed message", "protocol_error", |wire, stream| {
            wire.head(stream, &[("content-type", "application/grpc")], false);
            wire.data(stream, b"\x01\0\0\0\x03abc", false);
            wire.trailers(stream, &[("grpc-status", "0")]);
        })
        .grpc(),
        fault("end inside a message", "truncated", |wire, stream| {
            wire.head(stream, &[("content-type", "application/grpc")], false);
            wire.data(stream, b"\0\0\0\0\x03ab", false);
            wire.trailers(stream, &[("grpc-status", "0")]);
        })
        .grpc(),
        fault("end of the connection inside a message", "truncated", |wire, stream| {
            wire.head(stream, &[("content-type", "application/grpc")], false);
            wire.data(stream, b"\0\0\0\0\x03ab", false);
            wire.hang_up();
        })
        .grpc()
        .spreads(),
        fault("GOAWAY above the stream", "ok", |wire, stream| {
            wire.go_away(stream - 2, NO_ERROR);
            wire.hang_up();
        })
        .again()
        .spreads()
        .grpc(),
    ]
}

/// A server that does this to every third request, unless it is the first of its connection.
fn faulty(fault: &Fault) -> (Server, Arc<AtomicUsize>) {
    let (act, transport) = (fault.act.clone(), fault.transport);
    let done = Arc::<AtomicUsize>::default();
    let acts = done.clone();
    let server = serve(&[], move |wire, Request { number, of_connection, stream }| {
        if wire.silent {
            // The connection is over: whatever still comes is only counted.
        } else if number % EVERY == EVERY - 1 && of_connection > 0 {
            acts.fetch_add(1, Ordering::SeqCst);
            act(wire, stream);
        } else {
            good(wire, stream, transport);
        }
    });
    (server, done)
}

#[test]
fn every_request_that_a_server_counted_is_a_row_or_asked_again_under_each_fault() {
    for fault in faults() {
        for streams in [1, 4] {
            for load in loads() {
                let (server, acts) = faulty(&fault);
                let (outcome, rows) = run(target(server.port, fault.transport, streams, ""), &load, COUNT);
                let told = format!("{} ({}, {streams}, {load}): {:?}", fault.name, fault.transport, outcome.errors);
                let Balance { rows, sent, asked_again } = balance(&outcome, &rows);
                assert_eq!((rows, sent), (COUNT, COUNT), "{told}");
                assert_eq!(server.heads(sent + asked_again), sent + asked_again, "{told}");
                let acts = acts.load(Ordering::SeqCst) as u64;
                assert!(acts > 3, "{told}");
                if streams > 1 && fault.spreads {
                    continue;
                }
                // What is asked again may meet the same fault, and fails then.
                let (outcome_of_it, failed) = match (fault.again, fault.outcome) {
                    (true, _) => ("truncated", acts - asked_again),
                    (false, "ok") => ("ok", 0),
                    (false, outcome) => (outcome, acts),
                };
                assert_eq!(asked_again > 0, fault.again, "{told}");
                let mut want = BTreeMap::from([("ok", COUNT - failed)]);
                want.extend((failed > 0).then_some((outcome_of_it, failed)));
                assert_eq!(outcome.outcomes, want, "{told}");
            }
        }
    }
}

/// No answer ever comes in these; what counts is what has left by then.
const SOON: &str = r#","timeout_ns":100000000"#;

#[test]
fn a_request_that_waits_for_a_stream_was_not_sent_and_says_so() {
    for streams in [1, 4] {
        let server = serve(&[(MAX_CONCURRENT_STREAMS, 0)], |_, _| {});
        let (outcome, rows) = run(target(server.port, "http2", streams, SOON), &loads()[0], 12);
        let Balance { rows, sent, asked_again } = balance(&outcome, &rows);
        assert_eq!((rows, asked_again), (12, 0));
        assert_eq!(outcome.outcomes, [("timeout", 12)].into());
        assert_eq!(server.heads(sent), sent, "what the server saw, and what we say that we sent");
        // A slot's own connection may be used before the server's settings have come.
        let early = if streams == 1 { server.connections.load(Ordering::SeqCst) as u64 } else { 0 };
        assert!(sent <= early, "{sent} of {early}");
        let held = "it was not sent, the server allows 0 requests at a time on a connection";
        let told: u64 = outcome.errors.iter().filter(|e| e.message.contains(held)).map(|e| e.count).sum();
        assert_eq!(told, 12 - sent, "{:?}", outcome.errors);
    }
}

#[test]
fn a_body_that_waits_for_a_window_counts_by_what_has_left_and_says_so() {
    for streams in [1, 4] {
        let server = serve(&[(INITIAL_WINDOW_SIZE, 0)], |_, _| {});
        let (outcome, rows) = run(target(server.port, "http2", streams, SOON), &loads()[0], 12);
        assert_eq!(balance(&outcome, &rows), Balance { rows: 12, sent: 12, asked_again: 0 });
        assert_eq!(outcome.outcomes, [("timeout", 12)].into());
        let out = column::<UInt64Type>(&rows, "bytes_out");
        let bytes = out.iter().sum::<u64>();
        assert_eq!((server.heads(12), server.bodies(bytes)), (12, bytes));
        let held = "0 of the 8 bytes of its body were sent, the server's window is full";
        let told: u64 = outcome.errors.iter().filter(|e| e.message.contains(held)).map(|e| e.count).sum();
        assert_eq!(told, out.iter().filter(|n| **n == 0).count() as u64, "{:?}", outcome.errors);
        assert!(told >= 8, "{:?}", outcome.errors);
    }
}

#[test]
fn a_request_behind_a_flood_that_nobody_reads_the_acknowledgements_of_was_not_sent() {
    for (kind, payload) in [(SETTINGS, &[][..]), (PING, &[7; 8])] {
        let (full, is_full) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let (full, goes_on) = (Mutex::new(full), Mutex::new(goes_on));
        let server = serve(&[], move |wire, Request { stream, .. }| {
            wire.say(stream);
            wire.flood(kind, payload);
            full.lock().unwrap().send(()).unwrap();
            // Nothing is read until the test has what it wants.
            let _told = goes_on.lock().unwrap().recv();
        });
        let target = target(server.port, "http2", 1, r#","timeout_ns":1500000000"#);
        let session = Session::open(target, vec![Segment::Field(0)], vec![vec![b"question".to_vec()]], 1).unwrap();
        let one = || plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":1}"#);
        let (outcome, _) = finish(&session.level(one()).unwrap());
        assert_eq!(outcome.outcomes, [("ok", 1)].into(), "{:?}", outcome.errors);
        is_full.recv().unwrap();
        let (outcome, rows) = finish(&session.level(one()).unwrap());
        drop((session, go_on));
        let Balance { rows, sent, asked_again } = balance(&outcome, &rows);
        assert_eq!((rows, asked_again, &outcome.outcomes), (1, 0, &[("timeout", 1)].into()));
        // A client that was only slow to read the flood has room for its request; what left is then read.
        assert_eq!(server.heads(1 + sent), 1 + sent, "{:?}", outcome.errors);
        let told = outcome.errors[0].message.contains("it was not sent, the server reads nothing");
        assert_eq!(told, sent == 0, "{:?}", outcome.errors);
    }
}

#[test]
fn a_request_whose_connections_are_told_to_go_before_it_leaves_was_not_sent() {
    for streams in [1, 4] {
        let leave = |wire: &mut Wire| {
            wire.go_away(0, NO_ERROR);
            wire.hang_up();
        };
        let server = serve_from(&[], leave, |_, _| {});
        let (outcome, rows) = run(target(server.port, "http2", streams, ""), &loads()[0], 12);
        let Balance { rows, sent, asked_again } = balance(&outcome, &rows);
        assert_eq!((rows, outcome.outcomes.get("ok")), (12, None));
        assert_eq!(server.heads(sent + asked_again), sent + asked_again, "{:?}", outcome.errors);
    }
}

#[test]
fn requests_are_sent_when_their_first_byte_has_left_and_before_their_answer() {
    for streams in [1, 4] {
        for load in loads() {
            let server = serve(&[(MAX_CONCURRENT_STREAMS, 2)], |wire, Request { stream, .. }| wire.say(stream));
            let (outcome, rows) = run(target(server.port, "http2", streams, ""), &load, COUNT);
            assert_eq!(outcome.outcomes, [("ok", COUNT)].into(), "{:?}", outcome.errors);
            assert_eq!(balance(&outcome, &rows), Balance { rows: COUNT, sent: COUNT, asked_again: 0 });
            let [fired, sent, first] =
                ["fired_ns", "sent_ns", "first_byte_ns"].map(|name| column::<Int64Type>(&rows, name));
            assert!(fired.iter().zip(&sent).zip(&first).all(|((fired, sent), first)| fired <= sent && sent < first));
        }
    }
}

/// The server's own clock says when it let the request go.
#[test]
fn a_request_that_waited_for_a_stream_is_sent_when_it_leaves() {
    for streams in [1, 4] {
        let raised = Arc::<Mutex<Vec<i64>>>::default();
        let raises = raised.clone();
        let server = serve(&[], move |wire, Request { stream, .. }| {
            let allow = |wire: &mut Wire, n: u8| {
                wire.frame(SETTINGS, 0, 0, &[&MAX_CONCURRENT_STREAMS.to_be_bytes()[..], &[0, 0, 0, n]].concat());
            };
            allow(wire, 0);
            wire.say(stream);
            std::thread::sleep(std::time::Duration::from_millis(30));
            raises.lock().unwrap().push(gpusize_base::clock::now_ns());
            allow(wire, 1);
        });
        let (outcome, rows) = run(target(server.port, "http2", streams, ""), r#"{"closed":{"concurrency":1}}"#, 5);
        assert_eq!(outcome.outcomes, [("ok", 5)].into(), "{:?}", outcome.errors);
        let sent = column::<Int64Type>(&rows, "sent_ns");
        let raised = raised.lock().unwrap();
        if outcome.connects == 1 {
            assert!(sent[1..].iter().zip(raised.iter()).all(|(sent, raised)| sent >= raised), "{sent:?} {raised:?}");
        }
        assert!(streams > 1 || outcome.connects == 1);
    }
}
