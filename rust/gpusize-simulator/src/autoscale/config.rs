//! What scales the cluster, and what it goes by.

use gpusize_autoscale::{HpaPolicy, ScaledObject, Source};
use serde::{Deserialize, Serialize};

use super::Signal;
use crate::config::in_range;
use crate::{ReplicaStep, SimError, ns};

/// What scales the cluster, and what it goes by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoscalerConfig {
    /// The rules; with KEDA those of the HPA that it makes.
    pub policy: HpaPolicy,
    /// Where each metric of the policy comes from, in their order; with KEDA each trigger.
    pub signals: Vec<Signal>,
    /// KEDA beside the HPA.
    #[serde(default)]
    pub keda: Option<ScaledObject>,
    /// From one scrape of the replicas to the next.
    #[serde(default = "scrape_s")]
    pub scrape_s: f64,
    /// When the first decision is made; null: after one `sync_s`.
    #[serde(default)]
    pub first_sync_s: Option<f64>,
    /// The autoscaler's time over the cluster's: where replicas are simulated faster than they are, its clock goes slower.
    #[serde(default = "as_fast")]
    pub slowness: f64,
    /// When there are no metrics: nothing is scraped, and every query fails.
    #[serde(default)]
    pub outages: Vec<Outage>,
    /// What stands in front of the replicas.
    #[serde(default)]
    pub front: FrontConfig,
    /// There are no replicas at first, removed by this autoscaler; else those of the cluster.
    #[serde(default)]
    pub begins_at_zero: bool,
    /// Go on for so long at least, though all requests have ended; in the autoscaler's time.
    #[serde(default)]
    pub until_s: f64,
    /// KEDA has seen activity just before the start; else the object is created then.
    #[serde(default)]
    pub was_active: bool,
}

/// A stretch of time, in the autoscaler's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// It begins.
    pub from_s: f64,
    /// From then on it is over.
    pub until_s: f64,
}

/// What becomes of requests while no replica takes any.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrontConfig {
    /// They are held until one does; else refused at once.
    pub holds: bool,
    /// Refuse one that was held for so long, in the autoscaler's time.
    pub timeout_s: f64,
}

impl Default for FrontConfig {
    fn default() -> Self {
        Self { holds: true, timeout_s: 3600.0 }
    }
}

fn scrape_s() -> f64 {
    15.0
}

fn as_fast() -> f64 {
    1.0
}

impl AutoscalerConfig {
    /// Read the JSON of an autoscaler; it is validated where the cluster is known.
    pub fn from_json(text: &str) -> Result<Self, SimError> {
        serde_json::from_str(text).map_err(|source| SimError::Json { what: "autoscaler", source })
    }

    /// Refuse what cannot be simulated on so many replicas, naming the field. `has_tokens`: they have a KV cache and tell of tokens.
    pub fn validate(&self, gpus: u32, has_tokens: bool) -> Result<(), SimError> {
        self.policy
            .validate()
            .map_err(|error| SimError::value(&format!("autoscaler.policy.{}", error.field), error.problem))?;
        if self.policy.max_replicas > gpus as i32 {
            let problem = format!("must be at most gpus ({gpus}), not {}", self.policy.max_replicas);
            return Err(SimError::value("autoscaler.policy.max_replicas", problem));
        }
        in_range("autoscaler.scrape_s", self.scrape_s, 1e-3, 86_400.0)?;
        in_range("autoscaler.first_sync_s", self.first_sync_s.unwrap_or(0.0), 0.0, 1e9)?;
        in_range("autoscaler.slowness", self.slowness, 1e-3, 1e3)?;
        in_range("autoscaler.until_s", self.until_s, 0.0, 1e9)?;
        in_range("autoscaler.front.timeout_s", self.front.timeout_s, 1e-3, 1e6)?;
        for (place, outage) in self.outages.iter().enumerate() {
            in_range(&format!("autoscaler.outages[{place}].from_s"), outage.from_s, 0.0, 1e9)?;
            in_range(&format!("autoscaler.outages[{place}].until_s"), outage.until_s, outage.from_s, 1e9)?;
        }
        let (wanted, of) = self.validate_keda()?;
        if self.signals.len() != wanted {
            let problem = format!("must be one per {of} ({wanted}), not {}", self.signals.len());
            return Err(SimError::value("autoscaler.signals", problem));
        }
        for (place, signal) in self.signals.iter().enumerate() {
            signal.validate(&format!("autoscaler.signals[{place}]"), has_tokens)?;
        }
        for (place, metric) in self.policy.metrics.iter().enumerate() {
            if matches!(metric.source, Source::Cpu | Source::Resource) {
                let problem = "is a resource of the pods, which the simulated cluster does not have";
                return Err(SimError::value(&format!("autoscaler.policy.metrics[{place}].source"), problem));
            }
            if metric.source == Source::Pods && !self.signals[place].is_of_pods() {
                let problem = "is a metric of each pod, and the signal is none of the replicas alone";
                return Err(SimError::value(&format!("autoscaler.policy.metrics[{place}].source"), problem));
            }
        }
        Ok(())
    }

    /// The same, and refuse replicas that something else changes too.
    pub(crate) fn validate_on(&self, gpus: u32, steps: &[ReplicaStep], has_tokens: bool) -> Result<(), SimError> {
        self.validate(gpus, has_tokens)?;
        if steps.len() > 1 {
            return Err(SimError::value("replicas", "must have one step at most where an autoscaler makes the others"));
        }
        Ok(())
    }

    /// Refuse what a cluster that serves cannot do: it has a replica at all times, and counts for nobody but itself.
    pub(crate) fn validate_served(&self) -> Result<(), SimError> {
        let object = self.keda.as_ref();
        let least = object.map_or(self.policy.min_replicas, |keda| keda.idle_replicas.unwrap_or(keda.min_replicas));
        if least < 1 || self.begins_at_zero {
            let problem = "must be at least 1: a cluster that serves has a replica at all times";
            return Err(SimError::value("autoscaler.policy.min_replicas", problem));
        }
        match self.signals.iter().position(Signal::needs_meters) {
            Some(place) => {
                let problem = "is of latencies or tokens, which a cluster that serves does not tell its autoscaler";
                Err(SimError::value(&format!("autoscaler.signals[{place}]"), problem))
            }
            None => Ok(()),
        }
    }

    /// How many signals there are to be, and for what.
    fn validate_keda(&self) -> Result<(usize, &'static str), SimError> {
        let metrics = self.policy.metrics.len();
        let Some(keda) = &self.keda else { return Ok((metrics, "metric of the policy")) };
        keda.validate().map_err(|error| SimError::value(&format!("autoscaler.keda.{}", error.field), error.problem))?;
        let wanted = if keda.modifiers.is_some() { 1 } else { keda.triggers.len() };
        if metrics != wanted || self.policy.metrics.iter().any(|metric| metric.source != Source::External) {
            let problem = format!("must be the external ones of the HPA that KEDA makes ({wanted})");
            return Err(SimError::value("autoscaler.policy.metrics", problem));
        }
        if self.policy.min_replicas != keda.min_replicas.max(1) {
            let problem = format!("must be keda.min_replicas, and 1 at least, not {}", self.policy.min_replicas);
            return Err(SimError::value("autoscaler.policy.min_replicas", problem));
        }
        Ok((keda.triggers.len(), "trigger"))
    }

    /// Whether there are no metrics at this time of its own.
    pub(super) fn is_out(&self, at_ns: i64) -> bool {
        self.outages.iter().any(|outage| (ns(outage.from_s)..ns(outage.until_s)).contains(&at_ns))
    }
}
