//! A wait for an absolute instant of the monotonic clock, by timerfd: tokio's own timers round to the millisecond.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::clock::now_ns;

const NS_PER_S: i64 = 1_000_000_000;

/// One timer of one runtime thread. A wait may be dropped; the next one sets the timer anew.
#[derive(Debug)]
pub struct Timer {
    fd: AsyncFd<OwnedFd>,
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
        Ok(Self { fd })
    }

    /// Wait until `CLOCK_MONOTONIC` has reached `due_ns`; at once when it already has.
    pub async fn wait_until(&self, due_ns: i64) -> io::Result<()> {
        if now_ns() >= due_ns {
            // A caller that is behind must still let the other tasks of its thread run.
            tokio::task::coop::consume_budget().await;
            return Ok(());
        }
        loop {
            self.arm(due_ns)?;
            // Each expiration wakes us anew, and arming forgets the last one: reading it would only cost two system calls.
            self.fd.readable().await?.clear_ready();
            // The wake-up may be left over from a wait that was dropped.
            if now_ns() >= due_ns {
                return Ok(());
            }
        }
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
