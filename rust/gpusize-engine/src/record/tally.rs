//! What is counted of requests that have something in common: a second in which they were due, or ended.

use std::collections::BTreeMap;

use super::histogram::{Bucket, Times};
use crate::outcome::Outcome;

/// The times that are counted, in the order of `Tally::times`.
pub const METRICS: [&str; 8] =
    ["runtime", "service", "ttft", "ttft_sent", "itl", "lateness", "pacer_late", "no_connection"];

/// Place of a metric in `METRICS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Due to end, of those that ended ok.
    Runtime,
    /// First write to end, of those that ended ok.
    Service,
    /// Due to first content, of those that ended ok.
    Ttft,
    /// First write to first content, of those that ended ok.
    TtftSent,
    /// Gaps between events with content, of those that ended ok.
    Itl,
    /// Due to first write, of all that were sent.
    Lateness,
    /// Due to when the pacer let it go: the generator was late.
    PacerLate,
    /// From there to the first write: no connection was free, or one had to be opened.
    NoConnection,
}

/// How many requests ended in each way.
pub type Outcomes = [u64; Outcome::ALL.len()];

/// Counts by outcome, and of times.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By number of the outcome.
    pub outcomes: Outcomes,
    /// By metric.
    pub times: [Times; METRICS.len()],
}

impl Tally {
    /// Count a time.
    #[inline]
    pub fn record(&mut self, metric: Metric, ns: i64) {
        self.times[metric as usize].record(ns);
    }

    /// Count times.
    #[inline]
    pub fn record_all(&mut self, metric: Metric, times: impl Iterator<Item = i64>) {
        self.times[metric as usize].record_all(times);
    }

    /// The times of a metric.
    pub fn of(&self, metric: Metric) -> &Times {
        &self.times[metric as usize]
    }

    /// Add the counts of another.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.outcomes, &other.outcomes);
        for (mine, theirs) in self.times.iter_mut().zip(&other.times) {
            mine.merge(theirs);
        }
    }

    /// Requests in all.
    pub fn count(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// The buckets of each metric that has any.
    pub fn buckets(&self) -> BTreeMap<&'static str, Vec<Bucket>> {
        METRICS.into_iter().zip(&self.times).map(|(name, times)| (name, times.buckets())).collect()
    }
}

/// Add counts by outcome.
pub fn add(sums: &mut Outcomes, more: &Outcomes) {
    for (sum, n) in sums.iter_mut().zip(more) {
        *sum += n;
    }
}

/// Counts by outcome under their names, without those that are 0.
pub fn named(outcomes: &Outcomes) -> BTreeMap<&'static str, u64> {
    let pairs = Outcome::ALL.into_iter().map(|o| (o.name(), outcomes[o as usize]));
    pairs.filter(|(_, n)| *n > 0).collect()
}
