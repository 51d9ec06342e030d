//! All servers, the router in front of them, and the order of their events.

use super::FlowConfig;
use super::server::{Server, Speeds, Waiting};
use crate::replicas::Replicas;
use crate::routing::{Routes, Tournament};

/// What a step of the servers was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The request of the first slot is done, and that of the second, if any, is active from now on.
    Done(usize, Option<usize>),
    /// Replicas came or went.
    Replicas,
}

#[derive(Debug)]
pub(super) struct Servers {
    all: Vec<Server>,
    speeds: Speeds,
    replicas: Replicas,
    routes: Routes,
    /// When each server is done with a request.
    ends: Tournament,
}

impl Servers {
    pub(super) fn new(config: &FlowConfig) -> Self {
        let gpus = config.gpus as usize;
        let replicas = Replicas::new(&config.replicas, config.gpus, config.start_delay_s);
        Self {
            all: (0..gpus).map(|_| Server::default()).collect(),
            speeds: Speeds::new(config),
            routes: Routes::new(config.router, config.seed, gpus, replicas.ready()),
            replicas,
            ends: Tournament::new(gpus),
        }
    }

    fn next_end_ns(&self) -> Option<i64> {
        i64::try_from(self.ends.least().0).ok()
    }

    /// When a request is done or the replicas change next.
    pub(super) fn next_ns(&self) -> Option<i64> {
        self.next_end_ns().into_iter().chain(self.replicas.next_change_ns()).min()
    }

    /// Let that happen; at the same moment, the replicas change first.
    pub(super) fn step(&mut self) -> Option<Step> {
        let end_ns = self.next_end_ns();
        if let Some(change_ns) = self.replicas.next_change_ns()
            && end_ns.is_none_or(|end_ns| change_ns <= end_ns)
        {
            let all = &self.all;
            self.replicas.change(|gpu| all[gpu].load() == 0);
            self.routes.set_ready(self.replicas.ready(), |gpu| all[gpu].load());
            return Some(Step::Replicas);
        }
        let end_ns = end_ns?;
        let (_, gpu) = self.ends.least();
        let (done, next) = self.all[gpu].finish(end_ns, &self.speeds)?;
        self.note(gpu);
        if self.all[gpu].load() == 0 {
            self.replicas.note_idle(gpu, end_ns);
        }
        Some(Step::Done(done, next))
    }

    /// Take the request that is sent as number `index`; its server, how many that has now, and whether it is active at once.
    pub(super) fn arrive(&mut self, index: u64, now_ns: i64, request: Waiting) -> (usize, usize, bool) {
        let gpu = self.routes.pick(index);
        let at_once = self.all[gpu].arrive(now_ns, request, &self.speeds);
        self.note(gpu);
        (gpu, self.all[gpu].load(), at_once)
    }

    fn note(&mut self, gpu: usize) {
        let server = &self.all[gpu];
        self.ends.set(gpu, server.next_ns(&self.speeds).map_or(u64::MAX, |end_ns| end_ns as u64));
        self.routes.note(gpu, server.load());
    }

    pub(super) fn busy_ns(&self) -> i64 {
        self.all.iter().map(Server::busy_ns).fold(0, i64::saturating_add)
    }

    /// Active requests times nanoseconds.
    pub(super) fn active_ns(&self) -> u64 {
        self.all.iter().map(Server::active_ns).fold(0, u64::saturating_add)
    }

    /// Time of all servers in which they were there.
    pub(super) fn up_ns(&self, now_ns: i64) -> i64 {
        (0..self.all.len()).map(|gpu| now_ns - self.replicas.down_ns(gpu, now_ns)).sum()
    }

    /// Of that, time in which removed servers finished what they had.
    pub(super) fn draining_ns(&self, now_ns: i64) -> i64 {
        self.replicas.draining_ns(now_ns)
    }
}
