//! A `HorizontalPodAutoscaler` as plain data.

use serde::{Deserialize, Serialize};

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct PolicyError {
    /// Path of the field, as in the JSON.
    pub field: String,
    /// What is wrong with it, with the value.
    pub problem: String,
}

impl PolicyError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// The HPA and the controller's own settings. Quantities are in thousandths (`m`), as the controller reckons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HpaPolicy {
    /// `minReplicas`.
    #[serde(default = "one")]
    pub min_replicas: i32,
    /// `maxReplicas`.
    pub max_replicas: i32,
    /// `metrics`, in their order.
    pub metrics: Vec<MetricSpec>,
    /// `behavior`. Null is not the same as its defaults: then the controller goes by older rules, which allow no more than twice
    /// the replicas (or 4) at a time, whatever came before.
    #[serde(default)]
    pub behavior: Option<Behavior>,
    /// `--horizontal-pod-autoscaler-sync-period`.
    #[serde(default = "sync_s")]
    pub sync_s: f64,
    /// `--horizontal-pod-autoscaler-tolerance`.
    #[serde(default = "tolerance")]
    pub tolerance: f64,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    #[serde(default = "downscale_stabilization_s")]
    pub downscale_stabilization_s: i32,
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`.
    #[serde(default = "cpu_initialization_s")]
    pub cpu_initialization_s: i64,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`.
    #[serde(default = "initial_readiness_s")]
    pub initial_readiness_s: i64,
}

/// One metric and its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricSpec {
    /// Where it comes from.
    pub source: Source,
    /// What it is to be.
    pub target: Target,
}

/// Where a metric comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// One value per pod, of the custom metrics API.
    Pods,
    /// CPU of each pod, of the resource metrics API: pods that start are left out.
    Cpu,
    /// Another resource of each pod.
    Resource,
    /// One value, or several that are added, of the external metrics API.
    External,
    /// One value of an object of the cluster.
    Object,
}

/// What a metric is to be, in thousandths where it is a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// `Value`: the metric itself.
    Value(i64),
    /// `AverageValue`: the metric over the number of pods.
    AverageValue(i64),
    /// `Utilization`: per cent of what the pods request.
    Utilization(i32),
}

/// How fast replicas may change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behavior {
    /// `scaleUp`.
    pub up: Rules,
    /// `scaleDown`.
    pub down: Rules,
}

impl Default for Behavior {
    fn default() -> Self {
        Self { up: Rules::up(), down: Rules::down() }
    }
}

/// The rules of one direction, defaults filled in by whoever writes them: a part that is left out is not that of the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// `stabilizationWindowSeconds`; null, going down: as the controller is set.
    pub stabilization_s: Option<i32>,
    /// `selectPolicy`.
    pub select: Select,
    /// `policies`.
    pub policies: Vec<Limit>,
    /// `tolerance`; null: as the controller is set.
    #[serde(default)]
    pub tolerance: Option<f64>,
}

impl Rules {
    /// The defaults of `scaleUp`: four pods or all of them again in 15 s, at once.
    pub fn up() -> Self {
        let limit = |kind, value| Limit { kind, value, period_s: 15 };
        Self {
            stabilization_s: Some(0),
            select: Select::Max,
            policies: vec![limit(LimitKind::Pods, 4), limit(LimitKind::Percent, 100)],
            tolerance: None,
        }
    }

    /// The defaults of `scaleDown`: all of them in 15 s, after the controller's window.
    pub fn down() -> Self {
        Self {
            stabilization_s: None,
            select: Select::Max,
            policies: vec![Limit { kind: LimitKind::Percent, value: 100, period_s: 15 }],
            tolerance: None,
        }
    }
}

/// Which of several limits counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// The one that allows most.
    Max,
    /// The one that allows least.
    Min,
    /// No change in this direction.
    Disabled,
}

/// So much change in so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Pods, or per cent of those at the start of the period.
    pub kind: LimitKind,
    /// How much.
    pub value: i32,
    /// `periodSeconds`.
    pub period_s: i32,
}

/// Unit of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// A number of pods.
    Pods,
    /// Per cent of the pods at the start of the period.
    Percent,
}

fn one() -> i32 {
    1
}

fn sync_s() -> f64 {
    15.0
}

fn tolerance() -> f64 {
    0.1
}

fn downscale_stabilization_s() -> i32 {
    300
}

fn cpu_initialization_s() -> i64 {
    300
}

fn initial_readiness_s() -> i64 {
    30
}

