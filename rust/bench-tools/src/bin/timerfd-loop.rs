//! A bare timerfd loop: what this machine's timers can do, beside which the engine's lateness is judged.
//!
//! `timerfd-loop --rate 2000 --seconds 5` prints one line of JSON: ticks and their lateness.

use std::process::ExitCode;

use bench_tools::args::Args;
use bench_tools::sys::{TimerFd, end_with_parent, monotonic_ns};

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("timerfd-loop: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<String, String> {
    let args = Args::parse(std::env::args().skip(1), &["rate", "seconds"])?;
    let (rate, seconds): (f64, f64) = (args.get("rate", 2000.0)?, args.get("seconds", 1.0)?);
    let ticks = (rate * seconds) as usize;
    if !rate.is_finite() || rate <= 0.0 || ticks == 0 {
        return Err("rate and seconds must give at least one tick".to_owned());
    }
    end_with_parent().map_err(|error| error.to_string())?;
    let mut late_ns = lateness(rate, ticks).map_err(|error| error.to_string())?;
    late_ns.sort_unstable();
    Ok(format!(
        "{{\"ticks\":{ticks},\"p50_ns\":{},\"p99_ns\":{},\"max_ns\":{}}}",
        nearest(&late_ns, 0.50),
        nearest(&late_ns, 0.99),
        late_ns[ticks - 1],
    ))
}

/// How late each tick was, in nanoseconds. Due times are a function of the tick's number, so one late tick does not move the next.
fn lateness(rate: f64, ticks: usize) -> std::io::Result<Vec<i64>> {
    let timer = TimerFd::new()?;
    // Written once before the clock starts: a page fault in the loop would be counted as lateness.
    let mut late_ns = vec![1_i64; ticks];
    let start_ns = monotonic_ns() + 10_000_000;
    for (tick, slot) in late_ns.iter_mut().enumerate() {
        let due_ns = start_ns + (tick as f64 * 1e9 / rate) as i64;
        let mut now_ns = monotonic_ns();
        // As the engine does: what is due already is not waited for, so that a late tick is made up for at once.
        if now_ns < due_ns {
            timer.wait_until(due_ns)?;
            now_ns = monotonic_ns();
        }
        *slot = now_ns - due_ns;
    }
    Ok(late_ns)
}

/// The value at the nearest rank of quantile `q` in ascending `values`.
fn nearest(values: &[i64], q: f64) -> i64 {
    values[((values.len() - 1) as f64 * q).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::{lateness, nearest};

    #[test]
    fn no_tick_is_early() -> std::io::Result<()> {
        let late_ns = lateness(2000.0, 20)?;
        assert_eq!(late_ns.len(), 20);
        assert!(late_ns.iter().all(|late| *late >= 0), "{late_ns:?}");
        Ok(())
    }

    #[test]
    fn quantiles_are_nearest_ranks() {
        let values: Vec<i64> = (0..=100).collect();
        assert_eq!((nearest(&values, 0.5), nearest(&values, 0.99)), (50, 99));
        assert_eq!(nearest(&[7], 0.99), 7);
    }
}
