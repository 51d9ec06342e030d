//! Opening a level's connections ahead, a few at a time: a server's queue of new connections is short.

use std::rc::Rc;
use std::sync::Arc;

use super::level::LevelShared;
use super::messages::Event;
use super::slot::Abort;
use super::worker::Worker;

/// Connects of one worker that are under way at once.
const AT_ONCE: usize = 64;
/// After so many failures the rest is left to the requests, which say why.
const FAILURES: usize = 16;

/// One level's connections.
#[derive(Debug)]
pub struct Preparing {
    level: Arc<LevelShared>,
    /// Slots from here to `end` are to come.
    next: usize,
    end: usize,
    under_way: usize,
    failures: usize,
    /// The level starts when all have been tried.
    is_awaited: bool,
}

impl Worker {
    /// Open the connections of slots `from` to `end`; where they are awaited, say when all have been tried.
    pub fn open_ahead(self: &Rc<Self>, level: &Arc<LevelShared>, from: usize, end: usize, is_awaited: bool) {
        // Of a level that is over, or gives way to this one, only what is under way is left.
        for other in self.preparing.borrow_mut().iter_mut() {
            other.next = other.end;
        }
        let preparing = Preparing { level: level.clone(), next: from, end, under_way: 0, failures: 0, is_awaited };
        self.preparing.borrow_mut().push(preparing);
        for _ in 0..AT_ONCE {
            self.open_next(level);
        }
        self.end_if_prepared(level);
    }

    /// A slot has its connection, or knows that it gets none.
    pub fn prepared(self: &Rc<Self>, level: &Arc<LevelShared>, failed: bool) {
        self.ended_one(level, failed);
        self.open_next(level);
        self.end_if_prepared(level);
    }

    /// Have the next slot open its connection, unless its request does so already.
    fn open_next(self: &Rc<Self>, level: &Arc<LevelShared>) {
        while let Some(index) = self.next_to_open(level) {
            match self.slot(index).open(level) {
                None => return,
                // The slot holds a request, which opens the connection.
                Some(ours) if Arc::ptr_eq(&ours, level) => self.ended_one(level, false),
                Some(other) => return self.prepared(&other, false),
            }
        }
    }

    fn next_to_open(&self, level: &Arc<LevelShared>) -> Option<usize> {
        let mut all = self.preparing.borrow_mut();
        let ours = all.iter_mut().find(|p| Arc::ptr_eq(&p.level, level) && p.next < p.end)?;
        ours.next += 1;
        ours.under_way += 1;
        Some(ours.next - 1)
    }

    fn ended_one(&self, level: &Arc<LevelShared>, failed: bool) {
        let mut all = self.preparing.borrow_mut();
        let Some(ours) = all.iter_mut().find(|p| Arc::ptr_eq(&p.level, level)) else { return };
        ours.under_way -= 1;
        ours.failures += usize::from(failed);
        if ours.failures >= FAILURES || !self.wants_connection(level) {
            ours.next = ours.end;
        }
    }

    fn end_if_prepared(&self, level: &Arc<LevelShared>) {
        let is_done = |p: &mut Preparing| Arc::ptr_eq(&p.level, level) && p.under_way == 0 && p.next >= p.end;
        for ended in self.preparing.borrow_mut().extract_if(.., is_done) {
            if ended.is_awaited {
                self.tell(Event::Ready { worker: self.index });
            }
        }
    }

    /// The level is over: give up what is being opened for it.
    pub fn open_no_more(&self, level: &Arc<LevelShared>) {
        let mut all = self.preparing.borrow_mut();
        let Some(ours) = all.iter_mut().find(|p| Arc::ptr_eq(&p.level, level)) else { return };
        ours.next = ours.end;
        let is_ours = |other: &Arc<LevelShared>| Arc::ptr_eq(other, level);
        for slot in self.slots.borrow().iter().filter(|s| s.connecting.borrow().as_ref().is_some_and(is_ours)) {
            slot.abort(Abort::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests;
