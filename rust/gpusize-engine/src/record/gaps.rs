//! The gaps between the events of one request, as a digest.

use super::histogram::place_of;

/// More gaps than this are not kept; percentiles are then of the first ones, the rest is of all.
const MAX_KEPT: usize = 1 << 20;

/// Room for so many stays for the next request.
const USUAL: usize = 8_192;

/// Gaps between consecutive content events; percentiles by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// Shortest.
    pub min_ns: i64,
    /// Mean, rounded down.
    pub mean_ns: i64,
    /// Median.
    pub p50_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// Longest.
    pub max_ns: i64,
}

/// Room for the gaps of one request after another.
#[derive(Debug, Default)]
pub struct GapBuffer {
    kept: Vec<i64>,
    count: i64,
    sum_ns: i64,
    max_ns: i64,
    min_ns: i64,
}

impl GapBuffer {
    /// Ready for another request.
    pub fn reset(&mut self) {
        self.kept.clear();
        self.kept.shrink_to(USUAL);
        self.count = 0;
        self.sum_ns = 0;
    }

    /// One more gap.
    pub fn push(&mut self, gap_ns: i64) {
        if self.kept.len() < MAX_KEPT {
            self.kept.push(gap_ns);
        }
        if self.count == 0 {
            (self.min_ns, self.max_ns) = (gap_ns, gap_ns);
        } else {
            self.min_ns = self.min_ns.min(gap_ns);
            self.max_ns = self.max_ns.max(gap_ns);
        }
        self.count += 1;
        self.sum_ns += gap_ns;
    }

    /// The buckets of those that are kept.
    pub fn places(&self) -> impl Iterator<Item = u16> + '_ {
        self.kept.iter().map(|gap_ns| place_of(*gap_ns))
    }

    /// The digest, if there is a gap. Reorders what is kept.
    pub fn digest(&mut self) -> Option<Gaps> {
        let n = self.kept.len();
        if n == 0 {
            return None;
        }
        // Nearest rank: the smallest value that at least the share of all values does not exceed.
        let rank = |percent: usize| (n * percent).div_ceil(100) - 1;
        let (p50, p99) = (rank(50), rank(99));
        let p99_ns = *self.kept.select_nth_unstable(p99).1;
        let p50_ns = if p50 == p99 { p99_ns } else { *self.kept[..p99].select_nth_unstable(p50).1 };
        Some(Gaps { min_ns: self.min_ns, mean_ns: self.sum_ns / self.count, p50_ns, p99_ns, max_ns: self.max_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpusize_base::draw::Draw;

    fn naive(gaps: &[i64]) -> Gaps {
        let mut sorted = gaps.to_vec();
        sorted.sort_unstable();
        let nearest = |q: f64| sorted[((q * sorted.len() as f64).ceil() as usize).max(1) - 1];
        Gaps {
            min_ns: sorted[0],
            mean_ns: sorted.iter().sum::<i64>() / sorted.len() as i64,
            p50_ns: nearest(0.5),
            p99_ns: nearest(0.99),
            max_ns: sorted[sorted.len() - 1],
        }
    }

    #[test]
    fn the_digest_is_what_sorting_gives() {
        let mut buffer = GapBuffer::default();
        assert_eq!(buffer.digest(), None);
        let draw = Draw::new(7, 0, 0);
        for n in (1..130).chain([199, 200, 201, 1_000, 9_999]) {
            let gaps: Vec<i64> = (0..n).map(|i| (draw.u64(n * 10_000 + i) % (n * 2)) as i64).collect();
            buffer.reset();
            for gap in &gaps {
                buffer.push(*gap);
            }
            assert_eq!(buffer.digest(), Some(naive(&gaps)), "{n} gaps");
        }
    }

    #[test]
    fn what_is_not_kept_still_counts_in_mean_and_extremes() {
        let mut buffer = GapBuffer::default();
        (0..MAX_KEPT).for_each(|_| buffer.push(10));
        (0..MAX_KEPT).for_each(|_| buffer.push(20));
        buffer.push(1);
        let digest = buffer.digest().unwrap();
        assert_eq!((digest.min_ns, digest.mean_ns, digest.max_ns), (1, 14, 20));
        assert_eq!((digest.p50_ns, digest.p99_ns), (10, 10));
        assert_eq!(buffer.kept.len(), MAX_KEPT);
    }
}
