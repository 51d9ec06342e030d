//! Prefill servers in front of a GPU that decodes: each prompt is computed alone, its cache is sent over, then it joins the batch.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::Deserialize;

use crate::batching::{Batching, BatchingServer};
use crate::order::Ordered;
use crate::server::{Job, Server, Told};

/// Parameters of one replica.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disaggregated {
    /// Prefill servers of a replica.
    pub prefill_servers: usize,
    /// Of every prompt.
    pub prefill_base_s: f64,
    /// Of each token of a prompt.
    pub prefill_per_token_s: f64,
    /// From the end of the prefill to the batch.
    pub transfer_base_s: f64,
    /// What each token of a prompt adds to that.
    pub transfer_per_token_s: f64,
    /// The GPU that decodes.
    pub decode: Batching,
}

impl Disaggregated {
    /// Refuse what cannot run.
    pub fn check(&self) -> Result<(), String> {
        let times = [self.prefill_base_s, self.prefill_per_token_s, self.transfer_base_s, self.transfer_per_token_s];
        if self.prefill_servers == 0 || times.iter().any(|time| !time.is_finite() || *time < 0.0) {
            return Err("disaggregated: times must not be negative, and there must be a prefill server".to_owned());
        }
        self.decode.check()
    }

    fn prefill_s(&self, job: &Job) -> f64 {
        self.prefill_base_s + self.prefill_per_token_s * f64::from(job.prompt) * job.factor
    }

    fn transfer_s(&self, job: &Job) -> f64 {
        self.transfer_base_s + self.transfer_per_token_s * f64::from(job.prompt)
    }

    /// About how long one of `users` requests takes.
    pub fn typical_s(&self, users: f64, prompt: f64, output: f64) -> f64 {
        let job = Job { row: 0, prompt: prompt as u32, output: output as u32, factor: 1.0, work: 0.0 };
        self.prefill_s(&job) + self.transfer_s(&job) + self.decode.typical_s(users, 0.0, output)
    }
}

/// One replica.
#[derive(Debug)]
pub struct DisaggregatedServer<'a> {
    config: &'a Disaggregated,
    waiting: VecDeque<Job>,
    /// (end, row, place in `jobs`) of prompts that are computed.
    computing: BinaryHeap<Reverse<(Ordered, u32, u32)>>,
    /// The same of caches on their way.
    moving: BinaryHeap<Reverse<(Ordered, u32, u32)>>,
    jobs: Vec<Job>,
    free: Vec<u32>,
    decode: BatchingServer<'a>,
}

impl<'a> DisaggregatedServer<'a> {
    /// An idle one.
    pub fn new(config: &'a Disaggregated) -> Self {
        Self {
            config,
            waiting: VecDeque::new(),
            computing: BinaryHeap::new(),
            moving: BinaryHeap::new(),
            jobs: Vec::new(),
            free: Vec::new(),
            decode: BatchingServer::new(&config.decode),
        }
    }

    fn compute(&mut self, now_s: f64, job: Job) {
        let place = self.free.pop().unwrap_or(self.jobs.len() as u32);
        if place as usize == self.jobs.len() {
            self.jobs.push(job);
        }
        self.jobs[place as usize] = job;
        self.computing.push(Reverse((Ordered(now_s + self.config.prefill_s(&job)), job.row, place)));
    }

    fn computed(&mut self, now_s: f64, place: u32, told: &mut Vec<Told>) {
        let job = self.jobs[place as usize];
        told.push(Told::First { row: job.row, at_s: now_s });
        if job.output <= 1 {
            told.push(Told::Done { row: job.row, at_s: now_s });
            self.free.push(place);
        } else {
            self.moving.push(Reverse((Ordered(now_s + self.config.transfer_s(&job)), job.row, place)));
        }
        if let Some(next) = self.waiting.pop_front() {
            self.compute(now_s, next);
        }
    }
}

impl Server for DisaggregatedServer<'_> {
    fn arrive(&mut self, now_s: f64, job: Job) {
        if self.computing.len() < self.config.prefill_servers {
            self.compute(now_s, job);
        } else {
            self.waiting.push_back(job);
        }
    }

    fn next_s(&self) -> Option<f64> {
        let heads = [self.computing.peek(), self.moving.peek()].map(|head| head.map(|Reverse((at, _, _))| at.0));
        heads.into_iter().flatten().chain(self.decode.next_s()).min_by(f64::total_cmp)
    }

    fn step(&mut self, told: &mut Vec<Told>) {
        let Some(now_s) = self.next_s() else { return };
        if self.decode.next_s() == Some(now_s) {
            self.decode.step(told);
        } else if self.moving.peek().is_some_and(|Reverse((at, _, _))| at.0 <= now_s) {
            if let Some(Reverse((_, _, place))) = self.moving.pop() {
                self.decode.arrive_prefilled(now_s, self.jobs[place as usize]);
                self.free.push(place);
            }
        } else if let Some(Reverse((_, _, place))) = self.computing.pop() {
            self.computed(now_s, place, told);
        }
    }
}
