//! Numbers with an order, and the least loaded of many.

use std::cmp::Ordering;

/// A number that is never NaN, in its order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ordered(pub f64);

impl Eq for Ordered {}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Counts of which the smallest is known, the first of equals: a tournament, whose winners are kept.
#[derive(Debug)]
pub struct Least {
    leaves: usize,
    winners: Vec<u32>,
    counts: Vec<u32>,
}

impl Least {
    /// So many zeros.
    pub fn new(len: usize) -> Self {
        let leaves = len.next_power_of_two();
        let mut counts = vec![u32::MAX; leaves];
        counts[..len].fill(0);
        let mut least = Self { leaves, winners: vec![0; 2 * leaves], counts };
        for leaf in 0..leaves {
            least.winners[leaves + leaf] = leaf as u32;
        }
        for node in (1..leaves).rev() {
            least.winners[node] = least.winner(node);
        }
        least
    }

    fn winner(&self, node: usize) -> u32 {
        let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
        if self.counts[right as usize] < self.counts[left as usize] { right } else { left }
    }

    /// Change a count.
    pub fn add(&mut self, index: usize, by: i32) {
        self.counts[index] = self.counts[index].wrapping_add_signed(by);
        let mut node = (self.leaves + index) >> 1;
        while node > 0 {
            self.winners[node] = self.winner(node);
            node >>= 1;
        }
    }

    /// The smallest.
    pub fn first(&self) -> usize {
        self.winners[1] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_smallest_is_found() {
        for len in [1_usize, 2, 3, 7, 8, 13] {
            let mut least = Least::new(len);
            let mut plain = vec![0_i32; len];
            let mut state = 12_345_u64;
            for _ in 0..2000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let index = (state >> 33) as usize % len;
                let by = if plain[index] > 0 && (state >> 20) & 1 == 0 { -1 } else { 1 };
                plain[index] += by;
                least.add(index, by);
                let first = (0..len).min_by_key(|&k| plain[k]);
                assert_eq!(Some(least.first()), first);
            }
        }
    }
}
