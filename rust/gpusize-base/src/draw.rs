//! Counter-based random draws: a draw is a pure function of (seed, stream, purpose, seq), so it depends on no order and no worker count.
//!
//! The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

const ROUNDS: u32 = 10;
const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Six Feistel rounds: four suffice for a pseudo-random permutation, two more cover very small domains.
const FEISTEL_ROUNDS: u64 = 6;
/// Keeps the counters of `permute` apart from those of plain draws.
const PERMUTE_TAG: u64 = 1 << 63;

/// The draws of one purpose in one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    key: [u32; 2],
}

/// What a gamma distribution's draws need, worked out once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gamma {
    shape: f64,
    centre: f64,
    width: f64,
    /// Power of a uniform draw that takes a draw of `shape + 1` down to `shape`.
    boost: Option<f64>,
}

impl Gamma {
    /// Of a positive shape.
    pub fn new(shape: f64) -> Self {
        let boosted = shape < 1.0;
        let centre = shape + f64::from(u8::from(boosted)) - 1.0 / 3.0;
        Self { shape, centre, width: 1.0 / (9.0 * centre).sqrt(), boost: boosted.then(|| 1.0 / shape) }
    }
}

impl Draw {
    /// Draws for `purpose` (arrivals, lengths, ...) of `stream` under `seed`; all 192 bits count.
    pub fn new(seed: u64, stream: u64, purpose: u64) -> Self {
        let [key, _] = Self { key: split(seed) }.block(stream, purpose);
        Self { key: split(key) }
    }

    /// 64 uniform bits.
    #[inline]
    pub fn u64(self, seq: u64) -> u64 {
        self.block(seq, 0)[0]
    }

    /// Uniform in `[0, 1)`, with 53 bits.
    #[inline]
    pub fn unit(self, seq: u64) -> f64 {
        to_unit(self.u64(seq))
    }

    /// Exponential with mean 1.
    pub fn exp(self, seq: u64) -> f64 {
        -(-self.unit(seq)).ln_1p()
    }

    /// Normal with mean 0 and standard deviation 1 (Box and Muller).
    pub fn normal(self, seq: u64) -> f64 {
        let [radius, angle] = self.block(seq, 0);
        normal_of(radius, angle)
    }

    /// Gamma of this shape, divided by it, so that the mean is 1.
    ///
    /// G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26 (2000); shapes below 1 by
    /// its section 6. Attempt j takes the blocks 2j + 1 and 2j + 2 of `seq`, so a draw that needs several stays a function
    /// of `seq`.
    pub fn gamma(self, seq: u64, gamma: &Gamma) -> f64 {
        for attempt in 0.. {
            let [radius, angle] = self.block(seq, 2 * attempt + 1);
            let [accept, boost] = self.block(seq, 2 * attempt + 2);
            let normal = normal_of(radius, angle);
            let root = 1.0 + gamma.width * normal;
            let cube = root * root * root;
            let accept = 1.0 - to_unit(accept);
            let square = normal * normal;
            let taken = root > 0.0
                && (accept < 1.0 - 0.0331 * square * square
                    || accept.ln() < 0.5 * square + gamma.centre * (1.0 - cube + cube.ln()));
            if taken {
                let boost = gamma.boost.map_or(1.0, |power| (1.0 - to_unit(boost)).powf(power));
                return gamma.centre * cube * boost / gamma.shape;
            }
        }
        unreachable!("each attempt is taken with a probability above 0.9")
    }

    /// Where `index` lands in pass `epoch` of a pseudo-random permutation of `0..n`; `index` must be below `n`.
    ///
    /// A keyed Feistel network over the next even power of two, walked until it is back below `n`: constant memory, at most
    /// four steps on average.
    pub fn permute(self, n: u64, epoch: u64, index: u64) -> u64 {
        debug_assert!(index < n, "index {index} is outside a permutation of {n}");
        if n <= 1 {
            return 0;
        }
        let half_bits = (64 - (n - 1).leading_zeros()).div_ceil(2);
        let mask = (1_u64 << half_bits) - 1;
        let mut value = index;
        loop {
            let (mut left, mut right) = (value >> half_bits, value & mask);
            for round in 0..FEISTEL_ROUNDS {
                let [bits, _] = self.block(right | (round << 32), epoch | PERMUTE_TAG);
                (left, right) = (right, left ^ (bits & mask));
            }
            value = (left << half_bits) | right;
            if value < n {
                return value;
            }
        }
    }

