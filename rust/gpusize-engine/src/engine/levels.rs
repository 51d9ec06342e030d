//! The levels of one worker: those that it has on its hands, and the one whose time it is.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::level::LevelShared;
use super::outside::Task;
use super::worker_level::WorkerLevel;

/// See the module. Levels take over in the order in which they were begun: one that comes late, after the next, never does.
#[derive(Debug, Default)]
pub struct Levels {
    /// Until they are drained.
    all: RefCell<Vec<Rc<WorkerLevel>>>,
    current: RefCell<Option<Rc<WorkerLevel>>>,
    /// Slots that the current one has as a closed loop; 0 in an open one.
    closed_slots: Cell<usize>,
    begun: Cell<u64>,
    taken_over: Cell<u64>,
    /// Of open loops that are not closed.
    pacers: RefCell<Vec<(Rc<WorkerLevel>, Task<()>)>>,
}

impl Levels {
    /// The worker was told to begin a level, of which this is its part; says the how-manieth it is.
    pub fn begin(&self, mine: Option<&Rc<WorkerLevel>>) -> u64 {
        self.all.borrow_mut().extend(mine.cloned());
        self.begun.set(self.begun.get() + 1);
        self.begun.get()
    }

    /// The time has come of the one that was the `order`-th to begin; false when that of a later one has.
    pub fn take_over(&self, mine: Option<&Rc<WorkerLevel>>, order: u64) -> bool {
        if order < self.taken_over.get() {
            return false;
        }
        self.taken_over.set(order);
        *self.current.borrow_mut() = mine.cloned();
        self.closed_slots.set(0);
        true
    }

    /// Slots go round in the current one, a closed loop.
    pub fn go_round(&self, slots: usize) {
        self.closed_slots.set(slots);
    }

    /// All that the worker has on its hands.
    pub fn all(&self) -> Ref<'_, [Rc<WorkerLevel>]> {
        Ref::map(self.all.borrow(), Vec::as_slice)
    }

    /// This worker's part of a level.
    pub fn find(&self, level: &Arc<LevelShared>) -> Option<Rc<WorkerLevel>> {
        self.all.borrow().iter().find(|mine| Arc::ptr_eq(&mine.shared, level)).cloned()
    }

    /// The level whose time it is.
    pub fn current(&self) -> Ref<'_, Option<Rc<WorkerLevel>>> {
        self.current.borrow()
    }

    /// Whether it is the one whose time it is. What workers have free is for that one; requests of the one before, which may
    /// have fewer connections, would go from one worker to the other until one of these is free.
    pub fn is_current(&self, level: &Rc<WorkerLevel>) -> bool {
        self.current.borrow().as_ref().is_some_and(|current| Rc::ptr_eq(current, level))
    }

    /// The current closed loop, if slot `index` belongs to it and it takes requests.
    #[inline]
    pub fn closed_loop(&self, index: usize) -> Option<Rc<WorkerLevel>> {
        if index >= self.closed_slots.get() {
            return None;
        }
        self.current.borrow().as_ref().filter(|level| !level.is_closed()).cloned()
    }

    /// The task that lets the requests of an open loop go.
    pub fn pace(&self, mine: Rc<WorkerLevel>, pacer: Task<()>) {
        self.pacers.borrow_mut().push((mine, pacer));
    }

    /// Let no further request of the level go.
    pub fn stop_pacer(&self, mine: &Rc<WorkerLevel>) {
        for (_, pacer) in self.pacers.borrow_mut().extract_if(.., |(theirs, _)| Rc::ptr_eq(theirs, mine)) {
            pacer.abort();
        }
    }

    /// Let go of what is over.
    pub fn forget_drained(&self) {
        self.all.borrow_mut().retain(|level| !level.is_drained());
        self.pacers.borrow_mut().retain(|(level, _)| !level.is_closed());
    }
}
