//! How many tokens a prompt or an answer has.

use serde::{Deserialize, Serialize};

use super::SimError;
use gpusize_base::draw::Draw;

/// A distribution of token counts; every draw is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Length {
    /// Always the same.
    Fixed {
        /// Tokens of every draw.
        tokens: u32,
    },
    /// Whole numbers, each as likely as the others.
    Uniform {
        /// Smallest, included.
        min_tokens: u32,
        /// Largest, included.
        max_tokens: u32,
    },
    /// The usual shape of answers: many of medium length, a long tail.
    Lognormal {
        /// Half of the draws are below.
        median_tokens: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Longer draws are cut to this.
        max_tokens: u32,
    },
    /// Memoryless: the answer ends with the same chance after every token.
    Geometric {
        /// Mean before the cut.
        mean_tokens: f64,
        /// Longer draws are cut to this.
        max_tokens: u32,
    },
}

impl Length {
    pub(super) fn validate(&self, field: &str) -> Result<(), SimError> {
        let positive = |value: f64| value.is_finite() && value >= 1.0;
        let problem = match *self {
            Self::Fixed { tokens: 0 } => "must have at least 1 token".to_owned(),
            Self::Uniform { min_tokens: 0, .. } => "must have min_tokens of at least 1".to_owned(),
            Self::Uniform { min_tokens, max_tokens } if max_tokens < min_tokens => {
                format!("has max_tokens {max_tokens} below min_tokens {min_tokens}")
            }
            Self::Lognormal { median_tokens, .. } if !positive(median_tokens) => {
                format!("must have median_tokens of at least 1, not {median_tokens}")
            }
            Self::Lognormal { sigma, .. } if !(0.0..=10.0).contains(&sigma) => {
                format!("must have sigma between 0 and 10, not {sigma}")
            }
            Self::Geometric { mean_tokens, .. } if !positive(mean_tokens) => {
                format!("must have mean_tokens of at least 1, not {mean_tokens}")
            }
            Self::Lognormal { max_tokens: 0, .. } | Self::Geometric { max_tokens: 0, .. } => {
                "must have max_tokens of at least 1".to_owned()
            }
            _ => return Ok(()),
        };
        Err(SimError::value(field, problem))
    }

    /// The draw of request `seq`.
    pub fn draw(&self, draw: Draw, seq: u64) -> u32 {
        match *self {
            Self::Fixed { tokens } => tokens,
            Self::Uniform { min_tokens, max_tokens } => {
                let count = f64::from(max_tokens - min_tokens) + 1.0;
                min_tokens + (draw.unit(seq) * count) as u32
            }
            Self::Lognormal { median_tokens, sigma, max_tokens } => {
                cut(median_tokens * (sigma * draw.normal(seq)).exp(), max_tokens)
            }
            Self::Geometric { mean_tokens, max_tokens } if mean_tokens > 1.0 => {
                let go_on = (1.0 - 1.0 / mean_tokens).ln();
                cut((draw.exp(seq) / -go_on).floor() + 1.0, max_tokens)
            }
            Self::Geometric { .. } => 1,
        }
    }

    /// Mean, without regard to the cut.
    pub fn mean_tokens(&self) -> f64 {
        match *self {
            Self::Fixed { tokens } => f64::from(tokens),
            Self::Uniform { min_tokens, max_tokens } => f64::midpoint(f64::from(min_tokens), f64::from(max_tokens)),
            Self::Lognormal { median_tokens, sigma, .. } => median_tokens * (sigma * sigma / 2.0).exp(),
            Self::Geometric { mean_tokens, .. } => mean_tokens,
        }
    }
}

fn cut(tokens: f64, max_tokens: u32) -> u32 {
    tokens.round().clamp(1.0, f64::from(max_tokens)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_stated_mean_and_bounds() {
        let draw = Draw::new(3, 0, 0);
        let cases = [
            Length::Fixed { tokens: 7 },
            Length::Uniform { min_tokens: 3, max_tokens: 9 },
            Length::Lognormal { median_tokens: 64.0, sigma: 0.4, max_tokens: 100_000 },
            Length::Geometric { mean_tokens: 20.0, max_tokens: 100_000 },
        ];
        for length in cases {
            let draws: Vec<u32> = (0..50_000).map(|seq| length.draw(draw, seq)).collect();
            let mean = draws.iter().map(|&tokens| f64::from(tokens)).sum::<f64>() / draws.len() as f64;
            assert!((mean / length.mean_tokens() - 1.0).abs() < 0.02, "{length:?}: {mean}");
            assert!(draws.iter().all(|&tokens| tokens >= 1));
        }
        let uniform: Vec<u32> = (0..1000).map(|seq| cases[1].draw(draw, seq)).collect();
        assert_eq!((uniform.iter().min(), uniform.iter().max()), (Some(&3), Some(&9)));
    }

    #[test]
    fn long_draws_are_cut() {
        let length = Length::Lognormal { median_tokens: 50.0, sigma: 2.0, max_tokens: 60 };
        let draws: Vec<u32> = (0..500).map(|seq| length.draw(Draw::new(1, 0, 0), seq)).collect();
        assert!(draws.iter().all(|&tokens| (1..=60).contains(&tokens)) && draws.contains(&60));
    }

    #[test]
    fn bad_lengths_name_their_field() {
        for (text, needle) in [
            (r#"{"fixed":{"tokens":0}}"#, "at least 1 token"),
            (r#"{"uniform":{"min_tokens":5,"max_tokens":4}}"#, "below min_tokens"),
            (r#"{"lognormal":{"median_tokens":0.0,"sigma":1.0,"max_tokens":5}}"#, "median_tokens"),
            (r#"{"geometric":{"mean_tokens":9.0,"max_tokens":0}}"#, "max_tokens"),
        ] {
            let length: Length = serde_json::from_str(text).expect(text);
            let error = length.validate("output_tokens").expect_err(text).to_string();
            assert!(error.starts_with("output_tokens of") && error.contains(needle), "{error}");
        }
    }
}
