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

/// Blocks of buckets, one for each doubling: those in which nothing was counted take no memory.
const BLOCKS: usize = (place(LONGEST_NS) >> HALF_BITS) + 1;
const BLOCK: usize = 1 << HALF_BITS;

/// Counts of times in nanoseconds, in buckets at most 0.8 % wide. Takes no memory until the first time is counted.
#[derive(Clone, Debug, Default)]
pub struct Times(Option<Box<Counts>>);

/// As wide as the total: a long level may put more requests into one bucket than 32 bits can count.
type Block = [u64; BLOCK];

#[derive(Clone, Debug)]
struct Counts {
    total: u64,
    blocks: [Option<Box<Block>>; BLOCKS],
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

/// Number of the bucket of a time: negative ones count as 0, ones beyond 2 h as 2 h.
#[inline]
pub fn place_of(ns: i64) -> u16 {
    place((ns.max(0) as u64).min(LONGEST_NS)) as u16
}

/// The bucket of this number with a count.
pub fn bucket_at(place: u16, count: u64) -> Bucket {
    let (low, high) = bounds(place.into());
    Bucket(low, high, count)
}

impl Times {
    /// Count one time; negative ones count as 0, ones beyond 2 h as 2 h.
    #[inline]
    pub fn record(&mut self, ns: i64) {
        self.record_place(place_of(ns));
    }

    /// Count one time by the number of its bucket.
    #[inline]
    pub fn record_place(&mut self, place: u16) {
        let counts = self.0.get_or_insert_default();
        counts.total += 1;
        counts.add(place);
    }

    /// Count many times: what they have in common is done once.
    #[inline]
    pub fn record_all(&mut self, times: impl Iterator<Item = i64>) {
        self.record_places(times.map(place_of));
    }

    /// Count many times by the numbers of their buckets.
    #[inline]
    pub fn record_places(&mut self, places: impl Iterator<Item = u16>) {
        let mut places = places.peekable();
        if places.peek().is_none() {
            return;
        }
        let counts = self.0.get_or_insert_default();
        let mut n = 0;
        for place in places {
            counts.add(place);
            n += 1;
        }
        counts.total += n;
    }

    /// Add the counts of another; exact, in any order.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, None) => {}
            (mine @ None, theirs) => mine.clone_from(theirs),
            (Some(mine), Some(theirs)) => {
                mine.total += theirs.total;
                for (mine, theirs) in mine.blocks.iter_mut().zip(&theirs.blocks) {
                    match (mine, theirs) {
                        (_, None) => {}
                        (mine @ None, theirs) => mine.clone_from(theirs),
                        (Some(mine), Some(theirs)) => {
                            for (sum, count) in mine.iter_mut().zip(theirs.iter()) {
                                *sum += count;
                            }
                        }
                    }
                }
            }
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.total)
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        let blocks = |counts: &Counts| counts.blocks.iter().flatten().count() * size_of::<Block>();
        self.0.as_ref().map_or(0, |counts| size_of::<Counts>() + blocks(counts))
    }

    /// The times below which the shares `qs` lie, each the middle of its bucket; none without counts.
    pub fn quantiles_ns<const N: usize>(&self, qs: [f64; N]) -> [Option<i64>; N] {
        qs.map(|q| self.0.as_ref().and_then(|counts| counts.quantile_ns(q)))
    }

    /// Number and count of each bucket that is not empty, in order.
    pub fn places(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let blocks = self.0.iter().flat_map(|counts| counts.blocks.iter().enumerate());
        let filled = blocks.filter_map(|(at, block)| block.as_ref().map(|block| (at << HALF_BITS, block)));
        filled.flat_map(|(first, block)| {
            let all = block.iter().enumerate().filter(|(_, count)| **count > 0);
            all.map(move |(at, count)| ((first + at) as u16, *count))
        })
    }

    /// The non-empty buckets in order.
    pub fn buckets(&self) -> Vec<Bucket> {
        self.places().map(|(place, count)| bucket_at(place, count)).collect()
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self { total: 0, blocks: [const { None }; BLOCKS] }
    }
}

#[cold]
fn empty_block() -> Box<Block> {
    Box::new([0; BLOCK])
}

impl Counts {
    #[inline]
    fn add(&mut self, place: u16) {
        let at = usize::from(place);
        let block = self.blocks[(at >> HALF_BITS).min(BLOCKS - 1)].get_or_insert_with(empty_block);
        block[at & (BLOCK - 1)] += 1;
    }

    fn quantile_ns(&self, q: f64) -> Option<i64> {
        let wanted = ((q * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, block) in self.blocks.iter().enumerate() {
            let Some(block) = block else { continue };
            let sum: u64 = block.iter().sum();
            if seen + sum < wanted {
                seen += sum;
                continue;
            }
            let inside = block.iter().position(|count| {
                seen += *count;
                seen >= wanted
            })?;
            let (low, high) = bounds((at << HALF_BITS) + inside);
            return Some((low + (high - low).div_ceil(2)) as i64);
        }
        None
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
    fn more_requests_than_32_bits_can_count_stay_exact_and_add_up() {
        let (mut many, mut quick) = (Times::default(), Times::default());
        many.record(5_000_000);
        quick.record(1_000);
        for _ in 0..33 {
            many.merge(&many.clone());
        }
        many.merge(&quick);
        many.record(5_000_000);
        let counts: Vec<u64> = many.buckets().iter().map(|b| b.2).collect();
        assert_eq!((counts, many.count()), (vec![1, (1 << 33) + 1], (1 << 33) + 2));
        let [least, median] = many.quantiles_ns([0.0, 0.5]).map(|q| q.unwrap() as f64);
        assert!((least / 1e3 - 1.0).abs() < 0.3 && (median / 5e6 - 1.0).abs() < 0.008, "{least} {median}");
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
        assert_eq!(t.buckets(), [Bucket(0, 511, 1), bucket_at(place_of(i64::MAX), 1)]);
        assert!(t.buckets()[1].1 >= LONGEST_NS && Times::default().buckets().is_empty());
    }
}
