//! An autoscaler over the cluster in virtual time: it scrapes the replicas, and its policy decides by what it has scraped.
//!
//! - [`config`]: what scales, what it goes by, and what goes wrong with that.
//! - [`signal`]: metrics, made of what was scraped; [`meters`]: what servers count for it; [`scrapes`]: what was scraped.
//! - [`front`]: where requests wait while there is no replica.
//! - this: who acts when, in which order.

mod config;
pub(super) mod front;
pub(super) mod meters;
mod scrapes;
mod signal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gpusize_autoscale::{Act, Hpa, Keda, Phase, Pod, PodReading, Poll, Raw, Reading, Reason, Seen, Source, Standing};
use serde::Serialize;

pub use config::{AutoscalerConfig, FrontConfig, Outage};
pub use front::Fronted;
pub use meters::Histogram;
pub use signal::{Across, Operator, OverTime, Quantile, Quantity, Series, Signal};

use super::replica::Replica;
use super::{Cluster, SimError, ns, seconds};
use front::Waiting;
use meters::Meters;
use scrapes::Scrapes;

/// KEDA keeps times in whole seconds, and a day begins on none.
const PHASE_NS: i64 = 500_000_000;

/// One step of the replicas that were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScalingStep {
    /// When.
    pub at_s: f64,
    /// How many from then on.
    pub replicas: i32,
    /// Why: a reason of the HPA, or what KEDA did.
    pub reason: &'static str,
}

/// What an autoscaler did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scaling {
    /// Decisions that changed the replicas.
    pub steps: Vec<ScalingStep>,
    /// Decisions of the HPA by their reason.
    pub decisions: BTreeMap<&'static str, u64>,
    /// Polls of KEDA by what they found; left out without KEDA.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub polls: BTreeMap<&'static str, u64>,
    /// Requests that came while no replica took any.
    pub fronted: Fronted,
}

/// The autoscaler at work. Its times are its own; [`Self::next_ns`] is the cluster's.
#[derive(Debug)]
pub(super) struct Autoscaler {
    config: AutoscalerConfig,
    hpa: Hpa,
    keda: Option<Keda>,
    scrapes: Scrapes,
    next_scrape_ns: i64,
    next_poll_ns: i64,
    next_sync_ns: i64,
    steps: Vec<ScalingStep>,
    decisions: BTreeMap<&'static str, u64>,
    polls: BTreeMap<&'static str, u64>,
}

impl Autoscaler {
    /// One that has seen nothing yet.
    pub(super) fn new(config: &AutoscalerConfig) -> Result<Self, SimError> {
        let mut hpa = Hpa::new(config.policy.clone()).map_err(|error| SimError::value(&error.field, error.problem))?;
        // What KEDA has removed is KEDA's to bring back.
        if config.begins_at_zero && config.keda.is_none() {
            hpa.begin_at_zero();
        }
        let last_active_ns = config.was_active.then_some(PHASE_NS);
        let keda = config.keda.clone().map(|object| Keda::new(object, PHASE_NS, last_active_ns));
        let keda = keda.transpose().map_err(|error| SimError::value(&error.field, error.problem))?;
        Ok(Self {
            config: config.clone(),
            hpa,
            next_scrape_ns: 0,
            next_poll_ns: if keda.is_some() { 0 } else { i64::MAX },
            next_sync_ns: ns(config.first_sync_s.unwrap_or(config.policy.sync_s)),
            keda,
            scrapes: Scrapes::new(&config.signals),
            steps: Vec::new(),
            decisions: BTreeMap::new(),
            polls: BTreeMap::new(),
        })
    }

    /// When it acts next, in the cluster's time.
    pub(super) fn next_ns(&self) -> i64 {
        let next_ns = self.next_scrape_ns.min(self.next_poll_ns).min(self.next_sync_ns);
        (next_ns as f64 / self.config.slowness).ceil() as i64
    }

    /// Scrape, poll or decide at `now_ns` of the cluster's time, in this order at the same moment; the replicas that are asked for, where
    /// that changes them.
    pub(super) fn act<R: Replica>(
        &mut self,
        now_ns: i64,
        cluster: &Cluster<R>,
        meters: Option<&Meters>,
        waiting: Waiting,
    ) -> Option<u32> {
        if self.next_scrape_ns <= self.next_poll_ns.min(self.next_sync_ns) {
            let at_ns = self.next_scrape_ns;
            self.next_scrape_ns += ns(self.config.scrape_s);
            // A server of metrics that is down scrapes nothing either.
            if !self.config.is_out(at_ns) {
                self.scrapes.take(at_ns, now_ns, cluster, meters, waiting, self.config.slowness);
            }
            return None;
        }
        let before = cluster.desired() as i32;
        let (at_ns, replicas, reason) = if self.next_poll_ns <= self.next_sync_ns {
            let at_ns = self.next_poll_ns;
            let (replicas, act) = self.poll(at_ns, cluster);
            (at_ns, replicas, act)
        } else {
            let at_ns = self.next_sync_ns;
            let (replicas, reason) = self.sync(at_ns, cluster);
            self.next_sync_ns += ns(self.config.policy.sync_s);
            (at_ns, replicas, reason)
        };
        if replicas == before {
            return None;
        }
        self.steps.push(ScalingStep { at_s: seconds(at_ns), replicas, reason });
        Some(replicas.max(0) as u32)
    }

