//! The rules by which autoscalers decide, without a clock and without a cluster: what they are told is handed in, with the time.
//!
//! - [`policy`]: a `HorizontalPodAutoscaler` of `autoscaling/v2` as plain data, defaults filled in, the same as JSON.
//! - [`seen`]: what the controller sees when it decides: pods, and a reading of each metric.
//! - [`proposal`]: how many replicas one metric asks for.
//! - [`history`]: stabilization windows and scaling policies, which go by earlier decisions.
//! - [`hpa`]: one sync of the controller, of all this.
//! - [`scaled_object`]: a `ScaledObject` of KEDA as plain data; [`formula`]: the expressions of its `scalingModifiers`.
//! - [`keda`]: its polls, and what it tells the HPA that it makes.
//!
//! The rules are those of Kubernetes 1.37 and KEDA 2.20, kept where they look odd: `tests/peers` holds them against their code.

mod fallback;
pub mod formula;
pub mod history;
pub mod hpa;
pub mod keda;
pub mod policy;
pub mod proposal;
pub mod scaled_object;
pub mod seen;

pub use formula::{Formula, FormulaError};
pub use hpa::{Decision, Hpa, Reason};
pub use keda::{Act, Event, Keda, Outcome, Poll, Raw, Standing};
pub use policy::{HpaPolicy, MetricSpec, PolicyError, Source, Target};
pub use scaled_object::{Fallback, FallbackBehavior, Modifiers, ScaledObject, Trigger};
pub use seen::{Phase, Pod, PodReading, Reading, Seen};

const NS_PER_S: i64 = 1_000_000_000;
