//! One processor-sharing server, by the virtual service that every active request has had since the server was last idle.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::convert::Infallible;

use super::FlowConfig;
use crate::NS_PER_S;
use crate::replica::{Replica, Serve, Watch};

/// Work per nanosecond that each of k active requests gets.
#[derive(Debug)]
pub(super) struct Speeds {
    each: Vec<f64>,
    last_rate: f64,
    max_active: usize,
}

impl Speeds {
    pub(super) fn new(config: &FlowConfig) -> Self {
        let each = config.rates.iter().enumerate().map(|(before, rate)| rate / NS_PER_S / (before + 1) as f64);
        Self {
            each: each.collect(),
            last_rate: config.rates.last().copied().unwrap_or(0.0) / NS_PER_S,
            max_active: config.max_active.map_or(usize::MAX, |most| most as usize),
        }
    }

    fn of_each(&self, active: usize) -> f64 {
        self.each.get(active - 1).copied().unwrap_or_else(|| self.last_rate / active as f64)
    }
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Customer {
    pub row: usize,
    pub slot: usize,
    pub size: f64,
}

/// All active requests get the same service, so what each has had since it came is the difference of two values of one sum; and who
/// leaves next is who has the least such sum to reach.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// (bits of the sum at which it is done, row, slot). Positive numbers are in the order of their bits.
    active: BinaryHeap<Reverse<(u64, usize, usize)>>,
    waiting: VecDeque<Customer>,
    /// The sum at `at_ns`: what a request that was active all the while would have got.
    served: f64,
    at_ns: i64,
    busy_ns: i64,
    /// Active requests times nanoseconds.
    active_ns: u64,
}

/// What a driver of flow-equivalent servers gets to see.
pub(super) trait Service: Watch {
    /// The request in a slot is active on a server from now on.
    fn begins(&mut self, server: usize, at_ns: i64, slot: usize);
    /// It is done.
    fn done(&mut self, at_ns: i64, slot: usize);
}

impl Server {
    /// Active requests times nanoseconds.
    pub(super) fn active_ns(&self) -> u64 {
        self.active_ns
    }

    fn advance(&mut self, now_ns: i64, speeds: &Speeds) {
        let active = self.active.len();
        let gone_ns = now_ns - self.at_ns;
        self.at_ns = now_ns;
        if active > 0 {
            self.served += gone_ns as f64 * speeds.of_each(active);
            self.busy_ns = self.busy_ns.saturating_add(gone_ns);
            self.active_ns = self.active_ns.saturating_add((active as u64).saturating_mul(gone_ns as u64));
        }
    }

    fn begin(&mut self, number: usize, now_ns: i64, request: Customer, observer: &mut impl Service) {
        let done = self.served + request.size;
        self.active.push(Reverse((done.to_bits(), request.row, request.slot)));
        observer.begins(number, now_ns, request.slot);
    }
}

impl Replica for Server {
    type Model = Speeds;
    type Request = Customer;
    type Refusal = Infallible;

    fn load(&self) -> usize {
        self.active.len() + self.waiting.len()
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the next request is done; rounded up.
    fn next_ns(&self, speeds: &Speeds) -> Option<i64> {
        let Reverse((done, ..)) = self.active.peek()?;
        let left = (f64::from_bits(*done) - self.served).max(0.0);
        Some(self.at_ns.saturating_add((left / speeds.of_each(self.active.len())).ceil() as i64))
    }

    fn busy_ns(&self) -> i64 {
        self.busy_ns
    }

    fn busy_until_ns(&self, now_ns: i64) -> i64 {
        let under_way_ns = if self.active.is_empty() { 0 } else { now_ns - self.at_ns };
        self.busy_ns.saturating_add(under_way_ns)
    }

    fn admit(&self, _request: &Customer, _speeds: &Speeds) -> Result<(), Infallible> {
        Ok(())
    }

    fn queue(&mut self) -> &mut VecDeque<Customer> {
        &mut self.waiting
    }

    fn place(&self, speeds: &Speeds) -> Option<usize> {
        (self.active.len() < speeds.max_active).then_some(self.active.len())
    }
}

impl<O: Service> Serve<O> for Server {
    fn arrive(&mut self, number: usize, now_ns: i64, request: Customer, speeds: &Speeds, observer: &mut O) {
        self.advance(now_ns, speeds);
        if self.active.len() < speeds.max_active {
            self.begin(number, now_ns, request, observer);
        } else {
            self.waiting.push_back(request);
        }
    }

