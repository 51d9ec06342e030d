//! A replica: one instance that does all, or some for prompts and some for answers with a link between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::{Chances, Engine, Instance, Role, Sequence};
use crate::order::Ordered;
use crate::server::{Job, Server, Told};

/// One replica.
#[derive(Debug)]
pub struct EngineServer<'a> {
    config: &'a Engine,
    prefillers: Vec<Instance<'a>>,
    decoders: Vec<Instance<'a>>,
    /// When the link has sent all that it was given.
    link_free_s: f64,
    /// (arrival, row, place in `sent`) of caches on their way.
    moving: BinaryHeap<Reverse<(Ordered, u32, u32)>>,
    sent: Vec<Sequence>,
    free: Vec<u32>,
    computed: Vec<Sequence>,
}

impl<'a> EngineServer<'a> {
    /// An idle one, number `gpu` of a run with `seed`.
    pub fn new(config: &'a Engine, seed: u64, gpu: usize) -> Self {
        let chances = Chances::new(seed);
        let (prefillers, decoders) = config.split.map_or((0, 1), |split| (split.prefillers, split.decoders));
        // No two instances of a run share a stream, be it of 2^16 replicas.
        let number = |place: usize| (place as u64) << 16 | gpu as u64;
        let made = |range: std::ops::Range<usize>, role: Role| {
            range.map(|place| Instance::new(config, role, chances, seed, number(place))).collect()
        };
        Self {
            config,
            prefillers: made(decoders..decoders + prefillers, Role::Prompts),
            decoders: made(0..decoders, Role::Whole),
            link_free_s: 0.0,
            moving: BinaryHeap::new(),
            sent: Vec::new(),
            free: Vec::new(),
            computed: Vec::new(),
        }
    }

    /// How often a sequence was sent away for lack of room.
    pub fn preemptions(&self) -> u64 {
        self.decoders.iter().map(Instance::preemptions).sum()
    }

    /// Whether nobody is in it, and nothing is held.
    pub fn is_empty(&self) -> bool {
        self.moving.is_empty() && self.prefillers.iter().chain(&self.decoders).all(Instance::is_empty)
    }

    /// Prompt tokens that were computed, again after a preemption included.
    pub fn prompt_tokens(&self) -> u64 {
        self.prefillers.iter().chain(&self.decoders).map(Instance::prompt_tokens).sum()
    }

    /// The first of those with the fewest sequences.
    fn least(instances: &[Instance<'a>]) -> usize {
        (0..instances.len()).min_by_key(|&place| instances[place].load()).unwrap_or(0)
    }

    fn send(&mut self, now_s: f64, sequence: Sequence) {
        let Some(split) = self.config.split else { return };
        let begin_s = now_s.max(self.link_free_s);
        self.link_free_s = begin_s + self.config.roof.kv_bytes * f64::from(sequence.prompt) / split.link_bandwidth;
        let place = self.free.pop().unwrap_or(self.sent.len() as u32);
        if place as usize == self.sent.len() {
            self.sent.push(sequence);
        }
        self.sent[place as usize] = sequence;
        self.moving.push(Reverse((Ordered(self.link_free_s + split.link_s), sequence.row, place)));
    }
}

impl Server for EngineServer<'_> {
    fn arrive(&mut self, now_s: f64, job: Job) {
        let instances = if self.prefillers.is_empty() { &mut self.decoders } else { &mut self.prefillers };
        let place = Self::least(instances);
        instances[place].arrive(now_s, Sequence::new(&job));
    }

    fn next_s(&self) -> Option<f64> {
        let moved = self.moving.peek().map(|Reverse((at, _, _))| at.0);
        let all = self.decoders.iter().chain(&self.prefillers).filter_map(Instance::next_s);
        all.chain(moved).min_by(f64::total_cmp)
    }

    fn step(&mut self, told: &mut Vec<Told>) {
        let Some(now_s) = self.next_s() else { return };
        if self.moving.peek().is_some_and(|Reverse((at, _, _))| at.0 <= now_s) {
            if let Some(Reverse((_, _, place))) = self.moving.pop() {
                let decoder = Self::least(&self.decoders);
                self.decoders[decoder].arrive(now_s, self.sent[place as usize]);
                self.free.push(place);
            }
            return;
        }
        if let Some(instance) = self.decoders.iter_mut().find(|each| each.next_s() == Some(now_s)) {
            instance.step(told, &mut self.computed);
        } else if let Some(instance) = self.prefillers.iter_mut().find(|each| each.next_s() == Some(now_s)) {
            instance.step(told, &mut self.computed);
            for sequence in std::mem::take(&mut self.computed) {
                self.send(now_s, sequence);
            }
        }
    }
}
