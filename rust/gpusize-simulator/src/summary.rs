//! Rows summed up: rates over the window, and quantiles over the counted requests.

use std::collections::BTreeMap;

use serde::Serialize;

use super::result::NEVER;
use super::{Columns, Judged, Outcome, Scaling, seconds};

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
        let last = values.len().checked_sub(1)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let max = values.iter().copied().max_by(f64::total_cmp)?;
        // From above to below, so that each looks only at what the one before has left.
        let mut rest = values.as_mut_slice();
        let [p99, p95, p90, p50] = [0.99, 0.95, 0.9, 0.5].map(|share: f64| {
            let position = share * last as f64;
            let place = position.floor() as usize;
            let (_, &mut below, above) = rest.select_nth_unstable_by(place, f64::total_cmp);
            let least = (0..above.len()).min_by(|&a, &b| above[a].total_cmp(&above[b]));
            let next = least.map_or(below, |least| above[least]);
            // Where the next quantile has the same place, it wants the value above it too.
            if let Some(least) = least {
                above.swap(0, least);
            }
            rest = &mut std::mem::take(&mut rest)[..=(place + 1).min(last)];
            below + (next - below) * position.fract()
        });
        Some(Self { mean, p50, p90, p95, p99, max })
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
    /// Time in which removed GPUs were there to finish what they had, of all together, over the whole run.
    pub draining_s: f64,
    /// Mean sequences per iteration, over the whole run.
    pub mean_batch: f64,
    /// Iterations of all GPUs, over the whole run.
    pub iterations: u64,
    /// Tokens made by all GPUs, over the whole run.
    pub tokens: u64,
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

/// What the driver knows beside the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Totals {
    pub gpus: u32,
    pub open_ns: i64,
    pub close_ns: i64,
    /// Time of all GPUs in which they were there.
    pub up_ns: i64,
    /// Of that, time in which removed GPUs finished what they had.
    pub draining_ns: i64,
    pub busy_ns: i64,
    pub iterations: u64,
    pub tokens: u64,
    /// When the load was ended although requests that count were under way.
    pub cut_ns: Option<i64>,
}

impl Totals {
    pub(super) fn window_s(&self) -> f64 {
        seconds((self.close_ns - self.open_ns).max(1))
    }

    pub(super) fn busy_share(&self) -> f64 {
        self.busy_ns as f64 / self.up_ns.max(1) as f64
    }

    pub(super) fn mean_batch(&self) -> f64 {
        self.tokens as f64 / self.iterations.max(1) as f64
    }
}

pub(super) fn summarize(columns: &Columns, totals: &Totals) -> Summary {
    let counted = || (0..columns.len()).filter(|&row| !columns.warmup[row]);
    let ok = || counted().filter(|&row| columns.outcome[row] == Outcome::Ok);
    let mut outcomes = BTreeMap::new();
    for row in counted() {
        *outcomes.entry(columns.outcome[row]).or_default() += 1;
    }
    let window_s = totals.window_s();
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

fn itl_mean_s(columns: &Columns, row: usize) -> Option<f64> {
    let had_first = columns.first_token_ns[row] != NEVER;
    let gaps = columns.tokens_out[row].checked_sub(1).filter(|&gaps| gaps > 0 && had_first)?;
    Some(seconds(columns.end_ns[row] - columns.first_token_ns[row]) / f64::from(gaps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpusize_base::draw::Draw;

    #[test]
    fn quantiles_interpolate_as_numpy_does() {
        let quantiles = Quantiles::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert!((quantiles.p50 - 2.5).abs() < 1e-12);
        assert!((quantiles.p90 - 3.7).abs() < 1e-12);
        assert!((quantiles.p95 - 3.85).abs() < 1e-12);
        assert!((quantiles.mean - 2.5).abs() < 1e-12 && (quantiles.max - 4.0).abs() < 1e-12);
        assert_eq!(Quantiles::of(Vec::new()), None);
        // Against sorting all of them, with a few that are equal.
        for count in [1, 2, 3, 10, 11, 20, 97, 1000] {
            let lots = Draw::new(count, 0, 0);
            let values: Vec<f64> = (0..count).map(|seq| (lots.unit(seq) * 300.0).round()).collect();
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let at = |share: f64| {
                let position = share * (count - 1) as f64;
                let below = sorted[position.floor() as usize];
                below + (sorted[position.ceil() as usize] - below) * position.fract()
            };
            let quantiles = Quantiles::of(values).unwrap();
            let found = [quantiles.p50, quantiles.p90, quantiles.p95, quantiles.p99, quantiles.max];
            for (found, share) in found.into_iter().zip([0.5, 0.9, 0.95, 0.99, 1.0]) {
                assert!((found - at(share)).abs() < 1e-9, "{share} of {count}: {found} against {}", at(share));
            }
        }
    }
}
