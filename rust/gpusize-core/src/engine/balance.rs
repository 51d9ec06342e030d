//! Which of a target's addresses a request goes to.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::spec::Balance;

/// Shared by all workers of a session.
#[derive(Debug)]
pub struct Balancer {
    rule: Balance,
    under_way: Vec<AtomicUsize>,
}

/// A request that counts as under way until this is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    pub endpoint: usize,
    under_way: Option<&'a AtomicUsize>,
}

impl Balancer {
    pub fn new(rule: Balance, endpoints: usize) -> Self {
        Self { rule, under_way: (0..endpoints).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// The address of request `seq`.
    pub fn turn(&self, seq: u64) -> Turn<'_> {
        let count = self.under_way.len();
        if count == 1 {
            return Turn { endpoint: 0, under_way: None };
        }
        let next = (seq % count as u64) as usize;
        if self.rule == Balance::RoundRobin {
            return Turn { endpoint: next, under_way: None };
        }
        // Two threads may choose at the same instant: a count that is one off does not matter.
        let load = |e: &usize| self.under_way[*e].load(Relaxed);
        let endpoint = (next..count).chain(0..next).min_by_key(load).unwrap_or(next);
        self.under_way[endpoint].fetch_add(1, Relaxed);
        Turn { endpoint, under_way: Some(&self.under_way[endpoint]) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.under_way {
            count.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_by_number_or_by_load() {
        let round = Balancer::new(Balance::RoundRobin, 3);
        assert_eq!([0, 1, 2, 3, 7].map(|s| round.turn(s).endpoint), [0, 1, 2, 0, 1]);
        let least = Balancer::new(Balance::LeastOutstanding, 3);
        assert_eq!([0, 1, 2, 3].map(|s| least.turn(s).endpoint), [0, 1, 2, 0], "equals take turns");
        let (a, b) = (least.turn(0), least.turn(0));
        assert_eq!((a.endpoint, b.endpoint, least.turn(0).endpoint), (0, 1, 2));
        drop(a);
        assert_eq!(least.turn(4).endpoint, 2, "0 and 2 are free, and 4 begins to look at 1");
        assert_eq!(least.turn(3).endpoint, 0);
    }
}
