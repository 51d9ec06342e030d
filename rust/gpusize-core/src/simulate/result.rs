//! What a run in virtual time gives: one row per request, and a summary.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt8Array, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use serde::Serialize;

use super::{Fault, seconds};

/// Stands in the time columns for what did not happen.
const NEVER: i64 = -1;

/// How a request ended; names and codes are those of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered in full.
    Ok = 0,
    /// Refused for lack of room, or failed on request.
    HttpError = 1,
    /// Answer broken on request.
    ProtocolError = 6,
    /// Connection reset on request.
    Truncated = 7,
    /// Never sent: the client's queue was full.
    Shed = 9,
}

impl From<Option<Fault>> for Outcome {
    fn from(fault: Option<Fault>) -> Self {
        match fault {
            None => Self::Ok,
            Some(Fault::Fail) => Self::HttpError,
            Some(Fault::Reset) => Self::Truncated,
            Some(Fault::MalformedJson | Fault::MalformedFraming) => Self::ProtocolError,
        }
    }
}

/// One row per request that was due before the window closed, in order of due time. Times are nanoseconds from the start; -1: did not
/// happen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
    /// The user that asked; in an open loop the same as `index`.
    pub user: Vec<u32>,
    /// Due before the window opened.
    pub warmup: Vec<bool>,
    /// The GPU that served it; `u32::MAX` for none.
    pub gpu: Vec<u32>,
    /// When the request was due.
    pub due_ns: Vec<i64>,
    /// When it was sent: when it was due, or when a connection was free for it.
    pub sent_ns: Vec<i64>,
    /// When it joined a batch.
    pub start_ns: Vec<i64>,
    /// End of the iteration with its first token.
    pub first_token_ns: Vec<i64>,
    /// End of its last iteration, or when the failure was known; of a request that was shed, when it was due.
    pub end_ns: Vec<i64>,
    /// Tokens of the prompt.
    pub prompt_tokens: Vec<u32>,
    /// Tokens of the answer.
    pub tokens_out: Vec<u32>,
    /// How it ended.
    pub outcome: Vec<Outcome>,
}

impl Columns {
    /// Rows.
    pub fn len(&self) -> usize {
        self.due_ns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.due_ns.is_empty()
    }

    pub(super) fn push(&mut self, user: u32, warmup: bool, due_ns: i64, prompt_tokens: u32) {
        self.user.push(user);
        self.warmup.push(warmup);
        self.gpu.push(u32::MAX);
        self.due_ns.push(due_ns);
        self.sent_ns.push(NEVER);
        self.start_ns.push(NEVER);
        self.first_token_ns.push(NEVER);
        self.end_ns.push(NEVER);
        self.prompt_tokens.push(prompt_tokens);
        self.tokens_out.push(0);
        self.outcome.push(Outcome::Shed);
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.user.truncate(rows);
        self.warmup.truncate(rows);
        self.gpu.truncate(rows);
        self.due_ns.truncate(rows);
        self.sent_ns.truncate(rows);
        self.start_ns.truncate(rows);
        self.first_token_ns.truncate(rows);
        self.end_ns.truncate(rows);
        self.prompt_tokens.truncate(rows);
        self.tokens_out.truncate(rows);
        self.outcome.truncate(rows);
    }

    /// Due to end, in seconds.
    pub fn runtime_s(&self, row: usize) -> f64 {
        seconds(self.end_ns[row] - self.due_ns[row])
    }

    /// Due to first token, in seconds, where there was one.
    pub fn ttft_s(&self, row: usize) -> Option<f64> {
        (self.first_token_ns[row] != NEVER).then(|| seconds(self.first_token_ns[row] - self.due_ns[row]))
    }

    /// Whether it was sent at all.
    pub fn is_sent(&self, row: usize) -> bool {
        self.sent_ns[row] != NEVER
    }

