//! What of a request no length tells: how much of its prompt is in the cache, and how many tokens a step gives it.

use serde::Deserialize;

use crate::draws::{Draws, Purpose};

/// What of a prompt was computed before, for another request.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// Tokens that all prompts begin with (a system prompt): computed once, and held once.
    #[serde(default)]
    pub common: u32,
    /// Share of the requests that go on with a conversation.
    #[serde(default)]
    pub turn_share: f64,
    /// How much of what follows the common part such a one has in the cache: at least this share.
    #[serde(default)]
    pub turn_low: f64,
    /// At most this share; uniform between them.
    #[serde(default)]
    pub turn_high: f64,
    /// Whether a conversation is forgotten as the cache fills: it is still there with the share of the cache that is free.
    #[serde(default)]
    pub evicts: bool,
}

/// Speculative decoding: a draft proposes tokens, and a step takes them up to the first that is rejected, and one more.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speculative {
    /// Proposed in each step.
    pub tokens: u32,
    /// Chance of each to be accepted, if those before it were.
    pub accept: f64,
    /// Half the range over which that chance differs from request to request; uniform.
    #[serde(default)]
    pub spread: f64,
    /// What drafting adds to an iteration.
    pub draft_s: f64,
}

impl Prefix {
    /// Refuse what cannot be drawn.
    pub fn check(&self) -> Result<(), String> {
        let shares = [self.turn_share, self.turn_low, self.turn_high];
        if shares.iter().any(|share| !(0.0..=1.0).contains(share)) || self.turn_low > self.turn_high {
            return Err("engine: prefix: shares must be in 0 to 1, turn_low at most turn_high".to_owned());
        }
        Ok(())
    }

    /// Tokens of a prompt that are in the cache, whole blocks, and never all of it. `free` is the share of the cache that is free.
    pub fn found(&self, draws: Draws, row: u32, prompt: u32, block: u32, free: f64) -> u32 {
        let row = u64::from(row);
        let common = self.common.min(prompt);
        let kept = if self.evicts { self.turn_share * free } else { self.turn_share };
        let turn = if draws.unit(2 * row) < kept {
            let share = self.turn_low + (self.turn_high - self.turn_low) * draws.unit(2 * row + 1);
            share * f64::from(prompt - common)
        } else {
            0.0
        };
        let found = (common + turn as u32).min(prompt.saturating_sub(1));
        found / block * block
    }

    /// Share of a prompt that is found on average, about.
    pub fn typical(&self, prompt: f64) -> f64 {
        let common = f64::from(self.common).min(prompt) / prompt.max(1.0);
        common + (1.0 - common) * self.turn_share * (self.turn_low + self.turn_high) / 2.0
    }
}

impl Speculative {
    /// Refuse what cannot be drawn.
    pub fn check(&self) -> Result<(), String> {
        let inside = (0.0..1.0).contains(&(self.accept - self.spread)) && self.accept + self.spread < 1.0;
        if self.tokens == 0 || self.spread < 0.0 || !inside || !self.draft_s.is_finite() || self.draft_s < 0.0 {
            return Err("engine: speculative: tokens must be at least 1, accept +- spread in 0 to 1, and draft_s not \
                        negative"
                .to_owned());
        }
        Ok(())
    }

    /// Tokens of a step on average (Leviathan, Kalman and Matias 2023, equation 1).
    pub fn mean(&self) -> f64 {
        (1.0 - self.accept.powi(self.tokens as i32 + 1)) / (1.0 - self.accept)
    }

    /// Steps in which a request makes `tokens`, of which the first has number `made`.
    pub fn steps(&self, draws: Draws, row: u32, made: u32, tokens: u32) -> u32 {
        // Never twice the same, however often the request was sent away and came back.
        let index = u64::from(row) << 20 | u64::from(made);
        let chance = self.accept + self.spread * (2.0 * draws.unit(u64::from(row) << 20) - 1.0);
        // By the high half of a congruential generator (L'Ecuyer 1999): there are very many steps.
        let mut state = draws.bits(index);
        let accepted = (chance * f64::from(u32::MAX)) as u64;
        let (mut left, mut steps) = (tokens, 0);
        while left > 0 {
            state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(3_037_000_493);
            let draw = state >> 32;
            let (mut taken, mut at_least) = (1, accepted);
            while taken <= self.tokens && draw < at_least {
                taken += 1;
                at_least = (at_least * accepted) >> 32;
            }
            left -= taken.min(left);
            steps += 1;
        }
        steps
    }
}

/// The streams of one run.
#[derive(Debug, Clone, Copy)]
pub struct Chances {
    /// For `Prefix::found`.
    pub prefix: Draws,
    /// For `Speculative::steps`.
    pub accept: Draws,
}

impl Chances {
    /// Of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { prefix: Draws::new(seed, Purpose::Prefix, 0), accept: Draws::new(seed, Purpose::Accept, 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_gives_the_tokens_of_the_formula() {
        let speculative = Speculative { tokens: 4, accept: 0.7, spread: 0.0, draft_s: 0.0 };
        let chances = Chances::new(5);
        let steps: u32 = (0..2000).map(|row| speculative.steps(chances.accept, row, 1, 1000)).sum();
        let mean = 2000.0 * 1000.0 / f64::from(steps);
        // (1 - 0.7^5) / 0.3
        assert!((mean / 2.7731 - 1.0).abs() < 0.005, "{mean}");
        assert!((speculative.mean() - 2.7731).abs() < 1e-4);
        assert_eq!(speculative.steps(chances.accept, 1, 1, 0), 0);
    }

    #[test]
    fn a_prefix_is_found_in_whole_blocks_and_never_whole() {
        let prefix = Prefix { common: 100, turn_share: 0.5, turn_low: 0.5, turn_high: 1.0, evicts: true };
        let draws = Chances::new(3).prefix;
        let found = |free: f64| -> Vec<u32> { (0..4000).map(|row| prefix.found(draws, row, 1000, 16, free)).collect() };
        let all = found(1.0);
        assert!(all.iter().all(|&tokens| tokens % 16 == 0 && (96..1000).contains(&tokens)));
        let turns = |found: &[u32]| found.iter().filter(|&&tokens| tokens > 96).count() as f64 / 4000.0;
        assert!((turns(&all) - 0.5).abs() < 0.03);
        assert!((turns(&found(0.4)) - 0.2).abs() < 0.03);
        let mean = f64::from(all.iter().sum::<u32>()) / 4000.0 / 1000.0;
        assert!((mean - prefix.typical(1000.0)).abs() < 0.02, "{mean}");
        assert_eq!(prefix.found(draws, 1, 16, 16, 0.0), 0, "a whole prompt has one token left to compute");
    }
}
