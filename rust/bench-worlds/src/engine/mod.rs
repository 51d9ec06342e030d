//! An engine for language models in iterations, as `vLLM`, `SGLang` and TensorRT-LLM work.
//!
//! One iteration makes tokens for all decoding sequences and computes prompts within what its token budget leaves; how long it takes
//! says a roofline over FLOP and bytes. The KV cache fills token by token, and the youngest sequence is sent away when it is full.
//! Prompts may be found in the cache in part, steps may give several tokens, and prompts may have engines of their own.

mod chance;
mod instance;
mod replica;
mod roof;
mod sequence;

use serde::Deserialize;

pub use chance::{Chances, Prefix, Speculative};
pub use instance::{Instance, Role};
pub use replica::EngineServer;
pub use roof::{Experts, Roof, Stretch, Work};
pub use sequence::Sequence;

/// Parameters of one replica.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// How long iterations take.
    pub roof: Roof,
    /// Most tokens of an iteration.
    pub batched_tokens: u32,
    /// Most sequences that run at once.
    pub sequences: usize,
    /// Tokens that the KV cache of an instance holds; longer requests are cut.
    pub cache_tokens: u64,
    /// Tokens of a block; half of a sequence's last one is lost on average.
    pub block: u32,
    /// Share of the cache that must stay free when a sequence is let in.
    #[serde(default)]
    pub watermark: f64,
    /// How prompts and answers share iterations.
    #[serde(default)]
    pub prompts: Prompts,
    /// What of prompts is in the cache.
    #[serde(default)]
    pub prefix: Prefix,
    /// Whether a draft proposes tokens.
    #[serde(default)]
    pub speculative: Option<Speculative>,
    /// Whether prompts are computed by instances of their own.
    #[serde(default)]
    pub split: Option<Split>,
    /// Spread of an iteration's time: a lognormal factor, for each stretch of n iterations with this sigma over the root of n.
    #[serde(default)]
    pub jitter_sigma: f64,
    /// Spread of the speed from run to run and from instance to instance: a lognormal factor.
    #[serde(default)]
    pub speed_sigma: f64,
}

/// How prompts and answers share iterations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompts {
    /// Answers go on in every iteration, and prompts are cut into what the budget leaves.
    #[default]
    Chunked,
    /// Prompts that fit are computed whole, and answers stand meanwhile.
    First,
}

/// Instances for prompts, and others for answers.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Instances that compute prompts.
    pub prefillers: usize,
    /// Instances that make answers.
    pub decoders: usize,
    /// Bytes/s of the link that caches go over, one after the other.
    pub link_bandwidth: f64,
    /// What each of them takes beside its bytes; they need not wait for each other with it.
    pub link_s: f64,
}

impl Default for Prefix {
    fn default() -> Self {
        Self { common: 0, turn_share: 0.0, turn_low: 0.0, turn_high: 0.0, evicts: false }
    }
}

impl Engine {
    /// Refuse what cannot run.
    pub fn check(&self) -> Result<(), String> {
        self.roof.check()?;
        self.prefix.check()?;
        if let Some(speculative) = &self.speculative {
            speculative.check()?;
        }
        if self.sequences == 0 || u64::from(self.batched_tokens) <= self.sequences as u64 * self.step_tokens() {
            return Err(
                "engine: sequences must be at least 1, and batched_tokens above what they all decode".to_owned()
            );
        }
        if self.block == 0 || self.cache_tokens < u64::from(self.prefix.common) + 8 * u64::from(self.block) {
            return Err(
                "engine: block must be at least 1, and cache_tokens 8 blocks above the common prefix".to_owned()
            );
        }
        if !((0.0..0.5).contains(&self.watermark) && self.jitter_sigma >= 0.0 && self.speed_sigma >= 0.0) {
            return Err("engine: watermark must be in 0 to 0.5, and sigmas must not be negative".to_owned());
        }
        if let Some(split) = &self.split {
            let times = split.link_bandwidth > 0.0 && split.link_s >= 0.0;
            if split.prefillers == 0 || split.decoders == 0 || !times || self.prompts == Prompts::First {
                return Err("engine: split: there must be a prefiller, a decoder and a link between them, and \
                            prompts must be chunked"
                    .to_owned());
            }
        }
        Ok(())
    }

    /// Tokens that a decoding sequence computes in an iteration.
    pub fn step_tokens(&self) -> u64 {
        1 + self.speculative.map_or(0, |speculative| u64::from(speculative.tokens))
    }

    /// About how long one of `users` requests takes.
    pub fn typical_s(&self, users: f64, prompt: f64, output: f64) -> f64 {
        let (prefillers, decoders) = self.split.map_or((1.0, 1.0), |s| (s.prefillers as f64, s.decoders as f64));
        let room = self.cache_tokens as f64 / (prompt + output / 2.0);
        let running = (users / decoders).clamp(1.0, (self.sequences as f64).min(room.max(1.0)));
        let work = Work {
            tokens: (running * self.step_tokens() as f64) as u64,
            sequences: running as usize,
            read: running * (prompt + output / 2.0),
            ..Work::default()
        };
        let step_s = self.roof.stretch(&work, 1).first_s + self.speculative.map_or(0.0, |s| s.draft_s);
        let steps = output / self.speculative.map_or(1.0, |s| s.mean());
        let computed = prompt * (1.0 - self.prefix.typical(prompt)).max(0.0);
        let prompt_s = (self.roof.token_flops * computed + self.roof.attention_flops * computed * prompt / 2.0)
            / self.roof.flops
            + self.roof.overhead_s;
        let together = if self.split.is_some() { users / prefillers } else { running };
        (steps * step_s + together.max(1.0) * prompt_s) * (users / decoders / running).max(1.0)
    }
}
