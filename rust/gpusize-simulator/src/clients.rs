//! Who asks, and when: the users or arrivals of a load, their connections and their window. Times are the world's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::slice;

use super::connections::{Connections, Place};
use super::ledger::{Ledger, Request};
use super::window::Window;
use super::{Arrivals, Load, earliest};
use gpusize_load::schedule::{self, Thinks};

/// (due, order, user).
type Due = (i64, u64, u32);

/// Requests to come, in order. Most are asked for in that order, and those need no heap.
#[derive(Debug, Default)]
struct DueQueue {
    in_order: VecDeque<Due>,
    others: BinaryHeap<Reverse<Due>>,
}

impl DueQueue {
    fn push(&mut self, due: Due) {
        if self.in_order.back().is_none_or(|last| *last <= due) {
            self.in_order.push_back(due);
        } else {
            self.others.push(Reverse(due));
        }
    }

    fn peek(&self) -> Option<&Due> {
        match (self.in_order.front(), self.others.peek()) {
            (Some(first), Some(Reverse(other))) => Some(first.min(other)),
            (first, other) => first.or(other.map(|Reverse(other)| other)),
        }
    }

    fn pop(&mut self) -> Option<Due> {
        let other_first = match (self.in_order.front(), self.others.peek()) {
            (Some(first), Some(Reverse(other))) => other < first,
            (first, _) => first.is_none(),
        };
        if other_first { self.others.pop().map(|Reverse(due)| due) } else { self.in_order.pop_front() }
    }
}

/// When the requests of an open loop are due.
#[derive(Debug)]
enum DueTimes<'a> {
    /// By the same code that the engine sends by: the same seed gives the same nanoseconds.
    Drawn(Box<schedule::Arrivals>),
    HandedOver(slice::Iter<'a, i64>),
}

impl<'a> DueTimes<'a> {
    fn new(seed: u64, load: &Load, plan_ns: &'a [i64]) -> Self {
        match load.rate() {
            Some(rate) => Self::Drawn(Box::new(schedule::Arrivals::new(&rate, seed, 0))),
            None => Self::HandedOver(plan_ns.iter()),
        }
    }

    fn next(&mut self) -> Option<i64> {
        match self {
            Self::Drawn(arrivals) => arrivals.next().map(|(_, due_ns)| due_ns),
            Self::HandedOver(plan_ns) => plan_ns.next().copied(),
        }
    }
}

/// The other side of the cluster.
#[derive(Debug)]
pub(super) struct Clients<'a> {
    load: &'a Load,
    /// When the requests of an open loop are due: drawn as the engine does that sends them, or as they were handed over.
    due_times: DueTimes<'a>,
    connections: Connections,
    /// Pauses of users, by the same draws as the engine's.
    thinks: Thinks,
    due: DueQueue,
    order: u64,
    /// Requests that have been due.
    asked: usize,
    window: Window,
    ledger: Ledger,
    /// When an open loop was ended, as far more came than can be served.
    cut_ns: Option<i64>,
}

impl<'a> Clients<'a> {
    /// Clients that have yet to ask; the first requests of a closed loop are spread over `stagger_ns`.
    pub(super) fn new(seed: u64, load: &'a Load, plan_ns: &'a [i64], stagger_ns: i64, ledger: Ledger) -> Self {
        let mut clients = Self {
            load,
            due_times: DueTimes::new(seed, load, plan_ns),
            connections: Connections::new(load.connections, load.queue),
            thinks: Thinks::new(load.think(), seed, 0),
            due: DueQueue::default(),
            order: 0,
            asked: 0,
            window: Window::default(),
            ledger,
            cut_ns: None,
        };
        match load.arrivals {
            Arrivals::Open { .. } | Arrivals::Plan => clients.next_of_open_loop(),
            Arrivals::Closed { users, .. } => {
                for user in 0..users {
                    clients.push(stagger_ns * i64::from(user) / i64::from(users), user);
                }
            }
        }
        clients
    }

    /// Whether the window has closed and all that were due before have ended.
    pub(super) fn is_over(&self) -> bool {
        self.window.is_over()
    }

    /// When a request is due or a connection is free next.
    pub(super) fn next_ns(&self) -> Option<i64> {
        let due_ns = self.due.peek().map(|&(due_ns, ..)| due_ns);
        earliest(due_ns, self.connections.next_end_ns())
    }

