//! Mergeable histograms of times: the live view, gaps between tokens, and merging over workers and hosts rest on them.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Buckets at most 0.8 % wide: percentiles that matter come from the rows, and ten times more buckets would have to be
/// copied each time that somebody looks.
const DIGITS: u8 = 2;
/// 2 h: longer than any timeout that makes sense.
const LONGEST_NS: u64 = 7_200_000_000_000;

/// Counts of times in nanoseconds, in buckets at most 0.8 % wide.
#[derive(Clone, Debug)]
pub struct Times(Option<Histogram<u32>>);

impl Default for Times {
    /// Takes no memory until the first time is counted.
    fn default() -> Self {
        Self(None)
    }
}

fn empty() -> Histogram<u32> {
    // Lowest discernible value 1 us: times below it are noise of the clock and of wake-ups.
    Histogram::new_with_bounds(1_000, LONGEST_NS, DIGITS)
        .unwrap_or_else(|e| unreachable!("the bounds are constants and in order: {e}"))
}

/// One bucket: `(low_ns, high_ns, count)`, bounds inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket(pub u64, pub u64, pub u64);

impl Times {
    /// Count one time; negative ones count as 0, ones beyond 2 h as 2 h.
    pub fn record(&mut self, ns: i64) {
        self.0.get_or_insert_with(empty).saturating_record(u64::try_from(ns).unwrap_or(0));
    }

    /// Add the counts of another; exact, in any order.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (mine @ None, theirs) => mine.clone_from(theirs),
            // Same bounds on both sides, so adding cannot fail.
            (Some(mine), Some(theirs)) => drop(mine.add(theirs)),
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// The times below which the shares `qs` lie, none without counts.
    pub fn quantiles_ns<const N: usize>(&self, qs: [f64; N]) -> [Option<i64>; N] {
        qs.map(|q| self.0.as_ref().map(|h| h.median_equivalent(h.value_at_quantile(q)) as i64))
    }

    /// The non-empty buckets in order.
    pub fn buckets(&self) -> Vec<Bucket> {
        let Some(counts) = &self.0 else { return Vec::new() };
        counts
            .iter_recorded()
            .map(|v| {
                let high = v.value_iterated_to();
                Bucket(counts.lowest_equivalent(high), high, v.count_at_value().into())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_gives_the_counts_of_all() {
        let (mut a, mut b, mut all) = (Times::default(), Times::default(), Times::default());
        for i in 0..10_000_i64 {
            let ns = i * i * 1_000;
            if i % 3 == 0 {
                a.record(ns);
            } else {
                b.record(ns);
            }
            all.record(ns);
        }
        a.merge(&b);
        assert_eq!(a.buckets(), all.buckets());
        assert_eq!(a.count(), 10_000);
        let p50 = all.quantiles_ns([0.5])[0].unwrap() as f64;
        assert!((p50 / (4_999.5_f64.powi(2) * 1_000.0) - 1.0).abs() < 0.005, "{p50}");
    }

    #[test]
    fn odd_times_stay_inside() {
        let mut t = Times::default();
        assert_eq!(t.quantiles_ns([0.5]), [None]);
        t.record(-5);
        t.record(i64::MAX);
        assert_eq!(t.count(), 2);
        assert!(Times::default().buckets().is_empty());
    }
}
