//! Continuous batching by iterations: a memory-bound and a compute-bound regime, context that costs, chunked prefill, and a KV cache that is
//! either reserved or grows until somebody has to leave.
//!
//! An iteration makes one token for each decoding sequence and works off prompt tokens within what its token budget leaves:
//!
//! ```text
//! seconds = base + max(floor, per_token x tokens) + context_token x (tokens of context of the decoding sequences)
//! ```
//!
//! Runs of iterations in which nobody joins or leaves are one event: their sum is a quadratic in their number.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::Deserialize;

use crate::server::{Job, Server, Told};

/// Parameters of one GPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// Of every iteration.
    pub base_s: f64,
    /// Least time for reading the weights.
    #[serde(default)]
    pub floor_s: f64,
    /// Computing of one token, of a prompt or of an answer.
    pub per_token_s: f64,
    /// Reading one token of context, in every iteration.
    #[serde(default)]
    pub context_token_s: f64,
    /// Most sequences that run at once.
    pub max_batch: usize,
    /// Tokens of an iteration, decoding first; 0: prompts are taken whole.
    #[serde(default)]
    pub token_budget: u32,
    /// Tokens that the KV cache holds; longer requests are cut.
    pub kv_tokens: u64,
    /// Whether the cache is filled token by token, and the youngest has to leave when it is full; else whole requests are reserved.
    #[serde(default)]
    pub grow: bool,
}

impl Batching {
    /// Refuse what cannot run.
    pub fn check(&self) -> Result<(), String> {
        let times = [self.base_s, self.floor_s, self.per_token_s, self.context_token_s];
        if times.iter().any(|time| !time.is_finite() || *time < 0.0) || self.base_s + self.floor_s <= 0.0 {
            return Err("batching: times must not be negative, and an iteration must take some".to_owned());
        }
        if self.max_batch == 0 || self.kv_tokens < 2 {
            return Err("batching: max_batch must be at least 1, kv_tokens at least 2".to_owned());
        }
        if self.token_budget > 0 && self.token_budget as usize <= self.max_batch {
            return Err("batching: token_budget must be above max_batch".to_owned());
        }
        Ok(())
    }

    /// About how long one of `users` requests takes.
    pub fn typical_s(&self, users: f64, prompt: f64, output: f64) -> f64 {
        let running = users.clamp(1.0, self.max_batch as f64);
        let context_s = self.context_token_s * running * (prompt + output / 2.0);
        output * (self.base_s + self.floor_s.max(self.per_token_s * running) + context_s)
            + running * prompt * self.per_token_s
    }
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    job: Job,
    /// Tokens of the answer that were made before: by another server, or before it had to leave.
    made: u32,
    /// Prompt and tokens made that must be computed (again) before the next token.
    to_compute: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    pending: Pending,
    /// Changes when the slot is given to another, so that old entries are known as such.
    generation: u32,
    /// Iteration count at which the decoding began, less the tokens made then.
    zero: i64,
    decoding: bool,
    live: bool,
    /// Tokens of the cache that are reserved; without meaning where it grows.
    reserved: u64,
}

/// One GPU.
#[derive(Debug)]
pub struct BatchingServer<'a> {
    config: &'a Batching,
    slots: Vec<Slot>,
    free: Vec<u32>,
    waiting: VecDeque<Pending>,
    prefilling: VecDeque<u32>,
    /// (iteration count at which it has all its tokens, slot, generation).
    leaving: BinaryHeap<Reverse<(i64, u32, u32)>>,
    /// Running ones as they were admitted; entries of older generations are void.
    admitted: Vec<(u32, u32)>,
    running: usize,
    decoding: u64,
    /// Sum of their factors.
    weight: f64,
    /// Sum of their context.
    context: u64,
    held: u64,
    iterations: i64,
    start_s: f64,
    /// Iterations under way as one event; 0 when idle.
    span: u64,
    first_s: f64,
    grows_s: f64,
    /// Prompt tokens that the iteration under way computes, by place in `prefilling`.
    chunks: Vec<u32>,
    preemptions: u64,
    /// Taken into the batch and not told yet.
    started: Vec<(u32, f64)>,
}

