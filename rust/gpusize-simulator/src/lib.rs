//! A simulated GPU cluster that serves with continuous batching: one state machine, driven in virtual time or as an HTTP server.
//!
//! An iteration of one GPU costs `iteration_base_s + iteration_per_sequence_s * active + prefill_per_token_s * new prompt tokens`
//! and gives every running sequence one token. Sequences join and leave at the boundaries of iterations; a request that arrives
//! during an iteration waits for its end, and one that arrives at the very end of an iteration waits for the next one to end.
//!
//! A cluster (`cluster`) is made of replicas of one kind (`replica`): GPUs (`gpu`), whose prompts servers of their own may compute (`prefill`), or servers of which only a curve is known
//! (`flow`). It has the router (`routing`), replicas that come and go (`replicas`, and `autoscale` decides how many, down to none) and the order of events; what a request costs is
//! the replica's. Drivers tell it the time: `virtual_time` with the load's clients (`clients`, `load`, `connections`, `window`) and
//! their books (`ledger`, `tally`, `judge`, `summary`), and `server` over HTTP and gRPC. Tensor models have a queue of their own
//! (`tensor_queue`); stalls are a map between two clocks (`stall`).

mod autoscale;
mod batch;
mod clients;
mod closed_form;
mod cluster;
mod config;
mod connections;
mod flow;
mod gpu;
mod judge;
mod ledger;
mod length;
mod load;
mod mix;
mod prefill;
mod replica;
mod replicas;
mod result;
mod routing;
mod server;
mod service;
mod stall;
mod summary;
mod tally;
mod tensor_model;
mod tensor_queue;
mod virtual_time;
mod window;

use std::io;
use std::net::SocketAddr;

pub use autoscale::{
    Across, AutoscalerConfig, FrontConfig, Fronted, Histogram, Operator, Outage, OverTime, Quantile, Quantity, Scaling,
    ScalingStep, Series, Signal,
};
pub use batch::Running;
pub use closed_form::closed_form_runtime_s;
pub use cluster::Cluster;
pub use config::{ChatConfig, ClusterConfig, Faults, PrefillServers, Router, StaticBatching, WorkflowConfig};
pub use flow::{FlowBeside, FlowColumns, FlowConfig, FlowResult, FlowSummary, Tasks, run_flow};
pub use gpu::{Gpu, Observer, Payload, Refusal, Sequence};
pub use judge::{Bound, Counts, Judge, Judged, JudgedMetric, Steps};
pub use length::Length;
pub use load::{Arrivals, Load, Plan, Process, Start, Think};
pub use mix::Mix;
pub use replica::{Replica, Serve, Watch};
pub use replicas::ReplicaStep;
pub use result::{Columns, Outcome, VirtualResult};
pub use server::SimServer;
pub use service::{Fault, Service, ServiceDraws};
pub use stall::Stalls;
pub use summary::{Quantiles, Summary};
pub use tensor_model::{Datatype, KserveConfig, Operation, TensorModel, TensorSpec};
pub use tensor_queue::{Execution, Job, TensorObserver, TensorQueue};
pub use virtual_time::{Beside, run_beside, run_plan, run_virtual};

const NS_PER_S: f64 = 1e9;

/// What can be wrong with a simulation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The text is not the JSON that was expected.
    #[error("{what} of the simulated cluster: {source}")]
    Json {
        /// Which document: `config` or `load`.
        what: &'static str,
        /// Line, column and reason.
        source: serde_json::Error,
    },
    /// A value is outside what the model can do.
    #[error("{field} of the simulated cluster {problem}")]
    Value {
        /// Path of the field, as in the JSON.
        field: String,
        /// What is wrong with it, with the value.
        problem: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// The address that was asked for.
        addr: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The server's thread, runtime or timer could not be set up, or it has ended early.
    #[error("the simulated cluster's server: {source}")]
    Server {
        /// The system's reason.
        #[from]
        source: io::Error,
    },
}

impl SimError {
    fn value(field: &str, problem: impl Into<String>) -> Self {
        Self::Value { field: field.to_owned(), problem: problem.into() }
    }
}

/// Seconds to whole nanoseconds, rounded; the callers have validated that the value is finite and in range.
fn ns(seconds: f64) -> i64 {
    rounded(seconds * NS_PER_S)
}

/// The same as `value.round() as i64`, without a call into the library of the machine: every iteration asks for it.
fn rounded(value: f64) -> i64 {
    let whole = value as i64;
    // Exact: both are whole or close to each other, and beyond 2^53 there is nothing behind the point.
    let rest = value - whole as f64;
    whole.saturating_add(i64::from(rest >= 0.5)).saturating_sub(i64::from(rest <= -0.5))
}

/// The first of two moments, of which there may be none.
fn earliest(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Nanoseconds to seconds.
fn seconds(ns: i64) -> f64 {
    ns as f64 / NS_PER_S
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpusize_base::draw::Draw;

    #[test]
    fn rounding_is_that_of_the_library() {
        let lots = Draw::new(1, 0, 0);
        let around = |whole: f64| [whole - 0.5, whole - 0.499_999_9, whole, whole + 0.499_999_9, whole + 0.5];
        let edges =
            [0.0, 0.499_999_999_999_999_94, 4_503_599_627_370_497.5, 9e15, 1e18, 9.3e18, f64::INFINITY, f64::NAN];
        let drawn = (0..10_000).flat_map(|seq| around((lots.unit(seq) * 1e12).floor()));
        for value in edges.into_iter().chain(drawn).flat_map(|value| [value, -value]) {
            assert_eq!(rounded(value), value.round() as i64, "{value}");
        }
    }
}