    /// Let that happen; at the same moment, the connection is free first. The slot of the request that is to be sent now, if any, and
    /// the time; `input` tells what the request of a row brings.
    pub(super) fn act(&mut self, input: impl FnOnce(usize) -> u32) -> Option<(usize, i64)> {
        let due_ns = self.due.peek().map(|&(due_ns, ..)| due_ns);
        let (slot, sent_ns) = match self.connections.next_end_ns() {
            Some(end_ns) if due_ns.is_none_or(|due_ns| end_ns <= due_ns) => (self.connections.take_next()?, end_ns),
            _ => self.ask(input)?,
        };
        self.ledger.request(slot).sent_ns = sent_ns;
        Some((slot, sent_ns))
    }

    fn ask(&mut self, input: impl FnOnce(usize) -> u32) -> Option<(usize, i64)> {
        let (due_ns, _, user) = self.due.pop()?;
        let row = self.asked;
        self.asked += 1;
        match self.load.arrivals {
            Arrivals::Open { .. } if self.window.has_enough_behind_it(row) => self.cut_ns = Some(due_ns),
            Arrivals::Open { .. } | Arrivals::Plan => self.next_of_open_loop(),
            Arrivals::Closed { .. } => {}
        }
        let warmup = self.window.place(self.load, row, due_ns);
        let recorded = row < self.window.recorded();
        let request = Request { row, user, due_ns, input: input(row), warmup, recorded, ..Request::default() };
        let slot = self.ledger.open(request);
        let place = self.connections.place(slot);
        if place == Place::Shed {
            self.end(slot, due_ns);
        }
        if self.load.arrivals == Arrivals::Plan && self.due.peek().is_none() {
            self.window.close_behind(self.load, due_ns);
        }
        (place == Place::Send).then_some((slot, due_ns))
    }

    /// A request that has been due.
    pub(super) fn request(&mut self, slot: usize) -> &mut Request {
        self.ledger.request(slot)
    }

    /// A request ends at `end_ns`, now or later; its slot is free.
    pub(super) fn end(&mut self, slot: usize, end_ns: i64) {
        let &mut Request { row, user, sent_ns, .. } = self.ledger.request(slot);
        self.ledger.end(slot, end_ns, self.window.known_ns(self.load));
        self.window.end(row);
        if sent_ns >= 0 {
            self.connections.ends(end_ns);
        }
        if matches!(self.load.arrivals, Arrivals::Closed { .. }) {
            self.push(end_ns.saturating_add(self.thinks.before_ns(row as u64, None)), user);
        }
    }

    fn next_of_open_loop(&mut self) {
        if let Some(next_ns) = self.due_times.next() {
            self.push(next_ns, self.order as u32);
        }
    }

    fn push(&mut self, due_ns: i64, user: u32) {
        self.due.push((due_ns, self.order, user));
        self.order += 1;
    }

    /// When the load was ended although requests that count were under way; none: it went on until they had ended.
    pub(super) fn cut_ns(&self) -> Option<i64> {
        self.cut_ns
    }

    /// What was kept, and when the window opened and closed in a run that has come to `now_ns`.
    pub(super) fn finish(self, now_ns: i64) -> (Ledger, (i64, i64)) {
        (self.ledger, self.window.bounds_ns(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpusize_base::draw::Draw;

    #[test]
    fn what_is_due_comes_in_order_however_it_was_asked_for() {
        let lots = Draw::new(1, 0, 0);
        let mut queue = DueQueue::default();
        let mut sorted = BinaryHeap::new();
        for order in 0..2000 {
            let due = ((lots.u64(order) % 500) as i64, order, 0);
            queue.push(due);
            sorted.push(Reverse(due));
            if order % 3 == 0 {
                assert_eq!(queue.peek().copied(), sorted.peek().map(|Reverse(due)| *due));
                assert_eq!(queue.pop(), sorted.pop().map(|Reverse(due)| due));
            }
        }
        while let Some(Reverse(due)) = sorted.pop() {
            assert_eq!(queue.pop(), Some(due));
        }
        assert_eq!((queue.pop(), queue.peek()), (None, None));
    }
}
