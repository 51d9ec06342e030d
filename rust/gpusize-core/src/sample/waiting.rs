//! What the sampler's thread waits for besides its next tick.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::source::{End, Ends};
use super::sys::{Waker, wait_until, watch};

/// What the thread waits for, made anew only when a source has something else to wait for.
pub struct Watched {
    /// The waker, then the ends.
    entries: Vec<libc::pollfd>,
    /// Whose ends they are.
    ends: Vec<(usize, End)>,
    held: Vec<Arc<File>>,
    changes: Option<u64>,
}

impl Watched {
    /// Nothing but the waker yet.
    pub fn new(waker: &Waker) -> Self {
        let entries = vec![watch(waker.as_raw_fd(), libc::POLLIN)];
        Self { entries, ends: Vec::new(), held: Vec::new(), changes: None }
    }

    /// Wait for the ends of these sources from now on.
    pub fn follow<'a>(&mut self, sources: impl Iterator<Item = &'a Ends> + Clone) {
        let changes = Some(sources.clone().map(Ends::changes).sum());
        if self.changes == changes {
            return;
        }
        self.changes = changes;
        self.entries.truncate(1);
        self.ends.clear();
        self.held.clear();
        for (at, ends) in sources.enumerate() {
            for (end, file, entry) in ends.watched() {
                self.entries.push(entry);
                self.ends.push((at, end));
                self.held.push(file);
            }
        }
    }

    /// Wait for an end, or until this time; an interrupted wait only comes early.
    pub fn wait_until(&mut self, due_ns: i64) {
        let _ = wait_until(&mut self.entries, due_ns);
    }

    /// The ends that have come: the source's place, and which.
    pub fn ready(&self) -> impl Iterator<Item = (usize, End)> {
        let ready = self.entries[1..].iter().zip(&self.ends).filter(|(entry, _)| entry.revents != 0);
        ready.map(|(_, end)| *end)
    }
}
