//! The last seconds of a level, for those who watch: in one piece of memory that does not grow as long as the level goes on.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::histogram::Bucket;
use super::packed::{pack, unpack};
use super::tally::{METRICS, Outcomes, Tally, named};

/// Most seconds that are kept.
pub const KEPT_SECONDS: usize = 600;
/// With many different times in each second fewer are kept: as many as have room here.
pub const KEPT_BYTES: usize = 512 << 10;
/// But no fewer than these, whatever they take: who watches looks once a second.
pub const LEAST_SECONDS: usize = 60;

/// One second of a level.
#[derive(Clone, Debug, Serialize)]
pub struct Second {
    /// Number, from the level's start.
    pub second: u32,
    /// Requests that became due.
    pub due: u64,
    /// First writes.
    pub sent: u64,
    /// Ends.
    pub done: u64,
    /// Ends by outcome.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Due and without an end, when it was over.
    pub in_flight: u64,
    /// Of these, waiting for a connection.
    pub waiting: u64,
    /// CPU time of the workers.
    pub cpu_ns: i64,
    /// Buckets of each time, of the requests that ended in it.
    pub times: BTreeMap<&'static str, Vec<Bucket>>,
}

/// What a second is kept as, beside its times.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// As in [`Second`], as are the others.
    pub number: u32,
    /// Requests that became due.
    pub due: u64,
    /// First writes.
    pub sent: u64,
    /// Ends by outcome.
    pub outcomes: Outcomes,
    /// Due and without an end.
    pub in_flight: u64,
    /// Waiting for a connection.
    pub waiting: u64,
    /// CPU time of the workers.
    pub cpu_ns: i64,
}

/// Seconds in order, their times one behind the other.
#[derive(Debug, Default)]
pub struct KeptSeconds {
    /// With the bytes that each one's times take.
    seconds: VecDeque<(Facts, usize)>,
    times: VecDeque<u8>,
    scratch: Vec<u8>,
}

/// A copy of some seconds, to be read without the lock that guards the others.
#[derive(Debug)]
pub struct Copied {
    seconds: Vec<Facts>,
    times: Vec<u8>,
}

impl KeptSeconds {
    /// Keep a second with its times; the oldest make room.
    pub fn push(&mut self, facts: Facts, times: &Tally) {
        self.scratch.clear();
        pack(times, &mut self.scratch);
        let added = self.scratch.len();
        while self.seconds.len() >= KEPT_SECONDS
            || (self.seconds.len() >= LEAST_SECONDS && self.times.len() + added > KEPT_BYTES)
        {
            let (_, bytes) = self.seconds.pop_front().unwrap_or((facts, 0));
            self.times.drain(..bytes);
        }
        if self.times.capacity() == 0 {
            // All at once and touched: pieces that are allocated in between would keep apart what rows leave behind, and
            // pages that are used one by one would look like memory that grows with the requests.
            self.seconds.reserve_exact(KEPT_SECONDS);
            self.times.reserve_exact(KEPT_BYTES);
            self.times.resize(KEPT_BYTES, 0);
            self.times.clear();
        }
        self.seconds.push_back((facts, added));
        self.times.extend(&self.scratch);
    }

    /// The seconds from number `after` on.
    pub fn copy(&self, after: u32) -> Copied {
        let first = self.seconds.partition_point(|(facts, _)| facts.number < after);
        let bytes: usize = self.seconds.range(first..).map(|(_, bytes)| bytes).sum();
        Copied {
            seconds: self.seconds.range(first..).map(|(facts, _)| *facts).collect(),
            times: self.times.range(self.times.len() - bytes..).copied().collect(),
        }
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.seconds.capacity() * size_of::<(Facts, usize)>() + self.times.capacity() + self.scratch.capacity()
    }
}

impl Copied {
    /// As whoever asked wants them.
    pub fn unpacked(self) -> Vec<Second> {
        let mut bytes = self.times.as_slice();
        let second = |facts: Facts| Second {
            second: facts.number,
            due: facts.due,
            sent: facts.sent,
            done: facts.outcomes.iter().sum(),
            outcomes: named(&facts.outcomes),
            in_flight: facts.in_flight,
            waiting: facts.waiting,
            cpu_ns: facts.cpu_ns,
            times: METRICS.into_iter().zip(unpack(&mut bytes)).collect(),
        };
        self.seconds.into_iter().map(second).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tally::Metric;

    fn facts(number: u32) -> Facts {
        let mut outcomes = Outcomes::default();
        outcomes[0] = u64::from(number) + 1;
        Facts { number, due: 2, sent: 3, outcomes, in_flight: 4, waiting: 5, cpu_ns: i64::from(number) }
    }

    /// So many different times, which differ from second to second.
    fn tally(number: u32, times: i64) -> Tally {
        let mut tally = Tally::default();
        for i in 0..times {
            tally.record(Metric::Runtime, 1_000_000 + (i + i64::from(number % 7)) * 90_000);
            tally.record(Metric::Itl, 40_000 + i * 20_000);
        }
        tally
    }

    #[test]
    fn a_day_of_seconds_takes_no_more_than_ten_minutes_of_them() {
        let mut kept = KeptSeconds::default();
        let mut most = 0;
        for number in 0..86_400 {
            kept.push(facts(number), &tally(number, 20));
            most = most.max(kept.bytes());
        }
        let found = kept.copy(0).unpacked();
        assert_eq!((found.len(), found[0].second, found[599].second), (600, 85_800, 86_399));
        assert!(most < KEPT_BYTES + (256 << 10), "{most}");
    }

    #[test]
    fn many_times_leave_fewer_seconds_and_those_exact() {
        for (times, at_least) in [(500, LEAST_SECONDS + 1), (3_000, LEAST_SECONDS)] {
            let mut kept = KeptSeconds::default();
            (0..700).for_each(|number| kept.push(facts(number), &tally(number, times)));
            let found = kept.copy(0).unpacked();
            assert!((at_least..KEPT_SECONDS).contains(&found.len()), "{}", found.len());
            assert!(kept.times.len() <= KEPT_BYTES || found.len() == LEAST_SECONDS, "{}", kept.times.len());
            for (second, number) in found.iter().rev().zip((0..700).rev()) {
                let tally = tally(number, times);
                assert_eq!((second.second, second.done, second.cpu_ns), (number, u64::from(number) + 1, number.into()));
                assert_eq!(second.times["runtime"], tally.of(Metric::Runtime).buckets());
                assert_eq!(second.times["itl"], tally.of(Metric::Itl).buckets());
                assert!(second.times["ttft"].is_empty());
            }
            let last: Vec<u32> = kept.copy(698).unpacked().iter().map(|s| s.second).collect();
            assert_eq!((last, kept.copy(700).unpacked().len()), (vec![698, 699], 0));
        }
    }
}
