//! The cluster: replicas, the router in front of them, and the order of their events. It has no clock; a driver tells it the time.

use std::collections::VecDeque;

use super::replica::{Replica, Serve, Watch};
use super::replicas::Replicas;
use super::routing::{Routes, Tournament};
use super::summary::Totals;
use super::{ReplicaStep, Router, earliest};

/// How many replicas there are, and which of them a request goes to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape<'a> {
    pub gpus: u32,
    pub router: Router,
    pub seed: u64,
    pub replicas: &'a [ReplicaStep],
    pub start_delay_s: f64,
}

/// The state machine, of replicas of any kind.
#[derive(Debug)]
pub struct Cluster<R: Replica> {
    all: Vec<R>,
    /// Requests that each has been given.
    taken: Vec<u64>,
    /// Requests that wait for any of them, in order; of no use unless they share it.
    queue: VecDeque<R::Request>,
    pub(super) model: R::Model,
    replicas: Replicas,
    routes: Routes,
    /// When something happens next on each replica.
    ends: Tournament,
    now_ns: i64,
}

impl<R: Replica> Cluster<R> {
    /// An idle cluster at time 0.
    pub(super) fn of(shape: Shape<'_>, model: R::Model, idle: impl Fn() -> R) -> Self {
        let gpus = shape.gpus as usize;
        let replicas = Replicas::new(shape.replicas, shape.gpus, shape.start_delay_s);
        Self {
            all: (0..gpus).map(|_| idle()).collect(),
            taken: vec![0; gpus],
            queue: VecDeque::new(),
            model,
            routes: Routes::new(shape.router, shape.seed, gpus, replicas.ready()),
            replicas,
            ends: Tournament::new(gpus),
            now_ns: 0,
        }
    }

    /// When something happens on a replica next, or the replicas change; `None` when all are idle and nothing is to change.
    pub fn next_event_ns(&self) -> Option<i64> {
        earliest(self.next_end_ns(), self.replicas.next_change_ns())
    }

    fn next_end_ns(&self) -> Option<i64> {
        i64::try_from(self.ends.least().0).ok()
    }

    /// Let that happen; at the same moment, the replicas change first.
    pub fn step<O: Watch>(&mut self, observer: &mut O)
    where
        R: Serve<O>,
    {
        let end_ns = self.next_end_ns();
        if let Some(change_ns) = self.replicas.next_change_ns()
            && end_ns.is_none_or(|end_ns| change_ns <= end_ns)
        {
            self.now_ns = change_ns;
            let all = &self.all;
            self.replicas.change(|gpu| all[gpu].load() == 0);
            self.note_ready(observer);
            observer.replicas(change_ns, self.replicas.desired(), self.replicas.ready());
            return;
        }
        let Some(end_ns) = end_ns else { return };
        let (_, gpu) = self.ends.least();
        self.now_ns = end_ns;
        self.with_queue(gpu, |replica, model| replica.step(gpu, end_ns, model, observer));
        self.note(gpu);
        if self.all[gpu].load() == 0 {
            self.replicas.note_idle(gpu, end_ns);
        }
    }

    /// Ask for so many replicas, from none to all GPUs, at `now_ns`, up to which the cluster must have advanced. A new one is ready when its
    /// delay is over; one that is removed takes no requests any more and finishes those that it has, in its queue too. Without a ready one
    /// nothing may be handed over.
    pub fn scale<O: Watch>(&mut self, now_ns: i64, replicas: u32, observer: &mut O)
    where
        R: Serve<O>,
    {
        debug_assert!(now_ns >= self.now_ns, "replicas asked for before the last event");
        self.now_ns = now_ns;
        let all = &self.all;
        let replicas = (replicas as usize).min(all.len());
        self.replicas.scale(now_ns, replicas, |gpu| all[gpu].load() == 0);
        self.note_ready(observer);
        observer.replicas(now_ns, self.replicas.desired(), self.replicas.ready());
    }

