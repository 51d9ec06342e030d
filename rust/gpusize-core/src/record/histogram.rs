//! Mergeable histograms of times: the live view, gaps between tokens, and merging over workers and hosts rest on them.
//!
//! The layout is `HdrHistogram`'s: linear buckets below a bound, then for each power of two the same number of them. It is
//! written out here because counting a time is a part of every request and of every event of a stream.

use serde::Serialize;

/// Times are told apart in steps of 2^9 ns: those below a microsecond are noise of the clock and of wake-ups.
const UNIT_BITS: u32 = 9;
/// Each power of two has 2^7 buckets, so that none is more than 0.8 % wide: percentiles that matter come from the rows, and
/// ten times more buckets would have to be copied each time that somebody looks.
const HALF_BITS: u32 = 7;
/// The linear part ends where the bits of a step and of twice the buckets end.
const LINEAR_BITS: u32 = UNIT_BITS + HALF_BITS + 1;
/// 2 h: longer than any timeout that makes sense.
const LONGEST_NS: u64 = 7_200_000_000_000;

/// Counts of times in nanoseconds, in buckets at most 0.8 % wide. Takes no memory until the first time is counted.
#[derive(Clone, Debug, Default)]
pub struct Times(Option<Counts>);

/// The buckets up to the last one that was needed: those who look get a copy, ten times a second.
#[derive(Clone, Debug, Default)]
struct Counts {
    total: u64,
    buckets: Vec<u32>,
}

/// One bucket: `(low_ns, high_ns, count)`, bounds inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket(pub u64, pub u64, pub u64);

/// How far a time is doubled from the linear part.
const fn doublings(ns: u64) -> u32 {
    (64 - LINEAR_BITS) - (ns | ((1 << LINEAR_BITS) - 1)).leading_zeros()
}

/// The bucket of a time.
const fn place(ns: u64) -> usize {
    let doublings = doublings(ns);
    ((doublings as usize) << HALF_BITS) + (ns >> (doublings + UNIT_BITS)) as usize
}

/// First and last time of a bucket.
const fn bounds(place: usize) -> (u64, u64) {
    let doublings = (place >> HALF_BITS).saturating_sub(1);
    let low = ((place - (doublings << HALF_BITS)) as u64) << (doublings + UNIT_BITS as usize);
    (low, low + (1 << (doublings + UNIT_BITS as usize)) - 1)
}

impl Times {
    /// Count one time; negative ones count as 0, ones beyond 2 h as 2 h.
    #[inline]
    pub fn record(&mut self, ns: i64) {
        let counts = self.0.get_or_insert_default();
        counts.total += 1;
        let place = place((ns.max(0) as u64).min(LONGEST_NS));
        match counts.buckets.get_mut(place) {
            Some(count) => *count = count.saturating_add(1),
            None => counts.add_bucket(place),
        }
    }

    /// Add the counts of another; exact, in any order.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (mine @ None, theirs) => mine.clone_from(theirs),
            (Some(mine), Some(theirs)) => {
                mine.total += theirs.total;
                mine.buckets.resize(mine.buckets.len().max(theirs.buckets.len()), 0);
                for (sum, count) in mine.buckets.iter_mut().zip(theirs.buckets.iter()) {
                    *sum = sum.saturating_add(*count);
                }
            }
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.total)
    }

    /// The times below which the shares `qs` lie, each the middle of its bucket; none without counts.
    pub fn quantiles_ns<const N: usize>(&self, qs: [f64; N]) -> [Option<i64>; N] {
        qs.map(|q| self.0.as_ref().and_then(|counts| counts.quantile_ns(q)))
    }

    /// The non-empty buckets in order.
    pub fn buckets(&self) -> Vec<Bucket> {
        let Some(counts) = &self.0 else { return Vec::new() };
        let all = counts.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        all.map(|(place, count)| {
            let (low, high) = bounds(place);
            Bucket(low, high, (*count).into())
        })
        .collect()
    }
}

impl Counts {
    #[cold]
    fn add_bucket(&mut self, place: usize) {
        self.buckets.resize(place + 1, 0);
        self.buckets[place] = 1;
    }

    fn quantile_ns(&self, q: f64) -> Option<i64> {
        let wanted = ((q * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let mut place = 0;
        // In large steps first: somebody looks ten times a second.
        for step in self.buckets.chunks(64) {
            let sum: u64 = step.iter().copied().map(u64::from).sum();
            if seen + sum >= wanted {
                break;
            }
            seen += sum;
            place += step.len();
        }
        place += self.buckets[place..].iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        })?;
        let (low, high) = bounds(place);
        Some((low + (high - low).div_ceil(2)) as i64)
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
    fn the_buckets_are_those_of_hdrhistogram() {
        let theirs = hdrhistogram::Histogram::<u32>::new_with_bounds(1_000, LONGEST_NS, 2).unwrap();
        let times = (0..2_000).map(|i| i * 97).chain((0..43).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power - 1, power, power + 1, power + power / 3]
        }));
        for ns in times.chain([LONGEST_NS]).filter(|ns| *ns <= LONGEST_NS) {
            let mut mine = Times::default();
            mine.record(ns as i64);
            let (low, high) = (theirs.lowest_equivalent(ns), theirs.highest_equivalent(ns));
            assert_eq!(mine.buckets(), [Bucket(low, high, 1)], "{ns}");
            assert_eq!(mine.quantiles_ns([0.0, 1.0]), [Some(theirs.median_equivalent(ns) as i64); 2], "{ns}");
        }
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
