//! Opening a level's connections ahead, a few at a time: a server's queue of new connections is short.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::Worker;
use crate::engine::level::LevelShared;
use crate::engine::messages::Event;
use crate::engine::slot::Abort;

/// Connects of one worker that are under way at once.
const AT_ONCE: usize = 64;
/// After so many failures the rest is left to the requests, which say why.
const FAILURES: usize = 16;

/// One level's connections.
#[derive(Debug)]
struct Opening {
    level: Arc<LevelShared>,
    /// Slots from here to `end` are to come.
    next: usize,
    end: usize,
    under_way: usize,
    failures: usize,
    /// The level starts when all have been tried.
    is_awaited: bool,
}

/// What one worker opens ahead. A level is in it until all its connections have been tried or given up; slots are still to come
/// of the last one only.
#[derive(Debug)]
pub struct Openings {
    levels: RefCell<Vec<Opening>>,
    at_once: Cell<usize>,
}

impl Default for Openings {
    fn default() -> Self {
        Self { levels: RefCell::default(), at_once: Cell::new(AT_ONCE) }
    }
}

impl Openings {
    /// Begin with slots `from` to `end` of a level. Of one that is over, or gives way to this one, only what is under way is left.
    fn begin(&self, level: &Arc<LevelShared>, from: usize, end: usize, is_awaited: bool) {
        let mut levels = self.levels.borrow_mut();
        levels.iter_mut().for_each(Opening::stop);
        levels.push(Opening { level: level.clone(), next: from, end, under_way: 0, failures: 0, is_awaited });
    }

    /// The next slot that is to open its connection for the level; it counts as under way until it has `ended`.
    fn next(&self, level: &Arc<LevelShared>) -> Option<usize> {
        self.with(level, |ours| (ours.next < ours.end).then(|| ours.begin_one()))?
    }

    /// A slot of the level has its connection, or knows that it gets none; the rest may be `wanted` no longer.
    fn ended(&self, level: &Arc<LevelShared>, failed: bool, wanted: bool) {
        self.with(level, |ours| ours.end_one(failed, wanted));
    }

    /// No further slot is to open a connection for the level; whether it was on the list.
    fn stop(&self, level: &Arc<LevelShared>) -> bool {
        self.with(level, Opening::stop).is_some()
    }

    /// Take the level off the list if nothing of it is left; whether somebody waits for that.
    fn is_awaited_no_more(&self, level: &Arc<LevelShared>) -> bool {
        let is_done = |o: &mut Opening| Arc::ptr_eq(&o.level, level) && o.under_way == 0 && o.next >= o.end;
        self.levels.borrow_mut().extract_if(.., is_done).any(|ended| ended.is_awaited)
    }

    fn with<T>(&self, level: &Arc<LevelShared>, act: impl FnOnce(&mut Opening) -> T) -> Option<T> {
        self.levels.borrow_mut().iter_mut().find(|o| Arc::ptr_eq(&o.level, level)).map(act)
    }
}

impl Opening {
    fn begin_one(&mut self) -> usize {
        self.next += 1;
        self.under_way += 1;
        self.next - 1
    }

    fn end_one(&mut self, failed: bool, wanted: bool) {
        self.under_way -= 1;
        self.failures += usize::from(failed);
        if self.failures >= FAILURES || !wanted {
            self.stop();
        }
    }

    fn stop(&mut self) {
        self.next = self.end;
    }
}

impl Worker {
    /// Open the connections of slots `from` to `end`; where they are awaited, say when all have been tried.
    pub fn open_ahead(self: &Rc<Self>, level: &Arc<LevelShared>, from: usize, end: usize, is_awaited: bool) {
        self.openings.begin(level, from, end, is_awaited);
        for _ in 0..self.openings.at_once.get() {
            self.open_next(level);
        }
        self.end_if_prepared(level);
    }

    /// A slot has its connection, or knows that it gets none.
    pub fn prepared(self: &Rc<Self>, level: &Arc<LevelShared>, failed: bool) {
        self.openings.ended(level, failed, self.wants_connection(level));
        self.open_next(level);
        self.end_if_prepared(level);
    }

    /// Have the next slot open its connection, unless its request does so already.
    fn open_next(self: &Rc<Self>, level: &Arc<LevelShared>) {
        while let Some(index) = self.openings.next(level) {
            match self.slot(index).open(level) {
                None => return,
                // The slot holds a request, which opens the connection.
                Some(ours) if Arc::ptr_eq(&ours, level) => {
                    self.openings.ended(level, false, self.wants_connection(level));
                }
                Some(other) => return self.prepared(&other, false),
            }
        }
    }

    /// Have no more than so many connects under way at once.
    #[cfg(test)]
    pub fn open_at_once(&self, at_once: usize) {
        self.openings.at_once.set(at_once);
    }

    fn end_if_prepared(&self, level: &Arc<LevelShared>) {
        if self.openings.is_awaited_no_more(level) {
            self.tell(Event::Ready { worker: self.index });
        }
    }

    /// The level is over: give up what is being opened for it.
    pub fn open_no_more(&self, level: &Arc<LevelShared>) {
        if !self.openings.stop(level) {
            return;
        }
        for slot in self.slots.all().iter().filter(|slot| slot.connects_for(level)) {
            slot.abort(Abort::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests;
