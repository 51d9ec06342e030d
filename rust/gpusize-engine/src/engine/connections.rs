//! The connections of one worker: where they come from, those that its slots share, their numbers, how many are open, and how
//! the last one that reached nobody failed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::names::Address;
use super::pool::{Member, Pool};
use super::sources::Sources;
use crate::outcome::Outcome;

/// See the module.
#[derive(Debug)]
pub struct Connections {
    sources: Sources,
    pool: Pool,
    numbered: Cell<u32>,
    open: Rc<Cell<u64>>,
    last_failure: RefCell<Option<(Outcome, String)>>,
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub struct Counted {
    open: Rc<Cell<u64>>,
    address: Arc<Address>,
}

impl Connections {
    pub fn new(sources: Sources, pool: Pool) -> Self {
        Self { sources, pool, numbered: Cell::new(0), open: Rc::default(), last_failure: RefCell::default() }
    }

    /// The addresses that they come from.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// A place on a shared connection to this address.
    pub fn join(&self, endpoint: usize) -> Member {
        self.pool.join(endpoint)
    }

    /// A number for a new one.
    pub fn next_number(&self) -> u32 {
        let number = self.numbered.get();
        self.numbered.set(number + 1);
        number
    }

    /// Count one to this address as open.
    pub fn count(&self, address: Arc<Address>) -> Counted {
        self.open.set(self.open.get() + 1);
        address.opened();
        Counted { open: self.open.clone(), address }
    }

    /// How many are open now.
    pub fn open(&self) -> u64 {
        self.open.get()
    }

    /// One could not be opened, or nothing came on it in time.
    pub fn failed_with(&self, outcome: Outcome, message: Option<&str>) {
        *self.last_failure.borrow_mut() = Some((outcome, message.unwrap_or_default().to_owned()));
    }

    /// How the last one that failed did so.
    pub fn last_failure(&self) -> Option<(Outcome, String)> {
        self.last_failure.borrow().clone()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
        self.address.closed();
    }
}
