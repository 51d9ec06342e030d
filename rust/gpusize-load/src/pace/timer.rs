//! A wait for an absolute instant of the monotonic clock, by timerfd: tokio's own timers round to the millisecond.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use gpusize_base::clock::{now_ns, thread_cpu_ns};

const NS_PER_S: i64 = 1_000_000_000;
/// A sleep ends at most so long before its due time.
const MOST_LEAD_NS: i64 = 40_000;
const FIRST_LEAD_NS: i64 = 10_000;
const LEAD_STEP_NS: i64 = 250;
/// One wake-up in this many plus one comes later than the lead.
const IN_TIME: i64 = 3;
/// After so much time awake for nothing the thread rests, be it late: one that never does takes the core from its
/// neighbours, and the system stops it for far longer if it has real-time priority (by default for 50 ms of each second).
const MOST_SPARE_NS: i64 = 100_000;
const REST_NS: i64 = 40_000;
/// A turn of a thread with nothing to do takes no longer than this.
const LONGEST_EMPTY_NS: i64 = 2_000;

thread_local! {
    static SPARE_NS: Cell<i64> = const { Cell::new(0) };
    /// What of it was before the last sleep.
    static SPARE_AT_SLEEP_NS: Cell<i64> = const { Cell::new(0) };
    static COUNTED_NS: Cell<i64> = const { Cell::new(0) };
    /// The shortest of the last turns.
    static EMPTY_NS: Cell<i64> = const { Cell::new(LONGEST_EMPTY_NS) };
}

/// A turn of this thread has ended, which several timers may have waited for. What it took longer than one with nothing to
/// do was work.
fn spare(before: i64, now: i64) {
    let turn_ns = now - before.max(COUNTED_NS.replace(now));
    if turn_ns > 0 {
        let empty_ns = EMPTY_NS.get();
        EMPTY_NS.set(turn_ns.min(empty_ns + empty_ns / 64 + 1).min(LONGEST_EMPTY_NS));
        SPARE_NS.set(SPARE_NS.get() + turn_ns.min(empty_ns + empty_ns / 4));
    }
}

/// CPU time of this thread that it did something with: without what it spent awake until something was due.
pub fn busy_ns() -> i64 {
    thread_cpu_ns() - SPARE_NS.get()
}

/// One timer of one runtime thread. A wait may be dropped; the next one sets the timer anew.
///
/// A sleep ends as much before the due time as wake-ups of this machine come late, most of the time, and the rest is
/// spent awake, while the thread's other tasks go on. A wait that is shorter than that is no sleep at all, which would
/// cost more than it saves.
#[derive(Debug)]
pub struct Timer {
    fd: AsyncFd<OwnedFd>,
    /// How late wake-ups come.
    lead_ns: Cell<i64>,
}

impl Timer {
    /// A disarmed timer; needs a tokio runtime with IO enabled.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed; the result is checked before it is used.
        let raw = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just created and is owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: an `OwnedFd` gives the same open descriptor for as long as the `AsyncFd` holds it.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { fd, lead_ns: Cell::new(FIRST_LEAD_NS) })
    }

    /// Wait until `CLOCK_MONOTONIC` has reached `due_ns`; at once when it already has.
    pub async fn wait_until(&self, due_ns: i64) -> io::Result<()> {
        let mut now = now_ns();
        if now >= due_ns {
            // A caller that is behind must still let the other tasks of its thread run.
            tokio::task::coop::consume_budget().await;
            return Ok(());
        }
        while now < due_ns {
            let sleep_ns = due_ns - now - self.lead_ns.get();
            let rests = SPARE_NS.get() - SPARE_AT_SLEEP_NS.get() > MOST_SPARE_NS;
            if sleep_ns <= 0 && !rests {
                tokio::task::yield_now().await;
                let before = std::mem::replace(&mut now, now_ns());
                spare(before, now);
            } else {
                now = self.sleep_until(now + if rests { sleep_ns.max(REST_NS) } else { sleep_ns }).await?;
            }
        }
        Ok(())
    }

    /// Until about this instant; says when it is.
    async fn sleep_until(&self, ns: i64) -> io::Result<i64> {
        self.arm(ns)?;
        // Each expiration wakes us anew, and arming forgets the last one: reading it would only cost two system calls.
        self.fd.readable().await?.clear_ready();
        let now = now_ns();
        SPARE_AT_SLEEP_NS.set(SPARE_NS.get());
        // The wake-up may be left over from a wait that was dropped.
        if now >= ns {
            let lead_ns = self.lead_ns.get();
            let step_ns = if now - ns > lead_ns { IN_TIME * LEAD_STEP_NS } else { -LEAD_STEP_NS };
            self.lead_ns.set((lead_ns + step_ns).clamp(0, MOST_LEAD_NS));
        }
        Ok(now)
    }

    fn arm(&self, due_ns: i64) -> io::Result<()> {
        let setting = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: due_ns / NS_PER_S, tv_nsec: due_ns % NS_PER_S },
        };
        // SAFETY: the descriptor is open, `setting` outlives the call, and a null old value is allowed.
        let result = unsafe {
            libc::timerfd_settime(
                self.fd.get_ref().as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const setting,
                ptr::null_mut(),
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_turn_takes_longer_than_an_empty_one_is_work() {
        for k in 0..1_000 {
            spare(k * 500, (k + 1) * 500);
        }
        let before = SPARE_NS.get();
        assert!((499_000..=500_000).contains(&before), "{before}");
        spare(500_000, 900_000);
        spare(500_000, 900_000);
        assert_eq!(SPARE_NS.get() - before, 625, "once, however many timers wait");
    }
}

#[cfg(test)]
mod realtime {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("runtime").block_on(future)
    }

    #[test]
    fn never_wakes_before_the_due_time() {
        block_on(async {
            let timer = Timer::new().expect("timer");
            for step_ns in [0, 1, 50_000, 2_000_000] {
                let due_ns = now_ns() + step_ns;
                timer.wait_until(due_ns).await.expect("wait");
                assert!(now_ns() >= due_ns);
            }
        });
    }

    #[test]
    fn waits_that_are_shorter_than_a_sleep_are_no_work() {
        block_on(async {
            let timer = Timer::new().expect("timer");
            let start_ns = now_ns();
            // Long enough for a rest or two.
            for _ in 0..100 {
                // From now on: a thread that was stopped meanwhile still has something to wait for.
                let due_ns = now_ns() + 5_000;
                timer.wait_until(due_ns).await.expect("wait");
                assert!(now_ns() >= due_ns);
            }
            let spare_ns = SPARE_NS.get();
            assert!(spare_ns > 0 && spare_ns <= now_ns() - start_ns, "{spare_ns}");
            assert!(busy_ns() + spare_ns <= thread_cpu_ns());
        });
    }

    #[test]
    fn a_dropped_wait_does_not_disturb_the_next() {
        block_on(async {
            let timer = Timer::new().expect("timer");
            let start_ns = now_ns();
            tokio::select! {
                biased;
                result = timer.wait_until(start_ns + 3_600 * NS_PER_S) => result.expect("wait"),
                () = tokio::task::yield_now() => {}
            }
            let due_ns = now_ns() + 1_000_000;
            timer.wait_until(due_ns).await.expect("wait");
            assert!(now_ns() >= due_ns);
            timer.wait_until(start_ns).await.expect("a time that has passed");
        });
    }
}
