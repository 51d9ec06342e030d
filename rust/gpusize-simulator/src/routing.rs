//! Which GPU a request goes to, without a look at all of them.

use super::Router;
use super::service::purpose;
use gpusize_base::draw::Draw;

/// The least of a number of keys, and where it stands: a tournament, of which a change of one key replays the matches of that key alone.
#[derive(Debug)]
pub(super) struct Tournament {
    /// (key, place) of the winner of each match; the root is node 1, the places begin at `leaves`.
    nodes: Vec<(u64, u32)>,
    leaves: usize,
}

impl Tournament {
    /// So many keys, all [`u64::MAX`].
    pub(super) fn new(places: usize) -> Self {
        let leaves = places.next_power_of_two();
        let mut nodes = vec![(u64::MAX, 0); 2 * leaves];
        for place in 0..leaves {
            nodes[leaves + place].1 = place as u32;
        }
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node];
        }
        Self { nodes, leaves }
    }

    pub(super) fn set(&mut self, place: usize, key: u64) {
        let mut node = self.leaves + place;
        if self.nodes[node].0 == key {
            return;
        }
        self.nodes[node].0 = key;
        while node > 1 {
            node /= 2;
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            // Of equal keys the first place wins, and those on the left come first.
            let winner = if right.0 < left.0 { right } else { left };
            if self.nodes[node] == winner {
                return;
            }
            self.nodes[node] = winner;
        }
    }

    /// The least key and the first place that has it.
    pub(super) fn least(&self) -> (u64, usize) {
        let (key, place) = self.nodes[1];
        (key, place as usize)
    }
}

/// The router: each request gets one of the ready GPUs, which are the first so many.
#[derive(Debug)]
pub(super) struct Routes {
    router: Router,
    lots: Draw,
    ready: usize,
    /// Requests on each ready GPU, or its place in the order of those that have one; of no use to the other routers, which do without.
    loads: Tournament,
}

impl Routes {
    pub(super) fn new(router: Router, seed: u64, gpus: usize, ready: usize) -> Self {
        let mut routes =
            Self { router, lots: Draw::new(seed, 0, purpose::ROUTE), ready: 0, loads: Tournament::new(gpus) };
        routes.set_ready(ready, |_| 0);
        routes
    }

    /// Whether it asks for anything but the number of a request.
    fn looks(&self) -> bool {
        matches!(self.router, Router::LeastLoaded | Router::Shared)
    }

    /// Whether all GPUs share a queue.
    pub(super) fn shares(&self) -> bool {
        self.router == Router::Shared
    }

    /// From now on the first `ready` GPUs take requests; `key` tells which of them comes first: the least, and never one with
    /// [`usize::MAX`].
    pub(super) fn set_ready(&mut self, ready: usize, key: impl Fn(usize) -> usize) {
        let before = std::mem::replace(&mut self.ready, ready);
        if !self.looks() {
            return;
        }
        for gpu in ready..before {
            self.loads.set(gpu, u64::MAX);
        }
        for gpu in before..ready {
            self.loads.set(gpu, key(gpu) as u64);
        }
    }

    /// The key of a GPU is this now.
    pub(super) fn note(&mut self, gpu: usize, key: usize) {
        if self.looks() && gpu < self.ready {
            self.loads.set(gpu, key as u64);
        }
    }

    /// The GPU of request `index`; one at least is ready. `None`: it has to wait for one.
    pub(super) fn pick(&self, index: u64) -> Option<usize> {
        debug_assert!(self.ready > 0, "a request without a ready GPU");
        match self.router {
            Router::RoundRobin => Some((index % self.ready as u64) as usize),
            Router::Random => Some((self.lots.unit(index) * self.ready as f64) as usize),
            Router::LeastLoaded => Some(self.loads.least().1),
            Router::Shared => {
                let (key, gpu) = self.loads.least();
                (key < u64::MAX).then_some(gpu)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_is_the_first_of_the_least_whatever_comes_and_goes() {
        let lots = Draw::new(1, 2, 3);
        for gpus in [1, 2, 3, 7, 64, 100] {
            let mut ready = 1 + gpus / 2;
            let mut loads = vec![0_usize; gpus];
            let mut routes = Routes::new(Router::LeastLoaded, 1, gpus, ready);
            for step in 0..5000 {
                let lot = lots.u64(step) as usize;
                let gpu = (lot >> 8) % gpus;
                match lot % 8 {
                    0..=3 => {
                        let first = (0..ready).min_by_key(|&gpu| loads[gpu]).unwrap();
                        assert_eq!(routes.pick(step), Some(first), "{gpus} GPUs, step {step}: {loads:?}");
                        loads[first] += 1;
                        routes.note(first, loads[first]);
                    }
                    4..=6 => {
                        loads[gpu] = loads[gpu].saturating_sub(1);
                        routes.note(gpu, loads[gpu]);
                    }
                    _ => {
                        ready = gpu + 1;
                        routes.set_ready(ready, |gpu| loads[gpu]);
                    }
                }
            }
        }
    }

    #[test]
    fn other_routers_go_by_the_number_of_the_request() {
        let mut turns = Routes::new(Router::RoundRobin, 1, 4, 4);
        assert_eq!([0, 1, 5, 7].map(|index| turns.pick(index)), [0, 1, 1, 3].map(Some));
        turns.set_ready(3, |_| 0);
        assert_eq!([0, 1, 5, 7].map(|index| turns.pick(index)), [0, 1, 2, 1].map(Some));
        let lots = Routes::new(Router::Random, 1, 4, 3);
        let mut counts = [0; 4];
        for index in 0..3000 {
            counts[lots.pick(index).expect("one is ready")] += 1;
        }
        assert!(counts[..3].iter().all(|count| (900..1100).contains(count)) && counts[3] == 0, "{counts:?}");
    }
}
