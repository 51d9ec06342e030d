//! A summary without rows: sums, and histograms whose bins are a thousandth wide.

use hdrhistogram::Histogram;

use super::ledger::Request;
use super::result::NEVER;
use super::summary::Totals;
use super::{NS_PER_S, Outcome, Quantiles, Summary, rounded, seconds};

/// Significant digits of the histograms.
const DIGITS: u8 = 3;
/// Thirty years; whatever is longer counts as this.
const LONGEST_NS: u64 = 1_000_000_000_000_000_000;

/// How often values came. Half a megabyte, which costs a short run as much as its requests, so there is none without a value.
#[derive(Debug, Default)]
struct Bins(Option<Histogram<u64>>);

impl Bins {
    fn add(&mut self, value_ns: i64) {
        self.add_times(value_ns, 1);
    }

    fn add_times(&mut self, value_ns: i64, times: u64) {
        self.histogram().saturating_record_n(u64::try_from(value_ns).unwrap_or(0), times);
    }

    fn histogram(&mut self) -> &mut Histogram<u64> {
        self.0.get_or_insert_with(|| Histogram::new_with_max(LONGEST_NS, DIGITS).expect("a histogram of three digits"))
    }

    fn merge(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            self.histogram().add(other).expect("bins of the same kind");
        }
    }
}

/// One metric of all requests.
#[derive(Debug, Default)]
struct Spread {
    bins: Bins,
    sum_s: f64,
    max_s: f64,
}

impl Spread {
    fn add(&mut self, value_s: f64) {
        self.bins.add(rounded(value_s * NS_PER_S));
        self.sum(value_s);
    }

    /// What the bins are told in another way.
    fn sum(&mut self, value_s: f64) {
        self.sum_s += value_s;
        self.max_s = self.max_s.max(value_s);
    }

    fn quantiles(&self) -> Option<Quantiles> {
        let bins = self.bins.0.as_ref()?;
        let count = bins.len();
        let at = |share| {
            let value = bins.value_at_quantile(share);
            (bins.median_equivalent(value) as f64 / NS_PER_S).min(self.max_s)
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
    /// By their numbers.
    outcomes: [u64; Outcome::COUNT],
    /// Within the window, without the latest.
    answered: Answers,
    latest: Answers,
    sent_in_window: u64,
    in_window_s: f64,
    runtime: Spread,
    ttft: Spread,
    waiting: Spread,
    service: Spread,
    /// Runtimes of those that were sent when they were due, which are times of service too: most, and written down once.
    direct: Bins,
    unwaited: u64,
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
        self.outcomes[request.outcome as usize] += 1;
        let waited_ns = request.sent_ns - request.due_ns;
        if is_sent {
            self.sent += 1;
            if waited_ns == 0 {
                self.unwaited += 1;
            } else {
                self.waiting.add(seconds(waited_ns));
            }
        }
        if ok {
            let (runtime_ns, service_ns) = (end_ns - request.due_ns, end_ns - request.sent_ns);
            self.runtime.sum(seconds(runtime_ns));
            self.service.sum(seconds(service_ns));
            if waited_ns == 0 {
                self.direct.add(runtime_ns);
            } else {
                self.runtime.bins.add(runtime_ns);
                self.service.bins.add(service_ns);
            }
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
        let (runtime_s, service_s) = if self.service.bins.0.is_none() {
            self.runtime.bins = self.direct;
            let direct_s = self.runtime.quantiles();
            (direct_s, direct_s)
        } else {
            self.runtime.bins.merge(&self.direct);
            self.service.bins.merge(&self.direct);
            (self.runtime.quantiles(), self.service.quantiles())
        };
        let waiting_s = if self.waiting.bins.0.is_none() {
            (self.unwaited > 0).then_some(Quantiles { mean: 0.0, p50: 0.0, p90: 0.0, p95: 0.0, p99: 0.0, max: 0.0 })
        } else {
            self.waiting.bins.add_times(0, self.unwaited);
            self.waiting.quantiles()
        };
        let window_s = totals.window_s();
        let outcomes = Outcome::ALL.map(|outcome| (outcome, self.outcomes[outcome as usize]));
        Summary {
            gpus: totals.gpus,
            requests: self.requests,
            sent: self.sent,
            outcomes: outcomes.into_iter().filter(|(_, count)| *count > 0).collect(),
            window_s,
            rate_per_s: self.answered.count as f64 / window_s,
            sent_rate_per_s: self.sent_in_window as f64 / window_s,
            tokens_per_s: self.answered.tokens as f64 / window_s,
            in_flight: self.in_window_s / window_s,
            runtime_s,
            ttft_s: self.ttft.quantiles(),
            waiting_s,
            service_s,
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