impl<'a> BatchingServer<'a> {
    /// An idle one.
    pub fn new(config: &'a Batching) -> Self {
        Self {
            config,
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            leaving: BinaryHeap::new(),
            admitted: Vec::new(),
            running: 0,
            decoding: 0,
            weight: 0.0,
            context: 0,
            held: 0,
            iterations: 0,
            start_s: 0.0,
            span: 0,
            first_s: 0.0,
            grows_s: 0.0,
            chunks: Vec::new(),
            preemptions: 0,
            started: Vec::new(),
        }
    }

    /// How often a sequence had to leave for lack of room.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Tokens in the cache.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Take a job whose prompt was computed elsewhere, with its first token made.
    pub fn arrive_prefilled(&mut self, now_s: f64, job: Job) {
        self.queue(now_s, Pending { job: self.cut(job), made: 1, to_compute: 0 });
    }

    /// The job with lengths that fit into the cache.
    fn cut(&self, job: Job) -> Job {
        let most = self.config.kv_tokens.min(u64::from(u32::MAX)) as u32;
        let prompt = job.prompt.min(most - 1);
        Job { prompt, output: job.output.min(most - prompt), ..job }
    }

    fn queue(&mut self, now_s: f64, pending: Pending) {
        let first = self.waiting.is_empty();
        self.waiting.push_back(pending);
        if self.span == 0 {
            self.begin(now_s);
        } else if first && self.span > 1 && self.running < self.config.max_batch {
            // It may join at the next boundary.
            self.span = self.span.min(self.iterations_by(now_s - self.start_s));
        }
    }

    /// Time of the first `count` iterations under way.
    fn span_s(&self, count: u64) -> f64 {
        let count = count as f64;
        count * self.first_s + self.grows_s * count * (count - 1.0) / 2.0
    }

    /// The least number of iterations that take longer than `elapsed_s`, or as long.
    fn iterations_by(&self, elapsed_s: f64) -> u64 {
        // The root of the quadratic, and then the rounding put right.
        let half = self.first_s - self.grows_s / 2.0;
        let root = 2.0 * elapsed_s / (half + (half * half + 2.0 * self.grows_s * elapsed_s).sqrt());
        let mut count = (root.ceil() as u64).max(1);
        while count > 1 && self.span_s(count - 1) >= elapsed_s {
            count -= 1;
        }
        while self.span_s(count) < elapsed_s {
            count += 1;
        }
        count
    }

    fn begin(&mut self, now_s: f64) {
        self.start_s = now_s;
        let preempted = self.config.grow && self.make_room();
        if !preempted {
            self.admit();
        }
        self.chunks.clear();
        if self.running == 0 {
            self.span = 0;
            return;
        }
        let mut computed = self.weight;
        let mut budget = match self.config.token_budget {
            0 => u64::MAX,
            most => u64::from(most).saturating_sub(self.decoding),
        };
        for &slot in &self.prefilling {
            let pending = self.slots[slot as usize].pending;
            let chunk = u64::from(pending.to_compute).min(budget) as u32;
            budget -= u64::from(chunk);
            computed += f64::from(chunk) * pending.job.factor;
            self.chunks.push(chunk);
            if budget == 0 {
                break;
            }
        }
        let config = self.config;
        self.first_s = config.base_s
            + config.floor_s.max(config.per_token_s * computed)
            + config.context_token_s * self.context as f64;
        self.grows_s = config.context_token_s * self.decoding as f64;
        self.span = if self.prefilling.is_empty() { self.undisturbed() } else { 1 };
    }

    /// Iterations until a sequence leaves or the cache is full.
    fn undisturbed(&mut self) -> u64 {
        let until = loop {
            match self.leaving.peek() {
                Some(&Reverse((at, slot, generation))) if self.is_current(slot, generation) => {
                    break (at - self.iterations).max(1) as u64;
                }
                Some(_) => {
                    self.leaving.pop();
                }
                None => return 1,
            }
        };
        if self.config.grow { until.min(((self.config.kv_tokens - self.held) / self.decoding).max(1)) } else { until }
    }

