//! A request on its way through an engine, and its place in an instance.

use crate::server::Job;

/// Tokens are counted in parts of 2^16, as steps that give several make no whole number in each iteration: sums stay exact.
pub(super) const PARTS: u32 = 16;

/// So many tokens in these parts.
pub(super) fn parts(tokens: u32) -> i64 {
    i64::from(tokens) << PARTS
}

/// A request on its way through an engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sequence {
    /// Its number.
    pub row: u32,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens to make; at least 1.
    pub output: u32,
    /// Tokens made before it was sent here, or sent away.
    pub made: u32,
    /// Tokens of prompt and answer that must be computed before the next one is made; what the cache has is not off it yet if `new`.
    pub(super) to_compute: u32,
    /// Whether the cache was not asked for its prefix yet.
    pub(super) new: bool,
}

impl Sequence {
    /// A request that nobody has worked on.
    pub fn new(job: &Job) -> Self {
        Self { row: job.row, prompt: job.prompt, output: job.output, made: 0, to_compute: job.prompt, new: true }
    }

    /// The same with its prompt computed and its first token made.
    pub(super) fn computed(self) -> Self {
        Self { made: 1, to_compute: 0, new: false, ..self }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) sequence: Sequence,
    /// Changes when the slot is given to another, so that old entries are known as such.
    pub(super) generation: u32,
    pub(super) live: bool,
    pub(super) decoding: bool,
    /// Steps of the instance when it began to decode.
    pub(super) since: i64,
    /// Parts of tokens that a step gives it.
    pub(super) rate: i64,
}
