//! A `ScaledObject` of KEDA (`keda.sh/v1alpha1`) as plain data: what KEDA itself goes by. The HPA that it makes is an [`crate::HpaPolicy`].

use serde::{Deserialize, Serialize};

use crate::formula::Formula;
use crate::policy::{PolicyError, Target};

/// What KEDA is told. Defaults are those of KEDA 2.20 (`apis/keda/v1alpha1`, `pkg/scaling/executor/scale_executor.go`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaledObject {
    /// `pollingInterval`.
    #[serde(default = "polling_s")]
    pub polling_s: f64,
    /// `cooldownPeriod`: from the last poll that saw activity to the removal of the last replicas.
    #[serde(default = "cooldown_s")]
    pub cooldown_s: i32,
    /// `initialCooldownPeriod`: the same from the object's creation, as long as no poll has seen activity.
    #[serde(default)]
    pub initial_cooldown_s: i32,
    /// `minReplicaCount`.
    #[serde(default)]
    pub min_replicas: i32,
    /// `idleReplicaCount`.
    #[serde(default)]
    pub idle_replicas: Option<i32>,
    /// `fallback`.
    #[serde(default)]
    pub fallback: Option<Fallback>,
    /// `triggers`, in their order.
    pub triggers: Vec<Trigger>,
    /// `advanced.scalingModifiers`.
    #[serde(default)]
    pub modifiers: Option<Modifiers>,
}

/// Of a trigger of type `prometheus` what KEDA goes by (`pkg/scalers/prometheus_scaler.go`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// `name`: what a formula calls it.
    #[serde(default)]
    pub name: Option<String>,
    /// `threshold`, with `metricType`, in thousandths.
    pub target: Target,
    /// `activationThreshold`: it is active above this.
    #[serde(default)]
    pub activation: f64,
    /// `useCachedMetrics`: the HPA is told what the last poll found.
    #[serde(default)]
    pub use_cached: bool,
    /// `ignoreNullValues`: no value is 0, and no failure.
    #[serde(default = "yes")]
    pub ignore_null: bool,
}

/// What counts while a trigger fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// `failureThreshold`: after more failures than this in a row, of polls and of the HPA's questions together.
    pub failure_threshold: i32,
    /// `replicas`.
    pub replicas: i32,
    /// `behavior`.
    #[serde(default)]
    pub behavior: FallbackBehavior,
}

/// How many replicas a fallback stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallbackBehavior {
    /// `fallback.replicas`.
    #[default]
    Static,
    /// As many as there are.
    CurrentReplicas,
    /// As many as there are, if that is more.
    CurrentReplicasIfHigher,
    /// As many as there are, if that is fewer.
    CurrentReplicasIfLower,
    /// A trigger that fails is nil in the formula.
    ScalingModifiers,
}

/// One metric made of all triggers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modifiers {
    /// `formula`, over the triggers' names.
    pub formula: String,
    /// `target`, as it is written.
    pub target: String,
    /// `activationTarget`.
    #[serde(default)]
    pub activation: f64,
    /// `metricType` is `Value`, not `AverageValue`.
    #[serde(default)]
    pub is_value: bool,
}

fn polling_s() -> f64 {
    30.0
}

fn cooldown_s() -> i32 {
    300
}

fn yes() -> bool {
    true
}

impl Modifiers {
    /// `target` as a number.
    pub fn target(&self) -> Option<f64> {
        self.target.parse().ok().filter(|target: &f64| target.is_finite() && *target > 0.0)
    }
}

impl ScaledObject {
    /// Refuse what KEDA's admission would (`CheckReplicaCountBoundsAreValid`, `CheckFallbackValid`, `ValidateAndCompileScalingModifiers`),
    /// naming the field.
    ///
    /// # Errors
    ///
    /// The first field that is wrong.
    pub fn validate(&self) -> Result<Option<Formula>, PolicyError> {
        let wrong = |field: &str, problem: String| Err(PolicyError::new(field, problem));
        if !(1.0..=86_400.0).contains(&self.polling_s) {
            return wrong("polling_s", format!("must be between 1 and 86400, not {}", self.polling_s));
        }
        for (field, value) in [
            ("cooldown_s", self.cooldown_s),
            ("initial_cooldown_s", self.initial_cooldown_s),
            ("min_replicas", self.min_replicas),
            ("idle_replicas", self.idle_replicas.unwrap_or(0)),
        ] {
            if value < 0 {
                return wrong(field, format!("must be at least 0, not {value}"));
            }
        }
        if let Some(idle) = self.idle_replicas.filter(|&idle| idle >= self.min_replicas) {
            return wrong(
                "idle_replicas",
                format!("must be less than min_replicas ({}), not {idle}", self.min_replicas),
            );
        }
        if let Some(fallback) = self.fallback
            && (fallback.failure_threshold < 0 || fallback.replicas < 0)
        {
            return wrong("fallback", "must have a failure_threshold and replicas of at least 0".to_owned());
        }
        if self.triggers.is_empty() {
            return wrong("triggers", "must have at least one".to_owned());
        }
        for (place, trigger) in self.triggers.iter().enumerate() {
            let field = |name: &str| format!("triggers[{place}].{name}");
            if !matches!(trigger.target, Target::Value(_) | Target::AverageValue(_)) {
                return wrong(&field("target"), "must be value or average_value".to_owned());
            }
            if !trigger.activation.is_finite() {
                return wrong(&field("activation"), "must be a number".to_owned());
            }
        }
        self.modifiers.as_ref().map(|modifiers| self.formula(modifiers)).transpose()
    }

    fn formula(&self, modifiers: &Modifiers) -> Result<Formula, PolicyError> {
        let wrong = |field: &str, problem: String| Err(PolicyError::new(field, problem));
        let mut names = Vec::with_capacity(self.triggers.len());
        for (place, trigger) in self.triggers.iter().enumerate() {
            let field = format!("triggers[{place}].name");
            match &trigger.name {
                None => return wrong(&field, "must be there where a formula makes one metric of all".to_owned()),
                Some(name) if names.contains(name) => {
                    return wrong(&field, format!("is another trigger's too: {name}"));
                }
                Some(name) => names.push(name.clone()),
            }
        }
        if modifiers.target().is_none() {
            return wrong("modifiers.target", format!("must be a number above 0, not \"{}\"", modifiers.target));
        }
        if !modifiers.activation.is_finite() {
            return wrong("modifiers.activation", "must be a number".to_owned());
        }
        Formula::new(&modifiers.formula, &names)
            .map_err(|error| PolicyError::new("modifiers.formula", format!("is not understood, {error}")))
    }

    /// Whether the fallback ever takes effect (`HasValidFallback`): with a formula, only where its target is a whole number.
    pub fn has_valid_fallback(&self) -> bool {
        let whole = |modifiers: &Modifiers| modifiers.target.parse::<i64>().is_ok_and(|target| target > 0);
        self.fallback.is_some() && self.modifiers.as_ref().is_none_or(whole)
    }
}
