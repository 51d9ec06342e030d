//! When the requests of one stream are due.

use super::rate::Curve;
use crate::spec::{Process, Rate};
use gpusize_base::draw::{Draw, Gamma};

/// Purposes keep independent draws apart; bodies use their own numbers below these.
const PURPOSE_GAP: u64 = 1 << 32;

const S: f64 = 1e9;

/// Due times of one stream, in order, after its start: pairs of sequence number and nanoseconds.
///
/// With L the integral of the rate, arrival k of the constant process is due when L is `k + lead`. Of the others it is due
/// when L is `g_0 + ... + g_k`, where each g is a draw of mean 1 and a function of (seed, stream, k). So all workers that walk
/// the same stream see the same arrivals.
#[derive(Clone, Debug)]
pub struct Arrivals {
    curve: Curve,
    gaps: Gaps,
    next_seq: u64,
    walk: Walk,
}

#[derive(Clone, Copy, Debug)]
enum Gaps {
    Even { lead: f64 },
    Exponential(Draw),
    Gamma(Draw, Gamma),
}

/// How far a process with random gaps has come.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    rounds: i64,
    piece: usize,
    /// Since the piece's start.
    after_ns: i64,
    /// Arrivals expected since the piece's start; only kept on ramps.
    into: f64,
}

impl Arrivals {
    /// The arrivals of `stream` at a rate that has been checked.
    pub fn new(rate: &Rate, seed: u64, stream: u64) -> Self {
        let draw = Draw::new(seed, stream, PURPOSE_GAP);
        let gaps = match rate.process {
            Process::Constant => Gaps::Even { lead: rate.lead },
            Process::Gamma if rate.shape.to_bits() != 1.0_f64.to_bits() => Gaps::Gamma(draw, Gamma::new(rate.shape)),
            Process::Poisson | Process::Gamma => Gaps::Exponential(draw),
        };
        Self { curve: Curve::new(rate), gaps, next_seq: 0, walk: Walk::default() }
    }

    /// How many are due before `end_ns`, counted up to `most`. Found without a walk where gaps are even.
    pub fn count_before(mut self, end_ns: i64, most: u64) -> u64 {
        let Gaps::Even { lead } = self.gaps else {
            return self.by_ref().take_while(|(seq, due_ns)| *seq < most && *due_ns < end_ns).count() as u64;
        };
        let expected = if end_ns == i64::MAX { self.curve.total() } else { self.curve.expected(end_ns) };
        if expected - 2.0 > most as f64 {
            return most;
        }
        // Near the end the integral and the due times may differ by their rounding.
        let mut count = (expected - lead - 2.0).max(0.0) as u64;
        while count < most && self.curve.reaches(count, lead).is_some_and(|due_ns| due_ns < end_ns) {
            count += 1;
        }
        count
    }
}

impl Iterator for Arrivals {
    type Item = (u64, i64);

    fn next(&mut self) -> Option<(u64, i64)> {
        let seq = self.next_seq;
        let due_ns = match &self.gaps {
            Gaps::Even { lead } => self.curve.reaches(seq, *lead),
            Gaps::Exponential(draw) => self.walk.on(&self.curve, draw.exp(seq)),
            Gaps::Gamma(draw, gamma) => self.walk.on(&self.curve, draw.gamma(seq, gamma)),
        }?;
        self.next_seq = seq + 1;
        Some((seq, due_ns))
    }

    fn nth(&mut self, n: usize) -> Option<(u64, i64)> {
        if let Gaps::Even { .. } = self.gaps {
            self.next_seq += n as u64;
        } else {
            for _ in 0..n {
                self.next()?;
            }
        }
        self.next()
    }
}

impl Walk {
    /// Go on by so many expected arrivals; when that is.
    fn on(&mut self, curve: &Curve, mut gap: f64) -> Option<i64> {
        loop {
            let piece = curve.pieces.get(self.piece)?;
            if piece.is_flat() {
                if piece.from > 0.0 {
                    // Rounded before it is added, so that it is the same wherever in the schedule it stands.
                    let after_ns = self.after_ns.saturating_add((gap * S / piece.from).round() as i64);
                    if after_ns < piece.duration_ns {
                        self.after_ns = after_ns;
                        return curve.at(self.rounds, piece.start_ns, after_ns);
                    }
                    gap = (gap - (piece.duration_ns - self.after_ns) as f64 * piece.from / S).max(0.0);
                }
            } else {
                let into = self.into + gap;
                if into < piece.area() {
                    let after_ns = piece.after_ns(into, piece.area() - into).max(self.after_ns);
                    if after_ns < piece.duration_ns {
                        (self.into, self.after_ns) = (into, after_ns);
                        return curve.at(self.rounds, piece.start_ns, after_ns);
                    }
                }
                gap = (into - piece.area()).max(0.0);
            }
            gap = self.leave_piece(curve, gap)?;
        }
    }