    fn block(self, low: u64, high: u64) -> [u64; 2] {
        let ([c0, c1], [c2, c3]) = (split(low), split(high));
        let [w0, w1, w2, w3] = philox([c0, c1, c2, c3], self.key);
        [join(w0, w1), join(w2, w3)]
    }
}

fn normal_of(radius: u64, angle: u64) -> f64 {
    let radius = (-2.0 * (-to_unit(radius)).ln_1p()).sqrt();
    radius * (std::f64::consts::TAU * to_unit(angle)).cos()
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let left = MULTIPLIERS[0] * u64::from(counter[0]);
        let right = MULTIPLIERS[1] * u64::from(counter[2]);
        let (left, right) = (split(left), split(right));
        counter = [right[1] ^ counter[1] ^ key[0], right[0], left[1] ^ counter[3] ^ key[1], left[0]];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn split(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

fn to_unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        // The known answers that Random123 ships for philox4x32, 10 rounds.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let base = Draw::new(1, 2, 3).u64(4);
        for other in [Draw::new(2, 2, 3), Draw::new(1, 3, 3), Draw::new(1, 2, 4), Draw::new(1 << 40, 2, 3)] {
            assert_ne!(base, other.u64(4));
        }
        assert_ne!(base, Draw::new(1, 2, 3).u64(5));
        assert_eq!(base, Draw::new(1, 2, 3).u64(4));
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let draw = Draw::new(7, 0, 0);
        let count = 200_000_u32;
        let mean = |f: &dyn Fn(u64) -> f64| (0..u64::from(count)).map(f).sum::<f64>() / f64::from(count);
        assert!((mean(&|i| draw.unit(i)) - 0.5).abs() < 0.004);
        assert!((mean(&|i| draw.exp(i)) - 1.0).abs() < 0.012);
        assert!(mean(&|i| draw.normal(i)).abs() < 0.012);
        assert!((mean(&|i| draw.normal(i).powi(2)) - 1.0).abs() < 0.02);
        assert!((0..u64::from(count)).all(|i| draw.exp(i).is_finite() && draw.normal(i).is_finite()));
    }

    #[test]
    fn gamma_has_the_moments_of_its_shape() {
        let draw = Draw::new(3, 1, 2);
        let count = 200_000_u32;
        for shape in [0.1, 0.5, 1.0, 2.5, 30.0] {
            let gamma = Gamma::new(shape);
            let mean = |power| {
                (0..u64::from(count)).map(|i| draw.gamma(i, &gamma).powi(power)).sum::<f64>() / f64::from(count)
            };
            // Four standard errors: the variance of a draw is 1 / shape, of its square (4 + 10 / shape + 6 / shape^2) / shape.
            let error = |variance: f64| 4.0 * (variance / f64::from(count)).sqrt();
            assert!((mean(1) - 1.0).abs() < error(1.0 / shape), "{shape}: {}", mean(1));
            let square = (4.0 + 10.0 / shape + 6.0 / (shape * shape)) / shape;
            assert!((mean(2) - 1.0 - 1.0 / shape).abs() < error(square), "{shape}: {}", mean(2));
        }
    }

    #[test]
    fn permute_is_a_permutation_that_changes_with_the_epoch() {
        let draw = Draw::new(11, 0, 5);
        for n in [1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097] {
            let mut seen: Vec<u64> = (0..n).map(|i| draw.permute(n, 0, i)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>(), "n = {n}");
        }
        let order = |epoch| (0..100).map(|i| draw.permute(100, epoch, i)).collect::<Vec<_>>();
        assert_ne!(order(0), order(1));
        assert_ne!(order(0), (0..100).collect::<Vec<_>>());
    }
}
