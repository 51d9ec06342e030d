//! Open loops: streams, boundaries between levels, what becomes of requests that find no free connection.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt64Type};
use engine_common::{at_rate, column, finish, hello, nowhere, open, plan, serve, target};
use gpusize_engine::engine::{Level, Session};
use gpusize_engine::outcome::Outcome;
use gpusize_engine::spec::LevelPlan;
use gpusize_load::schedule::Planned;
use gpusize_load::stop::Reason;

fn silent(_: usize, _: &mut TcpStream) -> bool {
    std::thread::park();
    false
}

fn until_due(level: &Level, due: u64) {
    while level.poll().due < due {
        std::thread::yield_now();
    }
}

/// Levels that are all there before the first of them begins: one that comes after the end of the last begins when it comes.
fn in_a_row(session: &Session, plans: impl Iterator<Item = LevelPlan>) -> Vec<Level> {
    let before = at_rate(1, "constant", r#","connections":8"#);
    let before = session.level(plan(&before, r#"{"duration_ns":3600000000000}"#)).unwrap();
    let levels = plans.map(|plan| session.level(plan).unwrap()).collect();
    before.stop(0);
    levels
}

#[test]
fn stages_follow_each_other_on_the_nanosecond_and_lose_nothing() {
    const STAGE_NS: i64 = 50_000_000;
    let (port, _) = serve(hello);
    for workers in [1, 2] {
        let session = open(port, workers);
        let load = at_rate(1000, "constant", r#","connections":8"#);
        let stop = format!(r#"{{"duration_ns":{STAGE_NS}}}"#);
        let levels = in_a_row(&session, (0..24).map(|_| plan(&load, &stop)));
        let mut next_ns = None;
        for level in &levels {
            let (outcome, rows) = finish(level);
            assert_eq!(
                outcome.start_ns,
                next_ns.unwrap_or(outcome.start_ns),
                "a stage begins where the last has ended"
            );
            assert_eq!((outcome.close_ns - outcome.start_ns, outcome.stop_reason), (STAGE_NS, "duration"));
            next_ns = Some(outcome.close_ns);
            assert_eq!((outcome.due, outcome.rows, &outcome.outcomes), (50, 50, &[("ok", 50)].into()));
            let mut due: Vec<i64> = column::<Int64Type>(&rows, "due_ns").iter().map(|d| d - outcome.start_ns).collect();
            due.sort_unstable();
            assert_eq!(due, (0..50).map(|k| k * 1_000_000).collect::<Vec<_>>());
        }
    }
}

#[test]
fn kinds_of_load_hand_over_on_their_boundaries() {
    const STAGE_NS: i64 = 60_000_000;
    let (port, _) = serve(hello);
    let session = open(port, 2);
    let closed = |c: u32| format!(r#"{{"closed":{{"concurrency":{c},"start":"staggered","stagger_ns":1000000}}}}"#);
    let rate = |r: u32| at_rate(r, "poisson", r#","connections":6"#);
    let loads = [closed(4), rate(800), closed(1), closed(5), rate(300), rate(900), closed(3)];
    let stop = format!(r#"{{"duration_ns":{STAGE_NS}}}"#);
    let levels = in_a_row(&session, loads.iter().map(|load| plan(load, &stop)));
    let mut next_ns = None;
    for (level, load) in levels.iter().zip(&loads) {
        let (outcome, rows) = finish(level);
        assert_eq!(outcome.start_ns, next_ns.unwrap_or(outcome.start_ns), "{load}");
        next_ns = Some(outcome.start_ns + STAGE_NS);
        assert_eq!(Some(outcome.close_ns), next_ns, "{load}");
        // A closed loop whose thread was stopped through all of its time has sent nothing in it.
        let ok = outcome.outcomes.get("ok").copied().unwrap_or(0);
        assert_eq!((outcome.due, outcome.rows), (ok, ok), "{load}: {:?}", outcome.outcomes);
        assert!(ok > 0 || load.contains("closed"), "{load}");
        let due = column::<Int64Type>(&rows, "due_ns");
        assert!(due.iter().all(|d| (outcome.start_ns..outcome.close_ns).contains(d)), "{load}");
    }
}

#[test]
fn closed_loops_that_are_over_before_their_worker_takes_them_over_end() {
    let (port, _) = serve(hello);
    let session = open(port, 1);
    // Both begin in one turn of the worker, which hears the open one's timer before the other's alarm.
    let rate = plan(&at_rate(300, "poisson", r#","connections":6"#), r#"{"duration_ns":30000000}"#);
    let closed = plan(r#"{"closed":{"concurrency":2,"start":"staggered"}}"#, r#"{"duration_ns":1000}"#);
    let levels = in_a_row(&session, [rate, closed].into_iter().cycle().take(11));
    for level in levels.iter().skip(1).step_by(2) {
        let (outcome, _) = finish(level);
        assert_eq!((outcome.close_ns - outcome.start_ns, outcome.stop_reason), (1000, "duration"));
    }
}

#[test]
fn a_level_that_is_stopped_early_is_followed_at_once() {
    let (port, _) = serve(hello);
    let session = open(port, 2);
    let hour = r#"{"duration_ns":3600000000000}"#;
    let first = session.level(plan(&at_rate(500, "constant", ""), hour)).unwrap();
    let second = session.level(plan(&at_rate(500, "constant", ""), r#"{"count":20}"#)).unwrap();
    until_due(&first, 10);
    first.stop_for(1_000_000_000, Reason::Saturation);
    assert_eq!(finish(&second).0.outcomes, [("ok", 20)].into());
    let (outcome, _) = finish(&first);
    assert_eq!((outcome.stop_reason, outcome.rows), ("saturation", outcome.due));
}

#[test]
fn streams_are_told_apart_and_the_higher_priority_goes_first() {
    let (port, _) = serve(|_, stream| {
        std::thread::park_timeout(Duration::from_millis(4));
        hello(0, stream)
    });
    let stream = |id: u32, priority: i32| {
        let rate = r#"{"rate":{"phases":[{"from":4000,"to":4000}]}}"#;
        format!(r#"{{"id":{id},"priority":{priority},"arrivals":{rate},"count":40}}"#)
    };
    let load =
        format!(r#"{{"open":{{"streams":[{},{},{}],"connections":1}}}}"#, stream(0, -1), stream(7, 5), stream(3, 0));
    let session = open(port, 1);
    let (outcome, rows) = finish(&session.level(plan(&load, r#"{"count":120}"#)).unwrap());
    assert_eq!(outcome.outcomes, [("ok", 120)].into());
    let streams = column::<UInt16Type>(&rows, "stream");
    for id in [0, 3, 7] {
        let seq = column::<UInt64Type>(&rows, "seq");
        let mut of: Vec<u64> = seq.iter().zip(&streams).filter(|(_, s)| **s == id).map(|(seq, _)| *seq).collect();
        of.sort_unstable();
        assert_eq!(of, (0..40).collect::<Vec<_>>(), "stream {id}");
    }
    let (fired, sent) = (column::<Int64Type>(&rows, "fired_ns"), column::<Int64Type>(&rows, "sent_ns"));
    let end = column::<Int64Type>(&rows, "end_ns");
    let priority = |row: usize| match streams[row] {
        7 => 5,
        3 => 0,
        _ => -1,
    };
    let mut order: Vec<usize> = (0..sent.len()).collect();
    order.sort_by_key(|row| sent[*row]);
    for pair in order.windows(2) {
        let better = |other: &usize| {
            fired[*other] < end[pair[0]] && sent[*other] > sent[pair[1]] && priority(*other) > priority(pair[1])
        };
        assert!(!order.iter().any(better), "a higher priority waited");
    }
}

/// Outcomes of `count` requests at a server that never answers, stopped when all were due.
fn outcomes(load: &str, workers: usize, count: u64) -> std::collections::BTreeMap<&'static str, u64> {
    let (port, _) = serve(silent);
    let session = open(port, workers);
    let level = session.level(plan(load, &format!(r#"{{"count":{count}}}"#))).unwrap();
    until_due(&level, count);
    level.stop(0);
    let (outcome, _) = finish(&level);
    assert_eq!((outcome.due, outcome.rows), (count, count));
    outcome.outcomes
}

#[test]
fn the_bound_of_those_that_wait_holds_over_all_workers() {
    let load = at_rate(5000, "constant", r#","connections":3,"queue":5"#);
    for workers in [1, 3] {
        assert_eq!(outcomes(&load, workers, 30), [("shed", 22), ("cancelled", 8)].into(), "{workers} workers");
    }
    let load = at_rate(5000, "constant", r#","connections":3,"queue":5,"overload":"shed""#);
    assert_eq!(outcomes(&load, 1, 30), [("shed", 27), ("cancelled", 3)].into(), "nothing waits");
    let load = at_rate(5000, "constant", r#","connections":3,"max_connections":7,"queue":5,"overload":"grow""#);
    assert_eq!(outcomes(&load, 1, 30), [("shed", 18), ("cancelled", 12)].into(), "connections grow first");
}

#[test]
fn connections_grow_only_when_they_must() {
    let (port, _) = serve(hello);
    let session = open(port, 1);
    let load = at_rate(100, "constant", r#","connections":2,"max_connections":50,"overload":"grow""#);
    let (outcome, _) = finish(&session.level(plan(&load, r#"{"count":10}"#)).unwrap());
    assert_eq!((outcome.outcomes, outcome.connects >= 2), ([("ok", 10)].into(), true));
    let (port, _) = serve(silent);
    let session = open(port, 1);
    let load = at_rate(5000, "constant", r#","connections":2,"max_connections":9,"overload":"grow""#);
    let level = session.level(plan(&load, r#"{"count":30}"#)).unwrap();
    until_due(&level, 30);
    while level.poll().sent < 9 {
        std::thread::yield_now();
    }
    level.stop(0);
    let (outcome, _) = finish(&level);
    assert_eq!((outcome.connects, outcome.outcomes), (9, [("cancelled", 30)].into()));
}

#[test]
fn a_plan_decides_times_rows_addresses_and_streams() {
    let (first, second) = (serve(hello), serve(hello));
    let more = format!(r#","replicas":[{{"host":"127.0.0.1","port":{}}}]"#, second.0);
    for workers in [1, 3] {
        let session = Session::open(target(first.0, &more), vec![], vec![vec![]; 5], workers).unwrap();
        let load = r#"{"open":{"streams":[{"id":0,"arrivals":"plan"},{"id":4,"arrivals":"plan"}],"connections":6}}"#;
        let due_ns: Vec<i64> = (0..60).map(|k| k / 3 * 1_000_000).collect();
        let planned = Planned {
            due_ns: due_ns.clone(),
            rows: Some((0..60).map(|k| k * 7 % 5).collect()),
            targets: Some((0..60).map(|k| u16::from(k % 4 == 0)).collect()),
            streams: Some((0..60).map(|k| if k % 5 == 0 { 4 } else { 0 }).collect()),
        };
        let level = session.level_by(plan(load, r#"{"duration_ns":100000000}"#), Some(planned.clone())).unwrap();
        let (outcome, rows) = finish(&level);
        assert_eq!((outcome.stop_reason, outcome.close_ns - outcome.start_ns), ("duration", 100_000_000));
        let mut found: Vec<(i64, u32, u16, u16)> = column::<Int64Type>(&rows, "due_ns")
            .into_iter()
            .map(|due| due - outcome.start_ns)
            .zip(column::<arrow_array::types::UInt32Type>(&rows, "row"))
            .zip(column::<UInt16Type>(&rows, "target"))
            .zip(column::<UInt16Type>(&rows, "stream"))
            .map(|(((due, row), target), stream)| (due, row, target, stream))
            .collect();
        found.sort_unstable();
        let mut wanted: Vec<_> = (0..60)
            .map(|k| {
                let beside = (planned.rows.as_ref().unwrap()[k], planned.targets.as_ref().unwrap()[k]);
                (due_ns[k], beside.0, beside.1, planned.streams.as_ref().unwrap()[k])
            })
            .collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        let nowhere = Planned { targets: Some(vec![2; 60]), ..planned.clone() };
        assert!(session.level_by(plan(load, r#"{"count":1}"#), Some(nowhere)).is_err());
        assert!(session.level(plan(load, r#"{"count":1}"#)).is_err(), "its due times are missing");
    }
}

#[test]
fn a_schedule_that_ends_early_leaves_the_rest_of_its_level_quiet() {
    let (port, _) = serve(hello);
    let session = open(port, 2);
    let load = r#"{"open":{"streams":[{"arrivals":{"rate":{"phases":[{"from":1000,"to":1000}]}},"count":7}]}}"#;
    let (outcome, _) = finish(&session.level(plan(load, r#"{"duration_ns":40000000}"#)).unwrap());
    assert_eq!((outcome.stop_reason, outcome.due), ("duration", 7));
    assert_eq!(outcome.close_ns - outcome.start_ns, 40_000_000);
    let (outcome, _) = finish(&session.level(plan(load, r#"{"count":100}"#)).unwrap());
    assert_eq!((outcome.stop_reason, outcome.due), ("count", 7), "there is no more to come");
}

#[test]
fn a_target_that_refuses_is_not_hammered() {
    let (port, _kept) = nowhere();
    let session = open(port, 1);
    // Far longer than a thread is stopped on a busy machine, so that each slot tries again while the level is open.
    let load = at_rate(300, "constant", r#","connections":4,"queue":100"#);
    let level = session.level(plan(&load, r#"{"duration_ns":2000000000}"#)).unwrap();
    let (outcome, rows) = finish(&level);
    assert_eq!((outcome.due, outcome.rows), (600, 600));
    let outcomes = column::<UInt8Type>(&rows, "outcome");
    let (fired, end) = (column::<Int64Type>(&rows, "fired_ns"), column::<Int64Type>(&rows, "end_ns"));
    // Each of four slots tries after pauses of 10, 20, 40, 80, ... ms, half of that at least; what waits at the end is not tried.
    let refused = |k: &usize| outcomes[*k] == Outcome::ConnectError as u8;
    let tried = (0..end.len()).filter(refused).filter(|k| end[*k] < outcome.close_ns).count();
    assert!((4..=4 * 10).contains(&tried), "{tried} of {:?}", outcome.outcomes);
    let waited = |k: usize| refused(&k) && end[k] < outcome.close_ns && end[k] - fired[k] > 3_000_000;
    assert!((0..end.len()).any(waited), "requests wait while all slots rest");
    let session = open(port, 1);
    let closed = session.level(plan(r#"{"closed":{"concurrency":3}}"#, r#"{"count":15}"#)).unwrap();
    let (outcome, _) = finish(&closed);
    assert_eq!(outcome.outcomes, [("connect_error", 15)].into());
    // One of three slots has tried five times at least, after half of 10, 20, 40 and 80 ms.
    assert!(outcome.end_ns - outcome.start_ns >= 75_000_000, "{} ns", outcome.end_ns - outcome.start_ns);
}

#[test]
fn connections_come_from_the_addresses_that_were_named() {
    let seen = Arc::<Mutex<BTreeMap<String, usize>>>::default();
    let kept = seen.clone();
    let (port, _) = serve(move |n, stream| {
        let peer = stream.peer_addr().unwrap().ip().to_string();
        *kept.lock().unwrap().entry(peer).or_default() += 1;
        hello(n, stream)
    });
    let more = r#","source_addresses":["127.0.0.2","127.0.0.3"]"#;
    let session = Session::open(target(port, more), vec![], vec![vec![]], 1).unwrap();
    let level = session.level(plan(r#"{"closed":{"concurrency":4}}"#, r#"{"count":40}"#)).unwrap();
    assert_eq!(finish(&level).0.outcomes, [("ok", 40)].into());
    assert_eq!(seen.lock().unwrap().keys().collect::<Vec<_>>(), ["127.0.0.2", "127.0.0.3"]);
    for wrong in [r#","source_addresses":["203.0.113.7"]"#, r#","pin":[1048576]"#] {
        assert!(Session::open(target(port, wrong), vec![], vec![vec![]], 1).is_err(), "{wrong}");
    }
}
