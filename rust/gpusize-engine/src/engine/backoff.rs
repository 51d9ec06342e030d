//! How long a slot rests after connects that failed, so that a target that refuses is not hammered.

use gpusize_base::draw::Draw;

const PURPOSE_BACKOFF: u64 = (1 << 32) + 16;
const FIRST_NS: i64 = 10_000_000;
const LONGEST_NS: i64 = 1_000_000_000;

/// Connects of one slot that failed, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    slot: usize,
    failures: u32,
    drawn: u64,
}

impl Backoff {
    /// Of slot `slot` of a worker.
    pub fn new(slot: usize) -> Self {
        Self { slot, failures: 0, drawn: 0 }
    }

    /// A connection was there.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// A connect failed: the pause before the next one, twice as long each time, and spread so that slots do not come
    /// back together, nor those of several hosts: `worker` is its number among all.
    pub fn failed(&mut self, worker: usize) -> i64 {
        let pause_ns = (FIRST_NS << self.failures.min(16)).min(LONGEST_NS);
        self.failures += 1;
        self.drawn += 1;
        (pause_ns as f64 * (0.5 + Draw::new(worker as u64, self.slot as u64, PURPOSE_BACKOFF).unit(self.drawn))) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_second_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(3);
        let pauses: Vec<i64> = (0..40).map(|_| backoff.failed(0)).collect();
        for (k, pause) in pauses.iter().enumerate() {
            let mean = (10_000_000_i64 << k.min(16)).min(1_000_000_000);
            assert!((mean / 2..=mean * 3 / 2).contains(pause), "{k}: {pause}");
        }
        backoff.succeeded();
        assert!(backoff.failed(0) <= 15_000_000);
        assert_ne!(Backoff::new(1).failed(0), Backoff::new(2).failed(0));
        assert_ne!(Backoff::new(1).failed(0), Backoff::new(1).failed(1));
    }
}
