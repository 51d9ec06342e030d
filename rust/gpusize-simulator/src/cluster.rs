//! The cluster: GPUs, the router in front of them, and the order of their events. It has no clock; a driver tells it the time.

use super::gpu::{Gpu, Limits};
use super::replicas::Replicas;
use super::routing::{Routes, Tournament};
use super::{ClusterConfig, Payload, Running, Sequence};

/// What a driver gets to see. Times are the cluster's own.
pub trait Observer<P> {
    /// `count` equal iterations of one GPU ended at `end_ns`, each with one token for every sequence in `batch`.
    /// For `batch[fresh..]` it was the first token; `count` is then 1.
    fn iterations(
        &mut self,
        gpu: usize,
        end_ns: i64,
        iteration_ns: i64,
        count: u64,
        batch: &[Running<P>],
        fresh: usize,
    );
    /// A sequence left the batch with `tokens` made: all of them, or fewer when it was cancelled.
    fn finished(&mut self, gpu: usize, end_ns: i64, running: Running<P>, tokens: u32);
    /// A cancelled sequence left the queue without service.
    fn abandoned(&mut self, sequence: Sequence<P>);
    /// From `at_ns` on, the first `ready` GPUs take requests.
    fn replicas(&mut self, _at_ns: i64, _ready: usize) {}
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its tokens need more KV cache than a whole GPU has.
    TooLong {
        /// Tokens of prompt and answer.
        tokens: u64,
        /// Tokens that fit.
        limit: u64,
    },
    /// The queue of its GPU is full.
    QueueFull,
}

/// The state machine.
#[derive(Debug)]
pub struct Cluster<P> {
    gpus: Vec<Gpu<P>>,
    replicas: Replicas,
    limits: Limits,
    kv_blocks: u32,
    kv_block_tokens: u32,
    queue_limit: usize,
    routes: Routes,
    /// When the iterations of each GPU end.
    ends: Tournament,
    now_ns: i64,
}

impl<P: Payload> Cluster<P> {
    /// An idle cluster at time 0. With `skip`, runs of equal iterations are one event: exact, and as fast as it gets; without,
    /// every iteration is one, so that each token can be delivered.
    pub fn new(config: &ClusterConfig, skip: bool) -> Self {
        let gpus = config.gpus as usize;
        let replicas = Replicas::new(&config.replicas, config.gpus, config.start_delay_s);
        Self {
            gpus: (0..gpus).map(|_| Gpu::new(config.kv_blocks)).collect(),
            routes: Routes::new(config.router, config.seed, gpus, replicas.ready()),
            replicas,
            limits: Limits::new(config, skip),
            kv_blocks: config.kv_blocks,
            kv_block_tokens: config.kv_block_tokens,
            queue_limit: config.queue_limit.map_or(usize::MAX, |limit| limit as usize),
            ends: Tournament::new(gpus),
            now_ns: 0,
        }
    }

    /// When the next iteration ends or the replicas change; `None` when all GPUs are idle and nothing is to change.
    pub fn next_event_ns(&self) -> Option<i64> {
        let end_ns = self.next_end_ns();
        end_ns.into_iter().chain(self.replicas.next_change_ns()).min()
    }

    fn next_end_ns(&self) -> Option<i64> {
        i64::try_from(self.ends.least().0).ok()
    }

    /// Let the next iteration end, or the replicas change; at the same moment, that comes first.
    pub fn step(&mut self, observer: &mut impl Observer<P>) {
        let end_ns = self.next_end_ns();
        if let Some(change_ns) = self.replicas.next_change_ns()
            && end_ns.is_none_or(|end_ns| change_ns <= end_ns)
        {
            self.now_ns = change_ns;
            let gpus = &self.gpus;
            self.replicas.change(|gpu| gpus[gpu].is_idle());
            self.note_ready();
            observer.replicas(change_ns, self.replicas.ready());
            return;
        }
        let Some(end_ns) = end_ns else { return };
        let (_, gpu) = self.ends.least();
        self.now_ns = end_ns;
        self.gpus[gpu].finish(gpu, &self.limits, observer);
        self.note(gpu);
        if self.gpus[gpu].is_idle() {
            self.replicas.note_idle(gpu, end_ns);
        }
    }

