//! The slots of one worker: those that there are, and those of them that have nothing to do.

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::idle::Idle;
use super::peers::Peers;
use super::slot::Slot;

/// See the module. A slot that is on the list of the idle ones is parked, unless it has been called since: so whoever takes one
/// off it gets only what can take a request at once.
#[derive(Debug)]
pub struct Slots {
    all: RefCell<Vec<Rc<Slot>>>,
    idle: Idle,
}

impl Slots {
    pub fn new(worker: usize, peers: Arc<Peers>) -> Self {
        Self { all: RefCell::default(), idle: Idle::new(worker, peers) }
    }

    /// All of them, in the order of their numbers.
    pub fn all(&self) -> Ref<'_, [Rc<Slot>]> {
        Ref::map(self.all.borrow(), Vec::as_slice)
    }

    pub fn len(&self) -> usize {
        self.all.borrow().len()
    }

    /// The slot with this number; it and those before it begin where there are none.
    pub fn get(&self, index: usize, begin: impl Fn(&Rc<Slot>)) -> Rc<Slot> {
        let mut all = self.all.borrow_mut();
        while all.len() <= index {
            let slot = Rc::new(Slot::new(all.len()));
            begin(&slot);
            all.push(slot);
        }
        all[index].clone()
    }

    /// Take one `below` a number that can take a request at once.
    #[inline]
    pub fn pop_idle(&self, below: usize) -> Option<Rc<Slot>> {
        let all = self.all.borrow();
        self.idle.pop(below, |index| all[index].is_parked()).map(|index| all[index].clone())
    }

    /// This slot has nothing to do; false when that was known.
    #[inline]
    pub fn park(&self, slot: &Slot) -> bool {
        let is_new = slot.park();
        if is_new {
            self.idle.push(slot.index);
        }
        is_new
    }

    /// How many requests of the current level could be taken at once.
    pub fn idle(&self) -> usize {
        self.idle.usable()
    }

    /// A level begins that may use so many: all look for what they are to do.
    pub fn call_all(&self, limit: usize) {
        self.idle.begin(limit, std::iter::empty());
        for slot in self.all.borrow().iter() {
            slot.called();
        }
    }

    /// A level begins that may use so many and hands out its requests: those that lie in a pause of a closed loop can take
    /// them too, the first ones first.
    pub fn free_all(&self, limit: usize) {
        let all = self.all.borrow();
        self.idle.begin(limit, (0..all.len()).rev().filter(|index| all[*index].is_freed()));
    }

    /// The conversations that closed loops have left in them are over.
    pub fn forget_talks(&self) {
        self.all.borrow().iter().for_each(|slot| drop(slot.talk.take()));
    }
}
