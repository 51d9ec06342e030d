//! What the engine reads of an answer: typed events, reasoning, calls, errors in a stream, large bodies, mixes.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;
#[path = "../../gpusize-base/src/test_folder.rs"]
mod test_folder;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use engine_common::{column, finish, plan, serve, target};
use gpusize_engine::engine::{LevelOutcome, Session};
use gpusize_engine::outcome::Outcome;
use gpusize_engine::spec::{Mix, Segment};
use gpusize_simulator::{ClusterConfig, SimServer};

const RESPONSES: &str = r#","response":{
    "content":[{"at":"/delta","if":{"at":"/type","is":["response.output_text.delta"]}}],
    "reasoning":[{"at":"/delta","if":{"at":"/type","is":["response.reasoning_text.delta"]}}],
    "tokens_in":"/response/usage/input_tokens","tokens_out":"/response/usage/output_tokens",
    "error":["/response/error","/error",{"at":"/message","if":{"at":"/type","is":["error"]}}],
    "end":{"at":"/type","is":["response.completed","response.incomplete"]}}"#;

const CREATED: &str = r#"{"type":"response.created","response":{"id":"r","error":null,"usage":null}}"#;
const THOUGHT: &str = r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#;
const WORD: &str = r#"{"type":"response.output_text.delta","delta":"word"}"#;
const DONE: &str =
    r#"{"type":"response.completed","response":{"error":null,"usage":{"input_tokens":5,"output_tokens":3}}}"#;

/// A server that streams `lines` to every request, `step` bytes at a time, and keeps the connection.
fn stream(lines: String, step: usize) -> u16 {
    let send = move |socket: &mut TcpStream| -> std::io::Result<()> {
        socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        for piece in lines.as_bytes().chunks(step) {
            socket.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
            socket.write_all(piece)?;
            socket.write_all(b"\r\n")?;
        }
        socket.write_all(b"0\r\n\r\n")
    };
    serve(move |_, socket| send(socket).is_ok()).0
}

fn events(data: &[&str]) -> String {
    data.iter().flat_map(|d| ["event: x\ndata: ", d, "\n\n"]).collect()
}

