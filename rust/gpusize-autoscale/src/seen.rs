//! What the controller sees when it decides.

use serde::{Deserialize, Serialize};

/// The target and its metrics at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// When, in nanoseconds from any beginning.
    pub now_ns: i64,
    /// `spec.replicas` of the target's scale: how many there are to be.
    #[serde(default)]
    pub spec_replicas: i32,
    /// `status.replicas`: how many pods there are.
    pub status_replicas: i32,
    /// The pods behind its selector.
    pub pods: Vec<Pod>,
    /// One reading for each metric of the policy.
    pub readings: Vec<Reading>,
}

/// Of a pod what the controller asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// `status.phase`.
    pub phase: Phase,
    /// Its condition `Ready`; null: it has none.
    pub ready: Option<bool>,
    /// Since when that condition is as it is.
    #[serde(default)]
    pub ready_since_ns: i64,
    /// `status.startTime`; null: not set.
    #[serde(default)]
    pub started_ns: Option<i64>,
    /// It has a deletion timestamp.
    #[serde(default)]
    pub deleted: bool,
    /// What its containers request of the resource, in thousandths.
    #[serde(default)]
    pub request: i64,
}

/// Phases that the controller tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not all containers run yet.
    Pending,
    /// They do.
    Running,
    /// They have ended, one at least in failure.
    Failed,
}

/// What became of asking for a metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// No answer, an error, or no value at all.
    Failed,
    /// Of external metrics the values, of an object its one, in thousandths.
    Values(Vec<i64>),
    /// One for each pod, in their order; null: none of that pod.
    PerPod(Vec<Option<PodReading>>),
}

/// The value of one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodReading {
    /// In thousandths.
    pub value: i64,
    /// When it was measured.
    #[serde(default)]
    pub at_ns: i64,
    /// Over how long.
    #[serde(default)]
    pub window_ns: i64,
}
