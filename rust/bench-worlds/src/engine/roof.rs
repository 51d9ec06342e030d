//! How long an iteration takes: by a roofline (Williams, Waterman and Patterson 2009), and how long many of them do.
//!
//! ```text
//! seconds = overhead + max(FLOP of its tokens / FLOP/s, bytes of the weights and of the contexts read / bytes/s)
//! ```

use serde::Deserialize;

/// What the GPUs of one instance do together, and what the model asks of them.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roof {
    /// FLOP/s that are reached.
    pub flops: f64,
    /// Bytes/s that are reached.
    pub bandwidth: f64,
    /// Weights that every iteration reads.
    pub weight_bytes: f64,
    /// Weights of which an iteration reads what its tokens choose.
    #[serde(default)]
    pub experts: Option<Experts>,
    /// FLOP of one token: twice the parameters that are active for it.
    pub token_flops: f64,
    /// FLOP of one token of a prompt with one token of its context.
    #[serde(default)]
    pub attention_flops: f64,
    /// Keys and values of one token.
    pub kv_bytes: f64,
    /// Of every iteration: scheduler, launches, sampling, talk between the GPUs.
    pub overhead_s: f64,
    /// What each sequence adds to that.
    #[serde(default)]
    pub sequence_s: f64,
}

/// A mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Of all of them.
    pub bytes: f64,
    /// Share that one token uses.
    pub active_share: f64,
}

/// What an iteration has to do, and by how much that grows from one to the next while nobody joins or leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// Tokens computed.
    pub tokens: u64,
    /// Sequences that are touched.
    pub sequences: usize,
    /// Pairs of a prompt's token with one of its context.
    pub pairs: f64,
    /// More of them with each iteration.
    pub pairs_grow: f64,
    /// Tokens of context that are read.
    pub read: f64,
    /// More of them with each iteration.
    pub read_grow: f64,
}

impl Roof {
    /// Refuse what cannot run.
    pub fn check(&self) -> Result<(), String> {
        let experts = self.experts.unwrap_or(Experts { bytes: 0.0, active_share: 1.0 });
        let positive = [self.flops, self.bandwidth, self.weight_bytes, self.token_flops, experts.active_share];
        let others = [self.attention_flops, self.kv_bytes, self.overhead_s, self.sequence_s, experts.bytes];
        if positive.iter().any(|value| !value.is_finite() || *value <= 0.0)
            || others.iter().any(|value| !value.is_finite() || *value < 0.0)
            || experts.active_share > 1.0
        {
            return Err("engine: roof: figures must be above 0, those of attention, KV and overhead not negative, \
                        active_share at most 1"
                .to_owned());
        }
        Ok(())
    }

    /// Weights that an iteration with so many tokens reads. Tokens choose their experts apart from each other.
    pub fn weights_read(&self, tokens: u64) -> f64 {
        let chosen = self
            .experts
            .map_or(0.0, |experts| experts.bytes * (1.0 - (1.0 - experts.active_share).powf(tokens as f64)));
        self.weight_bytes + chosen
    }

    /// The iterations of such work, `most` at most: as many as lie under the same part of the roof.
    pub fn stretch(&self, work: &Work, most: u64) -> Stretch {
        let fixed_s = self.overhead_s + self.sequence_s * work.sequences as f64;
        let compute_s = (work.tokens as f64 * self.token_flops + work.pairs * self.attention_flops) / self.flops;
        let compute_grows_s = work.pairs_grow * self.attention_flops / self.flops;
        let memory_s = (self.weights_read(work.tokens) + work.read * self.kv_bytes) / self.bandwidth;
        let memory_grows_s = work.read_grow * self.kv_bytes / self.bandwidth;
        let (ahead, gains) = (compute_s - memory_s, compute_grows_s - memory_grows_s);
        let computes = ahead > 0.0 || (ahead == 0.0 && gains > 0.0);
        let count = if ahead * gains < 0.0 { most.min((-ahead / gains).ceil() as u64) } else { most };
        let (first_s, grows_s) = if computes { (compute_s, compute_grows_s) } else { (memory_s, memory_grows_s) };
        Stretch { count: count.max(1), first_s: fixed_s + first_s, grows_s }
    }
}

