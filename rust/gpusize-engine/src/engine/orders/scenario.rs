//! What happens in one case, drawn from its seed: the levels, how the server is disposed, who stops what and when.

use std::sync::Arc;

use super::dice::Dice;
use super::network::Temper;
use super::world::{BEGINS_NS, Choice, Pace};
use crate::engine::partition::shares_numbers;
use crate::spec::{LevelPlan, Partition};
use gpusize_load::schedule::Planned;

const MS: i64 = 1_000_000;
/// Conversations of 3, 2 and 1 turns.
pub const SESSIONS: [u64; 6] = [1, 1, 2, 1, 2, 3];
/// Turns of the longest, by which numbers of turns go.
pub const MOST_TURNS: u64 = 3;

/// See the module.
#[derive(Debug)]
pub struct Scenario {
    pub workers: usize,
    /// Connects that a worker has under way at once.
    pub at_once: usize,
    pub temper: Temper,
    pub choice: Choice,
    pub pace: Pace,
    pub plans: Vec<LevelPlan>,
    /// Due times that are handed over beside them.
    pub planned: Option<Arc<Planned>>,
    /// How far ahead the user first wants a held level to start.
    pub first_lead_ns: i64,
    /// When the user moves the end of each level that has one by the clock, and by how many parts of 4000.
    pub moves: Vec<(i64, i64)>,
    /// When the user asks for each level, after the first.
    pub asked_after_ns: Vec<i64>,
    /// When the user stops one of them, and how long it may drain.
    pub stops: Vec<(usize, i64, i64)>,
}

impl Scenario {
    /// One of this size: the smaller, the easier to follow.
    pub fn draw(seed: u64, size: u64) -> Self {
        let dice = Dice::new(seed, size);
        let levels = 1 + dice.below(1 + size.min(3)) as usize;
        let workers = 1 + dice.below(size.min(3)) as usize;
        let is_orderly = dice.below(3) == 0;
        let temper = Temper {
            faults: if is_orderly { 0 } else { dice.one_of(&[0, 1, 4, 12]) },
            refusals: if is_orderly { 0 } else { dice.one_of(&[0, 0, 3, 16]) },
            connect_ns: if is_orderly { 0 } else { dice.one_of(&[0, MS, 4 * MS, 15 * MS]) },
            service_ns: dice.one_of(&[0, 2 * MS, 12 * MS]),
        };
        let pace = dice.one_of(&[Pace::Exact, Pace::Late(40), Pace::Late(8)]);
        let choice = dice.one_of(&[Choice::Any, Choice::Ranked]);
        let grows = dice.below(3) == 0;
        let plans: Vec<LevelPlan> = (0..levels + usize::from(grows))
            .map(|visit| if grows && visit < 2 { growing(&dice, visit) } else { plan(&dice, size, visit) })
            .collect();
        let mut plans = plans;
        if dice.below(4) == 0 {
            split(&dice, workers as u32, &mut plans);
        }
        match dice.below(8) {
            0 | 1 => hold(&dice, &mut plans),
            2 | 3 => chain(&dice, &mut plans),
            _ => {}
        }
        let first_lead_ns = dice.one_of(&[0, 1, 2, 5, 40]) * MS;
        let moves = plans.iter().map(|_| (dice.below(300) as i64 * MS, dice.one_of(&[-1, 0, 1])));
        let moves = moves.collect();
        let levels = plans.len();
        let asked_after_ns =
            (0..levels).map(|level| if level == 0 || dice.below(3) > 0 { 0 } else { dice.below(250) as i64 * MS });
        let asked_after_ns = asked_after_ns.collect();
        let stops = (0..levels)
            .filter(|_| dice.below(4) == 0)
            .map(|level| (level, dice.below(300) as i64 * MS, dice.below(3) as i64 * 5 * MS))
            .collect();
        Self {
            workers,
            at_once: 1 + dice.below(3) as usize,
            temper,
            choice,
            pace,
            plans,
            planned: None,
            first_lead_ns,
            moves,
            asked_after_ns,
            stops,
        }
    }

    /// Whether all is asked for before it is due, and nobody is late.
    pub fn is_told_in_time(&self) -> bool {
        self.pace == Pace::Exact && self.stops.is_empty() && self.asked_after_ns.iter().all(|ns| *ns == 0)
    }

    /// Whether nothing that the target does can make one request go before another.
    pub fn is_orderly(&self) -> bool {
        self.pace == Pace::Exact && self.temper.faults + self.temper.refusals == 0 && self.temper.connect_ns == 0
    }
}

/// Some levels wait until they are told when to start.
fn hold(dice: &Dice, plans: &mut [LevelPlan]) {
    for plan in plans {
        plan.held = dice.below(2) == 0;
    }
}

