//! Users of a closed loop that come, go and think, and conversations of several turns.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;
mod http2_common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use engine_common::{at_rate, column, finish, hello, open, plan, serve, target};
use gpusize_engine::engine::Session;
use gpusize_engine::spec::{Mix, Segment, TargetSpec};
use http2_common::{Call, Rules};

/// Due times by connection, in the order of their first.
fn by_connection(rows: &[RecordBatch]) -> Vec<Vec<i64>> {
    let mut found = BTreeMap::<(u16, u32), Vec<i64>>::new();
    let key = column::<UInt16Type>(rows, "worker").into_iter().zip(column::<UInt32Type>(rows, "conn"));
    for (key, due) in key.zip(column::<Int64Type>(rows, "due_ns")) {
        found.entry(key).or_default().push(due);
    }
    let mut all: Vec<_> = found.into_values().collect();
    for due in &mut all {
        due.sort_unstable();
    }
    all.sort_unstable();
    all
}

#[test]
fn users_come_and_go_along_a_line() {
    const RAMP_NS: i64 = 140_000_000;
    let (port, _) = serve(hello);
    // The last one comes, and the one that stays is seen, however long a thread is stopped on a busy machine.
    let stop = r#"{"duration_ns":1200000000}"#;
    for workers in [1, 3] {
        let session = open(port, workers);
        let load = |from: u32, to: u32| {
            let think = r#""think":{"fixed":2000000}"#;
            format!(r#"{{"closed":{{"concurrency":{to},"from":{from},"ramp_ns":{RAMP_NS},{think}}}}}"#)
        };
        let (outcome, rows) = finish(&session.level(plan(&load(1, 8), stop)).unwrap());
        let first: Vec<i64> = by_connection(&rows).iter().map(|due| due[0] - outcome.start_ns).collect();
        assert_eq!(first, (0..8).map(|k| k * RAMP_NS / 7).collect::<Vec<_>>(), "each begins in its moment");
        let (outcome, rows) = finish(&session.level(plan(&load(8, 1), stop)).unwrap());
        let mut last: Vec<i64> =
            by_connection(&rows).iter().map(|due| due.last().unwrap() - outcome.start_ns).collect();
        last.sort_unstable();
        assert!(last.iter().zip(1..8).all(|(last, k)| *last < k * RAMP_NS / 7), "{last:?}");
        assert_eq!((last.len(), last[7] >= RAMP_NS), (8, true), "one stays: {last:?}");
    }
}

#[test]
fn a_ramp_takes_running_users_over() {
    let (port, _) = serve(hello);
    let session = open(port, 1);
    let load = |more: &str| format!(r#"{{"closed":{{"start":"staggered","stagger_ns":0,{more}}}}}"#);
    let think = r#""think":{"fixed":2000000}"#;
    // A step, and what follows the last one, are longer than a thread is stopped on a busy machine.
    let levels = [
        (r#""concurrency":2"#, 500_000_000_i64),
        (r#""concurrency":6,"from":2,"ramp_ns":2400000000"#, 3_200_000_000),
        (r#""concurrency":6"#, 100_000_000),
    ]
    .map(|(more, duration_ns)| {
        let stop = format!(r#"{{"duration_ns":{duration_ns}}}"#);
        session.level(plan(&load(&format!("{more},{think}")), &stop)).unwrap()
    });
    let ends = levels.each_ref().map(finish);
    assert_eq!(ends.each_ref().map(|(outcome, _)| outcome.connects), [2, 4, 0]);
    let first: Vec<i64> = by_connection(&ends[1].1).iter().map(|due| due[0] - ends[1].0.start_ns).collect();
    assert_eq!(first[2..], [600_000_000, 1_200_000_000, 1_800_000_000, 2_400_000_000]);
    assert!(first[1] < 600_000_000, "those that ran go on: {first:?}");
}

#[test]
fn pauses_are_those_of_the_distribution_whatever_the_workers() {
    let (port, _) = serve(hello);
    let load = r#"{"closed":{"concurrency":1,"think":{"uniform":[100000,900000]}}}"#;
    let pauses = |seed: u64| {
        let mut plan = plan(load, r#"{"count":60}"#);
        plan.seed = seed;
        let (_, rows) = finish(&open(port, 1).level(plan).unwrap());
        let (due, end) = (column::<Int64Type>(&rows, "due_ns"), column::<Int64Type>(&rows, "end_ns"));
        due[1..].iter().zip(&end).map(|(due, end)| due - end).collect::<Vec<_>>()
    };
    let first = pauses(3);
    assert!(first.iter().all(|ns| (100_000..=900_000).contains(ns)), "{first:?}");
    assert_eq!((first == pauses(3), first == pauses(4)), (true, false));
}

/// Three conversations of 3, 1 and 2 turns.
const SESSIONS: [u64; 6] = [10, 10, 20, 10, 30, 30];
const TURNS: [u16; 6] = [0, 1, 0, 2, 0, 1];

fn mix(segments: &str) -> Mix {
    let request = format!(r#"{{"path":"/","segments":{segments}}}"#);
    let pauses = "[0,2000000,0,3000000,0,1000000]";
    let json = format!(
        r#"{{"requests":[{request}],"of_row":[0,0,0,0,0,0],"sessions":{SESSIONS:?},"turns":{TURNS:?},"think_ns":{pauses}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

/// Conversations by their number: due, end, row, turn, target and outcome of each turn.
type Talks = BTreeMap<u64, Vec<(u64, i64, i64, u32, u16, u8)>>;

fn talks(rows: &[RecordBatch]) -> Talks {
    let mut found = Talks::new();
    let columns = ["due_ns", "end_ns"].map(|name| column::<Int64Type>(rows, name));
    let (row, target) = (column::<UInt32Type>(rows, "row"), column::<UInt16Type>(rows, "target"));
    let outcome = column::<UInt8Type>(rows, "outcome");
    for (k, seq) in column::<UInt64Type>(rows, "seq").into_iter().enumerate() {
        let turn = (seq % 3, columns[0][k], columns[1][k], row[k], target[k], outcome[k]);
        found.entry(seq / 3).or_default().push(turn);
    }
    for turns in found.values_mut() {
        turns.sort_unstable();
    }
    let turns = column::<UInt16Type>(rows, "turn");
    assert!(turns.iter().zip(&row).all(|(turn, row)| *turn == TURNS[*row as usize]));
    let sessions = column::<UInt64Type>(rows, "session");
    assert!(sessions.iter().zip(&row).all(|(session, row)| *session == SESSIONS[*row as usize]));
    found
}

#[test]
fn conversations_go_turn_by_turn_in_both_kinds_of_loop() {
    let replica = serve(hello);
    let more = format!(r#","replicas":[{{"host":"127.0.0.1","port":{}}}]"#, replica.0);
    for balance in ["round_robin", "least_outstanding"] {
        let more = format!(r#"{more},"balance":"{balance}""#);
        for (load, workers) in [
            (r#"{"closed":{"concurrency":3,"unit":"session","think":"recorded"}}"#.to_owned(), 1),
            (r#"{"closed":{"concurrency":5,"unit":"session","think":"recorded"}}"#.to_owned(), 2),
            (at_rate(2000, "constant", r#","unit":"session","think":"recorded","connections":4"#), 1),
            (at_rate(2000, "poisson", r#","unit":"session","think":"recorded","connections":6"#), 3),
        ] {
            let (port, _) = serve(hello);
            let session =
                Session::open_mix(target(port, &more), vec![], vec![vec![]; 6], Some(mix("[]")), workers).unwrap();
            let (outcome, rows) = finish(&session.level(plan(&load, r#"{"count":30}"#)).unwrap());
            assert_eq!((outcome.stop_reason, &outcome.outcomes), ("count", &[("ok", 60)].into()), "{load}");
            let talks = talks(&rows);
            assert_eq!(talks.keys().copied().collect::<Vec<_>>(), (0..30).collect::<Vec<_>>(), "{load}");
            for (number, turns) in &talks {
                let of = [&[0, 1, 3][..], &[2], &[4, 5]][*number as usize % 3];
                assert_eq!(turns.iter().map(|t| t.3).collect::<Vec<_>>(), of, "{load}");
                assert!(turns.iter().all(|t| t.4 == turns[0].4), "a conversation stays where it began");
                for (k, pair) in turns.windows(2).enumerate() {
                    let pause = [0, 2_000_000, 0, 3_000_000, 0, 1_000_000][of[k + 1] as usize];
                    assert_eq!(pair[1].1, pair[0].2 + pause, "{load}: due a pause after the end of the turn before");
                }
            }
        }
    }
}

#[test]
fn a_turn_that_fails_ends_its_conversation_and_a_thinker_holds_no_connection() {
    // The second request of each connection's life fails; there is one connection.
    let (port, _) = serve(|n, stream| {
        if n == 1 {
            stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").is_ok()
        } else {
            hello(n, stream)
        }
    });
    let think = r#","unit":"session","think":{"fixed":30000000},"connections":1"#;
    let session = Session::open_mix(target(port, ""), vec![], vec![vec![]; 6], Some(mix("[]")), 1).unwrap();
    let (outcome, rows) = finish(&session.level(plan(&at_rate(1000, "constant", think), r#"{"count":3}"#)).unwrap());
    // Conversation 1 has one turn, which fails; those of 0 and 2 lie between each other's.
    assert_eq!((outcome.outcomes, outcome.connects), ([("ok", 5), ("http_error", 1)].into(), 1));
    let talks = talks(&rows);
    assert_eq!(talks.values().map(Vec::len).collect::<Vec<_>>(), [3, 1, 2]);
    assert!(talks[&2][0].1 < talks[&0][1].1, "others go while one thinks");

    let (port, _) = serve(|n, stream| {
        if n == 1 {
            stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").is_ok()
        } else {
            hello(n, stream)
        }
    });
    let session = Session::open_mix(target(port, ""), vec![], vec![vec![]; 6], Some(mix("[]")), 1).unwrap();
    let load = r#"{"closed":{"concurrency":1,"unit":"session"}}"#;
    let (outcome, rows) = finish(&session.level(plan(load, r#"{"count":3}"#)).unwrap());
    assert_eq!(outcome.outcomes, [("ok", 4), ("http_error", 1)].into());
    assert_eq!(self::talks(&rows).values().map(Vec::len).collect::<Vec<_>>(), [2, 1, 2], "its third turn is not sent");
}

#[test]
fn turns_due_after_the_end_of_a_level_are_not_sent() {
    let (port, _) = serve(hello);
    let session = Session::open_mix(target(port, ""), vec![], vec![vec![]; 6], Some(mix("[]")), 2).unwrap();
    let hour = 3_600_000_000_000_i64;
    for load in [
        format!(r#"{{"closed":{{"concurrency":3,"unit":"session","think":{{"fixed":{hour}}}}}}}"#),
        at_rate(300, "constant", &format!(r#","unit":"session","think":{{"fixed":{hour}}}"#)),
    ] {
        let level = session.level(plan(&load, r#"{"duration_ns":50000000}"#)).unwrap();
        let (outcome, rows) = finish(&level);
        assert_eq!((outcome.stop_reason, outcome.due), ("duration", outcome.rows));
        assert!(talks(&rows).values().all(|turns| turns.len() == 1), "{load}");
    }
}

/// A server of HTTP/1.1 that keeps the bodies it is sent, and answers each with its number.
fn bodies(stream: bool) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let kept = seen.clone();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, kept) = (connection.unwrap(), kept.clone());
            std::thread::spawn(move || {
                let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(n @ 1..) = connection.read(&mut buffer) {
                    held.extend_from_slice(&buffer[..n]);
                    let text = String::from_utf8(held.clone()).unwrap();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head.split_once("Content-Length: ").unwrap().1.split("\r\n").next().unwrap();
                    if body.len() < length.parse().unwrap() {
                        continue;
                    }
                    let number = {
                        let mut all = kept.lock().unwrap();
                        all.push(body.to_owned());
                        all.len() - 1
                    };
                    held.clear();
                    connection.write_all(answer(number, stream).as_bytes()).unwrap();
                }
            });
        }
    });
    (port, seen)
}

fn answer(number: usize, stream: bool) -> String {
    let (kind, body) = if stream {
        let events = format!("data: {{\"c\":\"a{number} \"}}\n\ndata: {{\"c\":\"\\\"b\\\"\"}}\n\ndata: [DONE]\n\n");
        ("text/event-stream", events)
    } else {
        ("application/json", format!(r#"{{"c":"a{number} \"b\""}}"#))
    };
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

const CAPTURES: &str =
    r#"[{"static":"1="},{"capture":{"turns_back":1}},{"static":";2="},{"capture":{"turns_back":2}}]"#;

/// What the turns of the three conversations say, one after another on one connection.
fn captured() -> Vec<&'static str> {
    vec!["1=;2=", r#"1=a0 \"b\";2="#, r#"1=a1 \"b\";2=a0 \"b\""#, "1=;2=", "1=;2=", r#"1=a4 \"b\";2="#]
}

#[test]
fn answers_come_back_in_the_turns_that_follow() {
    let load = r#"{"closed":{"concurrency":1,"unit":"session"}}"#;
    for stream in [false, true] {
        let (port, seen) = bodies(stream);
        let end = if stream { r#","end":"[DONE]""# } else { "" };
        let more = format!(r#","response":{{"content":"/c"{end}}}"#);
        let target = TargetSpec { method: "POST".into(), ..target(port, &more) };
        let session = Session::open_mix(target, vec![], vec![vec![]; 6], Some(mix(CAPTURES)), 1).unwrap();
        let (outcome, _) = finish(&session.level(plan(load, r#"{"count":3}"#)).unwrap());
        assert_eq!(outcome.outcomes, [("ok", 6)].into(), "{:?}", outcome.errors);
        assert_eq!(*seen.lock().unwrap(), captured());
        assert!(session.level(plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":3}"#)).is_err());
    }
}

#[test]
fn answers_come_back_over_http2_as_well() {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let kept = seen.clone();
    let server = http2_common::serve(Rules::default(), move |call: Call| {
        kept.lock().unwrap().push(String::from_utf8(call.body.clone()).unwrap());
        async move {
            let body = format!(r#"{{"c":"a{} \"b\""}}"#, call.number);
            call.say(200, "application/json", body);
        }
    });
    let more = r#","transport":"http2","response":{"content":"/c"}"#;
    let target = TargetSpec { method: "POST".into(), ..target(server.port, more) };
    let session = Session::open_mix(target, vec![], vec![vec![]; 6], Some(mix(CAPTURES)), 1).unwrap();
    let load = r#"{"closed":{"concurrency":1,"unit":"session"}}"#;
    let (outcome, _) = finish(&session.level(plan(load, r#"{"count":3}"#)).unwrap());
    assert_eq!(outcome.outcomes, [("ok", 6)].into(), "{:?}", outcome.errors);
    assert_eq!(*seen.lock().unwrap(), captured());
}

#[test]
fn captures_and_pauses_that_cannot_be_meant_are_refused() {
    let (port, _) = serve(hello);
    let open = |more: &str, captures: &str| {
        Session::open_mix(target(port, more), vec![], vec![vec![]; 6], Some(mix(captures)), 1)
    };
    let content = r#","response":{"content":"/c"}"#;
    assert!(open("", CAPTURES).is_err(), "nobody said where contents stand");
    assert!(open(content, r#"[{"capture":{"turns_back":0}}]"#).is_err());
    assert!(open(r#","transport":"grpc","response":{"content":"/c","framing":"kserve"}"#, CAPTURES).is_err());
    let session = open(content, CAPTURES).unwrap();
    assert!(session.probe().unwrap().wait(engine_common::LONG).is_some(), "a probe has nothing before it");
    let plain = Session::open(target(port, ""), vec![Segment::Static("x".into())], vec![vec![]], 1).unwrap();
    let recorded = r#"{"closed":{"concurrency":1,"unit":"session","think":"recorded"}}"#;
    assert!(plain.level(plan(recorded, r#"{"count":1}"#)).is_err(), "there are no recorded pauses");
    assert_eq!(SESSIONS.len(), TURNS.len());
}

#[test]
fn rows_without_a_conversation_are_conversations_of_their_own() {
    let (port, _) = serve(hello);
    let (none, no_turn) = (u64::MAX, u16::MAX);
    let mix = format!(
        r#"{{"requests":[{{"path":"/","segments":[]}}],"of_row":[0,0,0,0],
            "sessions":[7,{none},7,{none}],"turns":[0,{no_turn},{no_turn},{no_turn}]}}"#
    );
    let mix: Mix = serde_json::from_str(&mix).unwrap();
    let session = Session::open_mix(target(port, ""), vec![], vec![vec![]; 4], Some(mix), 1).unwrap();
    let load = r#"{"closed":{"concurrency":1,"unit":"session"}}"#;
    let (outcome, rows) = finish(&session.level(plan(load, r#"{"count":3}"#)).unwrap());
    assert_eq!(outcome.outcomes, [("ok", 4)].into());
    assert_eq!(column::<UInt32Type>(&rows, "row"), [0, 2, 1, 3]);
    let [sessions, turns] = ["session", "turn"].map(|name| rows[0].column_by_name(name).unwrap().clone());
    assert_eq!((0..4).map(|row| sessions.is_valid(row)).collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!((0..4).map(|row| turns.is_valid(row)).collect::<Vec<_>>(), [true, false, false, false]);
}