fn load(port: u16, more: &str, count: u32) -> (LevelOutcome, Vec<RecordBatch>) {
    let session = Session::open(target(port, more), vec![], vec![vec![]], 1).unwrap();
    let stop = format!(r#"{{"count":{count}}}"#);
    finish(&session.level(plan(r#"{"closed":{"concurrency":1}}"#, &stop)).unwrap())
}

#[test]
fn a_stream_of_typed_events_tells_reasoning_from_output() {
    for step in [1, 7, 4096] {
        let port = stream(format!(": hello\n\n{}", events(&[CREATED, THOUGHT, THOUGHT, WORD, WORD, WORD, DONE])), step);
        let (outcome, rows) = load(port, RESPONSES, 3);
        assert_eq!(outcome.outcomes, [("ok", 3)].into(), "{:?}", outcome.errors);
        assert_eq!(column::<UInt32Type>(&rows, "events"), [5; 3]);
        assert_eq!(column::<UInt32Type>(&rows, "reasoning_events"), [2; 3]);
        assert_eq!(column::<UInt32Type>(&rows, "tokens_in"), [5; 3]);
        assert_eq!(column::<UInt32Type>(&rows, "tokens_out"), [3; 3]);
        let [first, output, last] =
            ["first_token_ns", "first_output_ns", "last_token_ns"].map(|n| column::<Int64Type>(&rows, n));
        assert!(first.iter().zip(&output).zip(&last).all(|((f, o), l)| f <= o && o <= l));
    }
}

#[test]
fn an_error_inside_a_stream_and_a_missing_end_are_seen() {
    let failed = r#"{"type":"response.failed","response":{"error":{"code":"x","message":"out of blocks"}}}"#;
    let error = r#"{"type":"error","message":"too many"}"#;
    for (lines, name, message) in [
        (events(&[CREATED, WORD, failed]), "api_error", "out of blocks"),
        (events(&[CREATED, WORD, error]), "api_error", "too many"),
        (events(&[CREATED, WORD]), "truncated", "without its end marker"),
        (events(&[CREATED, WORD, "[DONE]"]), "protocol_error", "not JSON"),
    ] {
        let (outcome, rows) = load(stream(lines, 64), RESPONSES, 1);
        assert_eq!(outcome.outcomes.keys().copied().collect::<Vec<_>>(), [name]);
        assert!(outcome.errors[0].message.contains(message), "{:?}", outcome.errors);
        assert_eq!(column::<UInt32Type>(&rows, "events"), [1]);
    }
    let (outcome, _) = load(stream(events(&[DONE, "[DONE]"]), 64), RESPONSES, 1);
    assert_eq!(outcome.outcomes, [("ok", 1)].into());
}

#[test]
fn the_times_of_events_are_kept_when_asked_for_and_agree_with_the_digest() {
    let lines = events(&[CREATED, WORD, WORD, THOUGHT, WORD, WORD, DONE]);
    let (_, rows) = load(stream(lines.clone(), 10), &format!("{RESPONSES},\"record_events\":true"), 4);
    let mut seen = 0;
    for batch in &rows {
        let lists = batch.column_by_name("events_ns").unwrap().as_list::<i32>();
        let value = |name: &str, row: usize| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(row);
        for row in 0..batch.num_rows() {
            let list = lists.value(row);
            let times = list.as_primitive::<Int64Type>().values();
            assert_eq!(times.len(), 5);
            let mut gaps: Vec<i64> = times.windows(2).map(|w| w[1] - w[0]).collect();
            gaps.sort_unstable();
            let names = ["itl_min_ns", "itl_mean_ns", "itl_p50_ns", "itl_p99_ns", "itl_max_ns"];
            let want = [gaps[0], gaps.iter().sum::<i64>() / 4, gaps[1], gaps[3], gaps[3]];
            assert_eq!(names.map(|n| value(n, row)), want);
            assert_eq!((times[0], times[4]), (value("first_token_ns", row), value("last_token_ns", row)));
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
    let (_, rows) = load(stream(lines, 4096), RESPONSES, 1);
    assert!(rows[0].column_by_name("events_ns").is_none());
}

#[test]
fn one_event_has_no_gaps_and_a_plain_answer_no_events() {
    let (_, rows) = load(stream(events(&[WORD, DONE]), 4096), RESPONSES, 1);
    assert_eq!(
        (column::<UInt32Type>(&rows, "events"), rows[0].column_by_name("itl_p50_ns").unwrap().null_count()),
        (vec![1], 1)
    );
    let (port, _) = serve(engine_common::hello);
    let (_, rows) = load(port, "", 1);
    for name in ["first_output_ns", "itl_min_ns", "itl_max_ns", "session", "turn"] {
        assert_eq!(rows[0].column_by_name(name).unwrap().null_count(), 1, "{name}");
    }
    assert_eq!(column::<UInt32Type>(&rows, "reasoning_events"), [0]);
}

#[test]
fn what_a_success_has_to_say_is_asked_of_whole_answers_and_streams() {
    let whole = |body: &'static str| {
        serve(move |_, s| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
            s.write_all(format!("{head}{body}").as_bytes()).is_ok()
        })
        .0
    };
    let spec = r#","response":{"json":"by_type","success_if":{"at":"/status","is":["ok"]}}"#;
    for (port, name, message) in [
        (whole(r#"{"status":"ok"}"#), "ok", ""),
        (whole(r#"{"status":"failed","message":"no GPU"}"#), "api_error", "/status that is ok; it says: no GPU"),
        (whole("status: ok"), "api_error", "success_if"),
        (stream(events(&[r#"{"a":1}"#, r#"{"status":"ok"}"#, r#"{"status":"x"}"#]), 9), "ok", ""),
        (stream(events(&[r#"{"a":1}"#]), 9), "api_error", "success_if"),
    ] {
        let (outcome, _) = load(port, spec, 1);
        assert_eq!(outcome.outcomes.keys().copied().collect::<Vec<_>>(), [name]);
        let said = outcome.errors.first().map(|e| e.message.as_str()).unwrap_or_default();
        assert!(said.contains(message) && said.is_empty() == message.is_empty(), "{said}");
    }
}

#[test]
fn intermediate_steps_become_calls() {
    let step = |as_text: bool, kind: &str, id: &str, ms: u64| {
        let time = 1_700_000_000_000 + ms;
        let payload = format!(
            "{{\"event_type\":\"{kind}\",\"UUID\":\"{id}\",\"name\":\"llama\",\"event_timestamp\":{}.{:03}}}",
            time / 1000,
            time % 1000
        );
        let payload = if as_text { serde_json::to_string(&payload).unwrap() } else { payload };
        format!("intermediate_data: {{\"id\":\"s\",\"payload\":{payload}}}\n\n")
    };
    let lines = |as_text: bool| -> String {
        [
            step(as_text, "LLM_START", "a", 0),
            step(as_text, "LLM_START", "b", 100),
            step(as_text, "TOOL_START", "t", 110),
            step(as_text, "LLM_END", "a", 350),
            step(as_text, "LLM_END", "b", 1100),
            step(as_text, "LLM_START", "c", 1200),
            "data: {\"value\":\"answer\"}\n\n".to_owned(),
        ]
        .concat()
    };
    let response = r#","response":{"content":["/value"],"calls":{"field":"intermediate_data","kind":"/payload/event_type",
        "start":"LLM_START","end":"LLM_END","id":"/payload/UUID","name":"/payload/name","time_s":"/payload/event_timestamp"}}"#;
    let root = test_folder::fresh("calls");
    std::fs::create_dir_all(root.join("records")).unwrap();
    for (step, as_text) in [(1, false), (50, false), (1, true), (50, true)] {
        let session = Session::open(target(stream(lines(as_text), step), response), vec![], vec![vec![]], 1).unwrap();
        let mut plan = plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":2}"#);
        plan.dir = Some(root.join("records").to_string_lossy().into_owned());
        plan.keep_bytes = 1 << 20;
        let level = session.level(plan).unwrap();
        let (outcome, rows) = finish(&level);
        assert_eq!((outcome.outcomes.clone(), outcome.spans), ([("ok", 2)].into(), 6), "{:?}", outcome.errors);
        assert_eq!(outcome.span_parts, ["part-00000.parquet"]);
        assert!(root.join("spans/part-00000.parquet").exists());
        assert_eq!(column::<UInt32Type>(&rows, "events"), [1, 1], "a step is no content");
        let spans = level.spans().unwrap();
        assert_eq!(column::<UInt64Type>(&spans, "seq"), [0, 0, 0, 1, 1, 1]);
        assert_eq!(column::<UInt32Type>(&spans, "call"), [0, 1, 2, 0, 1, 2]);
        let (ok, cut) = (Outcome::Ok as u8, Outcome::Truncated as u8);
        assert_eq!(column::<UInt8Type>(&spans, "outcome"), [ok, ok, cut, ok, ok, cut]);
        let (start, end) = (column::<Int64Type>(&spans, "start_ns"), column::<Int64Type>(&spans, "end_ns"));
        assert_eq!(
            (end[0] - start[0], end[1] - start[1], start[2] - start[0]),
            (350_000_000, 1_000_000_000, 1_200_000_000)
        );
        assert!(spans[0].column_by_name("end_ns").unwrap().is_null(2));
    }
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn the_calls_of_a_simulated_workflow_lie_inside_their_requests() {
    let server = SimServer::start(ClusterConfig::default(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let mut spec = target(
        server.local_addr().port(),
        r#","headers":[["Content-Type","application/json"]],"response":{"content":["/value"],
            "calls":{"field":"intermediate_data","kind":"/payload/event_type","start":"LLM_START","end":"LLM_END",
                "id":"/payload/UUID","name":"/payload/name","time_s":"/payload/event_timestamp",
                "tokens_in":"/payload/usage_info/token_usage/prompt_tokens",
                "tokens_out":"/payload/usage_info/token_usage/completion_tokens"}}"#,
    );
    (spec.method, spec.path) = ("POST".into(), "/generate/full".into());
    let body = Segment::Static(r#"{"input_message":"hello"}"#.into());
    let session = Session::open(spec, vec![body], vec![vec![]], 1).unwrap();
    let level = session.level(plan(r#"{"closed":{"concurrency":4}}"#, r#"{"count":12}"#)).unwrap();
    let (outcome, _) = finish(&level);
    assert_eq!((outcome.outcomes.clone(), outcome.spans), ([("ok", 12)].into(), 12), "{:?}", outcome.errors);
    let spans = level.spans().unwrap();
    assert_eq!(column::<UInt8Type>(&spans, "outcome"), [Outcome::Ok as u8; 12]);
    let (start, end) = (column::<Int64Type>(&spans, "start_ns"), column::<Int64Type>(&spans, "end_ns"));
    assert!(start.iter().zip(&end).all(|(start, end)| start < end));
    assert!(column::<UInt32Type>(&spans, "tokens_out").iter().all(|tokens| *tokens > 0));
}

#[test]
fn a_mix_sends_each_row_its_own_way_and_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, requests) = channel();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut held = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = socket.read(&mut buffer) {
            held.extend_from_slice(&buffer[..n]);
            let text = String::from_utf8(std::mem::take(&mut held)).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            seen.send(format!("{} {}", head.split(' ').nth(1).unwrap(), body)).unwrap();
            engine_common::hello(0, &mut socket);
        }
    });
    let mix: Mix = serde_json::from_str(
        r#"{"requests":[{"path":"/a","segments":[{"field":0}],"model":0},{"path":"/b","segments":[{"static":"b"}],"model":4}],
            "of_row":[0,1,0],"sessions":[7,7,9],"turns":[0,1,0]}"#,
    )
    .unwrap();
    let rows = vec![vec![b"x".to_vec()], vec![], vec![b"y".to_vec()]];
    let mut spec = target(port, "");
    spec.method = "POST".into();
    let session = Session::open_mix(spec, vec![], rows, Some(mix), 1).unwrap();
    let (outcome, rows) = finish(&session.level(plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":6}"#)).unwrap());
    assert_eq!(outcome.outcomes, [("ok", 6)].into());
    let sent: Vec<String> = requests.try_iter().collect();
    assert_eq!(sent, ["/a x", "/b b", "/a y", "/a x", "/b b", "/a y"]);
    assert_eq!(column::<UInt16Type>(&rows, "model"), [0, 4, 0, 0, 4, 0]);
    assert_eq!(column::<UInt64Type>(&rows, "session"), [7, 7, 9, 7, 7, 9]);
    assert_eq!(column::<UInt16Type>(&rows, "turn"), [0, 1, 0, 0, 1, 0]);
    assert_eq!(rows[0].column_by_name("session").unwrap().null_count(), 0);
}

#[test]
fn large_bodies_go_and_come_whole_on_a_connection_that_is_kept() {
    const SIZE: usize = 3 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut sums = Vec::new();
        loop {
            let mut head = Vec::new();
            let mut byte = [0; 1];
            while !head.ends_with(b"\r\n\r\n") {
                match socket.read(&mut byte) {
                    Ok(1) => head.push(byte[0]),
                    _ => return sums,
                }
            }
            let head = String::from_utf8(head).unwrap();
            let length = head.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            socket.read_exact(&mut body).unwrap();
            sums.push((body.len(), body.iter().map(|b| u64::from(*b)).sum::<u64>()));
            // A large answer, then a small one, in turn: the connection must come back from waiting for much.
            let answer = vec![b'y'; if sums.len() % 2 == 1 { SIZE } else { 5 }];
            socket
                .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len()).as_bytes())
                .unwrap();
            socket.write_all(&answer).unwrap();
        }
    });
    let segments = vec![Segment::Counter { start: 100 }, Segment::Field(0), Segment::Static("!".into())];
    let mut spec = target(port, "");
    spec.method = "POST".into();
    let session = Session::open(spec, segments, vec![vec![vec![1; SIZE]]], 1).unwrap();
    let (outcome, rows) = finish(&session.level(plan(r#"{"closed":{"concurrency":1}}"#, r#"{"count":6}"#)).unwrap());
    drop(session);
    assert_eq!((outcome.outcomes, outcome.connects), ([("ok", 6)].into(), 1), "{:?}", outcome.errors);
    let digits = |seq: u64| (100 + seq).to_string().bytes().map(u64::from).sum::<u64>();
    let want: Vec<_> = (0..6).map(|seq| (SIZE + 4, digits(seq) + SIZE as u64 + u64::from(b'!'))).collect();
    assert_eq!(server.join().unwrap(), want);
    let (read, written) = (column::<UInt64Type>(&rows, "bytes_in"), column::<UInt64Type>(&rows, "bytes_out"));
    assert!((0..6).all(|i| (read[i] > SIZE as u64) == (i % 2 == 0)), "{read:?}");
    assert!(written.iter().all(|b| *b > SIZE as u64), "{written:?}");
}

#[test]
fn a_large_answer_of_unknown_length_comes_whole() {
    let body: String = (0..200_000).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
    let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let text = format!(r#"{{"text":"{body}","usage":{{"out":41}}}}"#);
    let (port, _) = serve(move |_, socket| {
        let mut wire = answer.as_bytes().to_vec();
        for piece in text.as_bytes().chunks(60_000) {
            wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            wire.extend_from_slice(piece);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        socket.write_all(&wire).is_ok()
    });
    let (outcome, rows) = load(port, r#","response":{"tokens_out":"/usage/out"}"#, 5);
    assert_eq!((outcome.outcomes, outcome.connects), ([("ok", 5)].into(), 1), "{:?}", outcome.errors);
    assert_eq!(column::<UInt32Type>(&rows, "tokens_out"), [41; 5]);
}
