//! One process of a tree, read again and again.

use std::fs::File;
use std::path::Path;

use super::kept::Buffer;
use super::proc_files::{self, Stat};
use super::sys::process_cpu_ns;

/// One process of a tree.
#[derive(Debug)]
pub struct Member {
    /// Its number.
    pub pid: u32,
    /// Its `stat`, of those that keep one.
    pub file: Option<File>,
    /// What that said last.
    pub stat: Stat,
    /// CPU time of its own.
    pub own_ns: i64,
}

impl Member {
    /// Read it again; says whether it is still there, and not another one with its number.
    ///
    /// One that is being waited for counts as gone. The kernel marks it before it adds its time to the parent's, and parents
    /// are read first: so no reading has both that time in the parent and the child that it came from.
    pub fn update(&mut self, proc: &Path, live: bool, buffer: &mut Buffer) -> bool {
        let opened = if self.file.is_none() { proc_files::open(proc, self.pid, "stat").ok() } else { None };
        let Some(file) = self.file.as_ref().or(opened.as_ref()) else { return false };
        let Some(stat) = buffer.read(file).ok().and_then(proc_files::stat) else { return false };
        if stat.waited_for || stat.start != self.stat.start {
            return false;
        }
        self.stat = stat;
        let by_clock = if live { process_cpu_ns(self.pid) } else { None };
        self.own_ns = by_clock.unwrap_or(stat.user_ns + stat.system_ns).max(self.own_ns);
        true
    }

    /// CPU, user and system time, children's included.
    pub fn parts(&self) -> [i64; 3] {
        let children = children_of(&self.stat);
        [self.own_ns + children[0], self.stat.user_ns + children[1], self.stat.system_ns + children[2]]
    }
}

/// CPU, user and system time of the children that were waited for.
pub fn children_of(stat: &Stat) -> [i64; 3] {
    [stat.children_user_ns + stat.children_system_ns, stat.children_user_ns, stat.children_system_ns]
}
