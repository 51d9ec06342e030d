//! What became due and what was sent in each second of a level, as one worker sees it.

use std::cell::{Cell, RefCell};

use crate::record::accounts::second_of;
use crate::record::feed::Begun;

const SECOND_NS: i64 = 1_000_000_000;

/// Counts of the second at hand, and of those before it that nobody has been told of. The level's start is given with each
/// event, as it may not be known when this is made.
#[derive(Debug)]
pub struct Seconds {
    second: Cell<u32>,
    begins_ns: Cell<i64>,
    ends_ns: Cell<i64>,
    due: Cell<u64>,
    sent: Cell<u64>,
    /// Number, due and sent.
    before: RefCell<Begun>,
    /// Seconds before this one have been told.
    told: Cell<u32>,
}

impl Default for Seconds {
    fn default() -> Self {
        Self {
            second: Cell::new(0),
            begins_ns: Cell::new(i64::MIN),
            // No second is at hand.
            ends_ns: Cell::new(i64::MIN),
            due: Cell::new(0),
            sent: Cell::new(0),
            before: RefCell::default(),
            told: Cell::new(0),
        }
    }
}

impl Seconds {
    /// A request was due at `ns`.
    #[inline]
    pub fn due(&self, ns: i64, start_ns: i64) {
        if ns < self.ends_ns.get() && ns >= self.begins_ns.get() {
            self.due.set(self.due.get() + 1);
        } else {
            self.elsewhere(ns, start_ns, 1, 0);
        }
    }

    /// A request was sent at `ns`.
    #[inline]
    pub fn sent(&self, ns: i64, start_ns: i64) {
        if ns < self.ends_ns.get() && ns >= self.begins_ns.get() {
            self.sent.set(self.sent.get() + 1);
        } else {
            self.elsewhere(ns, start_ns, 0, 1);
        }
    }

    #[cold]
    fn elsewhere(&self, ns: i64, start_ns: i64, due: u64, sent: u64) {
        if ns >= self.ends_ns.get() {
            self.begin(ns, start_ns);
            self.due.set(due);
            self.sent.set(sent);
            return;
        }
        let second = second_of(ns, start_ns);
        let mut before = self.before.borrow_mut();
        match before.iter_mut().find(|(number, ..)| *number == second) {
            Some(counts) => (counts.1, counts.2) = (counts.1 + due, counts.2 + sent),
            None => before.push((second, due, sent)),
        }
    }

    /// The second in which `ns` lies is the one at hand.
    fn begin(&self, ns: i64, start_ns: i64) {
        let (due, sent) = (self.due.take(), self.sent.take());
        if due + sent > 0 {
            self.before.borrow_mut().push((self.second.get(), due, sent));
        }
        let second = second_of(ns, start_ns);
        let begins_ns = start_ns + i64::from(second) * SECOND_NS;
        self.second.set(second);
        // Whatever comes before the start counts in the first second.
        self.begins_ns.set(if second == 0 { i64::MIN } else { begins_ns });
        self.ends_ns.set(begins_ns.saturating_add(SECOND_NS));
    }

    /// When a second has ended by `now` of which nobody was told: the number of the next one, and the counts.
    pub fn complete(&self, now: i64, start_ns: i64) -> Option<(u32, Begun)> {
        let through = second_of(now, start_ns);
        if through <= self.told.get() {
            return None;
        }
        if now >= self.ends_ns.get() {
            self.begin(now, start_ns);
        }
        self.told.set(through);
        Some((through, self.before.take()))
    }

    /// All counts of which nobody was told.
    pub fn rest(&self, start_ns: i64) -> Begun {
        self.begin(self.ends_ns.get(), start_ns);
        self.before.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_counts_in_its_own_second() {
        const S: i64 = SECOND_NS;
        let start = 5 * S + 7;
        let seconds = Seconds::default();
        seconds.due(start - 3, start);
        seconds.sent(start + S - 1, start);
        assert_eq!(seconds.complete(start + S - 1, start), None);
        seconds.sent(start + S, start);
        seconds.due(start + S - 1, start);
        assert_eq!(seconds.complete(start + S, start), Some((1, vec![(0, 2, 1)])));
        assert_eq!(seconds.complete(start + 2 * S - 1, start), None);
        seconds.due(start + 4 * S, start);
        seconds.due(start + 3 * S, start);
        seconds.due(start + 3 * S, start);
        assert_eq!(seconds.complete(start + 4 * S, start), Some((4, vec![(1, 0, 1), (3, 2, 0)])));
        assert_eq!(seconds.rest(start), [(4, 1, 0)]);
        assert_eq!(seconds.rest(start), []);
        assert_eq!(Seconds::default().rest(start), []);
    }
}