    /// Let everything happen that is due at `now_ns` or before.
    pub fn advance<O: Watch>(&mut self, now_ns: i64, observer: &mut O)
    where
        R: Serve<O>,
    {
        while self.next_event_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            self.step(observer);
        }
    }

    /// When the last event was.
    pub(super) fn now_ns(&self) -> i64 {
        self.now_ns
    }

    /// Take request `index` at `now_ns`, up to which the cluster must have advanced; returns its GPU, `None` where it waits in the queue
    /// that all share. One at least must be ready.
    pub(super) fn take<O: Watch>(
        &mut self,
        index: u64,
        now_ns: i64,
        request: R::Request,
        observer: &mut O,
    ) -> Result<Option<usize>, R::Refusal>
    where
        R: Serve<O>,
    {
        debug_assert!(now_ns >= self.now_ns, "a request from before the last event");
        // While anybody waits for all of them, nobody overtakes.
        let picked = self.routes.pick(index).filter(|_| self.queue.is_empty());
        self.admit(picked, &request)?;
        self.now_ns = now_ns;
        let Some(gpu) = picked else {
            self.queue.push_back(request);
            return Ok(None);
        };
        self.taken[gpu] += 1;
        self.all[gpu].arrive(gpu, now_ns, request, &self.model, observer);
        self.note(gpu);
        Ok(Some(gpu))
    }

    /// Without a replica for it, the queue that all share counts as that of any of them.
    fn admit(&mut self, picked: Option<usize>, request: &R::Request) -> Result<(), R::Refusal> {
        let replica = &mut self.all[picked.unwrap_or(0)];
        if picked.is_some() {
            return replica.admit(request, &self.model);
        }
        std::mem::swap(&mut self.queue, replica.queue());
        let admitted = replica.admit(request, &self.model);
        std::mem::swap(&mut self.queue, replica.queue());
        admitted
    }

    /// Let something happen on a replica that may begin with those who wait for all of them, after those that it has been given.
    fn with_queue(&mut self, gpu: usize, happens: impl FnOnce(&mut R, &R::Model)) {
        let replica = &mut self.all[gpu];
        if !self.routes.shares() || gpu >= self.replicas.ready() {
            return happens(replica, &self.model);
        }
        let given = replica.queue().len();
        while let Some(request) = replica.queue().pop_back() {
            self.queue.push_front(request);
        }
        let before = self.queue.len();
        std::mem::swap(&mut self.queue, replica.queue());
        happens(replica, &self.model);
        if !replica.gathers() {
            std::mem::swap(&mut self.queue, replica.queue());
            let begun = before - self.queue.len();
            replica.queue().extend(self.queue.drain(..given.saturating_sub(begun)));
        }
        self.taken[gpu] += (before - self.queue.len() - given) as u64;
    }

    fn note(&mut self, gpu: usize) {
        let it = &self.all[gpu];
        self.ends.set(gpu, it.next_ns(&self.model).map_or(u64::MAX, |end_ns| end_ns as u64));
        self.routes.note(gpu, key(it, &self.model, self.routes.shares()));
    }

    fn note_ready<O: Watch>(&mut self, observer: &mut O)
    where
        R: Serve<O>,
    {
        let (all, model, shares) = (&self.all, &self.model, self.routes.shares());
        self.routes.set_ready(self.replicas.ready(), |gpu| key(&all[gpu], model, shares));
        // Those that are new begin with what waits; others do at their next event.
        while shares
            && self.ready() > 0
            && !self.queue.is_empty()
            && let Some(gpu) = self.routes.pick(0).filter(|&gpu| self.all[gpu].load() == 0)
        {
            let now_ns = self.now_ns;
            self.with_queue(gpu, |replica, model| replica.wake(gpu, now_ns, model, observer));
            self.note(gpu);
        }
    }

    /// Requests in the queue that all share.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn replica(&self, gpu: usize) -> &R {
        &self.all[gpu]
    }

    /// GPUs in the cluster.
    pub fn gpus(&self) -> usize {
        self.all.len()
    }

    /// GPUs that take requests: the first so many.
    pub fn ready(&self) -> usize {
        self.replicas.ready()
    }

    /// Replicas that were asked for last.
    pub fn desired(&self) -> usize {
        self.replicas.desired()
    }

    /// Whether a GPU takes requests, or was removed and finishes what it has.
    pub fn is_up(&self, gpu: usize) -> bool {
        self.replicas.is_up(gpu)
    }

    /// How long a GPU was not up, until `now_ns`.
    pub fn down_ns(&self, gpu: usize, now_ns: i64) -> i64 {
        self.replicas.down_ns(gpu, now_ns)
    }

    /// How long removed GPUs were busy with what they had, all together, until `now_ns`.
    pub fn draining_ns(&self, now_ns: i64) -> i64 {
        self.replicas.draining_ns(now_ns)
    }

    /// Requests on a GPU, at work and waiting.
    pub fn load(&self, gpu: usize) -> usize {
        self.all[gpu].load()
    }

    /// Requests that a GPU has been given.
    pub fn taken(&self, gpu: usize) -> u64 {
        self.taken[gpu]
    }

    /// Time that a GPU was at work on what is over.
    pub fn busy_ns(&self, gpu: usize) -> i64 {
        self.all[gpu].busy_ns()
    }

    /// What a run that has come to `now_ns` adds up to, with `window` from when to when it counted. Iterations and tokens are the driver's.
    pub(super) fn totals(&self, (open_ns, close_ns): (i64, i64), now_ns: i64) -> Totals {
        Totals {
            gpus: self.all.len() as u32,
            open_ns,
            close_ns,
            up_ns: (0..self.all.len()).map(|gpu| now_ns - self.down_ns(gpu, now_ns)).sum(),
            draining_ns: self.draining_ns(now_ns),
            busy_ns: self.all.iter().map(R::busy_ns).fold(0, i64::saturating_add),
            iterations: 0,
            tokens: 0,
            cut_ns: None,
        }
    }
}

/// By what the router goes: the requests on a replica, or its place in the order of those that have one.
fn key<R: Replica>(replica: &R, model: &R::Model, shares: bool) -> usize {
    if shares { replica.place(model).unwrap_or(usize::MAX) } else { replica.load() }
}
