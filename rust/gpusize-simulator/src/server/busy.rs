//! How busy the GPUs were lately, from looks at how long they were busy in all.

use std::collections::VecDeque;

const WINDOW_NS: i64 = 1_000_000_000;
/// Looks that follow each other faster than this are not kept.
const APART_NS: i64 = 100_000_000;
const KEPT: usize = 32;

/// The looks of the last while.
#[derive(Debug)]
pub(super) struct BusyShares {
    looks: VecDeque<(i64, Vec<i64>)>,
}

impl BusyShares {
    pub(super) fn new(gpus: u32) -> Self {
        Self { looks: VecDeque::from([(0, vec![0; gpus as usize])]) }
    }

    /// The share of the time since the youngest look that is a second old, at most 1 each; since the oldest when none is.
    pub(super) fn look(&mut self, now_ns: i64, busy_ns: Vec<i64>) -> Vec<f64> {
        let old_enough = |look: &&(i64, Vec<i64>)| look.0 <= now_ns - WINDOW_NS;
        let Some((then_ns, then)) = self.looks.iter().rev().find(old_enough).or_else(|| self.looks.front()) else {
            return vec![0.0; busy_ns.len()];
        };
        let passed_ns = (now_ns - then_ns).max(1) as f64;
        let shares =
            busy_ns.iter().zip(then).map(|(now, then)| ((now - then) as f64 / passed_ns).clamp(0.0, 1.0)).collect();
        if self.looks.back().is_none_or(|last| now_ns - last.0 >= APART_NS) {
            self.looks.push_back((now_ns, busy_ns));
        }
        if self.looks.len() > KEPT {
            self.looks.pop_front();
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_last_second_whoever_looks_how_often() {
        let mut shares = BusyShares::new(2);
        // Busy for the first second, and every other 100 ms from then on.
        let busy = |now_ns: i64| if now_ns <= WINDOW_NS { now_ns } else { WINDOW_NS + (now_ns - WINDOW_NS) / 2 };
        let mut seen = Vec::new();
        for now_ns in (0..=3_000_000_000).step_by(50_000_000) {
            seen = shares.look(now_ns, vec![busy(now_ns), 0]);
        }
        assert!((seen[0] - 0.5).abs() < 0.01 && seen[1] == 0.0, "{seen:?}");
        let rare = shares.look(63_000_000_000, vec![busy(3_000_000_000) + 6_000_000_000, 70_000_000_000]);
        assert!((rare[0] - 0.1).abs() < 0.01 && (rare[1] - 1.0).abs() < 1e-9, "{rare:?}");
    }
}