    fn is_current(&self, slot: u32, generation: u32) -> bool {
        let slot = &self.slots[slot as usize];
        slot.live && slot.generation == generation
    }

    /// Send the youngest away until one more iteration fits; whether any was.
    fn make_room(&mut self) -> bool {
        let mut any = false;
        while self.running > 1 && self.held + self.decoding + self.prefilling.len() as u64 > self.config.kv_tokens {
            let Some((slot, generation)) = self.admitted.pop() else { break };
            if !self.is_current(slot, generation) {
                continue;
            }
            let gone = self.slots[slot as usize];
            let made = if gone.decoding { (self.iterations - gone.zero) as u32 } else { gone.pending.made };
            self.release(slot);
            if !gone.decoding {
                self.prefilling.retain(|&other| other != slot);
            }
            let to_compute = gone.pending.job.prompt + made;
            self.waiting.push_front(Pending { made, to_compute, ..gone.pending });
            self.preemptions += 1;
            any = true;
        }
        any
    }

    /// Let the head of the queue in while there is room, in order.
    fn admit(&mut self) {
        while let Some(&head) = self.waiting.front() {
            let (prompt, made) = (u64::from(head.job.prompt), u64::from(head.made));
            let whole = prompt + u64::from(head.job.output);
            // Where the cache grows there must be room for the prompt and for the next token of everybody.
            let needed = if self.config.grow { prompt + made + 1 + self.running as u64 } else { whole };
            let fits = self.running == 0 || self.held + needed <= self.config.kv_tokens;
            if self.running >= self.config.max_batch || !fits {
                break;
            }
            self.waiting.pop_front();
            let reserved = if self.config.grow { prompt + made } else { whole };
            self.held += reserved;
            self.running += 1;
            self.started.push((head.job.row, self.start_s));
            let slot = self.take_slot(head, reserved);
            self.admitted.push((slot, self.slots[slot as usize].generation));
            if head.to_compute == 0 {
                self.decode(slot, head.made);
            } else {
                self.prefilling.push_back(slot);
            }
        }
        if self.admitted.len() > 2 * self.running + 64 {
            let slots = &self.slots;
            self.admitted.retain(|&(slot, generation)| {
                let slot = &slots[slot as usize];
                slot.live && slot.generation == generation
            });
        }
    }

    fn take_slot(&mut self, pending: Pending, reserved: u64) -> u32 {
        let fresh = Slot { pending, generation: 0, zero: 0, decoding: false, live: true, reserved };
        if let Some(slot) = self.free.pop() {
            let generation = self.slots[slot as usize].generation.wrapping_add(1);
            self.slots[slot as usize] = Slot { generation, ..fresh };
            return slot;
        }
        self.slots.push(fresh);
        self.slots.len() as u32 - 1
    }

    /// From now on a token per iteration; `made` are there.
    fn decode(&mut self, slot: u32, made: u32) {
        let at = &mut self.slots[slot as usize];
        at.decoding = true;
        at.zero = self.iterations - i64::from(made);
        let job = at.pending.job;
        self.leaving.push(Reverse((at.zero + i64::from(job.output), slot, at.generation)));
        self.decoding += 1;
        self.weight += job.factor;
        self.context += u64::from(job.prompt) + u64::from(made);
    }

    /// A sequence leaves, with all its tokens or with some.
    fn release(&mut self, slot: u32) {
        let at = &mut self.slots[slot as usize];
        at.live = false;
        let made = if at.decoding { (self.iterations - at.zero) as u64 } else { u64::from(at.pending.made) };
        let context = u64::from(at.pending.job.prompt) + made;
        self.held -= if self.config.grow { context } else { at.reserved };
        if at.decoding {
            self.decoding -= 1;
            self.weight = if self.decoding == 0 { 0.0 } else { self.weight - at.pending.job.factor };
            self.context -= context;
        }
        self.running -= 1;
        self.free.push(slot);
    }