    fn poll<R: Replica>(&mut self, at_ns: i64, cluster: &Cluster<R>) -> (i32, &'static str) {
        let raw: Vec<Raw> = (0..self.config.signals.len()).map(|place| self.raw(place, at_ns)).collect();
        let Some(keda) = &mut self.keda else { return (cluster.desired() as i32, "none") };
        self.next_poll_ns += ns(keda.object().polling_s);
        let poll = keda.poll(standing(at_ns, cluster), &raw);
        *self.polls.entry(poll_word(poll)).or_default() += 1;
        (poll.replicas, act_word(poll.act))
    }

    fn sync<R: Replica>(&mut self, at_ns: i64, cluster: &Cluster<R>) -> (i32, &'static str) {
        let desired = cluster.desired();
        let readings = if self.hpa.asks(desired as i32) {
            (0..self.config.policy.metrics.len()).map(|place| self.reading(place, at_ns, cluster)).collect()
        } else {
            vec![Reading::Failed; self.config.policy.metrics.len()]
        };
        let seen = Seen {
            now_ns: at_ns,
            spec_replicas: desired as i32,
            status_replicas: desired as i32,
            pods: (0..desired).map(|gpu| pod(gpu < cluster.ready())).collect(),
            readings,
        };
        let decision = self.hpa.sync(&seen);
        let reason = reason_word(decision.reason);
        *self.decisions.entry(reason).or_default() += 1;
        (decision.replicas, reason)
    }

    /// The metric as its API would give it: of each pod that takes requests, or over all that were scraped.
    fn reading<R: Replica>(&mut self, place: usize, at_ns: i64, cluster: &Cluster<R>) -> Reading {
        if self.keda.is_some() {
            let (config, scrapes) = (&self.config, &self.scrapes);
            let Some(keda) = &mut self.keda else { return Reading::Failed };
            let found = keda.metric(place, standing(at_ns, cluster), |place| raw(config, scrapes, place, at_ns));
            return found.map_or(Reading::Failed, |milli| Reading::Values(vec![milli]));
        }
        if self.config.is_out(at_ns) {
            return Reading::Failed;
        }
        let signal = &self.config.signals[place];
        if self.config.policy.metrics[place].source == Source::Pods {
            let of = |gpu: usize| {
                let value =
                    if gpu < cluster.ready() { signal.of_pod(&self.scrapes, gpu, at_ns)? } else { return None };
                value.is_finite().then(|| PodReading { value: milli(value), at_ns, window_ns: 0 })
            };
            let readings: Vec<_> = (0..cluster.desired()).map(of).collect();
            return if readings.iter().all(Option::is_none) { Reading::Failed } else { Reading::PerPod(readings) };
        }
        match signal.value(&self.scrapes, at_ns) {
            Some(value) if value.is_finite() => Reading::Values(vec![milli(value)]),
            _ => Reading::Failed,
        }
    }

    fn raw(&self, place: usize, at_ns: i64) -> Raw {
        raw(&self.config, &self.scrapes, place, at_ns)
    }

    /// Least and most replicas that its policy may ask for.
    pub(super) fn bounds(&self) -> (i32, i32) {
        (self.config.policy.min_replicas, self.config.policy.max_replicas)
    }

    /// What it did.
    pub(super) fn finish(self, fronted: Fronted) -> Scaling {
        Scaling { steps: self.steps, decisions: self.decisions, polls: self.polls, fronted }
    }
}

/// What the query of a trigger comes to.
fn raw(config: &AutoscalerConfig, scrapes: &Scrapes, place: usize, at_ns: i64) -> Raw {
    if config.is_out(at_ns) {
        return Raw::Failed;
    }
    config.signals[place].value(scrapes, at_ns).map_or(Raw::Absent, Raw::Value)
}

fn standing<R: Replica>(at_ns: i64, cluster: &Cluster<R>) -> Standing {
    let (replicas, ready) = (cluster.desired() as i32, cluster.ready() as i32);
    Standing { now_ns: at_ns + PHASE_NS, replicas, ready }
}

/// Thousandths, rounded up as the client of the metrics API does.
fn milli(value: f64) -> i64 {
    (value * 1000.0).ceil() as i64
}

/// A pod whose containers run; it is ready once it takes requests.
fn pod(is_ready: bool) -> Pod {
    Pod {
        phase: Phase::Running,
        ready: Some(is_ready),
        ready_since_ns: 0,
        started_ns: Some(0),
        deleted: false,
        request: 0,
    }
}

fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::Metrics => "metrics",
        Reason::MetricFailed => "metric_failed",
        Reason::Stabilized => "stabilized",
        Reason::RateLimited => "rate_limited",
        Reason::Bounds => "bounds",
        Reason::Disabled => "disabled",
    }
}

fn act_word(act: Act) -> &'static str {
    match act {
        Act::None => "none",
        Act::Activated => "activated",
        Act::Deactivated => "deactivated",
        Act::Raised => "raised",
        Act::Cooling => "cooling",
    }
}

/// What a poll found, in one word: what weakens it first.
fn poll_word(poll: Poll) -> &'static str {
    match poll {
        Poll { is_fallback: true, .. } => "fallback",
        Poll { is_error: true, .. } => "failed",
        Poll { is_active: true, .. } => "active",
        Poll { act: Act::Cooling, .. } => "cooling",
        _ => "inactive",
    }
}
