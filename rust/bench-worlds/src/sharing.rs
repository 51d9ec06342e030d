//! Processor sharing with a total rate that depends on how many are active.
//!
//! Each active job gets an equal part of the total rate. In "virtual work" `V`, which grows by rate(k) / k per second, a job that joins at
//! V leaves at V + its work; so a heap of leaving points is all that is needed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde::Deserialize;

use crate::lengths::Size;
use crate::order::Ordered;
use crate::server::{Job, Server, Told};

/// Parameters.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sharing {
    /// Work per second of all active jobs together, with 1, 2, 3 ... of them; the last one holds for more.
    pub rates: Vec<f64>,
    /// Most jobs that share; more wait in order.
    pub max_active: usize,
    /// Work of a job.
    pub work: Size,
}

impl Sharing {
    /// Refuse what cannot run.
    pub fn check(&self) -> Result<(), String> {
        if self.max_active == 0 || self.rates.is_empty() || self.rates.iter().any(|rate| rate.is_nan() || *rate <= 0.0)
        {
            return Err("sharing: rates must be above 0, and max_active at least 1".to_owned());
        }
        Ok(())
    }

    /// About how long one of `users` jobs takes, each of `mean_work`.
    pub fn typical_s(&self, users: f64, mean_work: f64) -> f64 {
        let active = users.clamp(1.0, self.max_active as f64);
        active * mean_work / self.rates[(active as usize).min(self.rates.len()) - 1]
    }
}

/// One GPU.
#[derive(Debug)]
pub struct SharingServer<'a> {
    config: &'a Sharing,
    active: BinaryHeap<Reverse<(Ordered, u32)>>,
    waiting: VecDeque<Job>,
    virtual_work: f64,
    at_s: f64,
}

impl<'a> SharingServer<'a> {
    /// An idle one.
    pub fn new(config: &'a Sharing) -> Self {
        Self { config, active: BinaryHeap::new(), waiting: VecDeque::new(), virtual_work: 0.0, at_s: 0.0 }
    }

    /// Virtual work per second.
    fn pace(&self) -> f64 {
        let active = self.active.len();
        self.config.rates[active.min(self.config.rates.len()) - 1] / active as f64
    }

    fn advance(&mut self, now_s: f64) {
        if !self.active.is_empty() {
            self.virtual_work += self.pace() * (now_s - self.at_s);
        }
        self.at_s = now_s;
    }

    fn join(&mut self, job: &Job) {
        if self.active.is_empty() {
            // Keeps the numbers small, and their differences exact.
            self.virtual_work = 0.0;
        }
        self.active.push(Reverse((Ordered(self.virtual_work + job.work * job.factor), job.row)));
    }
}

impl Server for SharingServer<'_> {
    fn arrive(&mut self, now_s: f64, job: Job) {
        self.advance(now_s);
        if self.active.len() < self.config.max_active {
            self.join(&job);
        } else {
            self.waiting.push_back(job);
        }
    }

    fn next_s(&self) -> Option<f64> {
        let Reverse((leaves, _)) = self.active.peek()?;
        Some(self.at_s + ((leaves.0 - self.virtual_work) / self.pace()).max(0.0))
    }

    fn step(&mut self, told: &mut Vec<Told>) {
        let Some(now_s) = self.next_s() else { return };
        let Some(Reverse((leaves, row))) = self.active.pop() else { return };
        self.virtual_work = leaves.0;
        self.at_s = now_s;
        told.push(Told::Done { row, at_s: now_s });
        if let Some(job) = self.waiting.pop_front() {
            self.join(&job);
        }
    }
}
