//! Batches that are put together before they run, and run to the end of their longest member.

use std::collections::VecDeque;

use serde::Deserialize;

use crate::server::{Job, Server, Told};

/// Parameters of one GPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedBatches {
    /// Of every batch.
    pub base_s: f64,
    /// Of each prompt token in it.
    pub per_prompt_token_s: f64,
    /// Of each step; there are as many as the longest answer has tokens.
    pub step_s: f64,
    /// What each member adds to a step.
    pub step_per_member_s: f64,
    /// Most members.
    pub max_batch: usize,
    /// How long the first of a batch waits for others.
    pub delay_s: f64,
}

impl FixedBatches {
    /// Refuse what cannot run.
    pub fn check(&self) -> Result<(), String> {
        let times = [self.base_s, self.per_prompt_token_s, self.step_s, self.step_per_member_s, self.delay_s];
        if times.iter().any(|time| !time.is_finite() || *time < 0.0) || self.base_s + self.step_s <= 0.0 {
            return Err("fixed batches: times must not be negative, and a batch must take some".to_owned());
        }
        if self.max_batch == 0 { Err("fixed batches: max_batch must be at least 1".to_owned()) } else { Ok(()) }
    }

    /// Time of a batch up to its first tokens, and as a whole.
    pub fn batch_s(&self, members: &[Job]) -> (f64, f64) {
        let prompts: f64 = members.iter().map(|job| f64::from(job.prompt) * job.factor).sum();
        let weight: f64 = members.iter().map(|job| job.factor).sum();
        let steps = members.iter().map(|job| job.output).max().unwrap_or(0);
        let begun_s = self.base_s + self.per_prompt_token_s * prompts;
        let step_s = self.step_s + self.step_per_member_s * weight;
        (begun_s + step_s, begun_s + f64::from(steps) * step_s)
    }

    /// About how long one of `users` requests takes.
    pub fn typical_s(&self, users: f64, prompt: f64, output: f64) -> f64 {
        let members = users.clamp(1.0, self.max_batch as f64);
        self.base_s
            + members * prompt * self.per_prompt_token_s
            + output * (self.step_s + members * self.step_per_member_s)
    }
}

/// One GPU.
#[derive(Debug)]
pub struct FixedBatchesServer<'a> {
    config: &'a FixedBatches,
    /// With the time of arrival.
    waiting: VecDeque<(f64, Job)>,
    batch: Vec<Job>,
    first_s: f64,
    end_s: f64,
    /// When the batch that is put together runs at the latest.
    now_s: f64,
}

impl<'a> FixedBatchesServer<'a> {
    /// An idle one.
    pub fn new(config: &'a FixedBatches) -> Self {
        Self { config, waiting: VecDeque::new(), batch: Vec::new(), first_s: 0.0, end_s: 0.0, now_s: 0.0 }
    }

    fn run(&mut self, now_s: f64) {
        let members = self.waiting.len().min(self.config.max_batch);
        self.batch.extend(self.waiting.drain(..members).map(|(_, job)| job));
        let (first_s, whole_s) = self.config.batch_s(&self.batch);
        self.first_s = now_s + first_s;
        self.end_s = now_s + whole_s;
    }
}

impl Server for FixedBatchesServer<'_> {
    fn arrive(&mut self, now_s: f64, job: Job) {
        self.now_s = now_s;
        self.waiting.push_back((now_s, job));
    }

    fn next_s(&self) -> Option<f64> {
        if !self.batch.is_empty() {
            return Some(self.end_s);
        }
        let (arrived_s, _) = self.waiting.front()?;
        let full = self.waiting.len() >= self.config.max_batch;
        Some(if full { self.now_s } else { (arrived_s + self.config.delay_s).max(self.now_s) })
    }

    fn step(&mut self, told: &mut Vec<Told>) {
        let Some(now_s) = self.next_s() else { return };
        self.now_s = now_s;
        if self.batch.is_empty() {
            self.run(now_s);
            return;
        }
        for job in self.batch.drain(..) {
            told.push(Told::First { row: job.row, at_s: self.first_s });
            told.push(Told::Done { row: job.row, at_s: self.end_s });
        }
    }
}
