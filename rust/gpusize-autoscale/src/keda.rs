//! KEDA beside its HPA: polls that activate and deactivate, and what the HPA is told of a metric.
//!
//! The rules are those of KEDA 2.20.2: `pkg/scaling/scale_handler.go` (`checkScalers`, `getScaledObjectState`, `getScalerState`,
//! `GetScaledObjectMetrics`), `pkg/scaling/executor/scale_scaledobjects.go` (`RequestScale`, `scaleToZeroOrIdle`,
//! `scaleFromZeroOrIdle`), `pkg/fallback/fallback.go` (`GetMetricsWithFallback`, `doFallback`), `pkg/scaling/modifiers/formula.go` and
//! `pkg/scalers/prometheus_scaler.go`.

use serde::{Deserialize, Serialize};

use crate::NS_PER_S;
use crate::fallback::{Health, Side};
use crate::formula::{Formula, go_int};
use crate::policy::PolicyError;
use crate::scaled_object::{FallbackBehavior, Modifiers, ScaledObject};

/// What a query came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Raw {
    /// No answer.
    Failed,
    /// An answer without a value.
    Absent,
    /// A value.
    Value(f64),
}

/// How many replicas there are as KEDA looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// When, in nanoseconds from any whole second.
    pub now_ns: i64,
    /// `spec.replicas` of the target.
    pub replicas: i32,
    /// Pods that run and are ready.
    pub ready: i32,
}

/// What a poll led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Nothing.
    None,
    /// A trigger is active, and there were none, or only idle replicas.
    Activated,
    /// No trigger has been active for the cooldown.
    Deactivated,
    /// No trigger is active, and there were fewer than `minReplicaCount`.
    Raised,
    /// Replicas would go, but the cooldown is not over.
    Cooling,
}

/// One poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    /// Replicas from now on.
    pub replicas: i32,
    /// Whether a trigger is active.
    pub is_active: bool,
    /// Whether a trigger failed, without a fallback that stands for it.
    pub is_error: bool,
    /// Whether a fallback stands for a trigger.
    pub is_fallback: bool,
    /// What came of it.
    pub act: Act,
}

/// What the metrics cache holds of a trigger with `useCachedMetrics`: its value in thousandths, or that it failed.
type Record = Result<i64, ()>;

/// A `ScaledObject` and what KEDA remembers of it.
#[derive(Debug)]
pub struct Keda {
    object: ScaledObject,
    formula: Option<Formula>,
    health: Health,
    created_ns: i64,
    last_active_ns: Option<i64>,
    cached: Option<Vec<Option<Record>>>,
}

/// A trigger after a poll or a question: its value in thousandths, and whether that is the fallback's.
type Told = Result<(i64, bool), ()>;

impl Keda {
    /// One that was created at `created_ns`, and has seen activity last at `last_active_ns`.
    ///
    /// # Errors
    ///
    /// An object that KEDA would refuse.
    pub fn new(object: ScaledObject, created_ns: i64, last_active_ns: Option<i64>) -> Result<Self, PolicyError> {
        let formula = object.validate()?;
        let health = Health::new(object.triggers.len());
        let (created_ns, last_active_ns) = (whole_s(created_ns), last_active_ns.map(whole_s));
        Ok(Self { object, formula, health, created_ns, last_active_ns, cached: None })
    }

    /// The object.
    pub fn object(&self) -> &ScaledObject {
        &self.object
    }

    /// Look at all triggers, whose queries came to `raw`, and activate or deactivate.
    pub fn poll(&mut self, standing: Standing, raw: &[Raw]) -> Poll {
        self.health.poll_begins();
        let mut told = Vec::with_capacity(raw.len());
        let mut records = vec![None; raw.len()];
        let (mut is_active, mut is_error, mut is_fallback) = (false, false, false);
        for (place, &raw) in raw.iter().enumerate() {
            let (value, crosses) = self.asked(place, raw);
            let found = self.with_fallback(Side::Poll, place, value, standing);
            if let Ok((_, fell_back)) = found {
                is_active |= fell_back || crosses;
                is_fallback |= fell_back;
            }
            is_error |= found.is_err();
            if self.object.triggers[place].use_cached {
                records[place] = Some(found.map(|(value, _)| value));
            }
            told.push(found);
        }
        if is_error {
            self.forget();
        }
        if let Some(modifiers) = &self.object.modifiers {
            let composite = self.composite(Side::Poll, modifiers, &told);
            is_active = !is_error && composite.is_ok_and(|value| approximate(value) > modifiers.activation);
        }
        let (replicas, act) = self.request_scale(standing, is_active, is_error);
        if records.iter().any(Option::is_some) {
            self.cached = Some(records);
        }
        Poll { replicas, is_active, is_error, is_fallback, act }
    }

