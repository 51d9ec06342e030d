//! The few system calls of the sampler that the standard library does not wrap.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const NS_PER_S: i64 = 1_000_000_000;
/// Pages that each CPU may have charged ahead of what is used: the kernel's `MEMCG_CHARGE_BATCH`.
const CHARGE_BATCH_PAGES: i64 = 64;

/// Wakes a thread that waits in [`Epoll::wait_until`].
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// A waker that nobody has used yet.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes integers only; the result is checked and owned once.
        let fd = unsafe { owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))? };
        Ok(Self(fd))
    }

    /// Every wait on this waker ends now, and every later one at once.
    pub fn wake(&self) {
        let one = 1_u64;
        // SAFETY: an eventfd takes exactly eight bytes, the size of `one`. It can only fail when its counter is full, and
        // then it wakes as well.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Descriptors that a thread waits for, kept by the kernel: `ppoll` asks each of them twice at every wait, which costs a thread
/// that wakes from a long sleep some 8 µs of its 50.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    /// The kernel has `epoll_pwait2`, as far as is known.
    precise: bool,
}

impl Epoll {
    /// Nothing to wait for yet.
    pub fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes an integer; the result is checked and owned once.
        let fd = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))? };
        Ok(Self { fd, precise: true })
    }

    /// Wait for these events (`EPOLLIN`, `EPOLLPRI`) of a descriptor too, by this name.
    pub fn add(&self, fd: RawFd, events: i32, name: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: name };
        // SAFETY: the event is valid for the call, which copies it.
        let result = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Wait for it no longer.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: no event is needed to remove one; a descriptor that is not there is refused with an error.
        unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Wait until a descriptor is ready or `CLOCK_MONOTONIC` has reached `due_ns`; how many events there are then.
    ///
    /// The time is absolute: what is left of it is worked out anew here, so that lateness never adds up.
    pub fn wait_until(&mut self, events: &mut [libc::epoll_event], due_ns: i64) -> io::Result<usize> {
        let left_ns = (due_ns - gpusize_base::clock::now_ns()).max(0);
        let left = libc::timespec { tv_sec: left_ns / NS_PER_S, tv_nsec: left_ns % NS_PER_S };
        if self.precise {
            match self.wait(events, &left) {
                // Kernels before 5.11, and sandboxes that do not know the call.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => self.precise = false,
                result => return result,
            }
        }
        let mut set = watch(self.fd.as_raw_fd());
        // SAFETY: the entry and the time are valid for the call, and no signal mask is given.
        if unsafe { libc::ppoll(&raw mut set, 1, &raw const left, std::ptr::null()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as many events as are told may be written for the whole call.
        counted(i64::from(unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), events.len() as libc::c_int, 0)
        }))
    }

    fn wait(&self, events: &mut [libc::epoll_event], left: &libc::timespec) -> io::Result<usize> {
        let (fd, most) = (self.fd.as_raw_fd(), events.len() as libc::c_int);
        let no_signals = std::ptr::null::<libc::sigset_t>();
        // SAFETY: as many events as are told may be written, the time is valid for the call, and no signal mask is given.
        counted(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                fd,
                events.as_mut_ptr(),
                most,
                std::ptr::from_ref(left),
                no_signals,
                0,
            )
        })
    }
}

fn counted(result: i64) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Bytes of files in memory, where a path is in a file system of such; another may have been mounted over it.
pub fn tmpfs_bytes(path: &Path) -> Option<i64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all zeros are a valid statfs.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and the struct is valid for the call, which fills it.
    let failed = unsafe { libc::statfs(path.as_ptr(), &raw mut found) } != 0;
    if failed || found.f_type != libc::TMPFS_MAGIC {
        return None;
    }
    Some(found.f_blocks.saturating_sub(found.f_bfree) as i64 * found.f_bsize)
}

/// Let the calling thread's sleeps end on time: by default the kernel may delay them by 50 µs to save wake-ups.
pub fn no_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory; where it fails, sleeps end later.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}

