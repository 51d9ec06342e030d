//! Flow-equivalent servers: a cluster of which nothing is known but how much work a GPU does at how many requests.
//!
//! After K. M. Chandy, U. Herzog and L. Woo, "Parametric analysis of queuing networks", IBM Journal of Research and Development 19 (1975):
//! a part of a network behaves, seen from outside, as one server whose rate depends on how many it has. Each GPU is such a server. With k
//! active requests it works at `rates[k - 1]` in all, shared evenly between them (processor sharing); a request is done when its size is
//! worked off. Requests may be those of tasks ([`Tasks`]), of which each asks for one after the other.

mod run;
mod server;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, ListArray, RecordBatch, UInt8Array, UInt32Array, UInt64Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field};
use serde::{Deserialize, Serialize};

use super::config::in_range;
use super::result::NEVER;
use super::{Columns, Judged, Outcome, Quantiles, ReplicaStep, Router, Scaling, SimError, VirtualResult, replicas};

pub use run::{FlowBeside, run_flow};
pub use tasks::Tasks;

/// The servers. Unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowConfig {
    /// Work per second of one server with 1, 2, … active requests; the last holds for more.
    pub rates: Vec<f64>,
    /// Most requests that are active at once on one server; those beyond wait there, first come, first served. Null: no limit.
    #[serde(default)]
    pub max_active: Option<u32>,
    /// Servers; with `replicas`, the most there can be.
    #[serde(default = "one")]
    pub gpus: u32,
    /// Which server a request goes to.
    #[serde(default = "least_loaded")]
    pub router: Router,
    /// Same seed, same sizes, routes, gaps and think times by request.
    #[serde(default = "one_seed")]
    pub seed: u64,
    /// How many replicas there are at first, and from when on how many are asked for; empty: all.
    #[serde(default)]
    pub replicas: Vec<ReplicaStep>,
    /// From when a replica is asked for to when it takes requests.
    #[serde(default)]
    pub start_delay_s: f64,
}

fn one() -> u32 {
    1
}

fn least_loaded() -> Router {
    Router::LeastLoaded
}

fn one_seed() -> u64 {
    1
}

impl FlowConfig {
    /// One server with this curve, seed 1, least loaded.
    pub fn new(rates: Vec<f64>) -> Self {
        Self {
            rates,
            max_active: None,
            gpus: one(),
            router: least_loaded(),
            seed: one_seed(),
            replicas: Vec::new(),
            start_delay_s: 0.0,
        }
    }

    /// Read and validate the JSON of a configuration.
    pub fn from_json(text: &str) -> Result<Self, SimError> {
        let config: Self = serde_json::from_str(text).map_err(|source| SimError::Json { what: "flow", source })?;
        config.validate()?;
        Ok(config)
    }

    /// Refuse what cannot be, naming the field.
    pub fn validate(&self) -> Result<(), SimError> {
        if self.rates.is_empty() {
            return Err(SimError::value("flow.rates", "must have at least the rate at one active request"));
        }
        for (place, &rate) in self.rates.iter().enumerate() {
            in_range(&format!("flow.rates[{place}]"), rate, 1e-9, 1e12)?;
        }
        for (field, value, most) in
            [("flow.gpus", self.gpus, 100_000), ("flow.max_active", self.max_active.unwrap_or(1), u32::MAX)]
        {
            if !(1..=most).contains(&value) {
                return Err(SimError::value(field, format!("must be between 1 and {most}, not {value}")));
            }
        }
        in_range("flow.start_delay_s", self.start_delay_s, 0.0, 1e9)?;
        replicas::validate(&self.replicas, self.gpus)
    }
}

/// One row per request that was due before the window closed, in order of due time. Times are nanoseconds from the start; -1: did not
/// happen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowColumns {
    /// The user that asked; in an open loop the same as the row.
    pub user: Vec<u32>,
    /// Due before the window opened.
    pub warmup: Vec<bool>,
    /// The server that it went to; `u32::MAX` for none.
    pub gpu: Vec<u32>,
    /// When the request was due.
    pub due_ns: Vec<i64>,
    /// When it was sent.
    pub sent_ns: Vec<i64>,
    /// When it became active.
    pub start_ns: Vec<i64>,
    /// When it was done; of a request that was shed, when it was due.
    pub end_ns: Vec<i64>,
    /// The place of its size in the sizes that were handed over.
    pub size: Vec<u32>,
    /// Requests on its server as it came, active and waiting, itself among them. Of a queue that all servers share, each has an equal part.
    pub active_at_arrival: Vec<u32>,
    /// Ok or shed.
    pub outcome: Vec<Outcome>,
    /// How long each request of a task took, from when it came, task by task; empty without tasks.
    pub calls_ns: Vec<i64>,
    /// How many requests each task has had answered; likewise.
    pub calls: Vec<u32>,
}

impl From<Columns> for FlowColumns {
    fn from(columns: Columns) -> Self {
        let Columns { user, warmup, gpu, due_ns, sent_ns, start_ns, end_ns, outcome, .. } = columns;
        let (size, active_at_arrival) = (columns.prompt_tokens, columns.tokens_out);
        let (calls_ns, calls) = Default::default();
        Self { user, warmup, gpu, due_ns, sent_ns, start_ns, end_ns, size, active_at_arrival, outcome, calls_ns, calls }
    }
}

impl FlowColumns {
    /// Rows.
    pub fn len(&self) -> usize {
        self.due_ns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.due_ns.is_empty()
    }

