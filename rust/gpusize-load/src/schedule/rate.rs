//! A rate that changes with time, its integral, and the moment at which the integral reaches a number of arrivals.

use super::exact::Exact;
use crate::spec::{Phase, Rate};

const S: f64 = 1e9;

/// A stretch on which the rate is a straight line; the last may be `i64::MAX` long.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub start_ns: i64,
    pub duration_ns: i64,
    pub from: f64,
    to: f64,
    /// Arrivals expected before it.
    before: Exact,
    /// Arrivals expected until its end; infinite in one without end.
    end: Exact,
    /// Arrivals expected in it.
    area: f64,
}

impl Piece {
    pub fn is_flat(&self) -> bool {
        self.from.to_bits() == self.to.to_bits()
    }

    pub fn area(&self) -> f64 {
        self.area
    }

    /// How long after its start so many arrivals are expected, when `left` more follow to its end.
    pub fn after_ns(&self, into: f64, left: f64) -> i64 {
        if self.is_flat() {
            return (into * S / self.from).round() as i64;
        }
        let duration_s = self.duration_ns as f64 / S;
        let slope = (self.to - self.from) / duration_s;
        // From the nearer end, so that nothing cancels where the rate is small.
        let after_s =
            if into <= left { reach_s(into, self.from, slope) } else { duration_s - reach_s(left, self.to, -slope) };
        (after_s * S).round() as i64
    }

    /// Arrivals expected until `after_ns` after its start.
    fn until(&self, after_ns: i64) -> f64 {
        if after_ns >= self.duration_ns {
            return self.area();
        }
        let after_s = after_ns as f64 / S;
        if self.is_flat() {
            return self.from * after_s;
        }
        after_s * (self.from + 0.5 * (self.to - self.from) * (after_ns as f64 / self.duration_ns as f64))
    }
}

/// First root of `rate t + slope t^2 / 2 = arrivals`, in the form that has no difference of like numbers.
fn reach_s(arrivals: f64, rate: f64, slope: f64) -> f64 {
    if arrivals <= 0.0 {
        return 0.0;
    }
    2.0 * arrivals / (rate + (rate * rate + 2.0 * slope * arrivals).max(0.0).sqrt())
}

/// A rate as a function of time, on the stream's own clock.
#[derive(Clone, Debug)]
pub struct Curve {
    pub(super) pieces: Vec<Piece>,
    /// Time and arrivals of one round, where the pieces begin again.
    pub(super) round: Option<(i64, Exact)>,
    total: Exact,
}

impl Curve {
    /// Of a rate that has been checked.
    pub fn new(rate: &Rate) -> Self {
        let (mut start_ns, mut before) = (0_i64, Exact::default());
        let piece = |phase: &Phase| {
            let duration_ns = phase.duration_ns.unwrap_or(i64::MAX);
            let area = match phase.duration_ns {
                Some(ns) => Exact::sum(phase.from, phase.to).times(ns as f64).over(2.0 * S),
                None if phase.from > 0.0 => Exact::from(f64::INFINITY),
                None => Exact::default(),
            };
            let end = if area.value().is_finite() { before.plus(area) } else { area };
            let piece =
                Piece { start_ns, duration_ns, from: phase.from, to: phase.to, before, end, area: area.value() };
            start_ns = start_ns.saturating_add(duration_ns);
            before = end;
            piece
        };
        let pieces = rate.phases.iter().map(piece).collect();
        Self { pieces, round: rate.repeat.then_some((start_ns, before)), total: before }
    }

    /// Arrivals expected in the first `ns`: the integral of the rate.
    pub fn expected(&self, ns: i64) -> f64 {
        if ns <= 0 {
            return 0.0;
        }
        let (rounds, ns) = self.round.map_or((0, ns), |(round_ns, _)| (ns / round_ns, ns % round_ns));
        let index = self.pieces.partition_point(|p| p.start_ns <= ns) - 1;
        let piece = &self.pieces[index];
        let within = piece.before.value() + piece.until(ns - piece.start_ns);
        match self.round {
            Some((_, area)) => area.times(rounds as f64).value() + within,
            None => within,
        }
    }

    /// Arrivals expected in all; infinite for a rate without end.
    pub fn total(&self) -> f64 {
        if self.round.is_some() { f64::INFINITY } else { self.total.value() }
    }

    /// When the integral passes `whole + part`; never, when it stays at or below that.
    ///
    /// Where the rate is 0 the integral passes nothing: what is due at the end of a piece before a pause comes after the pause.
    pub fn reaches(&self, whole: u64, part: f64) -> Option<i64> {
        let (mut rounds, mut target) = (0_i64, Exact::from(whole as f64).plus(Exact::from(part)));
        if let Some((_, area)) = self.round {
            let full = (target.value() / area.value()).floor();
            target = target.plus(area.times(-full));
            rounds = full as i64;
            // The division may be off by one round.
            if target.value() < 0.0 {
                target = target.plus(area);
                rounds -= 1;
            }
        }
        let mut index = self.pieces.partition_point(|p| p.end.minus(target) <= 0.0);
        loop {
            let Some(piece) = self.pieces.get(index) else {
                let (_, area) = self.round?;
                target = target.minus_clamped(area);
                rounds += 1;
                index = 0;
                continue;
            };
            let into = target.minus(piece.before).max(0.0);
            let left = piece.end.minus(target);
            let after_ns = if piece.area() > 0.0 { piece.after_ns(into, left) } else { i64::MAX };
            if after_ns < piece.duration_ns {
                return self.at(rounds, piece.start_ns, after_ns);
            }
            index += 1;
        }
    }

    /// A moment within a piece of a round.
    pub(super) fn at(&self, rounds: i64, start_ns: i64, after_ns: i64) -> Option<i64> {
        let round_ns = self.round.map_or(0, |(ns, _)| ns);
        rounds.checked_mul(round_ns)?.checked_add(start_ns)?.checked_add(after_ns)
    }
}
