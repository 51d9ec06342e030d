//! Which dataset row a request sends.

use crate::spec::Order;
use gpusize_base::draw::Draw;

const PURPOSE_ROW: u64 = (1 << 32) + 1;

/// Which dataset row each request sends.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    first: u64,
    count: u64,
    shuffle: Option<Draw>,
}

impl Rows {
    /// Order over `count` rows; `count` is at least 1.
    pub fn new(count: usize, order: Order, seed: u64, stream: u64) -> Self {
        Self::within(0, count as u64, order, seed, stream)
    }

    /// Likewise, over `count` rows from `first` on.
    pub fn within(first: u64, count: u64, order: Order, seed: u64, stream: u64) -> Self {
        let shuffle = (order == Order::Shuffled).then(|| Draw::new(seed, stream, PURPOSE_ROW));
        Self { first, count: count.max(1), shuffle }
    }

    /// The row of request `seq`; each round through the rows sends every row once.
    pub fn at(&self, seq: u64) -> u32 {
        if self.count == 1 {
            return self.first as u32;
        }
        let (epoch, index) = (seq / self.count, seq % self.count);
        (self.first + self.shuffle.map_or(index, |draw| draw.permute(self.count, epoch, index))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_sends_every_row() {
        for order in [Order::File, Order::Shuffled] {
            for first in [0, 100] {
                let rows = Rows::within(first, 13, order, 5, 0);
                let one: Vec<u32> = (0..13).map(|s| rows.at(s)).collect();
                let two: Vec<u32> = (13..26).map(|s| rows.at(s)).collect();
                for round in [&one, &two] {
                    let mut sorted = round.clone();
                    sorted.sort_unstable();
                    assert_eq!(sorted, (first as u32..first as u32 + 13).collect::<Vec<_>>());
                }
                assert_eq!(one == two, order == Order::File);
            }
        }
    }

    #[test]
    fn streams_have_orders_of_their_own() {
        let order = |stream| (0..50).map(|s| Rows::new(50, Order::Shuffled, 5, stream).at(s)).collect::<Vec<_>>();
        assert_ne!(order(0), order(1));
    }
}
