//! Which of a target's addresses a request goes to.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::spec::Balance;

/// Shared by all workers of a session.
#[derive(Debug)]
pub struct Balancer {
    rule: Balance,
    under_way: Vec<AtomicUsize>,
}

impl Balancer {
    pub fn new(rule: Balance, endpoints: usize) -> Self {
        Self { rule, under_way: (0..endpoints).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// The address of request `seq`, which counts as under way there until `done`.
    pub fn choose(&self, seq: u64) -> usize {
        let count = self.under_way.len();
        if count == 1 {
            return 0;
        }
        let next = (seq % count as u64) as usize;
        if self.rule == Balance::RoundRobin {
            return next;
        }
        // Two threads may choose at the same instant: a count that is one off does not matter.
        let load = |e: &usize| self.under_way[*e].load(Relaxed);
        let endpoint = (next..count).chain(0..next).min_by_key(load).unwrap_or(next);
        self.under_way[endpoint].fetch_add(1, Relaxed);
        endpoint
    }

    /// The address that a request was given, which counts as under way there until `done`.
    pub fn take(&self, target: u16) -> usize {
        let endpoint = usize::from(target);
        if self.rule == Balance::LeastOutstanding && self.under_way.len() > 1 {
            self.under_way[endpoint].fetch_add(1, Relaxed);
        }
        endpoint
    }

    /// A request to this address has its outcome.
    pub fn done(&self, endpoint: usize) {
        if self.rule == Balance::LeastOutstanding && self.under_way.len() > 1 {
            self.under_way[endpoint].fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_by_number_or_by_load() {
        let round = Balancer::new(Balance::RoundRobin, 3);
        assert_eq!([0, 1, 2, 3, 7].map(|s| round.choose(s)), [0, 1, 2, 0, 1]);
        let least = Balancer::new(Balance::LeastOutstanding, 3);
        let quick = |seq| {
            let endpoint = least.choose(seq);
            least.done(endpoint);
            endpoint
        };
        assert_eq!([0, 1, 2, 3].map(quick), [0, 1, 2, 0], "equals take turns");
        assert_eq!((least.choose(0), least.choose(0), quick(0)), (0, 1, 2));
        least.done(0);
        assert_eq!((quick(4), quick(3)), (2, 0), "0 and 2 are free, and 4 begins to look at 1");
    }
}
