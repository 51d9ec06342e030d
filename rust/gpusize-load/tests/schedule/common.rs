//! Loads, and the statistics of arrivals.

use gpusize_base::draw::Draw;
use gpusize_load::schedule::{Item, Schedule};
use gpusize_load::spec::{Arrivals, LoadSpec, Open, Order, Phase, Process, Rate, Stream};

/// An open loop of these streams.
pub fn open(streams: Vec<Stream>) -> Open {
    let load: LoadSpec = serde_json::from_str(r#"{"open":{"streams":[]}}"#).expect("a load");
    let LoadSpec::Open(open) = load else { unreachable!("an open loop") };
    Open { streams, ..open }
}

/// A stream over the whole dataset.
pub fn stream(id: u16, rate: Rate) -> Stream {
    Stream { id, arrivals: Arrivals::Rate(rate), start_ns: 0, rows: None, priority: 0, count: None }
}

/// A rate of straight pieces, given as seconds, from and to.
pub fn pieces(process: Process, pieces: &[(f64, f64, f64)]) -> Rate {
    let phase = |&(s, from, to): &(f64, f64, f64)| Phase { duration_ns: Some((s * 1e9) as i64), from, to };
    Rate { phases: pieces.iter().map(phase).collect(), ..Rate::steady(1.0, process) }
}

/// The schedule of one seed over ten rows.
pub fn schedule(open: &Open, seed: u64) -> Schedule {
    Schedule::new(open, seed, Order::Shuffled, 10, None).expect("a schedule")
}

/// As many workers walk the schedule; their items in the order of the whole.
pub fn of_workers(schedule: &Schedule, workers: usize, most: u64) -> Vec<Item> {
    let of = |worker| schedule.clone().of_worker(worker, workers).take_while(|item| item.index < most);
    let mut items: Vec<Item> = (0..workers).flat_map(of).collect();
    items.sort_unstable_by_key(|item| item.index);
    items
}

/// Largest distance between the shares of the values below each bound and the share that there should be; values are
/// those of the distribution's own function, so that they should be uniform.
pub fn kolmogorov_smirnov(uniform: impl Iterator<Item = f64>) -> f64 {
    const BINS: usize = 1 << 16;
    let mut counts = vec![0_u32; BINS];
    let mut total = 0;
    for value in uniform {
        counts[((value * BINS as f64) as usize).min(BINS - 1)] += 1;
        total += 1;
    }
    let (mut below, mut most) = (0, 0.0_f64);
    for (bin, count) in counts.iter().enumerate() {
        below += count;
        most = most.max((f64::from(below) / f64::from(total) - (bin + 1) as f64 / BINS as f64).abs());
    }
    // Within a bin it may be larger by as much as the bin is wide.
    most + 1.0 / BINS as f64
}

/// What `kolmogorov_smirnov` exceeds in one of 1000 samples of this size.
pub fn bound(samples: usize) -> f64 {
    1.949_5 / (samples as f64).sqrt()
}

/// Variance over mean of the counts in windows of this length, of which there are so many.
pub fn dispersion(times: impl Iterator<Item = f64>, window: f64, windows: usize) -> f64 {
    let mut counts = vec![0_u32; windows];
    for time in times {
        if let Some(count) = counts.get_mut((time / window) as usize) {
            *count += 1;
        }
    }
    let mean = counts.iter().map(|c| f64::from(*c)).sum::<f64>() / windows as f64;
    counts.iter().map(|c| (f64::from(*c) - mean).powi(2)).sum::<f64>() / (windows - 1) as f64 / mean
}

/// Variance over mean of the counts of a renewal process of gamma gaps with mean 1 in windows long against its memory.
///
/// D. R. Cox, "Renewal theory" (1962), section 4.5: the variance in an equilibrium process of gaps of mean 1, variance v and
/// third central moment m is v t + 1/6 + v^2 / 2 - m / 3, up to terms that vanish exponentially; v = 1/a, m = 2/a^2.
pub fn gamma_dispersion(shape: f64, window: f64) -> f64 {
    1.0 / shape + (1.0 - 1.0 / (shape * shape)) / (6.0 * window)
}

/// The regularized lower incomplete gamma function, by its series (DLMF 8.11.4) and its continued fraction (DLMF 8.9.2).
pub fn gamma_p(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut k) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-15 {
            k += 1.0;
            term *= x / k;
            sum += term;
        }
        return front * sum;
    }
    // Lentz's method.
    let mut partial = x + 1.0 - a;
    let (mut above, mut below) = (f64::MAX, 1.0 / partial);
    let mut fraction = below;
    for i in 1..200 {
        let numerator = -f64::from(i) * (f64::from(i) - a);
        partial += 2.0;
        below = 1.0 / (numerator * below + partial);
        above = partial + numerator / above;
        fraction *= below * above;
        if (below * above - 1.0).abs() < 1e-14 {
            break;
        }
    }
    1.0 - front * fraction
}

/// By Stirling's series (DLMF 5.11.1) after a shift to where it is exact to 1e-13.
fn ln_gamma(a: f64) -> f64 {
    let (mut x, mut shift) = (a, 0.0);
    while x < 12.0 {
        shift += x.ln();
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * square)) / square) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - shift
}

/// A load made up by number.
pub fn made_up(number: u64) -> Open {
    let draw = Draw::new(99, number, 7);
    let mut at = 0;
    let mut unit = || {
        at += 1;
        draw.unit(at)
    };
    let processes = [Process::Constant, Process::Poisson, Process::Gamma];
    let streams = (0..=(unit() * 3.0) as u16).map(|id| {
        let process = processes[(unit() * 3.0) as usize];
        let phases = (0..=(unit() * 4.0) as u32).map(|_| {
            let rate = |draw: f64| if draw < 0.25 { 0.0 } else { 100.0 * draw * draw };
            let from = rate(unit());
            let to = if unit() < 0.5 { from } else { rate(unit()) };
            Phase { duration_ns: Some(1 + (unit() * 20e9) as i64), from, to }
        });
        let mut phases: Vec<Phase> = phases.collect();
        phases[0].to += 1.0;
        let repeat = unit() < 0.5;
        let rate =
            Rate { phases, repeat, process, shape: 0.2 + 4.0 * unit(), lead: if unit() < 0.5 { 0.0 } else { unit() } };
        Stream {
            id: 3 * id + 1,
            arrivals: Arrivals::Rate(rate),
            start_ns: if unit() < 0.5 { 0 } else { (unit() * 10e9) as i64 },
            rows: (unit() < 0.5).then(|| (2, 1 + (unit() * 8.0) as u32)),
            priority: id.into(),
            count: (unit() < 0.3).then(|| (unit() * 500.0) as u64),
        }
    });
    let streams = streams.collect();
    open(streams)
}
