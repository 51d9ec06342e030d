//! When each request of an open loop is due, and which row it sends: pure functions of seed and sequence number.

use crate::draw::Draw;
use crate::spec::{self, Open, Order, Process};

/// Purposes keep independent draws apart; bodies use their own numbers above these.
const PURPOSE_GAP: u64 = 1 << 32;
const PURPOSE_ROW: u64 = (1 << 32) + 1;

/// Due offsets of one stream, in order. Every worker walks the same sequence and serves its stride of it, so the schedule
/// does not depend on their number.
#[derive(Clone, Debug)]
pub struct Arrivals {
    rate: f64,
    process: Process,
    draw: Draw,
    next_seq: u64,
    offset_ns: i64,
}

impl Arrivals {
    /// The arrivals of `stream` at `rate` per second.
    pub fn new(rate: f64, process: Process, seed: u64, stream: u64) -> Self {
        Self { rate, process, draw: Draw::new(seed, stream, PURPOSE_GAP), next_seq: 0, offset_ns: 0 }
    }
}

impl Iterator for Arrivals {
    /// Sequence number and due time after the level's start.
    type Item = (u64, i64);

    fn next(&mut self) -> Option<(u64, i64)> {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.offset_ns = match self.process {
            // From the number itself, so that no rounding adds up.
            Process::Constant => (seq as f64 * 1e9 / self.rate).round() as i64,
            // The first arrival comes one gap after the start; each gap is rounded before it is summed.
            Process::Poisson | Process::Gamma => self.offset_ns + (self.draw.exp(seq) * 1e9 / self.rate).round() as i64,
        };
        Some((seq, self.offset_ns))
    }
}

/// An arrival of the level's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Position in the schedule of all streams; worker `index` modulo their number serves it.
    pub index: u64,
    /// The stream that it belongs to.
    pub stream: u16,
    /// Position within the stream.
    pub seq: u64,
    /// Due time after the level's start.
    pub offset_ns: i64,
    /// Dataset row (with conversations: the first one's).
    pub row: u32,
    /// Address, where the plan says so.
    pub target: Option<u16>,
    /// The higher goes first among those that wait for a connection.
    pub priority: i32,
}

/// Due times that were handed over beside the plan, in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// After the level's start.
    pub due_ns: Vec<i64>,
    /// Dataset rows, or none to follow the level's order.
    pub rows: Option<Vec<u32>>,
    /// Addresses, or none to follow the balance rule.
    pub targets: Option<Vec<u16>>,
    /// Streams, or none when all belong to the first.
    pub streams: Option<Vec<u16>>,
}

/// All streams of a level, merged by due time.
#[derive(Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    rows: Rows,
    stream: u16,
    priority: i32,
}

impl Schedule {
    /// The schedule of a load over a dataset of so many rows.
    pub fn new(open: &Open, seed: u64, order: Order, dataset_rows: usize, _planned: Option<&Planned>) -> Option<Self> {
        let stream = open.streams.first()?;
        let spec::Arrivals::Rate(rate) = &stream.arrivals else { return None };
        Some(Self {
            arrivals: Arrivals::new(rate.phases.first()?.from, rate.process, seed, u64::from(stream.id)),
            rows: Rows::new(dataset_rows, order, seed, u64::from(stream.id)),
            stream: stream.id,
            priority: stream.priority,
        })
    }
}

impl Iterator for Schedule {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let (seq, offset_ns) = self.arrivals.next()?;
        let row = self.rows.at(seq);
        Some(Item { index: seq, stream: self.stream, seq, offset_ns, row, target: None, priority: self.priority })
    }
}

/// Which dataset row each request sends.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    count: u64,
    shuffle: Option<Draw>,
}

impl Rows {
    /// Order over `count` rows; `count` is at least 1.
    pub fn new(count: usize, order: Order, seed: u64, stream: u64) -> Self {
        let shuffle = (order == Order::Shuffled).then(|| Draw::new(seed, stream, PURPOSE_ROW));
        Self { count: count.max(1) as u64, shuffle }
    }

    /// The row of request `seq`; each round through the dataset sends every row once.
    pub fn at(&self, seq: u64) -> u32 {
        if self.count == 1 {
            return 0;
        }
        let (epoch, index) = (seq / self.count, seq % self.count);
        self.shuffle.map_or(index, |draw| draw.permute(self.count, epoch, index)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_gaps_do_not_drift() {
        let due: Vec<i64> = Arrivals::new(3.0, Process::Constant, 1, 0).take(3_000_001).map(|(_, t)| t).collect();
        assert_eq!((due[0], due[3], due[3_000_000]), (0, 1_000_000_000, 1_000_000_000_000_000));
    }

    #[test]
    fn poisson_gaps_have_the_right_moments_and_depend_on_the_seed() {
        let due: Vec<i64> = Arrivals::new(1000.0, Process::Poisson, 7, 0).take(200_000).map(|(_, t)| t).collect();
        let gaps: Vec<f64> = due.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.01 && (var - 1.0).abs() < 0.03, "{mean} {var}");
        let other: Vec<i64> = Arrivals::new(1000.0, Process::Poisson, 8, 0).take(10).map(|(_, t)| t).collect();
        assert_ne!(other, due[..10]);
        let again: Vec<i64> = Arrivals::new(1000.0, Process::Poisson, 7, 0).take(10).map(|(_, t)| t).collect();
        assert_eq!(again, due[..10]);
    }

    #[test]
    fn every_round_sends_every_row() {
        for order in [Order::File, Order::Shuffled] {
            let rows = Rows::new(13, order, 5, 0);
            let first: Vec<u32> = (0..13).map(|s| rows.at(s)).collect();
            let second: Vec<u32> = (13..26).map(|s| rows.at(s)).collect();
            for round in [&first, &second] {
                let mut sorted = round.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..13).collect::<Vec<_>>());
            }
            assert_eq!(first == second, order == Order::File);
        }
    }
}
