//! Two workers share one level: no request waits, or is shed, while either of them has a free connection, and the level is over
//! with its last request. The server does nothing wrong and all that the engine does takes no time, so that this holds to the
//! nanosecond, in whatever order things happen at one instant.

use super::case::{self, Ended};
use super::check::{Request, check};
use super::dice::Dice;
use super::network::Temper;
use super::scenario::Scenario;
use super::world::{Choice, Pace};
use crate::outcome::Outcome;

const MS: i64 = 1_000_000;
const CASES: u64 = 120;
const WORKERS: usize = 2;
/// A write may be short, and what is left is written so much later: a connection is taken then, and carries nothing yet.
const SHORT_WRITE_NS: i64 = MS;

fn crowded(dice: &Dice) -> Scenario {
    let (connections, most_ms) = (2 + dice.below(5), dice.below(12) as i64);
    // As much as the connections carry, more or less.
    let carried = 1000 * connections / (1 + most_ms as u64 / 2);
    let rate = carried * dice.one_of(&[6, 9, 11, 20]) / 10;
    let (queue, overload) = dice.one_of(&[(1000, "queue"), (1000, "queue"), (3, "queue"), (0, "shed")]);
    let process = dice.one_of(&["constant", "poisson"]);
    let arrivals = format!(r#"{{"rate":{{"phases":[{{"from":{rate},"to":{rate}}}],"process":"{process}"}}}}"#);
    let load = format!(
        r#"{{"open":{{"streams":[{{"arrivals":{arrivals}}}],"connections":{connections},"queue":{queue},"overload":"{overload}"}}}}"#
    );
    let stop = format!(r#"{{"duration_ns":{}}}"#, dice.one_of(&[8, 30, 60]) * MS);
    let plan = format!(r#"{{"visit":0,"seed":{},"load":{load},"stop":{stop}}}"#, dice.below(1 << 20));
    Scenario {
        workers: WORKERS,
        at_once: 3,
        temper: Temper { faults: 0, refusals: 0, connect_ns: 0, service_ns: most_ms * MS },
        choice: dice.one_of(&[Choice::Any, Choice::Ranked]),
        pace: Pace::Exact,
        plans: vec![serde_json::from_str(&plan).expect("a plan")],
        planned: None,
        first_lead_ns: 0,
        moves: vec![],
        asked_after_ns: vec![0],
        stops: vec![],
    }
}

/// Connections that carry a request at an instant, or are about to.
fn taken(requests: &[Request], at_ns: i64) -> usize {
    let holds = |r: &&Request| r.sent_ns.is_some_and(|sent_ns| sent_ns - SHORT_WRITE_NS <= at_ns && at_ns <= r.end_ns);
    requests.iter().filter(holds).count()
}

fn none_waits_beside_a_free_connection(requests: &[Request], connections: usize) -> Result<(), String> {
    let ends: Vec<i64> = requests.iter().map(|r| r.end_ns).collect();
    for request in requests {
        let until_ns = match request.sent_ns {
            Some(sent_ns) => sent_ns - SHORT_WRITE_NS,
            None if request.outcome == Outcome::Shed as u8 => request.fired_ns,
            None => request.end_ns,
        };
        // Connections become free when a response ends: just after each the wait has to have gone on for want of one.
        let after_ends = ends.iter().map(|end_ns| end_ns + 1).filter(|at| (request.fired_ns..until_ns).contains(at));
        let shed = (request.outcome == Outcome::Shed as u8).then_some(request.fired_ns);
        for at_ns in after_ends.chain(shed) {
            let taken = taken(requests, at_ns);
            if taken < connections {
                return Err(format!("{request:?}: {taken} of {connections} connections were taken at {at_ns}"));
            }
        }
    }
    Ok(())
}

fn over_with_its_last_request(case: &Ended, requests: &[Request]) -> Result<(), String> {
    let outcome = &case.levels[0].0;
    let last_ns = requests.iter().map(|r| r.end_ns).max().unwrap_or(0).max(outcome.close_ns);
    match case.drained_ns.get(&outcome.visit) {
        Some(ns) if *ns <= last_ns => Ok(()),
        drained => Err(format!("the last request ended at {last_ns}, and the level was drained at {drained:?}")),
    }
}

fn hold(case: &Ended) -> Result<(), String> {
    check(case)?;
    let requests = Request::read(&case.levels[0].1);
    let connections = (0..WORKERS).map(|worker| case.shared[0].slots_of(worker)).sum();
    none_waits_beside_a_free_connection(&requests, connections)?;
    over_with_its_last_request(case, &requests)
}

#[test]
fn no_request_waits_beside_a_free_connection_and_a_level_is_over_with_its_last() {
    let (mut waited, mut shed) = (0, 0);
    for seed in 0..CASES {
        let scenario = crowded(&Dice::new(seed, 1 << 33));
        let case = case::run(scenario, &Dice::new(seed, 1 << 34)).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        if let Err(what) = hold(&case) {
            panic!("seed {seed}: {what}\n  {:?}{}", case.scenario, case.story);
        }
        let requests = Request::read(&case.levels[0].1);
        waited += requests.iter().filter(|r| r.sent_ns.is_some_and(|sent_ns| sent_ns > r.fired_ns + MS)).count();
        shed += requests.iter().filter(|r| r.outcome == Outcome::Shed as u8).count();
    }
    assert!(waited > 300 && shed > 30, "{waited} waited and {shed} were shed: too few to tell");
}
