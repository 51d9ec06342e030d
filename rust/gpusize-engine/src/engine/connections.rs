//! The connections of one worker: where they come from, those that its slots share, their numbers, and how many are open.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::names::Address;
use super::pool::{Member, Pool};
use super::sources::Sources;

/// See the module.
#[derive(Debug)]
pub struct Connections {
    sources: Sources,
    pool: Pool,
    numbered: Cell<u32>,
    open: Rc<Cell<u64>>,
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub struct Counted {
    open: Rc<Cell<u64>>,
    address: Arc<Address>,
}

impl Connections {
    pub fn new(sources: Sources, pool: Pool) -> Self {
        Self { sources, pool, numbered: Cell::new(0), open: Rc::default() }
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
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.set(self.open.get() - 1);
        self.address.closed();
    }
}
