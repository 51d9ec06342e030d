//! A program whose use is known: cores and memory as it is told, its own clocks as the truth.
//!
//! `known-use --cores 0.5 --seconds 4 --mib 64` prints `{"up":PID}` and waits for a line. Then it touches the memory, uses the
//! cores, and prints one line of JSON: `marks`, pairs of monotonic time and CPU time of the whole process every 5 ms, both in
//! ns; `bytes`, by how much its resident memory and its page tables grew.

use std::hint::black_box;
use std::io::BufRead;
use std::process::ExitCode;
use std::time::Duration;

use bench_tools::args::Args;
use bench_tools::sys::{end_with_parent, monotonic_ns, process_cpu_ns, sleep_until};

const MARK_NS: i64 = 5_000_000;
/// Half a core is so long at work, and as long at rest.
const TURN_NS: i64 = 20_000_000;

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("known-use: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<String, String> {
    let args = Args::parse(std::env::args().skip(1), &["cores", "seconds", "mib"])?;
    let (cores, seconds): (f64, f64) = (args.get("cores", 0.0)?, args.get("seconds", 0.5)?);
    let mib: usize = args.get("mib", 0)?;
    end_with_parent().map_err(|error| error.to_string())?;
    println!("{{\"up\":{}}}", std::process::id());
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    let before = own_bytes()?;
    let mut memory = vec![0_u8; mib << 20];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    let bytes = own_bytes()? - before;
    let marks = use_cores(cores, (seconds * 1e9) as i64);
    black_box(&memory);
    let marks: Vec<String> = marks.iter().map(|(t_ns, cpu_ns)| format!("[{t_ns},{cpu_ns}]")).collect();
    Ok(format!("{{\"bytes\":{bytes},\"marks\":[{}]}}", marks.join(",")))
}

/// Use so many cores; half a core is one in turns of work and rest.
fn use_cores(cores: f64, for_ns: i64) -> Vec<(i64, i64)> {
    let end_ns = monotonic_ns() + for_ns;
    let threads: Vec<_> = (0..cores.ceil() as usize)
        .map(|number| {
            let whole = (number + 1) as f64 <= cores;
            std::thread::spawn(move || work(whole, end_ns))
        })
        .collect();
    let mut marks = Vec::new();
    let mut due_ns = monotonic_ns();
    while due_ns < end_ns {
        sleep_until(due_ns);
        marks.push((monotonic_ns(), process_cpu_ns()));
        due_ns += MARK_NS;
    }
    for thread in threads {
        // A thread of arithmetic has nothing to panic of.
        let _ = thread.join();
    }
    marks
}

fn work(whole: bool, end_ns: i64) {
    let mut x = 1_u64;
    let mut turn_end_ns = if whole { end_ns } else { monotonic_ns() + TURN_NS };
    loop {
        for _ in 0..1000 {
            x = black_box(x.wrapping_mul(3));
        }
        let now_ns = monotonic_ns();
        if now_ns >= end_ns {
            return;
        }
        if now_ns >= turn_end_ns {
            std::thread::sleep(Duration::from_nanos(TURN_NS as u64));
            turn_end_ns += 2 * TURN_NS;
        }
    }
}

/// Resident memory and page tables, which a group is charged for as well.
fn own_bytes() -> Result<i64, String> {
    let text = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let kib = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<i64>().ok()).ok_or(format!("no {key}"))
    };
    Ok((kib("VmRSS:")? + kib("VmPTE:")?) * 1024)
}

#[cfg(test)]
mod tests {
    use super::{own_bytes, use_cores};

    #[test]
    fn marks_rise_with_the_work() {
        let marks = use_cores(0.5, 60_000_000);
        assert!(marks.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{marks:?}");
        assert!(own_bytes().is_ok_and(|bytes| bytes > 0));
    }
}
