//! What a level's load means for each worker: its connections, its part of the schedule, the pauses of its users.

use super::level::LevelShared;
use crate::spec::{Closed, LevelPlan, LoadSpec, Open, Partition, Think, Unit};
use gpusize_base::error::{Error, Result};
use gpusize_load::schedule::{Schedule, Thinks};

/// The workers that send a level, over all hosts, and which of them are here.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    /// Number of the first one here.
    pub first: usize,
    /// Over all hosts.
    pub all: usize,
    /// Of these, how many take part: the first ones, as each needs a slot. Every so many requests are one worker's.
    pub stride: u64,
    /// How many of those here take part, the first ones. At least one, which without a slot sees to it that the level ends.
    pub members: usize,
}

impl Workers {
    /// Of a session of so many workers.
    pub fn new(plan: &LevelPlan, here: usize) -> Result<Self> {
        let whole = Partition { first: 0, stride: here as u32, host: 0 };
        let Partition { first, stride, .. } = plan.partition.unwrap_or(whole);
        plan.partition.map_or(Ok(()), |partition| partition.check(here))?;
        let (first, all) = (first as usize, stride as usize);
        if all > here && shares_numbers(plan) {
            let todo = "give a duration instead of the count, or let no user leave";
            let what = "users leave, and those who stay would send the rest of the count, whatever host they are on";
            return Err(Error::usage(what, "partition", todo));
        }
        let taking_part = match &plan.load {
            LoadSpec::Closed(closed) => all.min(closed.most() as usize),
            LoadSpec::Open(_) => all,
        };
        Ok(Self { first, all, stride: taking_part as u64, members: taking_part.saturating_sub(first).clamp(1, here) })
    }

    /// The share of worker `index` in what is dealt out to all, one after another: shares add up to the total.
    fn share(self, index: usize, total: usize) -> usize {
        total / self.all + usize::from(self.first + index < total % self.all)
    }
}

/// Whether some users of a closed loop by count leave, and others stay.
pub fn shares_numbers(plan: &LevelPlan) -> bool {
    let ramps_down = |closed: &Closed| closed.from.is_some_and(|from| from > closed.concurrency);
    let some_leave = |closed: &Closed| closed.concurrency > 0 && ramps_down(closed);
    plan.stop.count.is_some() && matches!(&plan.load, LoadSpec::Closed(closed) if some_leave(closed))
}

impl LevelShared {
    /// The number of worker `index` among those of all hosts.
    pub fn number_of(&self, index: usize) -> usize {
        self.workers.first + index
    }

    /// The first request of slot `slot` of worker `index`, as slots take theirs in order.
    pub fn first_of(&self, index: usize, slot: usize) -> usize {
        slot * self.workers.stride as usize + self.number_of(index)
    }

    /// The user of a closed loop that slot `slot` of worker `index` is.
    pub fn user_of(&self, index: usize, slot: usize) -> u32 {
        (slot * self.workers.all + self.number_of(index)) as u32
    }

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
        // An open loop gives each worker its stride of the schedule, so each needs a connection.
        let share = self.workers.share(index, total);
        if self.concurrency().is_none() { share.max(1) } else { share }
    }

    /// Due requests that may wait on worker `index`: shares add up to the level's bound.
    pub fn room_of(&self, index: usize) -> u64 {
        let LoadSpec::Open(open) = &self.plan.load else { return 0 };
        self.workers.share(index, open.most_waiting()) as u64
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
