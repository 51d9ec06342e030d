//! The slots of one worker that have nothing to do, and what the other workers know of them.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::peers::Peers;

/// The slots that have nothing to do, the one that has had it for the shortest time last. The others always know how many
/// requests of the current level they could take.
///
/// A slot may have been called since it was put on the list, by other ways than this one: who takes one says how to tell.
#[derive(Debug)]
pub struct Idle {
    worker: usize,
    peers: Arc<Peers>,
    /// Slots that the current level may use, of which there are `limit`.
    usable: RefCell<Vec<usize>>,
    /// Those of levels that had more.
    beyond: RefCell<Vec<usize>>,
    limit: Cell<usize>,
}

impl Idle {
    pub fn new(worker: usize, peers: Arc<Peers>) -> Self {
        Self { worker, peers, usable: RefCell::default(), beyond: RefCell::default(), limit: Cell::new(0) }
    }

    /// A level begins that may use so many slots, of which these have nothing to do.
    pub fn begin(&self, limit: usize, slots: impl Iterator<Item = usize>) {
        self.limit.set(limit);
        (*self.usable.borrow_mut(), *self.beyond.borrow_mut()) = slots.partition(|index| *index < limit);
        self.tell();
    }

    /// A slot has nothing to do.
    #[inline]
    pub fn push(&self, index: usize) {
        let list = if index < self.limit.get() { &self.usable } else { &self.beyond };
        list.borrow_mut().push(index);
        self.tell();
    }

    /// Take a slot `below` a bound that has not been called since it came.
    #[inline]
    pub fn pop(&self, below: usize, is_parked: impl Fn(usize) -> bool) -> Option<usize> {
        let mut found = pop(&mut self.usable.borrow_mut(), below, &is_parked);
        if found.is_none() && below > self.limit.get() {
            found = pop(&mut self.beyond.borrow_mut(), below, &is_parked);
        }
        self.tell();
        found
    }

    /// Slots that the current level may use.
    pub fn usable(&self) -> usize {
        self.usable.borrow().len()
    }

    #[inline]
    fn tell(&self) {
        self.peers.set_idle(self.worker, self.usable());
    }
}

#[inline]
fn pop(list: &mut Vec<usize>, below: usize, is_parked: impl Fn(usize) -> bool) -> Option<usize> {
    // Of a level that has more connections than the one for which this is.
    let mut others = Vec::new();
    let mut found = None;
    while found.is_none()
        && let Some(index) = list.pop()
    {
        match is_parked(index) {
            true if index < below => found = Some(index),
            true => others.push(index),
            false => {}
        }
    }
    list.extend(others.into_iter().rev());
    found
}
