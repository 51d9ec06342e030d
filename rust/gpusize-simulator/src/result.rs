//! What a run in virtual time gives: one row per request, and a summary.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt8Array, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use serde::Serialize;

use super::ledger::{Kept, Ledger, Request};
use super::summary::{Totals, summarize};
use super::{Fault, Summary, seconds};

/// Stands in the time columns for what did not happen.
pub(super) const NEVER: i64 = -1;

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

impl Outcome {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [Self::Ok, Self::HttpError, Self::ProtocolError, Self::Truncated, Self::Shed];
    /// One more than the largest number.
    pub(super) const COUNT: usize = Self::Shed as usize + 1;
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

    /// The request has ended, and with it its row is complete.
    pub(super) fn end(&mut self, request: &Request, end_ns: i64) {
        let row = request.row;
        self.gpu[row] = request.gpu;
        self.sent_ns[row] = request.sent_ns;
        self.start_ns[row] = request.start_ns;
        self.first_token_ns[row] = request.first_token_ns;
        self.end_ns[row] = end_ns;
        self.tokens_out[row] = request.output;
        self.outcome[row] = request.outcome;
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

/// Rows and summary.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualResult {
    /// One row per request; none where only the summary was asked for.
    pub columns: Columns,
    /// The same, summed up.
    pub summary: Summary,
}

impl VirtualResult {
    pub(super) fn new(ledger: Ledger, totals: &Totals) -> Self {
        let (kept, judged) = ledger.into_parts();
        let (columns, mut summary) = match kept {
            Kept::Rows(columns) => {
                let summary = summarize(&columns, totals);
                (*columns, summary)
            }
            Kept::Sums(tally) => (Columns::default(), tally.summary(totals)),
        };
        summary.judged = judged;
        Self { columns, summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