    /// Answer the HPA, which asks for its metric number `place`; `raw` queries a trigger. In thousandths; `None` is a failure.
    pub fn metric(&mut self, place: usize, standing: Standing, mut raw: impl FnMut(usize) -> Raw) -> Option<i64> {
        self.health.question_begins();
        let asked = if self.object.modifiers.is_some() { 0..self.object.triggers.len() } else { place..place + 1 };
        let mut told = Vec::with_capacity(asked.len());
        let (mut is_error, mut is_fallback) = (false, false);
        for place in asked {
            let record = self.cached.as_ref().and_then(|records| records[place]);
            let value = record.filter(|_| self.object.triggers[place].use_cached);
            let value = value.unwrap_or_else(|| self.asked(place, raw(place)).0);
            let found = self.with_fallback(Side::Question, place, value, standing);
            is_error |= found.is_err();
            is_fallback |= matches!(found, Ok((_, true)));
            told.push(found);
        }
        if is_error {
            self.forget();
            if !is_fallback {
                return None;
            }
        }
        match &self.object.modifiers {
            Some(modifiers) => self.composite(Side::Question, modifiers, &told).ok(),
            None => told[0].map(|(value, _)| value).ok(),
        }
    }

    /// The scalers are built anew, and with them goes what was cached.
    fn forget(&mut self) {
        self.cached = None;
        self.health.forget();
    }

    /// `ExecutePromQuery` and `GetMetricsAndActivity`: the value in thousandths, and whether it is above the activation.
    fn asked(&self, place: usize, raw: Raw) -> (Record, bool) {
        let trigger = &self.object.triggers[place];
        let value = match raw {
            Raw::Value(value) if value.is_finite() => value,
            Raw::Absent | Raw::Value(_) if trigger.ignore_null => 0.0,
            Raw::Absent | Raw::Value(_) | Raw::Failed => return (Err(()), false),
        };
        (Ok(thousandths(value)), value > trigger.activation)
    }

    fn with_fallback(&mut self, side: Side, place: usize, value: Record, standing: Standing) -> Told {
        let fallback = self.object.fallback.filter(|_| self.object.has_valid_fallback());
        let Some(fallback) = fallback else { return value.map(|value| (value, false)) };
        if let Ok(value) = value {
            self.health.happy(side, place);
            return Ok((value, false));
        }
        if self.health.fails(side, place) <= fallback.failure_threshold {
            return Err(());
        }
        crate::fallback::stand_in(&self.object, fallback, place, standing)
    }

    /// `HandleScalingModifiers`: one metric of all, in thousandths.
    fn composite(&self, side: Side, modifiers: &Modifiers, told: &[Told]) -> Result<i64, ()> {
        if let Some(&(value, _)) = told.iter().flatten().find(|(_, fell_back)| *fell_back) {
            return Ok(value);
        }
        let values: Vec<Option<f64>> = (0..told.len())
            .map(|place| match told[place] {
                Ok((value, _)) if !self.is_nil(side, place) => Some(approximate(value)),
                _ => None,
            })
            .collect();
        let formula = self.formula.as_ref().ok_or(())?;
        let found = match formula.evaluate(&values).map_err(|_| ())? {
            Some(value) => value,
            // The fallback's replicas, however its other numbers are.
            None => f64::from(self.object.fallback.ok_or(())?.replicas) * modifiers.target().ok_or(())?,
        };
        Ok(go_int(found * 1000.0))
    }

