//! What the sampler's thread waits for besides its next tick.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::source::{End, Ends};
use super::sys::{Epoll, Waker};

/// So many ends are told at once; others are by the next wait.
const MOST_READY: usize = 16;
const WAKER: u64 = u64::MAX;

/// What the thread waits for, made anew only when a source has something else to wait for.
pub struct Watched {
    epoll: Epoll,
    /// Whose ends they are, by the names of their events.
    ends: Vec<(usize, End)>,
    /// Whoever waits for a descriptor keeps it open.
    held: Vec<Arc<File>>,
    events: [libc::epoll_event; MOST_READY],
    ready: usize,
    changes: Option<u64>,
}

impl Watched {
    /// Nothing but the waker yet.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn new(waker: &Waker) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(waker.as_raw_fd(), libc::EPOLLIN, WAKER)?;
        let events = [libc::epoll_event { events: 0, u64: WAKER }; MOST_READY];
        Ok(Self { epoll, ends: Vec::new(), held: Vec::new(), events, ready: 0, changes: None })
    }

    /// Wait for the ends of these sources from now on. An end that cannot be waited for (a file of no kernel's) shows at the next
    /// reading.
    pub fn follow<'a>(&mut self, sources: impl Iterator<Item = &'a Ends> + Clone) {
        let changes = Some(sources.clone().map(Ends::changes).sum());
        if self.changes == changes {
            return;
        }
        self.changes = changes;
        self.ends.clear();
        for file in self.held.drain(..) {
            self.epoll.remove(file.as_raw_fd());
        }
        for (at, ends) in sources.enumerate() {
            for (end, file, events) in ends.watched() {
                if self.epoll.add(file.as_raw_fd(), events, self.ends.len() as u64).is_ok() {
                    self.ends.push((at, end));
                    self.held.push(file);
                }
            }
        }
    }

    /// Wait for an end, or until this time; an interrupted wait only comes early.
    pub fn wait_until(&mut self, due_ns: i64) {
        self.ready = self.epoll.wait_until(&mut self.events, due_ns).unwrap_or(0);
    }

    /// The ends that have come: the source's place, and which.
    pub fn ready(&self) -> impl Iterator<Item = (usize, End)> {
        let names = self.events[..self.ready].iter().map(|event| event.u64);
        names.filter_map(|name| self.ends.get(usize::try_from(name).ok()?).copied())
    }
}
