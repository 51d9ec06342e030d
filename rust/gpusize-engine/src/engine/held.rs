//! Memory for answers that are held until they can be read: one budget for all connections of the process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So much a connection keeps for its next answer without asking.
pub const FREE: usize = 64 << 10;

/// What all connections of the process have taken.
static HELD: AtomicU64 = AtomicU64::new(0);

/// What one connection has taken.
#[derive(Debug, Default)]
pub struct Held(u64);

impl Held {
    /// Take room for `bytes` in all, of `most` that the process may hold; false where there is none.
    #[inline]
    pub fn hold(&mut self, bytes: usize, most: u64) -> bool {
        bytes <= FREE || bytes as u64 <= self.0 || self.take(bytes as u64, most)
    }

    #[cold]
    fn take(&mut self, bytes: u64, most: u64) -> bool {
        let more = bytes - self.0;
        let fits = HELD.fetch_add(more, Relaxed).saturating_add(more) <= most;
        if fits {
            self.0 = bytes;
        } else {
            HELD.fetch_sub(more, Relaxed);
        }
        fits
    }

    /// Give back what was taken.
    #[inline]
    pub fn release(&mut self) {
        if self.0 > 0 {
            HELD.fetch_sub(std::mem::take(&mut self.0), Relaxed);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

/// Empty a buffer for the next answer; a large one is given back to the system.
pub fn empty(buffer: &mut Vec<u8>) {
    if buffer.capacity() > FREE {
        *buffer = Vec::new();
    } else {
        buffer.clear();
    }
}