/// A descriptor that becomes readable when the process ends; kernel 5.3 or newer.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes integers only; the result is checked and owned once. It is close-on-exec by itself.
    unsafe { owned(libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) as RawFd) }
}

/// CPU time of a whole process in nanoseconds, ended threads included, as its own CPU clock has it.
///
/// `/proc/PID/stat` has the same in hundredths of a second. `None` when there is no such process.
pub fn process_cpu_ns(pid: u32) -> Option<i64> {
    // The clock id of another process, as clock_getcpuclockid makes it: the complement of the pid above three bits, of which
    // 2 is CPUCLOCK_SCHED.
    let clock = (!(pid as libc::clockid_t) << 3) | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written for the whole call; a clock that does not exist is refused with an error.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then(|| time.tv_sec * NS_PER_S + time.tv_nsec)
}

/// How often the scheduler charges a running task: the kernel's tick (4 ms at HZ=250), which is the coarse clock's resolution.
pub fn kernel_tick_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written for the whole call.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    if result == 0 { time.tv_sec * NS_PER_S + time.tv_nsec } else { 10_000_000 }
}

/// Bytes of a memory page.
pub fn page_bytes() -> i64 {
    // SAFETY: sysconf takes an integer; the page size is known on every system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}

/// How far the kernel's counters of memory may be ahead of what is used: pages that each CPU has charged in advance.
pub fn charge_error_bytes() -> i64 {
    CHARGE_BATCH_PAGES * page_bytes() * online_cpus()
}

/// CPUs that are switched on.
pub fn online_cpus() -> i64 {
    // SAFETY: sysconf takes an integer; -1 stands for a number that is not known.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1)
}

fn watch(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// A pidfd as a file, so that one type holds everything that is waited for.
pub fn as_file(fd: OwnedFd) -> File {
    File::from(fd)
}

/// # Safety
/// `fd` is an error, or a descriptor that nothing else owns.
unsafe fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller's promise, and `fd` is not negative.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpusize_base::clock::{now_ns, thread_cpu_ns};

    const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

    /// With the call of newer kernels, and without it.
    fn both() -> [Epoll; 2] {
        let [newer, mut older] = [(); 2].map(|()| Epoll::new().expect("an epoll descriptor"));
        older.precise = false;
        [newer, older]
    }

    #[test]
    fn a_waker_ends_a_wait_before_its_time() {
        let waker = Waker::new().expect("an eventfd");
        waker.wake();
        for mut epoll in both() {
            epoll.add(waker.as_raw_fd(), libc::EPOLLIN, 7).expect("added");
            let due_ns = now_ns() + 3_600 * NS_PER_S;
            let mut events = [NO_EVENT; 4];
            assert_eq!(epoll.wait_until(&mut events, due_ns).expect("a wait"), 1);
            assert_eq!({ events[0].u64 }, 7);
            assert!(now_ns() < due_ns);
        }
    }

    #[test]
    fn a_wait_without_events_lasts_until_it_is_due() {
        for mut epoll in both() {
            let due_ns = now_ns() + 2_000_000;
            assert_eq!(epoll.wait_until(&mut [NO_EVENT], due_ns).expect("a wait"), 0);
            assert!(now_ns() >= due_ns);
        }
    }

    #[test]
    fn the_clock_of_a_process_has_all_its_threads() {
        let own = thread_cpu_ns();
        let all = process_cpu_ns(std::process::id()).expect("this process is there");
        assert!(all >= own && own > 0, "{all} {own}");
        assert_eq!(process_cpu_ns(4_194_304 + 7), None, "no kernel gives out this number");
    }

    #[test]
    fn the_machine_has_a_tick_and_pages() {
        assert!((1_000_000..=10_000_000).contains(&kernel_tick_ns()), "{}", kernel_tick_ns());
        assert!(page_bytes() >= 4096 && online_cpus() >= 1);
    }
}
