//! A bare sampling loop: what waiting for a tick and reading some files costs on this machine, beside which the sampler stands.
//!
//! `read-loop --interval-us 10000 --ticks 200 --keep 1 --files A,B,C` prints one line of JSON: CPU time per tick. With
//! `--keep 0` every file is opened, read and closed at each tick.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use bench_tools::args::Args;
use bench_tools::sys::{end_with_parent, monotonic_ns, sleep_until, thread_cpu_ns};

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("read-loop: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<String, String> {
    let args = Args::parse(std::env::args().skip(1), &["interval-us", "ticks", "keep", "files"])?;
    let (interval_us, ticks): (i64, u32) = (args.get("interval-us", 10_000)?, args.get("ticks", 100)?);
    let (keep, files): (u8, String) = (args.get("keep", 1)?, args.get("files", String::new())?);
    if interval_us <= 0 || ticks == 0 {
        return Err("there must be an interval and at least one tick".to_owned());
    }
    let paths: Vec<&str> = files.split(',').filter(|path| !path.is_empty()).collect();
    end_with_parent().map_err(|error| error.to_string())?;
    let cpu_ns = measure(interval_us * 1000, ticks, keep != 0, &paths).map_err(|error| error.to_string())?;
    Ok(format!("{{\"ticks\":{ticks},\"cpu_ns_per_tick\":{}}}", cpu_ns / i64::from(ticks)))
}

fn measure(interval_ns: i64, ticks: u32, keep: bool, paths: &[&str]) -> std::io::Result<i64> {
    let kept = paths.iter().map(File::open).collect::<std::io::Result<Vec<_>>>()?;
    let mut buffer = vec![0_u8; 16 * 1024];
    let before_ns = thread_cpu_ns();
    let start_ns = monotonic_ns();
    for tick in 1..=ticks {
        sleep_until(start_ns + i64::from(tick) * interval_ns);
        if keep {
            for file in &kept {
                black_box(file.read_at(&mut buffer, 0)?);
            }
        } else {
            for path in paths {
                black_box(File::open(path)?.read(&mut buffer)?);
            }
        }
    }
    Ok(thread_cpu_ns() - before_ns)
}

#[cfg(test)]
mod tests {
    use super::measure;

    #[test]
    fn files_cost_something_kept_or_not() -> std::io::Result<()> {
        for keep in [true, false] {
            assert!(measure(100_000, 5, keep, &["/proc/self/stat", "/proc/uptime"])? > 0);
        }
        assert!(measure(100_000, 1, true, &["/proc/nothing"]).is_err());
        Ok(())
    }
}