    fn is_nil(&self, side: Side, place: usize) -> bool {
        self.object.fallback.is_some_and(|fallback| {
            fallback.behavior == FallbackBehavior::ScalingModifiers
                && self.health.failures(side, place) > fallback.failure_threshold
        })
    }

    fn request_scale(&mut self, standing: Standing, is_active: bool, is_error: bool) -> (i32, Act) {
        let ScaledObject { min_replicas, idle_replicas, fallback, .. } = self.object;
        let current = standing.replicas;
        if is_active {
            if (idle_replicas.is_some() && current < min_replicas) || current == 0 {
                self.last_active_ns = Some(whole_s(standing.now_ns));
                return (min_replicas.max(1), Act::Activated);
            }
            if !is_error {
                self.last_active_ns = Some(whole_s(standing.now_ns));
            }
            return (current, Act::None);
        }
        if is_error && fallback.is_none_or(|fallback| fallback.replicas != 0) {
            return (current, Act::None);
        }
        if idle_replicas.is_some_and(|idle| current > idle) || (current > 0 && min_replicas == 0) {
            if !self.has_cooled_down(standing.now_ns) {
                return (current, Act::Cooling);
            }
            return (idle_replicas.unwrap_or(min_replicas), Act::Deactivated);
        }
        if idle_replicas.is_none() && current < min_replicas {
            return (min_replicas, Act::Raised);
        }
        (current, Act::None)
    }

    fn has_cooled_down(&self, now_ns: i64) -> bool {
        let (since_ns, period_s) = match self.last_active_ns {
            None => (self.created_ns, self.object.initial_cooldown_s),
            Some(since_ns) => (since_ns, self.object.cooldown_s),
        };
        since_ns + i64::from(period_s) * NS_PER_S < now_ns
    }
}

/// Kubernetes keeps times in whole seconds.
fn whole_s(at_ns: i64) -> i64 {
    at_ns.div_euclid(NS_PER_S) * NS_PER_S
}

/// `GenerateMetricInMili`: to thousandths as `%.3f` rounds, and no less than 0.
fn thousandths(value: f64) -> i64 {
    if !value.is_finite() || value < 0.0 {
        return 0;
    }
    let text = format!("{value:.3}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, "000"));
    format!("{whole}{rest}").parse().unwrap_or(i64::MAX)
}

/// `Quantity.AsApproximateFloat64` of thousandths.
pub(crate) fn approximate(milli: i64) -> f64 {
    milli as f64 * 1e-3
}

/// Something that happens to KEDA, for a course of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When.
    pub now_ns: i64,
    /// Replicas that somebody else has set before; null: they are as they were.
    #[serde(default)]
    pub replicas: Option<i32>,
    /// Pods that run and are ready.
    pub ready: i32,
    /// What the query of each trigger comes to.
    pub raw: Vec<Raw>,
    /// The HPA asks for this metric; null: it is a poll.
    #[serde(default)]
    pub asks: Option<usize>,
}

/// What came of an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Of a poll.
    Poll(Poll),
    /// What the HPA is told, in thousandths; null: a failure.
    Told(Option<i64>),
}

impl Keda {
    /// One event after the other, from so many replicas on; polls are carried out. `None` where an event does not go with the object.
    pub fn follow(&mut self, mut replicas: i32, events: &[Event]) -> Option<Vec<Outcome>> {
        let metrics = if self.object.modifiers.is_some() { 1 } else { self.object.triggers.len() };
        let one = |event: &Event| {
            let fits = event.raw.len() == self.object.triggers.len() && event.asks.is_none_or(|place| place < metrics);
            if !fits {
                return None;
            }
            replicas = event.replicas.unwrap_or(replicas);
            let standing = Standing { now_ns: event.now_ns, replicas, ready: event.ready };
            if let Some(place) = event.asks {
                return Some(Outcome::Told(self.metric(place, standing, |place| event.raw[place])));
            }
            let poll = self.poll(standing, &event.raw);
            replicas = poll.replicas;
            Some(Outcome::Poll(poll))
        };
        events.iter().map(one).collect()
    }
}
