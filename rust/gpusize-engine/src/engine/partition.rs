//! What a level's load means for each worker: its connections, its part of the schedule, the pauses of its users.

use super::level::LevelShared;
use crate::spec::{Closed, LoadSpec, Open, Think, Unit};
use gpusize_base::error::{Error, Result};
use gpusize_load::schedule::{Schedule, Thinks};

impl LevelShared {
    /// Connections that worker `index` may have.
    pub fn slots_of(&self, index: usize) -> usize {
        self.share_of(index, Open::most_connections)
    }

    /// Connections that worker `index` opens before the start.
    pub fn opened_of(&self, index: usize) -> usize {
        self.share_of(index, |open| open.connections)
    }

    fn share_of(&self, index: usize, of_open: impl Fn(&Open) -> u32) -> usize {
        let total = match &self.plan.load {
            LoadSpec::Closed(closed) => closed.most(),
            LoadSpec::Open(open) => of_open(open),
        } as usize;
        let workers = self.shares.len();
        // An open loop gives each worker its stride of the schedule, so each needs a connection.
        let share = total / workers + usize::from(index < total % workers);
        if self.concurrency().is_none() { share.max(1) } else { share }
    }

    /// Due requests that may wait on worker `index`: shares add up to the level's bound.
    pub fn room_of(&self, index: usize) -> u64 {
        let LoadSpec::Open(open) = &self.plan.load else { return 0 };
        let (total, workers) = (open.most_waiting(), self.shares.len());
        (total / workers + usize::from(index < total % workers)) as u64
    }

    /// The arrivals of an open loop.
    pub fn schedule(&self) -> Result<Schedule> {
        let LoadSpec::Open(open) = &self.plan.load else {
            return Err(Error::usage("a closed loop has no schedule", "load", "ask for an open loop"));
        };
        Schedule::by_unit(open, self.plan.seed, self.plan.order, &self.sessions, self.planned.clone())
    }

    /// The pause before request `seq` of `stream`, which sends `row`.
    pub fn pause_ns(&self, stream: u16, seq: u64, row: u32) -> i64 {
        let think = match &self.plan.load {
            LoadSpec::Closed(closed) => closed.think,
            LoadSpec::Open(open) => open.think,
        };
        if let Think::Fixed(ns) = think {
            return ns;
        }
        let recorded = self.recorded_ns.as_ref().and_then(|times| times.get(row as usize)).copied();
        Thinks::new(think, self.plan.seed, u64::from(stream)).before_ns(seq, recorded)
    }

    /// The pause of a user between two conversations, the first of which ended with request `seq`.
    pub fn pause_between_ns(&self, seq: u64) -> i64 {
        let turns = self.sessions.most_turns().max(1) as u64;
        // The number of a first turn, before which there is no other pause.
        self.pause_ns(0, (seq / turns + 1) * turns, u32::MAX)
    }
}

/// What an arrival or the turn of a slot is.
pub fn unit(load: &LoadSpec) -> Unit {
    match load {
        LoadSpec::Closed(closed) => closed.unit,
        LoadSpec::Open(open) => open.unit,
    }
}

/// The pause between two requests of a slot where it is always the same.
pub fn plain_pause_ns(load: &LoadSpec) -> Option<i64> {
    match load {
        LoadSpec::Closed(Closed { think: Think::Fixed(ns), .. }) => Some(*ns),
        LoadSpec::Closed(_) => None,
        LoadSpec::Open(_) => Some(0),
    }
}
