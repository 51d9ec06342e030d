//! The connections of a client with an open loop, and the queue of due requests in front of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What becomes of a request that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It goes at once.
    Send,
    /// It waits for a connection.
    Wait,
    /// It is never sent.
    Shed,
}

/// Each connection carries one request at a time. Times are the world's.
#[derive(Debug)]
pub(super) struct Connections {
    /// Not in use; `u32::MAX` at first for a client without bounds.
    free: u32,
    queue: usize,
    waiting: VecDeque<usize>,
    /// When requests under way end.
    ends_ns: BinaryHeap<Reverse<i64>>,
    bounded: bool,
}

impl Connections {
    /// So many connections, and room for so many requests that wait for one; no bound where none is given.
    pub(super) fn new(connections: Option<u32>, queue: Option<u64>) -> Self {
        Self {
            free: connections.unwrap_or(u32::MAX),
            queue: queue.map_or(usize::MAX, |queue| usize::try_from(queue).unwrap_or(usize::MAX)),
            waiting: VecDeque::new(),
            ends_ns: BinaryHeap::new(),
            bounded: connections.is_some(),
        }
    }

    /// Request `row` is due.
    pub(super) fn place(&mut self, row: usize) -> Place {
        if !self.bounded {
            return Place::Send;
        }
        if self.free > 0 {
            self.free -= 1;
            return Place::Send;
        }
        if self.waiting.len() >= self.queue {
            return Place::Shed;
        }
        self.waiting.push_back(row);
        Place::Wait
    }

    /// A request that was sent ends at `end_ns`, now or later.
    pub(super) fn ends(&mut self, end_ns: i64) {
        if self.bounded {
            self.ends_ns.push(Reverse(end_ns));
        }
    }

    /// When a connection is free next.
    pub(super) fn next_end_ns(&self) -> Option<i64> {
        self.ends_ns.peek().map(|Reverse(end_ns)| *end_ns)
    }

    /// That moment is there: the request that has waited longest takes the connection.
    pub(super) fn take_next(&mut self) -> Option<usize> {
        self.ends_ns.pop();
        let row = self.waiting.pop_front();
        if row.is_none() {
            self.free += 1;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_in_order_and_are_shed_beyond_the_queue() {
        let mut connections = Connections::new(Some(2), Some(2));
        let places: Vec<Place> = (0..5).map(|row| connections.place(row)).collect();
        assert_eq!(places, [Place::Send, Place::Send, Place::Wait, Place::Wait, Place::Shed]);
        connections.ends(20);
        connections.ends(10);
        assert_eq!(connections.next_end_ns(), Some(10));
        assert_eq!((connections.take_next(), connections.next_end_ns()), (Some(2), Some(20)));
        assert_eq!((connections.take_next(), connections.next_end_ns()), (Some(3), None));
        connections.ends(30);
        assert_eq!(connections.take_next(), None);
        assert_eq!((connections.place(5), connections.place(6)), (Place::Send, Place::Wait));
    }

    #[test]
    fn without_a_bound_everything_goes() {
        let mut connections = Connections::new(None, None);
        assert!((0..100).all(|row| connections.place(row) == Place::Send));
        connections.ends(5);
        assert_eq!(connections.next_end_ns(), None);
    }
}
