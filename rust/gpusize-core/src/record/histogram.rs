//! Mergeable histograms of times: the live view, gaps between tokens, and merging over workers and hosts rest on them.

use hdrhistogram::Histogram;
use serde::Serialize;

/// A microsecond is 1/1000 of the shortest runtime of interest; three digits hold it at any scale.
const DIGITS: u8 = 3;
/// 2 h: longer than any timeout that makes sense.
const LONGEST_NS: u64 = 7_200_000_000_000;

/// Counts of times in nanoseconds, three significant digits.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u32>);

impl Default for Times {
    fn default() -> Self {
        // Lowest discernible value 1 us: times below it are noise of the clock and of wake-ups.
        Self(Histogram::new_with_bounds(1_000, LONGEST_NS, DIGITS).unwrap_or_else(|_| unreachable_histogram()))
    }
}

/// `Histogram::new_with_bounds` fails only for bounds that are not in order; these are constants.
fn unreachable_histogram() -> Histogram<u32> {
    Histogram::new(DIGITS).unwrap_or_else(|e| unreachable!("constant histogram bounds: {e}"))
}

/// One bucket: `(low_ns, high_ns, count)`, bounds inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket(pub u64, pub u64, pub u64);

impl Times {
    /// Count one time; negative ones count as 0, ones beyond 2 h as 2 h.
    pub fn record(&mut self, ns: i64) {
        self.0.saturating_record(u64::try_from(ns).unwrap_or(0));
    }

    /// Add the counts of another; exact, in any order.
    pub fn merge(&mut self, other: &Self) {
        // Same bounds on both sides, so adding cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time below which the share `q` lies, or none without counts.
    pub fn quantile_ns(&self, q: f64) -> Option<i64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(q) as i64)
    }

    /// Forget all counts.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The non-empty buckets in order.
    pub fn buckets(&self) -> Vec<Bucket> {
        self.0
            .iter_recorded()
            .map(|v| {
                let high = v.value_iterated_to();
                Bucket(self.0.lowest_equivalent(high), high, v.count_at_value().into())
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
            if i % 3 == 0 { a.record(ns) } else { b.record(ns) }
            all.record(ns);
        }
        a.merge(&b);
        assert_eq!(a.buckets(), all.buckets());
        assert_eq!(a.count(), 10_000);
        let p50 = all.quantile_ns(0.5).unwrap() as f64;
        assert!((p50 / (4_999.5_f64.powi(2) * 1_000.0) - 1.0).abs() < 0.002, "{p50}");
    }

    #[test]
    fn odd_times_stay_inside() {
        let mut t = Times::default();
        assert_eq!(t.quantile_ns(0.5), None);
        t.record(-5);
        t.record(i64::MAX);
        assert_eq!(t.count(), 2);
        t.clear();
        assert!(t.buckets().is_empty());
    }
}
