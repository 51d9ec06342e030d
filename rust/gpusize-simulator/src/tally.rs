//! A summary without rows: sums, and histograms whose bins are a thousandth wide.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::ledger::Request;
use super::result::NEVER;
use super::summary::Totals;
use super::{NS_PER_S, Outcome, Quantiles, Summary, rounded, seconds};

/// Significant digits of the histograms.
const DIGITS: u8 = 3;
/// Thirty years; whatever is longer counts as this.
const LONGEST_NS: u64 = 1_000_000_000_000_000_000;

/// One metric of all requests.
#[derive(Debug)]
struct Spread {
    bins: Histogram<u64>,
    sum_s: f64,
    max_s: f64,
}

impl Default for Spread {
    fn default() -> Self {
        let bins = Histogram::new_with_max(LONGEST_NS, DIGITS).expect("a histogram of three digits");
        Self { bins, sum_s: 0.0, max_s: 0.0 }
    }
}

impl Spread {
    fn add(&mut self, value_s: f64) {
        self.bins.saturating_record(u64::try_from(rounded(value_s * NS_PER_S)).unwrap_or(0));
        self.sum_s += value_s;
        self.max_s = self.max_s.max(value_s);
    }

    fn quantiles(&self) -> Option<Quantiles> {
        let count = self.bins.len();
        if count == 0 {
            return None;
        }
        let at = |share| {
            let value = self.bins.value_at_quantile(share);
            (self.bins.median_equivalent(value) as f64 / NS_PER_S).min(self.max_s)
        };
        Some(Quantiles {
            mean: self.sum_s / count as f64,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: self.max_s,
        })
    }
}

/// Answers up to some moment, or of that moment.
#[derive(Debug, Clone, Copy, Default)]
struct Answers {
    at_ns: i64,
    count: u64,
    tokens: u64,
}

/// The sums.
#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: u64,
    sent: u64,
    outcomes: BTreeMap<Outcome, u64>,
    /// Within the window, without the latest.
    answered: Answers,
    latest: Answers,
    sent_in_window: u64,
    in_window_s: f64,
    runtime: Spread,
    ttft: Spread,
    waiting: Spread,
    service: Spread,
    itl_mean: Spread,
}

impl Tally {
    /// A recorded request has ended, in a window that is known as far as it matters for what has ended.
    pub(super) fn add(&mut self, request: &Request, end_ns: i64, (open_ns, close_ns): (i64, i64)) {
        let ok = request.outcome == Outcome::Ok;
        let window = open_ns..close_ns;
        if ok {
            if end_ns != self.latest.at_ns {
                self.settle(open_ns, close_ns);
                self.latest.at_ns = end_ns;
            }
            self.latest.count += 1;
            self.latest.tokens += u64::from(request.output);
        }
        let is_sent = request.sent_ns != NEVER;
        if is_sent {
            self.sent_in_window += u64::from(window.contains(&request.sent_ns));
            self.in_window_s += seconds((end_ns.min(close_ns) - request.sent_ns.max(open_ns)).max(0));
        }
        if request.warmup {
            return;
        }
        self.requests += 1;
        *self.outcomes.entry(request.outcome).or_default() += 1;
        if is_sent {
            self.sent += 1;
            self.waiting.add(seconds(request.sent_ns - request.due_ns));
        }
        if ok {
            self.runtime.add(seconds(end_ns - request.due_ns));
            self.service.add(seconds(end_ns - request.sent_ns));
            if let Some(ttft_s) = request.ttft_s() {
                self.ttft.add(ttft_s);
            }
            if let Some(itl_mean_s) = request.itl_mean_s(end_ns) {
                self.itl_mean.add(itl_mean_s);
            }
        }
    }

    /// Count the answers of the latest moment; at that very moment the window may have opened or closed behind them.
    fn settle(&mut self, open_ns: i64, close_ns: i64) {
        let latest = std::mem::take(&mut self.latest);
        if (open_ns..close_ns).contains(&latest.at_ns) {
            self.answered.count += latest.count;
            self.answered.tokens += latest.tokens;
        }
    }

    pub(super) fn summary(mut self, totals: &Totals) -> Summary {
        self.settle(totals.open_ns, totals.close_ns);
        let window_s = totals.window_s();
        Summary {
            gpus: totals.gpus,
            requests: self.requests,
            sent: self.sent,
            outcomes: self.outcomes,
            window_s,
            rate_per_s: self.answered.count as f64 / window_s,
            sent_rate_per_s: self.sent_in_window as f64 / window_s,
            tokens_per_s: self.answered.tokens as f64 / window_s,
            in_flight: self.in_window_s / window_s,
            runtime_s: self.runtime.quantiles(),
            ttft_s: self.ttft.quantiles(),
            waiting_s: self.waiting.quantiles(),
            service_s: self.service.quantiles(),
            itl_mean_s: self.itl_mean.quantiles(),
            busy_share: totals.busy_share(),
            draining_s: seconds(totals.draining_ns),
            mean_batch: totals.mean_batch(),
            iterations: totals.iterations,
            tokens: totals.tokens,
            load_cut_s: totals.cut_ns.map(seconds),
            judged: None,
            scaling: None,
        }
    }
}
