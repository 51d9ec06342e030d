//! The rules by which autoscalers decide, without a clock and without a cluster: what they are told is handed in, with the time.
//!
//! - [`policy`]: a `HorizontalPodAutoscaler` of `autoscaling/v2` as plain data, defaults filled in, the same as JSON.
//! - [`seen`]: what the controller sees when it decides: pods, and a reading of each metric.
//! - [`proposal`]: how many replicas one metric asks for.
//! - [`history`]: stabilization windows and scaling policies, which go by earlier decisions.
//! - [`hpa`]: one sync of the controller, of all this.
//!
//! The rules are those of Kubernetes 1.37, kept where they look odd: `tests/peers` holds them against the controller itself.

pub mod history;
pub mod hpa;
pub mod policy;
pub mod proposal;
pub mod seen;

pub use hpa::{Decision, Hpa, Reason};
pub use policy::{HpaPolicy, MetricSpec, PolicyError, Source, Target};
pub use seen::{Phase, Pod, PodReading, Reading, Seen};

const NS_PER_S: i64 = 1_000_000_000;