    /// To the next piece; what is left of the gap after the rounds that it spans.
    fn leave_piece(&mut self, curve: &Curve, gap: f64) -> Option<f64> {
        (self.after_ns, self.into) = (0, 0.0);
        self.piece += 1;
        if self.piece < curve.pieces.len() {
            return Some(gap);
        }
        let (_, area) = curve.round?;
        let rounds = (gap / area.value()).floor();
        self.piece = 0;
        self.rounds = self.rounds.checked_add(1)?.checked_add(rounds as i64)?;
        Some((gap - rounds * area.value()).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Phase;

    /// Rate, process, seed, stream, the first five due times, the 1001st, the last of 1,000,001, and a digest of all:
    /// recorded when a stream had one rate and two processes.
    type Recorded = (f64, Process, u64, u64, [i64; 5], i64, i64, u64);

    const RECORDED: [Recorded; 6] = [
        (
            3.0,
            Process::Constant,
            1,
            0,
            [0, 333_333_333, 666_666_667, 1_000_000_000, 1_333_333_333],
            333_333_333_333,
            333_333_333_333_333,
            0xa2e_c79d_cd3f_3ec3,
        ),
        (
            1234.5,
            Process::Constant,
            1,
            0,
            [0, 810_045, 1_620_089, 2_430_134, 3_240_178],
            810_044_552,
            810_044_552_450,
            0x41b9_2ef5_322c_314f,
        ),
        (
            1000.0,
            Process::Poisson,
            7,
            0,
            [35_310, 1_150_480, 2_690_614, 5_116_827, 6_362_590],
            989_109_842,
            1_000_282_349_022,
            0xa19e_fbfd_a6fe_07a8,
        ),
        (
            0.37,
            Process::Poisson,
            1,
            0,
            [2_395_489_523, 2_875_079_447, 4_488_810_676, 4_534_296_201, 4_638_033_073],
            2_577_802_793_399,
            2_705_582_021_655_614,
            0x2f2a_6dd4_1dcb_1654,
        ),
        (
            250_000.0,
            Process::Poisson,
            42,
            0,
            [1_027, 15_119, 19_064, 19_860, 24_654],
            3_788_438,
            4_000_496_789,
            0xce24_193a_18d2_43ea,
        ),
        (
            50.0,
            Process::Poisson,
            9,
            3,
            [21_354_358, 22_241_413, 31_669_680, 39_630_269, 49_017_633],
            20_075_204_047,
            20_010_252_267_741,
            0x363d_4794_4234_3ae6,
        ),
    ];

    #[test]
    fn schedules_of_one_rate_are_what_they_always_were() {
        for (rate, process, seed, stream, first, thousandth, last, digest) in RECORDED {
            let arrivals = Arrivals::new(&Rate::steady(rate, process), seed, stream);
            let due: Vec<i64> = arrivals.take(1_000_001).map(|(_, due_ns)| due_ns).collect();
            assert_eq!((&due[..5], due[1000], due[1_000_000]), (&first[..], thousandth, last));
            let mixed = |sum: u64, ns: &i64| (sum ^ *ns as u64).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
            assert_eq!(due.iter().fold(0, mixed), digest, "{rate} {process:?}");
        }
    }

    #[test]
    fn a_gamma_process_of_shape_1_is_the_poisson_process() {
        let of = |process| Arrivals::new(&Rate::steady(50.0, process), 9, 3).take(1000).collect::<Vec<_>>();
        assert_eq!(of(Process::Gamma), of(Process::Poisson));
    }

    #[test]
    fn a_pause_holds_back_what_is_due_at_its_beginning() {
        let phase = |seconds: i64, per_s| Phase { duration_ns: Some(seconds * 1_000_000_000), from: per_s, to: per_s };
        let bursts =
            Rate { phases: vec![phase(1, 3.0), phase(9, 0.0)], repeat: true, ..Rate::steady(1.0, Process::Constant) };
        let due: Vec<i64> = Arrivals::new(&bursts, 1, 0).take(8).map(|(_, ns)| ns / 1_000_000).collect();
        assert_eq!(due, [0, 333, 666, 10_000, 10_333, 10_666, 20_000, 20_333]);
        let once = Rate { repeat: false, ..bursts };
        assert_eq!(Arrivals::new(&once, 1, 0).count(), 3, "the fourth would come in the pause that never ends");
        assert_eq!(Arrivals::new(&Rate { lead: 0.5, ..once }, 1, 0).count(), 3);
    }

    #[test]
    fn rounds_without_an_arrival_cost_nothing() {
        let phases = vec![Phase { duration_ns: Some(1), from: 1e-3, to: 1e-3 }];
        let thin = Rate { phases, repeat: true, ..Rate::steady(1.0, Process::Constant) };
        for process in [Process::Constant, Process::Poisson, Process::Gamma] {
            let thin = Rate { process, shape: 3.0, ..thin.clone() };
            let last = Arrivals::new(&thin, 1, 0).take(1001).last().unwrap().1;
            assert!((last as f64 / 1e15 - 1.0).abs() < 0.1, "{process:?} {last}");
        }
    }

    #[test]
    fn a_schedule_beyond_the_clock_ends() {
        let slow = Rate::steady(1e-9, Process::Poisson);
        assert!(Arrivals::new(&slow, 1, 0).count() < 100);
        assert_eq!(Arrivals::new(&Rate::steady(1e-9, Process::Constant), 1, 0).take(100).count(), 10);
    }
}
