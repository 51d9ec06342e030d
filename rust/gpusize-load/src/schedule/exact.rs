//! Sums and products to about 32 digits, as pairs of doubles: a day at 10^6/s has more arrivals than one double can count to
//! a fraction of a microsecond.
//!
//! T. J. Dekker, "A floating-point technique for extending the available precision", Numerische Mathematik 18 (1971).

/// The unevaluated sum of two doubles, the second at most half a unit in the last place of the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exact {
    high: f64,
    low: f64,
}

impl From<f64> for Exact {
    fn from(value: f64) -> Self {
        Self { high: value, low: 0.0 }
    }
}

impl Exact {
    /// The sum of two doubles.
    pub fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let rest = high - a;
        Self { high, low: (a - (high - rest)) + (b - rest) }
    }

    pub fn value(self) -> f64 {
        self.high
    }

    pub fn plus(self, other: Self) -> Self {
        let sum = Self::sum(self.high, other.high);
        Self::sum(sum.high, sum.low + self.low + other.low)
    }

    pub fn times(self, by: f64) -> Self {
        let high = self.high * by;
        Self::sum(high, self.high.mul_add(by, -high) + self.low * by)
    }

    pub fn over(self, by: f64) -> Self {
        let high = self.high / by;
        Self::sum(high, ((-high).mul_add(by, self.high) + self.low) / by)
    }

    /// The difference, as one double; the larger where both are infinite.
    pub fn minus(self, other: Self) -> f64 {
        (self.high - other.high) + (self.low - other.low)
    }

    /// What is left of it after `other`, or nothing.
    pub fn minus_clamped(self, other: Self) -> Self {
        let left = self.plus(other.times(-1.0));
        if left.high > 0.0 { left } else { Self::default() }
    }
}