    /// The rows as one Arrow batch: `index`, `user`, `warmup`, `gpu`, `due_ns`, `sent_ns`, `start_ns`, `first_token_ns`, `end_ns`, `prompt_tokens`,
    /// `tokens_out`, `outcome` (code), with null for what did not happen.
    pub fn to_record_batch(&self) -> Result<RecordBatch, ArrowError> {
        let times = |column: &[i64]| -> ArrayRef {
            Arc::new(column.iter().map(|&time_ns| (time_ns != NEVER).then_some(time_ns)).collect::<Int64Array>())
        };
        let counts = |column: &[u32]| -> ArrayRef { Arc::new(UInt32Array::from(column.to_vec())) };
        let gpu: UInt32Array = self.gpu.iter().map(|&gpu| (gpu != u32::MAX).then_some(gpu)).collect();
        let columns: [(&str, ArrayRef, bool); 12] = [
            ("index", Arc::new(UInt64Array::from_iter_values(0..self.len() as u64)), false),
            ("user", counts(&self.user), false),
            ("warmup", Arc::new(BooleanArray::from(self.warmup.clone())), false),
            ("gpu", Arc::new(gpu), true),
            ("due_ns", times(&self.due_ns), false),
            ("sent_ns", times(&self.sent_ns), true),
            ("start_ns", times(&self.start_ns), true),
            ("first_token_ns", times(&self.first_token_ns), true),
            ("end_ns", times(&self.end_ns), false),
            ("prompt_tokens", counts(&self.prompt_tokens), false),
            ("tokens_out", counts(&self.tokens_out), false),
            (
                "outcome",
                Arc::new(UInt8Array::from_iter_values(self.outcome.iter().map(|&outcome| outcome as u8))),
                false,
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(columns)
    }
}

/// Exact quantiles with linear interpolation, over requests that ended ok.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Quantiles {
    /// `None` without values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        let at = |share: f64| {
            let position = share * (values.len() - 1) as f64;
            let below = values[position.floor() as usize];
            below + (values[position.ceil() as usize] - below) * position.fract()
        };
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self { mean, p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), max })
    }
}

/// One run in virtual time, summed up over the counted requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Requests that were due in the window.
    pub requests: u64,
    /// Of these, requests that were sent, then or later; the others were shed.
    pub sent: u64,
    /// How they ended.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Length of the window.
    pub window_s: f64,
    /// Requests answered within the window, per second.
    pub rate_per_s: f64,
    /// Requests sent within the window, per second.
    pub sent_rate_per_s: f64,
    /// Tokens of those that were answered within it, per second.
    pub tokens_per_s: f64,
    /// Mean number of requests in the cluster over the window.
    pub in_flight: f64,
    /// Due to end; null without an ok request.
    pub runtime_s: Option<Quantiles>,
    /// Due to first token.
    pub ttft_s: Option<Quantiles>,
    /// Due to sent, of all that were sent; 0 each where connections have no bound.
    pub waiting_s: Option<Quantiles>,
    /// Sent to end.
    pub service_s: Option<Quantiles>,
    /// Mean gap between tokens, of requests with at least two.
    pub itl_mean_s: Option<Quantiles>,
    /// Share of the time in which GPUs were there that they worked, over the whole run.
    pub busy_share: f64,
    /// Mean sequences per iteration, over the whole run.
    pub mean_batch: f64,
    /// Iterations of all GPUs, over the whole run.
    pub iterations: u64,
    /// Tokens made by all GPUs, over the whole run.
    pub tokens: u64,
}

/// Rows and summary.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualResult {
    /// One row per request.
    pub columns: Columns,
    /// The same, summed up.
    pub summary: Summary,
}

/// What the driver knows beside the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Totals {
    pub gpus: u32,
    pub open_ns: i64,
    pub close_ns: i64,
    /// Time of all GPUs in which they were there.
    pub up_ns: i64,
    pub busy_ns: i64,
    pub iterations: u64,
    pub tokens: u64,
}

impl VirtualResult {
    pub(super) fn new(columns: Columns, totals: &Totals) -> Self {
        let summary = summarize(&columns, totals);
        Self { columns, summary }
    }
}

