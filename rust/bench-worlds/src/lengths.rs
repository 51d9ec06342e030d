//! How long prompts and answers are, and how much work a request is.

use serde::Deserialize;

use crate::draws::{Draws, Purpose};

/// A distribution of positive numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Size {
    /// Always the same.
    Fixed {
        /// Of every draw.
        value: f64,
    },
    /// Many of medium size, a long tail.
    Lognormal {
        /// Half of the draws are below.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Larger draws are cut to this.
        max: f64,
    },
    /// Two kinds of requests, each lognormal.
    Bimodal {
        /// Median of the small ones.
        low: f64,
        /// Median of the large ones.
        high: f64,
        /// Share of the large ones.
        high_share: f64,
        /// Standard deviation of the logarithm within each kind.
        sigma: f64,
        /// Larger draws are cut to this.
        max: f64,
    },
    /// Memoryless.
    Exponential {
        /// Before the cut.
        mean: f64,
        /// Larger draws are cut to this.
        max: f64,
    },
}

impl Size {
    /// The draw of request `index`.
    pub fn draw(&self, draws: Draws, index: u64) -> f64 {
        match *self {
            Self::Fixed { value } => value,
            Self::Lognormal { median, sigma, max } => (median * (sigma * draws.normal(index)).exp()).min(max),
            Self::Bimodal { low, high, high_share, sigma, max } => {
                // The third of the units that the normal draws of this index do not use.
                let kind = draws.unit(index ^ (1 << 62));
                let median = if kind < high_share { high } else { low };
                (median * (sigma * draws.normal(index)).exp()).min(max)
            }
            Self::Exponential { mean, max } => (mean * draws.exp(index)).min(max),
        }
    }

    fn check(&self, name: &str) -> Result<(), String> {
        let positive: &[f64] = match self {
            Self::Fixed { value } => &[*value],
            Self::Lognormal { median, max, .. } => &[*median, *max],
            Self::Bimodal { low, high, max, .. } => &[*low, *high, *max],
            Self::Exponential { mean, max } => &[*mean, *max],
        };
        if positive.iter().all(|value| value.is_finite() && *value > 0.0) {
            return Ok(());
        }
        Err(format!("{name}: sizes must be above 0"))
    }
}

/// Tokens of the requests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Lengths {
    /// Prompts and answers have nothing to do with each other.
    Apart {
        /// Tokens of prompts, rounded, at least 1.
        prompt: Size,
        /// Tokens of answers, rounded, at least 1.
        output: Size,
    },
    /// Drawn from a trace, with replacement.
    Pairs(Vec<(u32, u32)>),
}

impl Lengths {
    /// Refuse what cannot be drawn.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Apart { prompt, output } => prompt.check("prompt").and_then(|()| output.check("output")),
            Self::Pairs(pairs) if pairs.is_empty() => Err("a trace of lengths must have at least one pair".to_owned()),
            Self::Pairs(pairs) if pairs.iter().any(|&(prompt, output)| prompt == 0 || output == 0) => {
                Err("lengths of a trace must be at least 1".to_owned())
            }
            Self::Pairs(_) => Ok(()),
        }
    }
}

/// The draws of one run.
#[derive(Debug)]
pub struct LengthDraws<'a> {
    lengths: &'a Lengths,
    prompts: Draws,
    outputs: Draws,
    pairs: Draws,
}

impl<'a> LengthDraws<'a> {
    /// With the streams of `seed`.
    pub fn new(lengths: &'a Lengths, seed: u64) -> Self {
        let stream = |purpose| Draws::new(seed, purpose, 0);
        Self {
            lengths,
            prompts: stream(Purpose::Prompt),
            outputs: stream(Purpose::Output),
            pairs: stream(Purpose::Pair),
        }
    }

    /// Tokens of prompt and answer of request `index`.
    pub fn draw(&self, index: u64) -> (u32, u32) {
        let tokens = |value: f64| value.round().max(1.0) as u32;
        match self.lengths {
            Lengths::Apart { prompt, output } => {
                (tokens(prompt.draw(self.prompts, index)), tokens(output.draw(self.outputs, index)))
            }
            Lengths::Pairs(pairs) => pairs[(self.pairs.unit(index) * pairs.len() as f64) as usize],
        }
    }

    /// Means over the first draws: enough to spread the first requests of a closed loop.
    pub fn means(&self) -> (f64, f64) {
        const SAMPLE: u64 = 512;
        let (mut prompts, mut outputs) = (0.0, 0.0);
        for index in 0..SAMPLE {
            let (prompt, output) = self.draw(index);
            prompts += f64::from(prompt);
            outputs += f64::from(output);
        }
        (prompts / SAMPLE as f64, outputs / SAMPLE as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kinds_come_in_their_shares() {
        let size = Size::Bimodal { low: 10.0, high: 1000.0, high_share: 0.25, sigma: 0.1, max: 5000.0 };
        let draws = Draws::new(3, Purpose::Output, 0);
        let large = (0..40_000).filter(|&index| size.draw(draws, index) > 100.0).count() as f64 / 40_000.0;
        assert!((large - 0.25).abs() < 0.01, "{large}");
    }

    #[test]
    fn pairs_stay_together() {
        let lengths = Lengths::Pairs(vec![(1, 100), (2, 200), (3, 300)]);
        let draws = LengthDraws::new(&lengths, 5);
        let drawn: Vec<(u32, u32)> = (0..3000).map(|index| draws.draw(index)).collect();
        assert!(drawn.iter().all(|&(prompt, output)| output == 100 * prompt));
        assert!((1..=3).all(|prompt| drawn.iter().filter(|pair| pair.0 == prompt).count() > 900));
        assert!(Lengths::Pairs(Vec::new()).check().is_err());
    }
}
