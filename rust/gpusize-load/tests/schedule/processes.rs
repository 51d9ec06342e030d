//! Whether arrivals are of the process that was asked for; sizes as in the benchmarks, at fixed seeds.

use gpusize_load::schedule::{Curve, Item};
use gpusize_load::spec::{Process, Rate};

use crate::common::{
    bound, dispersion, gamma_dispersion, gamma_p, kolmogorov_smirnov, of_workers, open, pieces, schedule, stream,
};

/// For the tests of every day; the long one and the benchmark take 10^6 gaps and 10^5 windows.
const GAPS: usize = 100_000;
const WINDOWS: usize = 10_000;

/// The process, its shape, and the length of the windows in mean gaps: long against its memory.
const PROCESSES: [(Process, f64, f64); 3] =
    [(Process::Poisson, 1.0, 10.0), (Process::Gamma, 0.5, 20.0), (Process::Gamma, 4.0, 10.0)];

fn times(rate: &Rate, seed: u64, count: usize) -> Vec<f64> {
    let curve = Curve::new(rate);
    let items = schedule(&open(vec![stream(0, rate.clone())]), seed);
    items.take(count).map(|item| curve.expected(item.offset_ns)).collect()
}

/// Gaps of operational time as values of their distribution function.
fn as_uniform(times: &[f64], shape: f64) -> impl Iterator<Item = f64> {
    let gaps = std::iter::once(0.0).chain(times.iter().copied()).zip(times.iter().copied());
    gaps.map(move |(before, now)| gamma_p(shape, shape * (now - before)))
}

/// Hold gaps against their distribution at 0.1 %, and the dispersion of counts against what it should be.
fn check(gaps: usize, windows: usize, room: f64) {
    for (process, shape, window) in PROCESSES {
        let rate = Rate { shape, ..Rate::steady(1000.0, process) };
        let times = times(&rate, 5, gaps.max((1.05 * window * windows as f64) as usize));
        let distance = kolmogorov_smirnov(as_uniform(&times[..gaps], shape));
        assert!(distance < bound(gaps), "{process:?} {shape}: {distance}");
        let (found, right) = (dispersion(times.into_iter(), window, windows), gamma_dispersion(shape, window));
        assert!((found / right - 1.0).abs() < room, "{process:?} {shape}: {found}, not {right}");
    }
}

#[test]
fn gaps_and_counts_are_those_of_the_process() {
    // Three standard errors of a variance of so many counts.
    check(GAPS, WINDOWS, 3.0 * (2.0 / WINDOWS as f64).sqrt());
}

#[test]
#[ignore = "takes a minute unless built for release"]
fn a_million_gaps_are_those_of_the_process() {
    check(1_000_000, 100_000, 0.02);
}

#[test]
fn a_changing_rate_is_the_same_process_in_operational_time() {
    // Ramps, a pause and bursts, again and again: the integral of the rate up to each arrival has the gaps of the process.
    let there = [(0.5, 0.0, 2000.0), (0.2, 2000.0, 2000.0), (0.3, 0.0, 0.0), (0.1, 5000.0, 5000.0), (0.4, 1500.0, 0.0)];
    for (process, shape, window) in PROCESSES {
        let rate = Rate { shape, repeat: true, ..pieces(process, &there) };
        let times = times(&rate, 6, GAPS);
        let distance = kolmogorov_smirnov(as_uniform(&times, shape));
        assert!(distance < bound(times.len()), "{process:?} {shape}: {distance}");
        let windows = (times.len() as f64 / window) as usize - 10;
        let (found, right) = (dispersion(times.into_iter(), window, windows), gamma_dispersion(shape, window));
        // Three standard errors for this many windows.
        let error = 3.0 * (2.0 / windows as f64).sqrt();
        assert!((found / right - 1.0).abs() < error, "{process:?} {shape}: {found}, not {right}");
    }
}

#[test]
fn the_schedule_does_not_depend_on_the_number_of_workers() {
    const MOST: u64 = 20_000;
    for (process, shape, _) in PROCESSES {
        let ramp = Rate { shape, repeat: true, ..pieces(process, &[(3.0, 100.0, 900.0), (1.0, 0.0, 0.0)]) };
        let load = open(vec![
            stream(0, Rate { shape, ..Rate::steady(300.0, process) }),
            stream(1, ramp),
            stream(2, Rate::steady(77.0, Process::Constant)),
        ]);
        for load in [open(vec![load.streams[0].clone()]), load] {
            let whole: Vec<Item> = schedule(&load, 11).take(MOST as usize).collect();
            for workers in [1, 2, 8] {
                assert!(of_workers(&schedule(&load, 11), workers, MOST) == whole, "{process:?} with {workers} workers");
            }
        }
    }
}

#[test]
fn streams_of_one_seed_are_independent() {
    let load = open((0..4).map(|id| stream(id, Rate::steady(250.0, Process::Poisson))).collect());
    // The sum of Poisson processes is one.
    let times: Vec<f64> = schedule(&load, 3).take(GAPS).map(|item| item.offset_ns as f64 / 1e6).collect();
    let distance = kolmogorov_smirnov(as_uniform(&times, 1.0));
    assert!(distance < bound(times.len()), "{distance}");
    let windows = times.len() / 10 - 100;
    let found = dispersion(times.into_iter(), 10.0, windows);
    assert!((found - 1.0).abs() < 3.0 * (2.0 / windows as f64).sqrt(), "{found}");
}

#[test]
fn the_incomplete_gamma_function_is_right() {
    // 1 - exp(-x) for a = 1; 1 - exp(-x) (1 + x + x^2 / 2 + x^3 / 6) for a = 4; the error function's values for a = 1/2.
    for x in [0.1_f64, 1.0, 3.0, 10.0] {
        assert!((gamma_p(1.0, x) - (1.0 - (-x).exp())).abs() < 1e-10);
        let rest = (-x).exp() * (1.0 + x + x * x / 2.0 + x * x * x / 6.0);
        assert!((gamma_p(4.0, x) - (1.0 - rest)).abs() < 1e-10);
    }
    for (root, erf) in [(0.5_f64, 0.520_499_877_813), (1.0, 0.842_700_792_950), (2.0, 0.995_322_265_019)] {
        assert!((gamma_p(0.5, root * root) - erf).abs() < 1e-10);
    }
}
