//! Notices a level that waits for something that does not come. A request that is lost, by a fault of ours, would otherwise be
//! waited for for ever.

use std::time::Duration;

use super::level::LevelShared;
use super::outside::now_ns;
use crate::outcome::Outcome;
use crate::spec::TargetSpec;

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);
/// A level in which all waits are over has this many looks to end.
const LOOKS: u32 = 10;

/// How long a level may stand still.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// From one look to the next. What counts is how often nothing had moved: a process that was stopped for a minute has
    /// been looked at once.
    pub look: Duration,
    /// Looks that find nothing moved until connections have been opened or given up, until requests have, and until those have
    /// that were told to end.
    pub opening: u32,
    pub answering: u32,
    pub ending: u32,
}

impl Patience {
    /// As long as one request may take: two attempts, each with its connect.
    pub fn of(target: &TargetSpec) -> Self {
        let looks = |ns: i64| u32::try_from(ns / LOOK.as_nanos() as i64).unwrap_or(u32::MAX).saturating_add(1);
        let opening = looks(target.connect_timeout_ns).saturating_mul(2);
        let answering = looks(target.timeout_ns).saturating_mul(2).saturating_add(opening);
        Self {
            look: LOOK,
            opening: opening.saturating_add(LOOKS),
            answering: answering.saturating_add(LOOKS),
            ending: LOOKS,
        }
    }
}

/// What the coordinator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The level's first connections.
    Connections,
    /// Its last answers.
    Answers,
}

/// One level that is waited for.
#[derive(Debug)]
pub struct Watch {
    patience: Patience,
    next_look_ns: i64,
    seen: [u64; 4],
    still: u32,
}

impl Watch {
    pub fn new(patience: Patience) -> Self {
        Self { patience, next_look_ns: 0, seen: [u64::MAX; 4], still: 0 }
    }

    /// When it is to be looked at next.
    pub fn next_look_ns(&self) -> i64 {
        self.next_look_ns
    }

    /// Look at the level, of which `told` workers have said that they are done; says so if it has stood still for too long.
    pub fn is_stuck(&mut self, level: &LevelShared, awaited: Awaited, told: usize) -> bool {
        let now = now_ns();
        if now < self.next_look_ns {
            return false;
        }
        self.next_look_ns = now + self.patience.look.as_nanos() as i64;
        let seen = [told as u64, done(level), level.sum(|s| &s.sent), level.sum(|s| &s.connects)];
        self.still = if seen == self.seen { self.still.saturating_add(1) } else { 0 };
        self.seen = seen;
        let most = match awaited {
            _ if level.cancel_ns() <= now => self.patience.ending,
            Awaited::Connections => self.patience.opening,
            Awaited::Answers => self.patience.answering,
        };
        self.still >= most
    }

    /// What was waited for, in words.
    pub fn says(&self, level: &LevelShared, awaited: Awaited, missing: &[usize]) -> String {
        let seconds = f64::from(self.still) * self.patience.look.as_secs_f64();
        let workers = missing.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let what = match awaited {
            Awaited::Connections => "for the level's connections".to_owned(),
            Awaited::Answers => {
                let due = level.sum(|s| &s.due);
                let waiting = level.sum(|s| &s.waiting);
                format!(
                    "for {} of {due} requests, of which {waiting} had no connection",
                    due.saturating_sub(done(level))
                )
            }
        };
        format!("nothing moved for {seconds:.0} s while the level waited {what} (worker {workers}): a fault of gpusize")
    }
}

fn done(level: &LevelShared) -> u64 {
    Outcome::ALL.iter().map(|o| level.sum(|s| &s.outcomes[*o as usize])).sum()
}