fn summarize(columns: &Columns, totals: &Totals) -> Summary {
    let counted = || (0..columns.len()).filter(|&row| !columns.warmup[row]);
    let ok = || counted().filter(|&row| columns.outcome[row] == Outcome::Ok);
    let mut outcomes = BTreeMap::new();
    for row in counted() {
        *outcomes.entry(columns.outcome[row]).or_default() += 1;
    }
    let window_s = seconds((totals.close_ns - totals.open_ns).max(1));
    let answered: Vec<usize> = (0..columns.len())
        .filter(|&row| columns.outcome[row] == Outcome::Ok)
        .filter(|&row| (totals.open_ns..totals.close_ns).contains(&columns.end_ns[row]))
        .collect();
    let sent_in_window = columns.sent_ns.iter().filter(|sent_ns| (totals.open_ns..totals.close_ns).contains(sent_ns));
    let inside_ns =
        |row: usize| (columns.end_ns[row].min(totals.close_ns) - columns.sent_ns[row].max(totals.open_ns)).max(0);
    let in_cluster = || (0..columns.len()).filter(|&row| columns.is_sent(row));
    let between_s = |from: &[i64], to: &[i64], row: usize| seconds(to[row] - from[row]);
    let sent = || counted().filter(|&row| columns.is_sent(row));
    let tokens_in_window: u64 = answered.iter().map(|&row| u64::from(columns.tokens_out[row])).sum();
    Summary {
        gpus: totals.gpus,
        requests: counted().count() as u64,
        sent: sent().count() as u64,
        outcomes,
        window_s,
        rate_per_s: answered.len() as f64 / window_s,
        sent_rate_per_s: sent_in_window.count() as f64 / window_s,
        tokens_per_s: tokens_in_window as f64 / window_s,
        in_flight: in_cluster().map(|row| seconds(inside_ns(row))).sum::<f64>() / window_s,
        runtime_s: Quantiles::of(ok().map(|row| columns.runtime_s(row)).collect()),
        ttft_s: Quantiles::of(ok().filter_map(|row| columns.ttft_s(row)).collect()),
        waiting_s: Quantiles::of(sent().map(|row| between_s(&columns.due_ns, &columns.sent_ns, row)).collect()),
        service_s: Quantiles::of(ok().map(|row| between_s(&columns.sent_ns, &columns.end_ns, row)).collect()),
        itl_mean_s: Quantiles::of(ok().filter_map(|row| itl_mean_s(columns, row)).collect()),
        busy_share: totals.busy_ns as f64 / totals.up_ns.max(1) as f64,
        mean_batch: totals.tokens as f64 / totals.iterations.max(1) as f64,
        iterations: totals.iterations,
        tokens: totals.tokens,
    }
}

fn itl_mean_s(columns: &Columns, row: usize) -> Option<f64> {
    let gaps = columns.tokens_out[row].checked_sub(1).filter(|&gaps| gaps > 0)?;
    Some(seconds(columns.end_ns[row] - columns.first_token_ns[row]) / f64::from(gaps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_as_numpy_does() {
        let quantiles = Quantiles::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert!((quantiles.p50 - 2.5).abs() < 1e-12);
        assert!((quantiles.p90 - 3.7).abs() < 1e-12);
        assert!((quantiles.p95 - 3.85).abs() < 1e-12);
        assert!((quantiles.mean - 2.5).abs() < 1e-12 && (quantiles.max - 4.0).abs() < 1e-12);
        assert_eq!(Quantiles::of(Vec::new()), None);
    }

    #[test]
    fn a_batch_has_nulls_for_what_did_not_happen() {
        let mut columns = Columns::default();
        columns.push(3, true, 10, 5);
        columns.end_ns[0] = 20;
        let batch = columns.to_record_batch().unwrap();
        assert_eq!(batch.num_rows(), 1);
        let nulls = |name: &str| batch.column_by_name(name).map(|column| column.null_count());
        assert_eq!((nulls("gpu"), nulls("first_token_ns"), nulls("end_ns")), (Some(1), Some(1), Some(0)));
    }
}
