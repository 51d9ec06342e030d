//! A GPU's own time against that of the world: slower where GPUs share a host, and still in a pause.

use serde::Deserialize;

use crate::draws::{Draws, Purpose};

/// Pauses of one GPU, in which all its work stands.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pauses {
    /// Mean time from the end of one to the beginning of the next; memoryless.
    pub every_s: f64,
    /// Mean length.
    pub mean_s: f64,
    /// Of the logarithm of the length.
    pub sigma: f64,
}

/// What GPUs in one host cost each other: Gunther's law with `sigma` and `kappa`, as the speed of each of n GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contention {
    /// Waiting for what is shared.
    pub sigma: f64,
    /// Talking to each other.
    pub kappa: f64,
}

impl Contention {
    /// Factor on all times of each of `gpus`.
    pub fn slowness(self, gpus: usize) -> f64 {
        let others = gpus as f64 - 1.0;
        1.0 + self.sigma * others + self.kappa * gpus as f64 * others
    }
}

/// The two times of one GPU; both begin at 0.
#[derive(Debug)]
pub struct Clock {
    slowness: f64,
    pauses: Option<(Pauses, Draws)>,
    /// (begin without the pauses before it, length of those before it, its own length), as far as anybody has asked.
    known: Vec<(f64, f64, f64)>,
}

impl Clock {
    /// Of GPU number `gpu`.
    pub fn new(slowness: f64, pauses: Option<Pauses>, seed: u64, gpu: usize) -> Self {
        let pauses = pauses.map(|pauses| (pauses, Draws::new(seed, Purpose::Pause, gpu as u64)));
        Self { slowness, pauses, known: Vec::new() }
    }

    /// Whether both times are the same.
    pub fn is_plain(&self) -> bool {
        self.slowness <= 1.0 && self.pauses.is_none()
    }

    /// Know all pauses that begin up to `running_s`, and one more.
    fn know(&mut self, running_s: f64) {
        let Some((pauses, draws)) = self.pauses else { return };
        while self.known.last().is_none_or(|last| last.0 <= running_s) {
            let index = self.known.len() as u64;
            let (begin, before) = self.known.last().map_or((0.0, 0.0), |last| (last.0, last.1 + last.2));
            // Even numbers for the gaps, odd ones for the lengths, which use two units each.
            let length = pauses.mean_s * draws.factor(3 * index + 1, pauses.sigma);
            self.known.push((begin + pauses.every_s * draws.exp(6 * index), before, length));
        }
    }

    /// The world's time of the GPU's `own_s`; what happens as a pause begins still gets out before it.
    pub fn to_world_s(&mut self, own_s: f64) -> f64 {
        if self.is_plain() {
            return own_s;
        }
        let running_s = own_s * self.slowness;
        self.know(running_s);
        let begun = self.known.partition_point(|pause| pause.0 < running_s);
        let paused_s = begun.checked_sub(1).map_or(0.0, |last| self.known[last].1 + self.known[last].2);
        running_s + paused_s
    }

    /// The GPU's time at the world's `world_s`: within a pause, that of its beginning.
    pub fn to_own_s(&mut self, world_s: f64) -> f64 {
        if self.is_plain() {
            return world_s;
        }
        self.know(world_s);
        let begun = self.known.partition_point(|pause| pause.0 + pause.1 < world_s);
        let running_s = begun.checked_sub(1).map_or(world_s, |last| {
            let (begin, before, length) = self.known[last];
            (world_s - before - length).max(begin)
        });
        running_s / self.slowness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_times_are_inverse_outside_pauses() {
        let pauses = Pauses { every_s: 1.0, mean_s: 0.3, sigma: 0.8 };
        let mut clock = Clock::new(1.5, Some(pauses), 9, 2);
        let mut last = 0.0;
        for k in 1..5000 {
            let own_s = f64::from(k) * 0.013;
            let world_s = clock.to_world_s(own_s);
            assert!(world_s > last && (clock.to_own_s(world_s) - own_s).abs() < 1e-9);
            last = world_s;
        }
    }

    #[test]
    fn pauses_take_their_share_of_the_time() {
        let pauses = Pauses { every_s: 2.0, mean_s: 0.5, sigma: 0.5 };
        let mut clock = Clock::new(1.0, Some(pauses), 1, 0);
        let ratio = clock.to_world_s(40_000.0) / 40_000.0;
        assert!((ratio - 1.25).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn contention_is_gunthers_law() {
        let contention = Contention { sigma: 0.1, kappa: 0.02 };
        assert!((contention.slowness(1) - 1.0).abs() < 1e-12);
        assert!((contention.slowness(4) - (1.0 + 0.3 + 0.24)).abs() < 1e-12);
    }
}
