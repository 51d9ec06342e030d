//! One sync of the controller.

use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::policy::{HpaPolicy, PolicyError, Source};
use crate::proposal::propose;
use crate::seen::Seen;

/// Without `behavior`: at most so many times the replicas, or this many.
const UP_FACTOR: f64 = 2.0;
const UP_LEAST: f64 = 4.0;

/// Why the replicas are as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The metrics ask for this many.
    Metrics,
    /// A metric failed, and without it nothing is changed (or nothing is taken away).
    MetricFailed,
    /// An earlier recommendation counts still.
    Stabilized,
    /// The rules of `behavior`, or the older ones, allow no faster change.
    RateLimited,
    /// `minReplicas` or `maxReplicas`.
    Bounds,
    /// Somebody set the replicas to 0: the controller leaves them.
    Disabled,
}

/// What one sync came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Replicas from now on.
    pub replicas: i32,
    /// What the metrics asked for together; null where none could be told, or none was asked.
    pub asked: Option<i32>,
    /// What each metric asked for; null: it failed.
    pub proposals: Vec<Option<i32>>,
    /// Why.
    pub reason: Reason,
}

/// A `HorizontalPodAutoscaler` and what its controller remembers of it.
#[derive(Debug)]
pub struct Hpa {
    policy: HpaPolicy,
    history: History,
    /// The controller itself has scaled to zero last.
    is_at_zero: bool,
}

impl Hpa {
    /// One that has decided nothing yet.
    pub fn new(policy: HpaPolicy) -> Result<Self, PolicyError> {
        policy.validate()?;
        Ok(Self { policy, history: History::default(), is_at_zero: false })
    }

    /// The policy.
    pub fn policy(&self) -> &HpaPolicy {
        &self.policy
    }

    /// The controller has removed the last replica before; without this, replicas that are 0 at first are left alone.
    pub fn begin_at_zero(&mut self) {
        self.is_at_zero = true;
    }

    /// Whether a sync asks for the metrics, with so many replicas.
    pub fn asks(&self, current: i32) -> bool {
        let HpaPolicy { min_replicas, max_replicas, .. } = self.policy;
        if current == 0 { self.wakes() } else { (min_replicas..=max_replicas).contains(&current) }
    }

    /// Decide by what is seen. The decision counts as carried out.
    pub fn sync(&mut self, seen: &Seen) -> Decision {
        let current = seen.spec_replicas;
        self.history.begin(seen.now_ns, current);
        let decision = self.decide(seen);
        if decision.replicas != current {
            if let Some(behavior) = &self.policy.behavior {
                self.history.note(behavior, seen.now_ns, current, decision.replicas);
            }
            self.is_at_zero = decision.replicas == 0;
        }
        decision
    }

    /// Decide by one thing seen after another, from so many replicas on; each decision is carried out before the next.
    pub fn follow(&mut self, replicas: i32, seen: Vec<Seen>) -> Vec<Decision> {
        let mut spec_replicas = replicas;
        let sync = |now: Seen| {
            let decision = self.sync(&Seen { spec_replicas, ..now });
            spec_replicas = decision.replicas;
            decision
        };
        seen.into_iter().map(sync).collect()
    }

    fn decide(&mut self, seen: &Seen) -> Decision {
        let HpaPolicy { min_replicas, max_replicas, .. } = self.policy;
        let current = seen.spec_replicas;
        let unasked = |replicas, reason| Decision { replicas, asked: None, proposals: Vec::new(), reason };
        if current == 0 && !self.wakes() {
            return unasked(0, Reason::Disabled);
        }
        if current > max_replicas {
            return unasked(max_replicas, Reason::Bounds);
        }
        if current != 0 && current < min_replicas {
            return unasked(min_replicas, Reason::Bounds);
        }
        let proposals: Vec<Option<i32>> =
            (0..self.policy.metrics.len()).map(|place| propose(&self.policy, place, seen)).collect();
        let Some(asked) = together(&proposals, current) else {
            return Decision { replicas: current, asked: None, proposals, reason: Reason::MetricFailed };
        };
        let (mut replicas, mut reason) = self.normalize(seen.now_ns, current, asked);
        if current == 0 && replicas < min_replicas {
            (replicas, reason) = (min_replicas, Reason::Bounds);
        }
        Decision { replicas, asked: Some(asked), proposals, reason }
    }

    /// Whether replicas that are 0 are looked after: only where the controller itself has removed the last.
    fn wakes(&self) -> bool {
        let sees_zero = |source| matches!(source, Source::External | Source::Object);
        self.is_at_zero
            && (self.policy.min_replicas != 0 || self.policy.metrics.iter().any(|metric| sees_zero(metric.source)))
    }

    fn normalize(&mut self, now_ns: i64, current: i32, asked: i32) -> (i32, Reason) {
        let HpaPolicy { min_replicas, max_replicas, .. } = self.policy;
        let stabilized = self.history.stabilize(&self.policy, now_ns, current, asked);
        let limited = match &self.policy.behavior {
            Some(behavior) => self.history.limit(behavior, now_ns, current, stabilized),
            None => stabilized.min((UP_FACTOR * f64::from(current)).max(UP_LEAST) as i32),
        };
        let bounded = match &self.policy.behavior {
            // With `behavior` the bounds are looked at in the direction of the change only.
            Some(_) if stabilized > current => limited.min(max_replicas),
            Some(_) if stabilized < current => limited.max(min_replicas),
            Some(_) => limited,
            None => limited.min(max_replicas).max(min_replicas),
        };
        let reason = if bounded != limited {
            Reason::Bounds
        } else if limited != stabilized {
            Reason::RateLimited
        } else if stabilized != asked {
            Reason::Stabilized
        } else {
            Reason::Metrics
        };
        (bounded, reason)
    }
}

/// The most that any metric asks for; `None` where all failed, or where one did and the others would take replicas away.
fn together(proposals: &[Option<i32>], current: i32) -> Option<i32> {
    let most = proposals.iter().flatten().copied().max()?;
    let one_failed = proposals.iter().any(Option::is_none);
    (!one_failed || most >= current).then_some(most)
}