    /// Prompts move on by their chunks; those that are through have their next token.
    fn prefill(&mut self, end_s: f64, told: &mut Vec<Told>) {
        let mut through = 0;
        for (place, &chunk) in self.chunks.iter().enumerate() {
            let pending = &mut self.slots[self.prefilling[place] as usize].pending;
            pending.to_compute -= chunk;
            through += usize::from(pending.to_compute == 0);
        }
        self.chunks.clear();
        // Prompts are worked off in order, so those that are through stand in front.
        for _ in 0..through {
            let Some(slot) = self.prefilling.pop_front() else { break };
            let pending = &mut self.slots[slot as usize].pending;
            pending.made += 1;
            let (job, made) = (pending.job, pending.made);
            if made == 1 {
                told.push(Told::First { row: job.row, at_s: end_s });
            }
            if self.config.grow {
                self.held += 1;
            }
            if made == job.output {
                self.release(slot);
                told.push(Told::Done { row: job.row, at_s: end_s });
            } else {
                self.decode(slot, made);
            }
        }
    }
}

impl Server for BatchingServer<'_> {
    fn arrive(&mut self, now_s: f64, job: Job) {
        let job = self.cut(job);
        self.queue(now_s, Pending { job, made: 0, to_compute: job.prompt });
    }

    fn next_s(&self) -> Option<f64> {
        (self.span > 0).then(|| self.start_s + self.span_s(self.span))
    }

    fn step(&mut self, told: &mut Vec<Told>) {
        let Some(end_s) = self.next_s() else { return };
        told.extend(self.started.drain(..).map(|(row, at_s)| Told::Started { row, at_s }));
        self.iterations += self.span as i64;
        let made = self.span * self.decoding;
        self.context += made;
        if self.config.grow {
            self.held += made;
        }
        while let Some(&Reverse((at, slot, generation))) = self.leaving.peek() {
            if self.is_current(slot, generation) {
                if at > self.iterations {
                    break;
                }
                self.release(slot);
                told.push(Told::Done { row: self.slots[slot as usize].pending.job.row, at_s: end_s });
            }
            self.leaving.pop();
        }
        self.prefill(end_s, told);
        self.begin(end_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever was admitted, preempted and admitted again: at the end nothing is left, and everybody was told once.
    #[test]
    fn a_cache_that_filled_is_empty_in_the_end() {
        for grow in [false, true] {
            let config = Batching {
                base_s: 0.01,
                floor_s: 0.0,
                per_token_s: 0.001,
                context_token_s: 1e-6,
                max_batch: 16,
                token_budget: 64,
                kv_tokens: 500,
                grow,
            };
            let mut server = BatchingServer::new(&config);
            let mut told = Vec::new();
            for row in 0..400_u32 {
                let now_s = f64::from(row) * 0.02;
                while server.next_s().is_some_and(|at_s| at_s <= now_s) {
                    server.step(&mut told);
                }
                let job = Job { row, prompt: 1 + row % 90, output: 1 + (row * 7) % 150, factor: 1.0, work: 0.0 };
                server.arrive(now_s, job);
            }
            while server.next_s().is_some() {
                server.step(&mut told);
                assert!(server.held() <= config.kv_tokens);
            }
            assert_eq!((server.held(), server.running, server.decoding, server.context), (0, 0, 0, 0));
            assert_eq!(server.preemptions() > 0, grow);
            let mut first: Vec<u32> = Vec::new();
            let mut done: Vec<u32> = Vec::new();
            for each in told {
                match each {
                    Told::Started { .. } => {}
                    Told::First { row, .. } => first.push(row),
                    Told::Done { row, .. } => done.push(row),
                }
            }
            first.sort_unstable();
            done.sort_unstable();
            assert_eq!((&first, &done), (&(0..400).collect(), &(0..400).collect()));
        }
    }
}
