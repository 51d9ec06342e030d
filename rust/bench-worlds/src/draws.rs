//! Random draws as pure functions of (seed, purpose, index): the order in which they are asked for does not matter.

use std::f64::consts::TAU;

/// What a stream of draws is for; streams of one seed are independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Tokens of prompts.
    Prompt = 1,
    /// Tokens of answers.
    Output,
    /// Which pair of a trace.
    Pair,
    /// Work in units that no token tells.
    Work,
    /// A request's own cost.
    Noise,
    /// Gaps of an open loop.
    Gap,
    /// Think times.
    Think,
    /// Random routes.
    Route,
    /// When pauses begin, and how long they are; one stream for each GPU beyond this.
    Pause,
    /// What of a prompt is in the cache of an engine.
    Prefix,
    /// Tokens that a step of an engine gives.
    Accept,
    /// An engine's iterations; one stream for each instance, as the next.
    Jitter,
    /// How fast an engine is in this run.
    Speed,
}

/// One stream.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    key: u64,
}

/// The finalizer of `SplitMix64` (Steele, Lea, Flood 2014).
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Draws {
    /// The stream of `purpose` with number `sub`.
    pub fn new(seed: u64, purpose: Purpose, sub: u64) -> Self {
        let key = mixed(seed ^ 0x6A09_E667_F3BC_C909);
        let key = mixed(key ^ (purpose as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Self { key: mixed(key ^ sub.wrapping_mul(0xD1B5_4A32_D192_ED03)) }
    }

    /// 64 random bits.
    pub fn bits(self, index: u64) -> u64 {
        mixed(mixed(self.key.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15))) ^ self.key)
    }

    /// Uniform, in (0, 1).
    pub fn unit(self, index: u64) -> f64 {
        ((self.bits(index) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exp(self, index: u64) -> f64 {
        -self.unit(index).ln()
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(self, index: u64) -> f64 {
        let (radius, angle) = (self.unit(2 * index), self.unit(2 * index + 1));
        (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
    }

    /// A lognormal factor with mean 1.
    pub fn factor(self, index: u64, sigma: f64) -> f64 {
        if sigma == 0.0 { 1.0 } else { (sigma * self.normal(index) - sigma * sigma / 2.0).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: impl Iterator<Item = f64>) -> (f64, f64) {
        let all: Vec<f64> = values.collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (mean, all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / all.len() as f64)
    }

    #[test]
    fn draws_have_their_moments() {
        let draws = Draws::new(7, Purpose::Gap, 0);
        let close = |(mean, variance): (f64, f64), m: f64, v: f64| {
            assert!((mean - m).abs() < 0.01 && (variance - v).abs() < 0.03 * v, "{mean} {variance}");
        };
        close(moments((0..200_000).map(|i| draws.unit(i))), 0.5, 1.0 / 12.0);
        close(moments((0..200_000).map(|i| draws.exp(i))), 1.0, 1.0);
        close(moments((0..200_000).map(|i| draws.normal(i))), 0.0, 1.0);
        close(moments((0..200_000).map(|i| draws.factor(i, 0.5))), 1.0, 0.25_f64.exp_m1());
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_number() {
        let streams = [(1, Purpose::Gap, 0), (2, Purpose::Gap, 0), (1, Purpose::Think, 0), (1, Purpose::Gap, 1)]
            .map(|(seed, purpose, sub)| Draws::new(seed, purpose, sub));
        for (k, a) in streams.iter().enumerate() {
            for b in &streams[..k] {
                let product = |i| (a.unit(i) - 0.5) * (b.unit(i) - 0.5);
                let (mean, _) = moments((0..50_000).map(product));
                assert!(mean.abs() < 0.002, "{mean}");
            }
        }
    }
}
