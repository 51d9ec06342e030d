//! The few system calls that the standard library does not wrap.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use tokio::io::unix::AsyncFd;

/// Nanoseconds on `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> i64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that all threads of this process have used, in nanoseconds.
pub fn process_cpu_ns() -> i64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(failed, 0, "these clocks are always there on Linux");
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Sleeps until `CLOCK_MONOTONIC` has reached `due_ns`.
pub fn sleep_until(due_ns: i64) {
    let due = libc::timespec { tv_sec: due_ns / 1_000_000_000, tv_nsec: due_ns % 1_000_000_000 };
    while monotonic_ns() < due_ns {
        // SAFETY: `due` is valid for the call; an absolute sleep that a signal ends is begun again and has no rest to return.
        unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const due, std::ptr::null_mut())
        };
    }
}

/// Asks the kernel to end this process when its parent ends, so that a benchmark that is killed leaves nothing behind.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes one integer and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) }).map(drop)
}

/// SIGTERM and SIGINT as a readable file descriptor; both are blocked for the calling thread.
pub fn termination_fd() -> io::Result<OwnedFd> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything reads it; the other calls get a valid set and a null old set.
    unsafe {
        check(libc::sigemptyset(set.as_mut_ptr()))?;
        check(libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM))?;
        check(libc::sigaddset(set.as_mut_ptr(), libc::SIGINT))?;
        check(libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()))?;
        owned(libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))
    }
}

/// As [`termination_fd`], to be awaited on a tokio runtime.
///
/// # Panics
/// Outside of a runtime with its io driver.
pub fn awaited_termination() -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open as long as it lives and always names the same descriptor.
    Ok(unsafe { AsyncFd::register(termination_fd()?)? })
}

/// Readiness of file descriptors, level triggered; the token of each is its number.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// One ready file descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    /// The file descriptor.
    pub fd: RawFd,
    /// It can be read, or has an error or an end to report by a read.
    pub read: bool,
}

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes flags only; the result is checked and owned once.
        let fd = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))? };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; 256] })
    }

    /// Watches `fd` for reading, until it is closed.
    pub fn add(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN)
    }

    /// Watches `fd` for reading, and for writing when `write` is set.
    pub fn watch(&self, fd: RawFd, write: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN | if write { libc::EPOLLOUT } else { 0 })
    }

    /// Waits without a limit for something to be ready; an interrupted wait returns nothing.
    pub fn wait(&mut self) -> io::Result<impl Iterator<Item = Ready> + use<'_>> {
        self.wait_ns(-1)
    }

    /// Waits at most so many nanoseconds, without a limit when negative: whoever is early by less than a millisecond sleeps, too.
    pub fn wait_ns(&mut self, timeout_ns: i64) -> io::Result<impl Iterator<Item = Ready> + use<'_>> {
        if timeout_ns > 0 {
            let limit = libc::timespec { tv_sec: timeout_ns / 1_000_000_000, tv_nsec: timeout_ns % 1_000_000_000 };
            let mut watched = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: both are valid for the call, one descriptor is announced, and no signal mask is given. A wait that is
            // interrupted only ends earlier.
            unsafe { libc::ppoll(&raw mut watched, 1, &raw const limit, std::ptr::null()) };
        }
        let room = self.events.len() as i32;
        let timeout_ms = if timeout_ns < 0 { -1 } else { 0 };
        // SAFETY: the buffer holds `room` events and lives through the call.
        let ready = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), self.events.as_mut_ptr(), room, timeout_ms) };
        let count = match check(ready) {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        let troubled = libc::EPOLLIN | libc::EPOLLERR | libc::EPOLLHUP;
        Ok(self.events[..count]
            .iter()
            .map(move |event| Ready { fd: event.u64 as RawFd, read: event.events & troubled as u32 != 0 }))
    }

    fn control(&self, operation: i32, fd: RawFd, interest: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest as u32, u64: fd as u64 };
        // SAFETY: `event` is valid for the call; the kernel refuses a bad descriptor with an error.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) }).map(drop)
    }
}

/// A timer of the kernel that is waited for by a blocking read.
#[derive(Debug)]
pub struct TimerFd {
    fd: OwnedFd,
}

impl TimerFd {
    /// A timer on `CLOCK_MONOTONIC`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: timerfd_create takes integers only; the result is checked and owned once.
        let fd = unsafe { owned(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC))? };
        Ok(Self { fd })
    }

    /// Blocks until the absolute time `due_ns`; at once when that has passed.
    pub fn wait_until(&self, due_ns: i64) -> io::Result<()> {
        let due = libc::timespec { tv_sec: due_ns / 1_000_000_000, tv_nsec: due_ns % 1_000_000_000 };
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = libc::itimerspec { it_interval: once, it_value: due };
        let fd = self.fd.as_raw_fd();
        // SAFETY: `setting` is valid for the call and the old value is not asked for.
        check(unsafe { libc::timerfd_settime(fd, libc::TFD_TIMER_ABSTIME, &raw const setting, std::ptr::null_mut()) })?;
        let mut expirations = 0_u64;
        // SAFETY: a timerfd read fills exactly eight bytes, the size of `expirations`.
        let read = unsafe { libc::read(fd, (&raw mut expirations).cast(), size_of::<u64>()) };
        if read < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// # Safety
/// `fd` is an error, or a descriptor that nothing else owns.
unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: the caller's promise, and `fd` is not negative.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