    /// The rows as one Arrow batch: `index`, `user`, `warmup`, `gpu`, `due_ns`, `sent_ns`, `start_ns`, `end_ns`, `size`, `active_at_arrival`,
    /// `outcome` (code), with null for what did not happen; of tasks also `calls_ns`, a list of how long each of their requests took.
    pub fn into_record_batch(self) -> Result<RecordBatch, ArrowError> {
        let times = |column: Vec<i64>| -> ArrayRef {
            if column.contains(&NEVER) {
                return Arc::new(
                    column.into_iter().map(|at_ns| (at_ns != NEVER).then_some(at_ns)).collect::<Int64Array>(),
                );
            }
            Arc::new(Int64Array::from(column))
        };
        let counts = |column: Vec<u32>| -> ArrayRef {
            if column.contains(&u32::MAX) {
                return Arc::new(column.into_iter().map(|n| (n != u32::MAX).then_some(n)).collect::<UInt32Array>());
            }
            Arc::new(UInt32Array::from(column))
        };
        let rows = self.len() as u64;
        let outcomes = self.outcome.iter().map(|&outcome| outcome as u8);
        let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("index", Arc::new(UInt64Array::from_iter_values(0..rows)), false),
            ("user", counts(self.user), false),
            ("warmup", Arc::new(BooleanArray::from(self.warmup)), false),
            ("gpu", counts(self.gpu), true),
            ("due_ns", times(self.due_ns), false),
            ("sent_ns", times(self.sent_ns), true),
            ("start_ns", times(self.start_ns), true),
            ("end_ns", times(self.end_ns), false),
            ("size", counts(self.size), false),
            ("active_at_arrival", counts(self.active_at_arrival), false),
            ("outcome", Arc::new(UInt8Array::from_iter_values(outcomes)), false),
        ];
        if !self.calls.is_empty() {
            let offsets = OffsetBuffer::from_lengths(self.calls.into_iter().map(|calls| calls as usize));
            let field = Arc::new(Field::new_list_field(DataType::Int64, false));
            let times = Arc::new(Int64Array::from(self.calls_ns));
            let calls = ListArray::try_new(field, offsets, times, None)?;
            columns.push(("calls_ns", Arc::new(calls), false));
        }
        RecordBatch::try_from_iter_with_nullable(columns)
    }
}

/// One run, summed up over the counted requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlowSummary {
    /// Servers.
    pub gpus: u32,
    /// Requests that were due in the window.
    pub requests: u64,
    /// Of these, requests that were sent, then or later; the others were shed.
    pub sent: u64,
    /// How they ended.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Length of the window.
    pub window_s: f64,
    /// Requests done within the window, per second.
    pub rate_per_s: f64,
    /// Requests sent within the window, per second.
    pub sent_rate_per_s: f64,
    /// Mean number of requests on all servers over the window.
    pub in_flight: f64,
    /// Due to end; null without an ok request.
    pub runtime_s: Option<Quantiles>,
    /// Due to sent; 0 each where connections have no bound.
    pub waiting_s: Option<Quantiles>,
    /// Sent to end.
    pub service_s: Option<Quantiles>,
    /// Share of the time in which servers were there that they worked, over the whole run.
    pub busy_share: f64,
    /// Time in which removed GPUs were there to finish what they had, of all together, over the whole run.
    pub draining_s: f64,
    /// Mean number of active requests on a server that works, over the whole run.
    pub mean_active: f64,
    /// When an open loop was ended before all counted requests had: far more came than can be served, and the last of them are
    /// answered sooner than they would be. Left out where it went on until they had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_cut_s: Option<f64>,
    /// How requests fared against the bounds that were asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<Judged>,
    /// What the autoscaler did; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
}

/// Rows and summary.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowResult {
    /// One row per request; none where only the summary was asked for.
    pub columns: FlowColumns,
    /// The same, summed up.
    pub summary: FlowSummary,
}

impl From<VirtualResult> for FlowResult {
    fn from(result: VirtualResult) -> Self {
        let all = result.summary;
        let summary = FlowSummary {
            gpus: all.gpus,
            requests: all.requests,
            sent: all.sent,
            outcomes: all.outcomes,
            window_s: all.window_s,
            rate_per_s: all.rate_per_s,
            sent_rate_per_s: all.sent_rate_per_s,
            in_flight: all.in_flight,
            runtime_s: all.runtime_s,
            waiting_s: all.waiting_s,
            service_s: all.service_s,
            busy_share: all.busy_share,
            draining_s: all.draining_s,
            mean_active: all.mean_batch,
            load_cut_s: all.load_cut_s,
            judged: all.judged,
            scaling: all.scaling,
        };
        Self { columns: result.columns.into(), summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_that_cannot_be_are_refused() {
        assert_eq!(FlowConfig::from_json(r#"{"rates": [1.0, 2.0]}"#).unwrap(), FlowConfig::new(vec![1.0, 2.0]));
        for (text, needle) in [
            (r"{}", "missing field `rates`"),
            (r#"{"rates": []}"#, "flow.rates"),
            (r#"{"rates": [1.0, 0.0]}"#, "flow.rates[1]"),
            (r#"{"rates": [1.0], "gpus": 0}"#, "flow.gpus"),
            (r#"{"rates": [1.0], "max_active": 0}"#, "flow.max_active"),
            (r#"{"rates": [1.0], "replicas": [{"at_s": 0.0, "replicas": 2}]}"#, "replicas[0].replicas"),
            (r#"{"rates": [1.0], "gpu": 1}"#, "unknown field"),
        ] {
            let error = FlowConfig::from_json(text).expect_err(text).to_string();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }
}