/// Starts and ends are given by the clock, which may go a little faster or slower than the one that durations are of.
fn chain(dice: &Dice, plans: &mut [LevelPlan]) {
    let mut at_ns = BEGINS_NS + 20 * MS + dice.below(150) as i64 * MS;
    for plan in plans {
        plan.start_ns = Some(at_ns);
        plan.close_at_ns = plan.stop.duration_ns.map(|ns| at_ns + ns + ns / 2000 * dice.one_of(&[-1, 0, 0, 1]));
        at_ns = plan.close_at_ns.unwrap_or(at_ns + 50 * MS);
    }
}

/// The session is one of several hosts.
fn split(dice: &Dice, workers: u32, plans: &mut [LevelPlan]) {
    let first = dice.below(4) as u32;
    let partition = Partition { first, stride: first + workers + dice.below(3) as u32, host: 1 };
    if !plans.iter().any(shares_numbers) {
        for plan in plans.iter_mut() {
            plan.partition = Some(partition);
        }
    }
}

fn plan(dice: &Dice, size: u64, visit: usize) -> LevelPlan {
    let duration_ns = dice.one_of(&[4, 12, 12, 30, 110]) * MS;
    let load = if dice.below(3) == 0 { closed(dice, size) } else { open(dice, size, duration_ns) };
    let count = 1 + dice.below(6 * size);
    let stop = match dice.below(4) {
        0 => format!(r#"{{"count":{count},"duration_ns":{duration_ns}}}"#),
        1 => format!(r#"{{"count":{count}}}"#),
        2 => format!(r#"{{"duration_ns":{duration_ns},"max_error_share":0.5,"min_errors":3}}"#),
        _ => format!(r#"{{"duration_ns":{duration_ns}}}"#),
    };
    let json = format!(r#"{{"visit":{visit},"seed":{visit},"load":{load},"stop":{stop}}}"#);
    serde_json::from_str(&json).expect("a plan")
}

/// The first two levels of those in which the second has more connections, which open while its requests are due.
fn growing(dice: &Dice, visit: usize) -> LevelPlan {
    let (connections, rate) = if visit == 0 { (1, 250) } else { (4 + dice.below(4), 1000) };
    let arrivals = format!(r#"{{"rate":{{"phases":[{{"from":{rate},"to":{rate}}}],"process":"constant"}}}}"#);
    let load = format!(r#"{{"open":{{"streams":[{{"arrivals":{arrivals}}}],"connections":{connections}}}}}"#);
    let json = format!(r#"{{"visit":{visit},"seed":0,"load":{load},"stop":{{"duration_ns":{}}}}}"#, 12 * MS);
    serde_json::from_str(&json).expect("a plan")
}

fn open(dice: &Dice, size: u64, duration_ns: i64) -> String {
    let streams: Vec<String> = (0..=dice.below(1 + size / 3))
        .map(|id| {
            let any = (1 + dice.below(8 * size)) * 1_000 * MS as u64 / duration_ns as u64;
            // Mostly on the grid of milliseconds on which everything else is.
            let rate = dice.one_of(&[1_000, 500, 250, any]);
            let process = dice.one_of(&["constant", "constant", "poisson"]);
            let priority = dice.below(2);
            format!(
                r#"{{"id":{id},"priority":{priority},"arrivals":{{"rate":{{"phases":[{{"from":{rate},"to":{rate}}}],"process":"{process}"}}}}}}"#
            )
        })
        .collect();
    let few = 1 + dice.below(2 + size);
    let (connections, more) = (dice.one_of(&[1, few, 6 + few]), dice.below(3));
    let (queue, overload) = (dice.one_of(&[0, 2, 1000, 1000]), dice.one_of(&["queue", "queue", "shed", "grow"]));
    let (unit, think_ns) = (dice.one_of(&["request", "request", "session"]), dice.below(3) * 2_000_000);
    format!(
        r#"{{"open":{{"streams":[{}],"connections":{connections},"max_connections":{},"queue":{queue},"overload":"{overload}","unit":"{unit}","think":{{"fixed":{think_ns}}}}}}}"#,
        streams.join(","),
        connections + more
    )
}

fn closed(dice: &Dice, size: u64) -> String {
    let (from, to) = (dice.below(2 + size), 1 + dice.below(2 + size));
    let ramp = if dice.below(2) == 0 { String::new() } else { format!(r#""from":{from},"ramp_ns":30000000,"#) };
    let (start, unit) = (dice.one_of(&["burst", "staggered"]), dice.one_of(&["request", "session"]));
    let think = dice.one_of(&[r#"{"fixed":0}"#, r#"{"fixed":3000000}"#, r#"{"uniform":[0,4000000]}"#]);
    format!(
        r#"{{"closed":{{"concurrency":{to},{ramp}"think":{think},"start":"{start}","stagger_ns":5000000,"unit":"{unit}"}}}}"#
    )
}
