//! One load over several hosts: what they send together is what one session of as many workers sends, each request on the same
//! row and at the same time after the start.

use std::sync::Arc;

use super::case::{self, Ended};
use super::check::{Request, check};
use super::dice::Dice;
use super::network::Temper;
use super::scenario::{MOST_TURNS, SESSIONS, Scenario};
use super::world::{Choice, Pace};
use crate::engine::partition::shares_numbers;
use crate::spec::{LevelPlan, LoadSpec, Partition, Unit};
use gpusize_load::schedule::{Planned, Rows, Schedule};

const MS: i64 = 1_000_000;
const CASES: u64 = 120;

/// A request as it is planned: stream, number, row, and when it is due after the start.
type Asked = (u16, u64, u32, i64);

fn open(dice: &Dice, planned: bool) -> String {
    let rate = || dice.one_of(&[0, 120, 400, 900]);
    let phase = || format!(r#"{{"duration_ns":{},"from":{},"to":{}}}"#, dice.one_of(&[7, 25]) * MS, rate(), rate());
    let streams: Vec<String> = (0..=dice.below(3))
        .map(|id| {
            let process = dice.one_of(&["constant", "poisson", "gamma"]);
            let phases = [r#"{"duration_ns":9000000,"from":300,"to":300}"#.to_owned(), phase(), phase()].join(",");
            let repeat = dice.one_of(&["true", "false"]);
            let arrivals = if planned {
                r#""plan""#.to_owned()
            } else {
                format!(
                    r#"{{"rate":{{"phases":[{phases}],"repeat":{repeat},"process":"{process}","shape":0.6,"lead":0.25}}}}"#
                )
            };
            // A part of the rows in which conversations begin.
            let (start_ns, rows) =
                (if planned { 0 } else { dice.below(9) as i64 * MS }, dice.one_of(&["null", "[0,3]"]));
            let count = if planned { "null" } else { dice.one_of(&["null", "null", "17"]) };
            format!(r#"{{"id":{id},"arrivals":{arrivals},"start_ns":{start_ns},"rows":{rows},"count":{count}}}"#)
        })
        .collect();
    let (unit, overload) = (dice.one_of(&["request", "session"]), dice.one_of(&["queue", "shed", "grow"]));
    let connections = 1 + dice.below(9);
    format!(
        r#"{{"open":{{"streams":[{}],"connections":{connections},"max_connections":{},"queue":{},"overload":"{overload}","unit":"{unit}","think":{{"exponential":2000000}}}}}}"#,
        streams.join(","),
        connections + 5,
        dice.one_of(&[3, 1000])
    )
}

fn closed(dice: &Dice) -> String {
    let (from, to) = (dice.below(7), 1 + dice.below(9));
    let ramp = if dice.below(2) == 0 { String::new() } else { format!(r#""from":{from},"ramp_ns":20000000,"#) };
    let (unit, think) =
        (dice.one_of(&["request", "session"]), dice.one_of(&[r#"{"fixed":0}"#, r#"{"uniform":[0,4000000]}"#]));
    let start = dice.one_of(&["burst", "staggered"]);
    format!(
        r#"{{"closed":{{"concurrency":{to},{ramp}"think":{think},"start":"{start}","stagger_ns":5000000,"unit":"{unit}"}}}}"#
    )
}

fn plan(dice: &Dice, load: &str) -> LevelPlan {
    let (count, duration_ns) = (1 + dice.below(60), dice.one_of(&[12, 40, 90]) * MS);
    let stop = dice.one_of(&[
        format!(r#"{{"count":{count}}}"#),
        format!(r#"{{"count":{count},"duration_ns":{duration_ns}}}"#),
        format!(r#"{{"duration_ns":{duration_ns}}}"#),
        format!(r#"{{"duration_ns":{duration_ns}}}"#),
    ]);
    let order = dice.one_of(&["file", "shuffled"]);
    let json = format!(r#"{{"visit":0,"seed":{},"order":"{order}","load":{load},"stop":{stop}}}"#, dice.below(1 << 30));
    serde_json::from_str(&json).expect("a plan")
}

fn planned(dice: &Dice, streams: u64) -> Planned {
    let mut due_ns: Vec<i64> = (0..dice.below(60)).map(|_| dice.below(80) as i64 * MS / 2).collect();
    due_ns.sort_unstable();
    // Rows with which conversations begin.
    let rows = (dice.below(2) == 0).then(|| due_ns.iter().map(|_| dice.one_of(&[0, 2, 5])).collect());
    let streams = Some(due_ns.iter().map(|_| dice.below(streams) as u16).collect());
    Planned { due_ns, rows, targets: None, streams }
}

fn run(
    plan: &LevelPlan,
    planned: Option<&Arc<Planned>>,
    workers: usize,
    partition: Option<Partition>,
    seed: u64,
) -> Ended {
    let dice = Dice::new(seed, 1 << 36);
    let scenario = Scenario {
        workers,
        at_once: 3,
        temper: Temper { faults: 0, refusals: 0, connect_ns: 0, service_ns: dice.one_of(&[0, 2, 9]) * MS },
        choice: dice.one_of(&[Choice::Any, Choice::Ranked]),
        pace: Pace::Exact,
        plans: vec![LevelPlan { partition, ..plan.clone() }],
        planned: planned.cloned(),
        first_lead_ns: 0,
        moves: vec![],
        asked_after_ns: vec![0],
        stops: vec![],
    };
    let case = case::run(scenario, &dice).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    check(&case).unwrap_or_else(|what| panic!("seed {seed}: {what}\n  {:?}{}", case.scenario, case.story));
    case
}

/// Worker counts of a few hosts.
fn hosts(dice: &Dice) -> Vec<usize> {
    (0..2 + dice.below(3)).map(|_| 1 + dice.below(3) as usize).collect()
}

fn over_hosts(plan: &LevelPlan, planned: Option<&Arc<Planned>>, hosts: &[usize], seed: u64) -> Vec<Ended> {
    let stride = hosts.iter().sum::<usize>() as u32;
    let firsts = hosts.iter().scan(0, |next, workers| Some(std::mem::replace(next, *next + *workers as u32)));
    let of = |(host, (first, workers)): (usize, (u32, &usize))| {
        let partition = Partition { first, stride, host: host as u16 };
        run(plan, planned, *workers, Some(partition), seed + 1000 * (1 + host as u64))
    };
    firsts.zip(hosts).enumerate().map(of).collect()
}

/// What was due of a schedule, in its order; of conversations their beginnings, as what follows goes by the answers.
fn asked(cases: &[Ended], factor: u64) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for case in cases {
        let (outcome, rows) = &case.levels[0];
        let key = |r: &Request| (r.stream, r.seq, r.row, r.due_ns - outcome.start_ns);
        all.extend(Request::read(rows).iter().filter(|r| r.seq.is_multiple_of(factor)).map(key));
    }
    all.sort_unstable_by_key(|(stream, seq, _, due_ns)| (*due_ns, *stream, *seq));
    all
}

fn workers_are_numbered_through(cases: &[Ended], hosts: &[usize]) {
    let mut first = 0;
    for ((host, case), workers) in cases.iter().enumerate().zip(hosts) {
        for request in Request::read(&case.levels[0].1) {
            assert_eq!(usize::from(request.host), host);
            assert!((first..first + workers).contains(&usize::from(request.worker)), "{request:?}");
        }
        first += workers;
    }
}

#[test]
fn an_open_loop_over_hosts_is_the_one_of_a_single_session() {
    let mut seen = 0;
    for seed in 0..CASES {
        let dice = Dice::new(seed, 1 << 35);
        let by_plan = dice.below(4) == 0;
        let plan = plan(&dice, &open(&dice, by_plan));
        let LoadSpec::Open(load) = &plan.load else { unreachable!("an open loop") };
        let planned = by_plan.then(|| Arc::new(planned(&dice, load.streams.len() as u64)));
        let hosts = hosts(&dice);
        let parts = over_hosts(&plan, planned.as_ref(), &hosts, seed);
        let whole = run(&plan, planned.as_ref(), hosts.iter().sum(), None, seed);
        let factor = if load.unit == Unit::Session { MOST_TURNS } else { 1 };
        let (together, alone) = (asked(&parts, factor), asked(&[whole], factor));
        assert_eq!(together, alone, "seed {seed}: over {hosts:?} workers, {plan:?}");
        let (count, end_ns) = (plan.stop.count.unwrap_or(u64::MAX), plan.stop.duration_ns.unwrap_or(i64::MAX));
        let items = Schedule::by_unit(load, plan.seed, plan.order, &parts[0].sessions, planned).expect("a schedule");
        let mut walked: Vec<Asked> = items
            .take_while(|i| i.index < count && i.offset_ns < end_ns)
            .map(|i| (i.stream, i.seq * factor, i.row, i.offset_ns))
            .collect();
        walked.sort_unstable_by_key(|(stream, seq, _, due_ns)| (*due_ns, *stream, *seq));
        assert_eq!(together, walked, "seed {seed}: over {hosts:?} workers, {plan:?}");
        workers_are_numbered_through(&parts, &hosts);
        let sum = |of: &dyn Fn(&Ended, usize) -> usize| -> usize {
            parts.iter().zip(&hosts).flat_map(|(case, workers)| (0..*workers).map(|w| of(case, w))).sum()
        };
        let most = (load.most_connections() as usize).max(hosts.iter().sum());
        assert!(sum(&|case, w| case.shared[0].slots_of(w)) <= most + hosts.iter().sum::<usize>(), "seed {seed}");
        assert_eq!(sum(&|case, w| case.shared[0].room_of(w) as usize), load.most_waiting(), "seed {seed}");
        seen += together.len();
    }
    assert!(seen > 2_000, "{seen} requests: too few to tell");
}

#[test]
fn a_closed_loop_over_hosts_has_its_users_and_numbers_once() {
    let (mut seen, mut idle) = (0, 0);
    for seed in 0..CASES {
        let dice = Dice::new(seed, 1 << 37);
        let plan = plan(&dice, &closed(&dice));
        let LoadSpec::Closed(load) = &plan.load else { unreachable!("a closed loop") };
        if shares_numbers(&plan) {
            continue;
        }
        let hosts = hosts(&dice);
        let parts = over_hosts(&plan, None, &hosts, seed);
        workers_are_numbered_through(&parts, &hosts);
        let mut users = Vec::new();
        for (case, workers) in parts.iter().zip(&hosts) {
            let level = &case.shared[0];
            let mine = (0..*workers).flat_map(|w| (0..level.slots_of(w)).map(move |slot| level.user_of(w, slot)));
            let before = users.len();
            users.extend(mine);
            let outcome = &case.levels[0].0;
            idle += usize::from(users.len() == before);
            assert!(outcome.start_ns > 0, "seed {seed}: a host without users begins, too");
            if users.len() == before || outcome.stop_reason == "duration" {
                let over_ns = plan.stop.duration_ns.filter(|_| plan.stop.count.is_none());
                assert!(over_ns.is_none_or(|ns| outcome.close_ns == outcome.start_ns + ns), "seed {seed}: {outcome:?}");
            }
        }
        users.sort_unstable();
        assert_eq!(users, (0..load.most()).collect::<Vec<_>>(), "seed {seed}: {hosts:?} workers");
        let factor = if load.unit == Unit::Session { MOST_TURNS } else { 1 };
        let mut numbers: Vec<(u64, u32)> =
            asked(&parts, factor).iter().map(|(_, seq, row, _)| (seq / factor, *row)).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0].0 < pair[1].0), "seed {seed}: a number came twice");
        let units = if load.unit == Unit::Session { parts[0].sessions.len() } else { SESSIONS.len() };
        let rows = Rows::new(units, plan.order, plan.seed, 0);
        for (number, row) in &numbers {
            let unit = rows.at(*number);
            let wanted = if load.unit == Unit::Session { parts[0].sessions.first(unit as usize) } else { unit };
            assert_eq!(*row, wanted, "seed {seed}: request {number}");
        }
        if let (Some(count), None) = (plan.stop.count, plan.stop.duration_ns) {
            let found: Vec<u64> = numbers.iter().map(|(number, _)| *number).collect();
            assert_eq!(found, (0..count).collect::<Vec<_>>(), "seed {seed}: over {hosts:?} workers, {plan:?}");
        }
        seen += numbers.len();
    }
    assert!(seen > 1_000 && idle > 20, "{seen} requests, {idle} hosts without users: too few to tell");
}
