//! What `/proc` says of one process.

use std::fs::{self, File};
use std::path::Path;

use super::bytes::{number, value};
use super::files::USER_TICK_NS;

/// The fields of `/proc/PID/stat` that are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// It has ended and nobody waited for it yet.
    pub ended: bool,
    /// Somebody is waiting for it just now: its time may be in its parent's counters already, though it is still listed.
    pub waited_for: bool,
    /// Its parent.
    pub parent: u32,
    /// Pages that it came to have without a disk: touched first, or copied from one that it shared.
    pub faults: i64,
    /// CPU time of its own, threads that have ended included.
    pub user_ns: i64,
    /// The same in the kernel.
    pub system_ns: i64,
    /// CPU time of children that were waited for, and of theirs.
    pub children_user_ns: i64,
    /// The same in the kernel.
    pub children_system_ns: i64,
    /// Number of threads.
    pub threads: i64,
    /// When it began, in the kernel's unit: a number that is given out again belongs to a process with another start.
    pub start: i64,
    /// Resident pages.
    pub pages: i64,
}

/// Parse `/proc/PID/stat`. The name in parentheses may hold anything, blanks and parentheses included.
pub fn stat(text: &[u8]) -> Option<Stat> {
    let name_end = memchr::memrchr(b')', text)?;
    let mut fields = text.get(name_end + 2..)?.split(|byte| *byte == b' ');
    let state = fields.next()?;
    // From field 4 on; 19 and 20 (priority, nice) may be negative and are not used.
    let mut next = |skip: usize| fields.nth(skip).and_then(number);
    let parent = next(0)? as u32;
    let faults = next(5)?;
    let user = next(3)?;
    let (system, children_user, children_system) = (next(0)?, next(0)?, next(0)?);
    let threads = next(2)?;
    let start = next(1)?;
    let pages = next(1)?;
    Some(Stat {
        ended: matches!(state, b"Z" | b"X"),
        waited_for: state == b"X",
        parent,
        faults,
        user_ns: user * USER_TICK_NS,
        system_ns: system * USER_TICK_NS,
        children_user_ns: children_user * USER_TICK_NS,
        children_system_ns: children_system * USER_TICK_NS,
        threads,
        start,
        pages,
    })
}

/// Memory by kind, bytes; of `/proc/PID/status` or `smaps_rollup`, which count in KiB.
pub fn kib(text: &[u8], key: &[u8]) -> Option<i64> {
    super::bytes::lines(text).find_map(|line| number(line.strip_prefix(key)?)).map(|kib| kib * 1024)
}

/// Bytes that the process caused to be read from and written to devices: `/proc/PID/io`.
pub fn io(text: &[u8]) -> Option<(i64, i64)> {
    value(text, b"read_bytes:").zip(value(text, b"write_bytes:"))
}

/// The children of a process: what its threads have, or every process that names it as its parent where the kernel does not
/// keep that list (`CONFIG_PROC_CHILDREN`).
pub fn children(proc: &Path, pid: u32, into: &mut Vec<u32>) {
    let tasks = proc.join(pid.to_string()).join("task");
    for task in fs::read_dir(&tasks).into_iter().flatten().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        into.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
}

/// For each thread of a process its number, and how long it has waited for a CPU although it could have run. Nothing where the
/// kernel does not keep it (`CONFIG_SCHED_INFO`).
pub fn waits(proc: &Path, pid: u32) -> impl Iterator<Item = (u32, i64)> {
    let tasks = fs::read_dir(proc.join(pid.to_string()).join("task"));
    tasks.into_iter().flatten().flatten().filter_map(|task| {
        let text = fs::read(task.path().join("schedstat")).ok()?;
        let waited_ns = text.split(|byte| *byte == b' ').nth(1).and_then(number)?;
        Some((task.file_name().to_str()?.parse().ok()?, waited_ns))
    })
}

/// Whether the kernel keeps the list.
pub fn has_children_files(proc: &Path, pid: u32) -> bool {
    proc.join(format!("{pid}/task/{pid}/children")).exists()
}

/// Every process and its parent.
pub fn all_parents(proc: &Path) -> Vec<(u32, u32)> {
    let pids = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat(&fs::read(proc.join(format!("{pid}/stat"))).ok()?)?.parent))).collect()
}

/// The number that was given to a process or thread last: `/proc/loadavg`.
pub fn newest(text: &[u8]) -> Option<i64> {
    text.trim_ascii_end().rsplit(|byte| *byte == b' ').next().and_then(number)
}

/// Open a file of a process.
pub fn open(proc: &Path, pid: u32, name: &str) -> std::io::Result<File> {
    File::open(proc.join(pid.to_string()).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = b"42 (a) R (b c) S 7 42 42 0 -1 4194560 9 2 3 4 150 25 10 5 20 0 3 0 2664801 2322432 316 1844 1 1";
        let found = stat(text).expect("a stat");
        assert_eq!((found.parent, found.threads, found.start, found.pages), (7, 3, 2_664_801, 316));
        assert_eq!(found.faults, 9);
        assert_eq!((found.user_ns, found.system_ns), (1_500_000_000, 250_000_000));
        assert_eq!((found.children_user_ns, found.children_system_ns), (100_000_000, 50_000_000));
        assert!(!found.ended);
        assert_eq!(stat(b"42 (cut"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let proc = Path::new("/proc");
        let pid = std::process::id();
        let found = stat(&fs::read("/proc/self/stat").expect("a stat")).expect("it parses");
        assert!(found.threads >= 1 && found.pages > 0);
        let status = fs::read("/proc/self/status").expect("a status");
        assert!(kib(&status, b"VmHWM:").expect("a peak") >= kib(&status, b"RssAnon:").expect("anonymous memory"));
        assert!(io(&fs::read("/proc/self/io").expect("an io")).is_some());
        let threads: Vec<u32> = waits(proc, pid).map(|(thread, _)| thread).collect();
        assert!(threads.contains(&pid), "{threads:?}");
        assert!(all_parents(proc).contains(&(pid, found.parent)));
        let before = newest(&fs::read("/proc/loadavg").expect("loads")).expect("a number");
        std::thread::spawn(|| ()).join().expect("a thread");
        assert_ne!(newest(&fs::read("/proc/loadavg").expect("loads")), Some(before));
    }

    #[test]
    fn children_are_found_both_ways() {
        let proc = Path::new("/proc");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = std::process::id();
        assert!(all_parents(proc).contains(&(child.id(), pid)));
        if has_children_files(proc, pid) {
            let mut found = Vec::new();
            // The kernel breaks a list of threads off where one ends meanwhile, and other tests' threads do.
            while !found.contains(&child.id()) {
                children(proc, pid, &mut found);
            }
        }
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
}
