//! No silent loss: whatever the pattern, the faults and the moment of a stop, what was due has its record.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt16Type, UInt64Type};
use engine_common::{column, finish, hello, serve, target};
use gpusize_base::draw::Draw;
use gpusize_engine::engine::{Level, LevelOutcome, Session};
use gpusize_engine::spec::{LevelPlan, LoadSpec, Mix, Unit};
use gpusize_load::schedule::{Schedule, Sessions};

const CASES: u64 = 28;
const STAGE_NS: i64 = 120_000_000;
/// Conversations of 3, 2 and 1 turns.
const SESSIONS: [u64; 6] = [1, 1, 2, 1, 2, 3];

/// Draws of one case, one after another.
struct Dice {
    draw: Draw,
    rolled: std::cell::Cell<u64>,
}

impl Dice {
    fn new(case: u64) -> Self {
        Self { draw: Draw::new(20, case, 0), rolled: std::cell::Cell::new(0) }
    }

    fn below(&self, bound: u64) -> u64 {
        self.rolled.set(self.rolled.get() + 1);
        self.draw.u64(self.rolled.get()) % bound
    }

    fn one_of<T: Copy>(&self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Resets, stalls, refusals in mid-stream and failures among good answers; `n` is the request's number.
fn misbehave(draw: Draw, n: usize, stream: &mut TcpStream) -> bool {
    match draw.u64(n as u64) % 12 {
        0 => false,
        1 => stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno").is_ok(),
        2 => {
            std::thread::park_timeout(Duration::from_millis(60));
            false
        }
        3 => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort").is_err(),
        4 => stream.write_all(b"nonsense\r\n\r\n").is_ok(),
        5 => {
            std::thread::park_timeout(Duration::from_millis(8));
            hello(n, stream)
        }
        _ => hello(n, stream),
    }
}

/// A port with a server of some kind behind it, or with none.
fn server(dice: &Dice) -> u16 {
    let draw = Draw::new(dice.below(1000), 0, 1);
    match dice.below(6) {
        0 => TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(),
        1 => {
            serve(|_, _| {
                std::thread::park_timeout(Duration::from_millis(300));
                false
            })
            .0
        }
        2 => serve(hello).0,
        _ => serve(move |n, stream| misbehave(draw, n, stream)).0,
    }
}

fn open(dice: &Dice) -> String {
    let streams: Vec<String> = (0..=dice.below(3))
        .map(|id| {
            let (low, high) = (200 * dice.below(5), 300 + 500 * dice.below(4));
            let (phases, repeat) = match dice.below(3) {
                0 => (format!(r#"[{{"from":{high},"to":{high}}}]"#), false),
                1 => (format!(r#"[{{"duration_ns":{STAGE_NS},"from":{low},"to":{high}}}]"#), false),
                _ => {
                    let piece = |ns: u32, rate: u64| format!(r#"{{"duration_ns":{ns},"from":{rate},"to":{rate}}}"#);
                    (format!("[{},{}]", piece(5_000_000, 4 * high), piece(20_000_000, low / 4)), true)
                }
            };
            let process = dice.one_of(&["constant", "poisson", "gamma"]);
            let rate = format!(r#"{{"phases":{phases},"repeat":{repeat},"process":"{process}","shape":0.5}}"#);
            let (start_ns, priority) = (dice.below(3) * 20_000_000, dice.below(3));
            format!(r#"{{"id":{id},"start_ns":{start_ns},"priority":{priority},"arrivals":{{"rate":{rate}}}}}"#)
        })
        .collect();
    let (connections, queue) = (1 + dice.below(8), dice.one_of(&[0, 3, 40, 10_000]));
    let overload = dice.one_of(&["queue", "shed", "grow"]);
    let unit = dice.one_of(&["request", "request", "session"]);
    format!(
        r#"{{"open":{{"streams":[{}],"connections":{connections},"max_connections":{},"queue":{queue},"overload":"{overload}","unit":"{unit}","think":{{"exponential":3000000}}}}}}"#,
        streams.join(","),
        connections + 6
    )
}

fn closed(dice: &Dice) -> String {
    let (from, to) = (dice.below(6), 1 + dice.below(6));
    let start = dice.one_of(&["burst", "staggered"]);
    let unit = dice.one_of(&["request", "session"]);
    let think = dice.one_of(&[r#"{"fixed":0}"#, r#"{"uniform":[0,4000000]}"#, r#"{"lognormal":[1000000,1.0]}"#]);
    let ramp = if dice.below(2) == 0 { String::new() } else { format!(r#""from":{from},"ramp_ns":60000000,"#) };
    format!(
        r#"{{"closed":{{"concurrency":{to},{ramp}"think":{think},"start":"{start}","stagger_ns":5000000,"unit":"{unit}"}}}}"#
    )
}

fn plan(dice: &Dice, visit: u64) -> LevelPlan {
    let load = if dice.below(4) == 0 { closed(dice) } else { open(dice) };
    let stop = match dice.below(4) {
        0 => format!(r#"{{"count":{},"duration_ns":{STAGE_NS}}}"#, 5 + dice.below(60)),
        1 => format!(r#"{{"duration_ns":{STAGE_NS},"max_error_share":0.5,"min_errors":20}}"#),
        _ => format!(r#"{{"duration_ns":{STAGE_NS}}}"#),
    };
    serde_json::from_str(&format!(r#"{{"visit":{visit},"seed":{visit},"load":{load},"stop":{stop}}}"#)).unwrap()
}

/// Items of the schedule before the level's count or time ends it.
fn schedule(plan: &LevelPlan, sessions: &Arc<Sessions>) -> Vec<(u16, u64, i64)> {
    let LoadSpec::Open(open) = &plan.load else { return Vec::new() };
    let (count, end_ns) = (plan.stop.count.unwrap_or(u64::MAX), plan.stop.duration_ns.unwrap_or(i64::MAX));
    let items = Schedule::by_unit(open, plan.seed, plan.order, sessions, None).unwrap();
    items.take_while(|i| i.index < count && i.offset_ns < end_ns).map(|i| (i.stream, i.seq, i.offset_ns)).collect()
}

fn unit(plan: &LevelPlan) -> Unit {
    match &plan.load {
        LoadSpec::Open(open) => open.unit,
        LoadSpec::Closed(closed) => closed.unit,
    }
}

/// What must hold of every level, however it ended.
fn check(
    case: u64,
    plan: &LevelPlan,
    outcome: &LevelOutcome,
    rows: &[RecordBatch],
    sessions: &Arc<Sessions>,
    workers: usize,
) {
    let about = format!("case {case}: {plan:?} {outcome:?}");
    assert_eq!(outcome.outcomes.values().sum::<u64>(), outcome.due, "{about}");
    let (seq, stream) = (column::<UInt64Type>(rows, "seq"), column::<UInt16Type>(rows, "stream"));
    assert_eq!((outcome.rows, seq.len() as u64), (outcome.due, outcome.due), "{about}");
    let numbers: BTreeSet<_> = stream.iter().zip(&seq).collect();
    assert_eq!(numbers.len(), seq.len(), "a number came twice: {about}");
    let due: Vec<i64> = column::<Int64Type>(rows, "due_ns").iter().map(|ns| ns - outcome.start_ns).collect();
    assert!(due.iter().all(|ns| (0..STAGE_NS).contains(ns)), "{about}");
    if unit(plan) == Unit::Session {
        let mut turns = BTreeMap::<(u16, u64), Vec<u64>>::new();
        for (stream, seq) in stream.iter().zip(&seq) {
            turns.entry((*stream, seq / 3)).or_default().push(seq % 3);
        }
        for mut talk in turns.into_values() {
            talk.sort_unstable();
            assert_eq!(talk, (0..talk.len() as u64).collect::<Vec<_>>(), "a turn is missing: {about}");
        }
    }
    if matches!(plan.load, LoadSpec::Closed(_)) {
        return;
    }
    // Each worker has sent the whole of its stride, or of what was due before it was stopped.
    let (factor, wanted) = (if unit(plan) == Unit::Session { 3 } else { 1 }, schedule(plan, sessions));
    let whole = matches!(outcome.stop_reason, "count" | "duration");
    let found: BTreeMap<_, _> = stream.iter().zip(&seq).map(|(s, q)| (*s, *q)).zip(due).collect();
    for worker in 0..workers {
        let stride: Vec<_> = wanted.iter().skip(worker).step_by(workers).collect();
        let sent = stride.iter().take_while(|(s, q, _)| found.contains_key(&(*s, q * factor))).count();
        assert!(!whole || sent == stride.len(), "worker {worker} left {} out: {about}", stride.len() - sent);
        assert!(stride[..sent].iter().all(|(s, q, ns)| found[&(*s, q * factor)] == *ns), "{about}");
        assert!(stride[sent..].iter().all(|(s, q, _)| !found.contains_key(&(*s, q * factor))), "{about}");
    }
}

#[test]
fn nothing_is_lost_in_any_pattern_under_any_fault() {
    let rows = SESSIONS.len();
    let mix =
        format!(r#"{{"requests":[{{"path":"/","segments":[]}}],"of_row":[0,0,0,0,0,0],"sessions":{SESSIONS:?}}}"#);
    let mix: Mix = serde_json::from_str(&mix).unwrap();
    let sessions = Arc::new(Sessions::new(rows, Some(&SESSIONS), None).unwrap());
    std::thread::scope(|scope| {
        for half in 0..4 {
            let (mix, sessions) = (&mix, &sessions);
            scope.spawn(move || {
                for case in (half..CASES).step_by(4) {
                    run(case, mix, sessions);
                }
            });
        }
    });
}

fn run(case: u64, mix: &Mix, sessions: &Arc<Sessions>) {
    let dice = Dice::new(case);
    let (port, workers) = (server(&dice), 1 + dice.below(3) as usize);
    let target = target(port, r#","timeout_ns":40000000,"connect_timeout_ns":200000000"#);
    let session = Session::open_mix(target, vec![], vec![vec![]; SESSIONS.len()], Some(mix.clone()), workers).unwrap();
    let plans: Vec<LevelPlan> = (0..=dice.below(3)).map(|visit| plan(&dice, visit)).collect();
    let levels: Vec<Level> = plans.iter().map(|plan| session.level(plan.clone()).unwrap()).collect();
    for (level, plan) in levels.iter().zip(&plans) {
        // Half of them are stopped at some moment, and what is left of the others gets some time to drain.
        let wait_ms = if dice.below(2) == 0 { dice.below(150) } else { 600 };
        if !level.wait(Duration::from_millis(wait_ms)) {
            level.stop(dice.below(3) as i64 * 10_000_000);
        }
        let (outcome, rows) = finish(level);
        check(case, plan, &outcome, &rows, sessions, workers);
    }
}
