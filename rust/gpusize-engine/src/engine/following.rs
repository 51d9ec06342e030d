//! The conversations of one worker's part of a level: how many are under way, and when their next turns are due.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tokio::sync::Notify;

use super::job::Talk;

/// See the module.
#[derive(Debug, Default)]
pub struct Following {
    later: RefCell<BinaryHeap<Later>>,
    under_way: Cell<u64>,
    /// No further one begins.
    pub is_last: Cell<bool>,
    /// An earlier turn than all others has come, or all conversations are over.
    pub changed: Notify,
}

#[derive(Debug)]
struct Later {
    due_ns: i64,
    /// Turns of one instant go in the order of their numbers.
    number: (u16, u64),
    talk: Box<Talk>,
}

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Later {}
impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Later {
    /// Reversed: the heap's largest is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due_ns, other.number).cmp(&(self.due_ns, self.number))
    }
}

impl Following {
    /// A conversation has begun.
    pub fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// A conversation is over.
    pub fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
        if self.is_over() {
            self.changed.notify_one();
        }
    }

    /// Whether none is under way and none will be.
    pub fn is_over(&self) -> bool {
        self.is_last.get() && self.is_idle()
    }

    /// Whether none is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.get() == 0
    }

    /// Its next turn, of this number, is due at `due_ns`.
    pub fn push(&self, due_ns: i64, seq: u64, talk: Box<Talk>) {
        let mut later = self.later.borrow_mut();
        if later.peek().is_none_or(|first| due_ns < first.due_ns) {
            self.changed.notify_one();
        }
        later.push(Later { due_ns, number: (talk.stream(), seq), talk });
    }

    /// When the earliest turn is due.
    pub fn next_ns(&self) -> Option<i64> {
        self.later.borrow().peek().map(|first| first.due_ns)
    }

    /// Take the earliest.
    pub fn pop(&self) -> Option<(i64, Box<Talk>)> {
        self.later.borrow_mut().pop().map(|first| (first.due_ns, first.talk))
    }
}
