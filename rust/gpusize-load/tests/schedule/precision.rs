//! Due times of a day, held against exact arithmetic.

use gpusize_load::schedule::Arrivals;
use gpusize_load::spec::{Phase, Process, Rate};

use crate::common::pieces;

const DAY_S: f64 = 86_400.0;
const S: i128 = 1_000_000_000;

fn due_ns(rate: &Rate, seq: u64) -> i64 {
    Arrivals::new(rate, 1, 0).nth(seq as usize).expect("an arrival").1
}

#[test]
fn a_day_of_ramps_to_a_million_a_second_is_right_to_a_microsecond() {
    let half = DAY_S / 2.0;
    let rate = pieces(Process::Constant, &[(half, 0.0, 1e6), (half, 1e6, 0.0)]);
    let total = 1e6 * half;
    // On the way up arrival k is due at sqrt(2 k T / R); on the way down k arrivals are left at that time before the end.
    for k in [1_u64, 2, 3, 1_000, 123_456_789, 5_400_000_000, 21_599_999_999, 21_600_000_000] {
        let after_s = (2.0 * k as f64 * half / 1e6).sqrt();
        assert!((due_ns(&rate, k) as f64 / 1e9 - after_s).abs() < 1e-6, "{k}");
        let before_end_s = (86_400_000_000_000 - due_ns(&rate, total as u64 - k)) as f64 / 1e9;
        assert!((before_end_s - after_s).abs() < 1e-6, "{k}: {before_end_s} and {after_s}");
    }
    assert_eq!(Arrivals::new(&rate, 1, 0).count_before(i64::MAX, u64::MAX), total as u64);
}

#[test]
fn stages_of_a_day_begin_where_they_should() {
    // Rates in thousandths a second and times in milliseconds, so that whole numbers say what is due when.
    let milli_rates: Vec<i128> =
        (0..1440).map(|k| if k % 7 == 3 { 0 } else { 1 + k * k * k * 37 % 1_000_000_000 }).collect();
    let duration_ms = |k: i128| 59_001 + k % 1_999;
    let phase = |(k, milli): (usize, &i128)| {
        let per_s = *milli as f64 / 1e3;
        Phase { duration_ns: Some(duration_ms(k as i128) as i64 * 1_000_000), from: per_s, to: per_s }
    };
    let phases = milli_rates.iter().enumerate().map(phase).collect();
    let rate = Rate { phases, ..Rate::steady(1.0, Process::Constant) };
    // In millionths of an arrival, and in nanoseconds.
    let (mut before, mut start_ns) = (0_i128, 0_i128);
    let mut checked = 0;
    for (k, milli) in milli_rates.iter().enumerate() {
        let (area, duration_ns) = (milli * duration_ms(k as i128), duration_ms(k as i128) * 1_000_000);
        let seq = (before + 999_999) / 1_000_000;
        let into = seq * 1_000_000 - before;
        if into < area {
            let right = start_ns + into * S / 1000 / milli;
            let found = i128::from(due_ns(&rate, seq as u64));
            assert!((found - right).abs() < 1000, "phase {k}: {found}, not {right}");
            checked += 1;
        }
        before += area;
        start_ns += duration_ns;
    }
    assert!(checked > 1200 && before > 1_000_000_000_000_000, "{checked} {before}");
}

#[test]
fn bursts_of_a_day_begin_on_time() {
    let rate = Rate { repeat: true, ..pieces(Process::Constant, &[(1.0, 1e6, 1e6), (9.0, 0.0, 0.0)]) };
    for round in [0, 1, 7, 4_321, 8_639] {
        assert_eq!(due_ns(&rate, round * 1_000_000), round as i64 * 10_000_000_000);
        assert_eq!(due_ns(&rate, round * 1_000_000 + 999_999), round as i64 * 10_000_000_000 + 999_999_000);
    }
    // Thirds are no doubles, and yet a third round of three gives whole numbers.
    let thirds = Rate { repeat: true, ..pieces(Process::Constant, &[(0.1, 10.0 / 3.0, 10.0 / 3.0), (0.2, 0.0, 0.0)]) };
    for whole in [1, 10, 96_000] {
        assert!((due_ns(&thirds, whole) - whole as i64 * 900_000_000).abs() < 1000, "{whole}");
    }
}

#[test]
fn counts_are_known_without_a_walk() {
    for (rate, end_s, count) in [
        (Rate::steady(0.5, Process::Constant), 600.0, 300),
        (Rate::steady(1e6, Process::Constant), DAY_S, 86_400_000_000),
        (Rate { lead: 1.0, ..Rate::steady(1.0, Process::Constant) }, 600.0, 599),
        (
            pieces(Process::Constant, &[(600.0, 0.5, 0.5), (600.0, 1.0, 1.0), (600.0, 1.5, 1.5), (1800.0, 2.0, 2.0)]),
            9e3,
            5400,
        ),
        (pieces(Process::Constant, &[(300.0, 1.0, 50.0)]), 300.0, 7650),
        (pieces(Process::Constant, &[(10.0, 1.1, 1.1), (10.0, 0.0, 0.0)]), 20.0, 11),
    ] {
        assert_eq!(Arrivals::new(&rate, 1, 0).count_before((end_s * 1e9) as i64, u64::MAX), count, "{rate:?}");
    }
}