    /// A request is done, and the one that has waited longest becomes active instead.
    fn step(&mut self, number: usize, now_ns: i64, speeds: &Speeds, observer: &mut O) {
        self.advance(now_ns, speeds);
        let Some(Reverse((done, _, slot))) = self.active.pop() else { return };
        // Of the last fraction of a nanosecond nothing is lost: the others keep what they got.
        self.served = self.served.max(f64::from_bits(done));
        if self.active.is_empty() {
            // From zero again, so that sums stay as exact as sizes are.
            self.served = 0.0;
        }
        if let Some(next) = self.waiting.pop_front() {
            self.begin(number, now_ns, next, observer);
        }
        observer.done(now_ns, slot);
    }

    fn wake(&mut self, number: usize, now_ns: i64, speeds: &Speeds, observer: &mut O) {
        self.advance(now_ns, speeds);
        while self.active.len() < speeds.max_active
            && let Some(next) = self.waiting.pop_front()
        {
            self.begin(number, now_ns, next, observer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    /// Slots and times of those that became active and of those that were done.
    #[derive(Debug, Default)]
    struct Log {
        begun: Vec<(usize, i64)>,
        done: Vec<(usize, i64)>,
    }

    impl Watch for Log {}

    impl Service for Log {
        fn begins(&mut self, _: usize, at_ns: i64, slot: usize) {
            self.begun.push((slot, at_ns));
        }

        fn done(&mut self, at_ns: i64, slot: usize) {
            self.done.push((slot, at_ns));
        }
    }

    fn run(server: &mut Server, speeds: &Speeds) -> Log {
        let mut log = Log::default();
        while let Some(next_ns) = server.next_ns(speeds) {
            server.step(0, next_ns, speeds, &mut log);
        }
        log
    }

    #[test]
    fn active_requests_share_the_rate_of_their_number() {
        // Alone 1/s; two get 1.5/s together.
        let speeds = Speeds::new(&FlowConfig::new(vec![1.0, 1.5]));
        let (mut server, mut log) = (Server::default(), Log::default());
        server.arrive(0, 0, Customer { row: 0, slot: 7, size: 4.0 }, &speeds, &mut log);
        server.arrive(0, S, Customer { row: 1, slot: 8, size: 1.5 }, &speeds, &mut log);
        assert_eq!(log.begun, [(7, 0), (8, S)]);
        // Slot 8 needs 2 s at 0.75/s; then slot 7 has 1.5 left, alone.
        assert_eq!(run(&mut server, &speeds).done, [(8, 3 * S), (7, 4 * S + S / 2)]);
        assert_eq!((server.busy_ns(), server.active_ns()), (4 * S + S / 2, 6_500_000_000));
    }

    #[test]
    fn beyond_the_limit_they_wait_in_order() {
        let speeds = Speeds::new(&FlowConfig { max_active: Some(2), ..FlowConfig::new(vec![1.0, 1.0]) });
        let (mut server, mut log) = (Server::default(), Log::default());
        for row in 0..4 {
            server.arrive(0, 0, Customer { row, slot: row, size: 1.0 }, &speeds, &mut log);
        }
        assert_eq!((log.begun, server.load()), (vec![(0, 0), (1, 0)], 4));
        let log = run(&mut server, &speeds);
        assert_eq!(log.done, [(0, 2 * S), (1, 2 * S), (2, 4 * S), (3, 4 * S)]);
        assert_eq!(log.begun, [(2, 2 * S), (3, 2 * S)]);
    }

    #[test]
    fn what_never_ends_overflows_nothing() {
        let speeds = Speeds::new(&FlowConfig::new(vec![1e-9]));
        let mut server = Server::default();
        for row in 0..3 {
            server.arrive(0, S, Customer { row, slot: row, size: 1e12 }, &speeds, &mut Log::default());
        }
        assert_eq!(run(&mut server, &speeds).done.last(), Some(&(2, i64::MAX)));
    }

    #[test]
    fn the_last_rate_holds_beyond_the_curve() {
        let speeds = Speeds::new(&FlowConfig::new(vec![1.0, 2.0]));
        let mut server = Server::default();
        for row in 0..4 {
            server.arrive(0, 0, Customer { row, slot: row, size: 1.0 }, &speeds, &mut Log::default());
        }
        assert_eq!(run(&mut server, &speeds).done.last(), Some(&(3, 2 * S)));
    }
}
