//! Monotonic nanoseconds, the pairing of that clock with wall time, and CPU time of threads.
#![allow(unsafe_code)] // clock_gettime: std's Instant hides the value that records and other processes share

/// Now on `CLOCK_MONOTONIC`, the clock of every record of this host.
///
/// Whatever decides something by time (schedules, stop rules, the simulated cluster) takes the time as an argument, so
/// that it runs in virtual time as well; only workers and servers read this clock.
pub fn now_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time that the calling thread has used.
pub fn thread_cpu_ns() -> i64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// One moment read on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// Monotonic time of the moment.
    pub mono_ns: i64,
    /// Wall time of the moment, nanoseconds since 1970.
    pub wall_ns: i64,
    /// Half the width of the interval in which both were read.
    pub uncertainty_ns: i64,
}

/// Read both clocks; of nine tries the one with the narrowest interval.
pub fn pair() -> ClockPair {
    let mut best: Option<ClockPair> = None;
    for _ in 0..9 {
        let before = now_ns();
        let wall_ns = read(libc::CLOCK_REALTIME);
        let after = now_ns();
        let uncertainty_ns = (after - before + 1) / 2;
        if best.is_none_or(|b| uncertainty_ns < b.uncertainty_ns) {
            best = Some(ClockPair { mono_ns: before + (after - before) / 2, wall_ns, uncertainty_ns });
        }
    }
    best.unwrap_or(ClockPair { mono_ns: 0, wall_ns: 0, uncertainty_ns: i64::MAX })
}

fn read(clock: libc::clockid_t) -> i64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid, writable timespec for the whole call, and the three clock ids above exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut ts) };
    ts.tv_sec * 1_000_000_000 + ts.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_lies_between_two_readings() {
        let before = now_ns();
        let p = pair();
        let after = now_ns();
        assert!(before <= p.mono_ns && p.mono_ns <= after);
        assert!(p.uncertainty_ns >= 0 && p.wall_ns > 1_600_000_000_000_000_000);
    }

    #[test]
    fn thread_cpu_time_grows_with_work() {
        let before = thread_cpu_ns();
        let mut x = 1_u64;
        while thread_cpu_ns() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(thread_cpu_ns() > before);
    }
}