    /// Ask for so many replicas, from 1 to all GPUs, at `now_ns`, up to which the cluster must have advanced. A new one is ready when its
    /// delay is over; one that is removed takes no requests any more and finishes those that it has, in its queue too.
    pub fn scale(&mut self, now_ns: i64, replicas: u32, observer: &mut impl Observer<P>) {
        debug_assert!(now_ns >= self.now_ns, "replicas asked for before the last event");
        self.now_ns = now_ns;
        let gpus = &self.gpus;
        let replicas = (replicas as usize).clamp(1, gpus.len());
        self.replicas.scale(now_ns, replicas, |gpu| gpus[gpu].is_idle());
        self.note_ready();
        observer.replicas(now_ns, self.replicas.ready());
    }

    /// Let everything happen that is due at `now_ns` or before.
    pub fn advance(&mut self, now_ns: i64, observer: &mut impl Observer<P>) {
        while self.next_event_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            self.step(observer);
        }
    }

    /// Take a request at its `arrived_ns`, up to which the cluster must have advanced; returns its GPU.
    pub fn arrive(&mut self, sequence: Sequence<P>, observer: &mut impl Observer<P>) -> Result<usize, Refusal> {
        debug_assert!(sequence.arrived_ns >= self.now_ns, "a request from before the last event");
        debug_assert!(sequence.output_tokens > 0, "a request without an answer");
        let tokens = u64::from(sequence.prompt_tokens) + u64::from(sequence.output_tokens);
        let limit = u64::from(self.kv_blocks) * u64::from(self.kv_block_tokens);
        if tokens > limit {
            return Err(Refusal::TooLong { tokens, limit });
        }
        let gpu = self.routes.pick(sequence.index);
        if self.gpus[gpu].waiting() >= self.queue_limit {
            return Err(Refusal::QueueFull);
        }
        self.now_ns = sequence.arrived_ns;
        self.gpus[gpu].arrive(self.now_ns, sequence, &self.limits, observer);
        self.note(gpu);
        Ok(gpu)
    }

    fn note(&mut self, gpu: usize) {
        let it = &self.gpus[gpu];
        self.ends.set(gpu, it.end_ns().map_or(u64::MAX, |end_ns| end_ns as u64));
        self.routes.note(gpu, it.running() + it.waiting());
    }

    fn note_ready(&mut self) {
        let gpus = &self.gpus;
        self.routes.set_ready(self.replicas.ready(), |gpu| gpus[gpu].running() + gpus[gpu].waiting());
    }

    /// GPUs in the cluster.
    pub fn gpus(&self) -> usize {
        self.gpus.len()
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

    /// Sequences in the batch of a GPU.
    pub fn running(&self, gpu: usize) -> usize {
        self.gpus[gpu].running()
    }

    /// Requests in the queue of a GPU.
    pub fn waiting(&self, gpu: usize) -> usize {
        self.gpus[gpu].waiting()
    }

    /// Blocks of KV cache in use on a GPU.
    pub fn used_blocks(&self, gpu: usize) -> u32 {
        self.kv_blocks - self.gpus[gpu].free_blocks()
    }

    /// Iterations that a GPU has finished.
    pub fn iterations(&self, gpu: usize) -> u64 {
        self.gpus[gpu].iterations()
    }

    /// Time that a GPU has spent on finished iterations.
    pub fn busy_ns(&self, gpu: usize) -> i64 {
        self.gpus[gpu].busy_ns()
    }

    /// Time that a GPU has spent on iterations up to `now_ns`, the one under way included.
    pub fn busy_until_ns(&self, gpu: usize, now_ns: i64) -> i64 {
        self.gpus[gpu].busy_until_ns(now_ns)
    }
}