impl HpaPolicy {
    /// A policy of one metric, with all defaults.
    pub fn new(max_replicas: i32, metric: MetricSpec) -> Self {
        Self {
            min_replicas: one(),
            max_replicas,
            metrics: vec![metric],
            behavior: None,
            sync_s: sync_s(),
            tolerance: tolerance(),
            downscale_stabilization_s: downscale_stabilization_s(),
            cpu_initialization_s: cpu_initialization_s(),
            initial_readiness_s: initial_readiness_s(),
        }
    }

    /// How far up and down a metric may be from its target without consequence.
    pub(crate) fn tolerances(&self) -> Tolerances {
        let of = |rules: Option<&Rules>| rules.and_then(|rules| rules.tolerance).unwrap_or(self.tolerance);
        let behavior = self.behavior.as_ref();
        Tolerances { up: of(behavior.map(|both| &both.up)), down: of(behavior.map(|both| &both.down)) }
    }

    /// Refuse what the API server would, naming the field.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if self.min_replicas < 0 {
            return Err(PolicyError::new("min_replicas", format!("must be at least 0, not {}", self.min_replicas)));
        }
        if self.max_replicas < self.min_replicas.max(1) {
            let problem = format!("must be at least min_replicas and 1, not {}", self.max_replicas);
            return Err(PolicyError::new("max_replicas", problem));
        }
        if self.metrics.is_empty() {
            return Err(PolicyError::new("metrics", "must have at least one"));
        }
        let sees_none = |metric: &MetricSpec| !matches!(metric.source, Source::External | Source::Object);
        if self.min_replicas == 0 && self.metrics.iter().all(sees_none) {
            return Err(PolicyError::new("min_replicas", "must be at least 1 without an external or object metric"));
        }
        if !(1e-3..=86_400.0).contains(&self.sync_s) {
            return Err(PolicyError::new("sync_s", format!("must be between 0.001 and 86400, not {}", self.sync_s)));
        }
        in_unit("tolerance", self.tolerance)?;
        for (place, metric) in self.metrics.iter().enumerate() {
            metric.validate(&format!("metrics[{place}]"))?;
        }
        if let Some(behavior) = &self.behavior {
            behavior.up.validate("behavior.up")?;
            behavior.down.validate("behavior.down")?;
        }
        Ok(())
    }
}

fn in_unit(field: &str, value: f64) -> Result<(), PolicyError> {
    if (0.0..1e3).contains(&value) {
        return Ok(());
    }
    Err(PolicyError::new(field, format!("must be at least 0 and below 1000, not {value}")))
}

impl MetricSpec {
    fn validate(self, field: &str) -> Result<(), PolicyError> {
        let fits = match self.target {
            Target::Value(_) => matches!(self.source, Source::External | Source::Object),
            Target::AverageValue(_) => true,
            Target::Utilization(_) => matches!(self.source, Source::Cpu | Source::Resource),
        };
        if !fits {
            let problem = "is none that such a metric can have: per pod an average, of resources also a utilization, of others also a value";
            return Err(PolicyError::new(format!("{field}.target"), problem));
        }
        let positive = match self.target {
            Target::Value(milli) | Target::AverageValue(milli) => milli > 0,
            Target::Utilization(percent) => percent > 0,
        };
        if positive { Ok(()) } else { Err(PolicyError::new(format!("{field}.target"), "must be above 0")) }
    }
}

impl Rules {
    fn validate(&self, field: &str) -> Result<(), PolicyError> {
        if let Some(window_s) = self.stabilization_s
            && !(0..=3600).contains(&window_s)
        {
            let problem = format!("must be between 0 and 3600, not {window_s}");
            return Err(PolicyError::new(format!("{field}.stabilization_s"), problem));
        }
        if let Some(tolerance) = self.tolerance {
            in_unit(&format!("{field}.tolerance"), tolerance)?;
        }
        if self.policies.is_empty() {
            return Err(PolicyError::new(format!("{field}.policies"), "must have at least one"));
        }
        for (place, limit) in self.policies.iter().enumerate() {
            if limit.value <= 0 {
                let problem = format!("must be above 0, not {}", limit.value);
                return Err(PolicyError::new(format!("{field}.policies[{place}].value"), problem));
            }
            if !(1..=1800).contains(&limit.period_s) {
                let problem = format!("must be between 1 and 1800, not {}", limit.period_s);
                return Err(PolicyError::new(format!("{field}.policies[{place}].period_s"), problem));
            }
        }
        Ok(())
    }
}

/// Within which a metric counts as on its target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerances {
    up: f64,
    down: f64,
}

impl Tolerances {
    pub(crate) fn hold(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}
