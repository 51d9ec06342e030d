//! Pauses of users between a response and their next request.

use crate::spec::Think;
use gpusize_base::draw::Draw;

/// That of the simulated cluster, whose users think by the same draws: stored truths stay as they are.
const PURPOSE_THINK: u64 = 0x5106;

/// The pauses of one stream: a function of (seed, stream, seq).
#[derive(Clone, Copy, Debug)]
pub struct Thinks {
    think: Think,
    draw: Draw,
}

impl Thinks {
    /// Pauses of `stream`, which is 0 in a closed loop.
    pub fn new(think: Think, seed: u64, stream: u64) -> Self {
        Self { think, draw: Draw::new(seed, stream, PURPOSE_THINK) }
    }

    /// The pause before request `seq`, in nanoseconds; `recorded` is what the dataset says of its row.
    pub fn before_ns(&self, seq: u64, recorded: Option<i64>) -> i64 {
        let ns = match self.think {
            Think::Fixed(ns) => return ns,
            Think::Recorded => return recorded.unwrap_or(0).max(0),
            Think::Exponential(mean_ns) => mean_ns as f64 * self.draw.exp(seq),
            Think::Uniform(low_ns, high_ns) => low_ns as f64 + (high_ns - low_ns) as f64 * self.draw.unit(seq),
            Think::Lognormal(median_ns, sigma) => median_ns as f64 * (sigma * self.draw.normal(seq)).exp(),
        };
        ns.round() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_ns(think: Think) -> f64 {
        let thinks = Thinks::new(think, 5, 1);
        (0..100_000).map(|seq| thinks.before_ns(seq, Some(7)) as f64).sum::<f64>() / 1e5
    }

    #[test]
    fn pauses_have_the_means_of_their_distributions() {
        for (think, mean, share) in [
            (Think::Fixed(1_000), 1_000.0, 0.0),
            (Think::Recorded, 7.0, 0.0),
            (Think::Exponential(1_000_000), 1e6, 0.015),
            (Think::Uniform(1_000, 3_000), 2_000.0, 0.005),
            (Think::Lognormal(1_000_000, 0.5), 1e6 * 0.125_f64.exp(), 0.01),
        ] {
            let found = mean_ns(think);
            assert!((found / mean - 1.0).abs() <= share, "{think:?}: {found}");
        }
        assert_eq!(Thinks::new(Think::Recorded, 1, 0).before_ns(3, None), 0, "a row without a pause has none");
    }
}