/// Iterations that are one event: each takes longer than the one before by the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stretch {
    /// How many; 0: nothing is done.
    pub count: u64,
    /// Time of the first.
    pub first_s: f64,
    /// From one to the next.
    pub grows_s: f64,
}

impl Stretch {
    /// Time of the first `count`.
    pub fn time_s(&self, count: u64) -> f64 {
        let count = count as f64;
        count * self.first_s + self.grows_s * count * (count - 1.0) / 2.0
    }

    /// All times multiplied.
    #[must_use]
    pub fn slowed(self, factor: f64) -> Self {
        Self { first_s: self.first_s * factor, grows_s: self.grows_s * factor, ..self }
    }

    /// End with the first iteration that ends `elapsed_s` after the beginning, or later.
    pub fn cut(&mut self, elapsed_s: f64) {
        // The positive root of the quadratic; then the rounding put right.
        let half = self.first_s - self.grows_s / 2.0;
        let root = 2.0 * elapsed_s / (half + (half * half + 2.0 * self.grows_s * elapsed_s).sqrt());
        let mut count = (root.ceil() as u64).clamp(1, self.count);
        while count > 1 && self.time_s(count - 1) >= elapsed_s {
            count -= 1;
        }
        while count < self.count && self.time_s(count) < elapsed_s {
            count += 1;
        }
        self.count = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::{Draws, Purpose};

    fn roof() -> Roof {
        Roof {
            flops: 5e14,
            bandwidth: 2e12,
            weight_bytes: 1.6e10,
            experts: None,
            token_flops: 1.6e10,
            attention_flops: 5e5,
            kv_bytes: 131_072.0,
            overhead_s: 0.001,
            sequence_s: 1e-5,
        }
    }

    /// A stretch is the sum of its iterations, each by the formula, whatever part of the roof it begins under.
    #[test]
    fn a_stretch_is_the_sum_of_its_iterations() {
        let draws = Draws::new(1, Purpose::Work, 0);
        let one = |work: &Work, i: f64| {
            let roof = roof();
            let (pairs, read) = (work.pairs + i * work.pairs_grow, work.read + i * work.read_grow);
            let compute = (work.tokens as f64 * roof.token_flops + pairs * roof.attention_flops) / roof.flops;
            let memory = (roof.weight_bytes + read * roof.kv_bytes) / roof.bandwidth;
            roof.overhead_s + roof.sequence_s * work.sequences as f64 + compute.max(memory)
        };
        let mut crossed = 0;
        for k in 0..2000 {
            let unit = |j: u64| draws.unit(8 * k + j);
            let work = Work {
                tokens: 1 + (600.0 * unit(0)) as u64,
                sequences: (64.0 * unit(1)) as usize,
                pairs: 1e6 * unit(2),
                pairs_grow: 1e5 * unit(3),
                read: 1e5 * unit(4),
                read_grow: 400.0 * unit(5),
            };
            let mut stretch = roof().stretch(&work, 200);
            crossed += usize::from(stretch.count < 200);
            let sum: f64 = (0..stretch.count).map(|i| one(&work, i as f64)).sum();
            assert!((stretch.time_s(stretch.count) / sum - 1.0).abs() < 1e-9);
            let (whole, elapsed_s) = (stretch, stretch.time_s(stretch.count) * unit(6));
            stretch.cut(elapsed_s);
            let least = (1..=whole.count).find(|&n| whole.time_s(n) >= elapsed_s);
            assert_eq!(Some(stretch.count), least);
        }
        assert!((50..1950).contains(&crossed), "{crossed}");
    }

    #[test]
    fn few_tokens_read_few_experts_and_many_read_all() {
        let experts = Some(Experts { bytes: 5e10, active_share: 0.0625 });
        let roof = Roof { experts, ..roof() };
        assert!((roof.weights_read(1) - (1.6e10 + 0.0625 * 5e10)).abs() < 1.0);
        assert!(roof.weights_read(8) < 1.6e10 + 0.41 * 5e10);
        assert!(roof.weights_read(512) > 1.6e10 + 0.999 * 5e10);
    }
}
