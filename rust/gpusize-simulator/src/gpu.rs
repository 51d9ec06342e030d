//! One GPU: a batch that changes at the boundaries of iterations, or one that runs to its end, a KV cache in blocks, and a queue.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::cluster::{Cluster, Shape};
use super::replica::{Replica, Serve, Watch};
use super::{ClusterConfig, ns};

/// What a driver of GPUs gets to see. Times are the cluster's own.
pub trait Observer<P>: Watch {
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

/// What a driver attaches to a request.
pub trait Payload {
    /// Whether nobody waits for the answer any more; the sequence then leaves at the next boundary.
    fn cancelled(&self) -> bool {
        false
    }
}

/// A request as the cluster sees it.
#[derive(Debug)]
pub struct Sequence<P> {
    /// Its number in order of arrival.
    pub index: u64,
    /// The cluster's time of its arrival.
    pub arrived_ns: i64,
    /// Tokens to prefill.
    pub prompt_tokens: u32,
    /// Of these, tokens that are in a cache and cost no prefill; fewer than all.
    pub cached_tokens: u32,
    /// Tokens to make; at least 1.
    pub output_tokens: u32,
    /// Factor on its share of iterations and on its prefill.
    pub cost_factor: f64,
    /// The driver's own.
    pub payload: P,
}

impl<P> Sequence<P> {
    fn tokens(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.output_tokens)
    }
}

/// A sequence in the batch.
#[derive(Debug)]
pub struct Running<P> {
    /// The request.
    pub sequence: Sequence<P>,
    /// When it joined the batch.
    pub admitted_ns: i64,
    /// When it had its first token; -1 before.
    pub first_token_ns: i64,
    /// The GPU's finished iterations when it joined.
    pub first_iteration: u64,
    blocks: u32,
}

impl<P> Running<P> {
    fn last_iteration(&self) -> u64 {
        self.first_iteration + u64::from(self.sequence.output_tokens)
    }

    /// Tokens made so far, on a GPU that has finished `iterations`.
    pub fn tokens(&self, iterations: u64) -> u32 {
        (iterations - self.first_iteration) as u32
    }
}

/// What iterations cost, and what a GPU has room for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    base_s: f64,
    per_sequence_s: f64,
    prefill_per_token_s: f64,
    max_batch: usize,
    queue: usize,
    kv_blocks: u32,
    kv_block_tokens: u32,
    /// Several equal iterations count as one event; without it every iteration is an event.
    skip: bool,
    /// Batches are put together and run to their end; else sequences join and leave at every iteration.
    whole: Option<WholeBatches>,
}

#[derive(Debug, Clone, Copy)]
struct WholeBatches {
    base_s: f64,
    delay_ns: i64,
}

impl Limits {
    fn new(config: &ClusterConfig, skip: bool) -> Self {
        Self {
            base_s: config.iteration_base_s,
            per_sequence_s: config.iteration_per_sequence_s,
            prefill_per_token_s: config.prefill_per_token_s,
            max_batch: config.max_batch as usize,
            queue: config.queue_limit.map_or(usize::MAX, |limit| limit as usize),
            kv_blocks: config.kv_blocks,
            kv_block_tokens: config.kv_block_tokens,
            skip,
            whole: config
                .static_batching
                .map(|batches| WholeBatches { base_s: batches.base_s, delay_ns: ns(batches.delay_s) }),
        }
    }

    fn blocks<P>(&self, sequence: &Sequence<P>) -> u64 {
        sequence.tokens().div_ceil(u64::from(self.kv_block_tokens))
    }
}

/// One GPU; all that is seen of it is seen through its [`Cluster`].
#[derive(Debug)]
pub struct Gpu<P> {
    running: Vec<Running<P>>,
    waiting: VecDeque<Sequence<P>>,
    free_blocks: u32,
    iterations: u64,
    span_start_ns: i64,
    iteration_ns: i64,
    /// Iterations under way as one event; 0 when idle.
    span: u64,
    /// While a batch is put together: when it begins at the latest.
    gathers_until_ns: Option<i64>,
    /// How many at the end of `running` joined with the current iteration.
    fresh: usize,
    busy_ns: i64,
}

impl<P> Gpu<P> {
    fn new(kv_blocks: u32) -> Self {
        Self {
            running: Vec::new(),
            waiting: VecDeque::new(),
            free_blocks: kv_blocks,
            iterations: 0,
            span_start_ns: 0,
            iteration_ns: 0,
            span: 0,
            gathers_until_ns: None,
            fresh: 0,
            busy_ns: 0,
        }
    }

    fn iterations_end_ns(&self) -> i64 {
        self.span_start_ns + self.iteration_ns * self.span as i64
    }
}

impl<P> Replica for Gpu<P> {
    type Model = Limits;
    type Request = Sequence<P>;
    type Refusal = Refusal;

    fn load(&self) -> usize {
        self.running.len() + self.waiting.len()
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn cache_usage(&self, limits: &Limits) -> Option<f64> {
        Some(1.0 - f64::from(self.free_blocks) / f64::from(limits.kv_blocks))
    }

    /// End of the iterations under way, or of the wait for more to begin with.
    fn next_ns(&self, _limits: &Limits) -> Option<i64> {
        if self.span == 0 { self.gathers_until_ns } else { Some(self.iterations_end_ns()) }
    }

    fn busy_ns(&self) -> i64 {
        self.busy_ns
    }

    fn busy_until_ns(&self, now_ns: i64) -> i64 {
        let under_way_ns = if self.span == 0 { 0 } else { now_ns.min(self.iterations_end_ns()) - self.span_start_ns };
        self.busy_ns.saturating_add(under_way_ns.max(0))
    }

    fn admit(&self, sequence: &Sequence<P>, limits: &Limits) -> Result<(), Refusal> {
        let (tokens, limit) = (sequence.tokens(), u64::from(limits.kv_blocks) * u64::from(limits.kv_block_tokens));
        if tokens > limit {
            return Err(Refusal::TooLong { tokens, limit });
        }
        if self.waiting.len() >= limits.queue { Err(Refusal::QueueFull) } else { Ok(()) }
    }
}

impl<P: Payload, O: Observer<P>> Serve<O> for Gpu<P> {
    /// Take a request at `now_ns`; `next_ns` may be another one afterwards.
    fn arrive(&mut self, now_ns: i64, sequence: Sequence<P>, limits: &Limits, observer: &mut O) {
        if self.span == 0 {
            self.waiting.push_back(sequence);
            self.begin(now_ns, limits, observer);
            return;
        }
        // The batch can only take it before a sequence leaves if nothing is in its way; then the span ends at the next boundary.
        let fits = limits.whole.is_none()
            && self.running.len() < limits.max_batch
            && limits.blocks(&sequence) <= u64::from(self.free_blocks);
        if self.span > 1 && self.waiting.is_empty() && fits {
            let begun = (now_ns - self.span_start_ns) / self.iteration_ns + 1;
            self.span = self.span.min(begun as u64);
        }
        self.waiting.push_back(sequence);
    }

    /// The iterations under way are over: tokens go out, sequences leave and join, the next iterations begin. Or the wait for more to begin
    /// with is.
    fn step(&mut self, gpu: usize, end_ns: i64, limits: &Limits, observer: &mut O) {
        if self.span == 0 {
            self.begin(end_ns, limits, observer);
            return;
        }
        // In a batch that runs to its end the longest answers stand in front, and those behind may have all their tokens.
        let makes = self.running.partition_point(|running| {
            limits.whole.is_none() || running.last_iteration() >= self.iterations + self.span
        });
        self.iterations += self.span;
        self.busy_ns += end_ns - self.span_start_ns;
        let fresh = self.running.len() - self.fresh;
        for running in &mut self.running[fresh..] {
            running.first_token_ns = end_ns;
        }
        observer.iterations(gpu, end_ns, self.iteration_ns, self.span, &self.running[..makes], fresh.min(makes));
        let iterations = self.iterations;
        let whole = limits.whole.is_some();
        let under_way = whole && self.running.iter().any(|running| running.last_iteration() > iterations);
        let leaves = |running: &mut Running<P>| {
            !under_way && (whole || running.last_iteration() <= iterations || running.sequence.payload.cancelled())
        };
        for running in self.running.extract_if(.., leaves) {
            self.free_blocks += running.blocks;
            let tokens = running.tokens(iterations).min(running.sequence.output_tokens);
            observer.finished(gpu, end_ns, running, tokens);
        }
        self.begin(end_ns, limits, observer);
    }
}

impl<P: Payload> Gpu<P> {
    fn begin(&mut self, now_ns: i64, limits: &Limits, observer: &mut impl Observer<P>) {
        self.fresh = 0;
        self.gathers_until_ns = limits.whole.and_then(|whole| self.gathers_until(now_ns, whole, limits.max_batch));
        let goes_on = limits.whole.is_some() && !self.running.is_empty();
        let mut begun_s = 0.0;
        if !goes_on && self.gathers_until_ns.is_none() {
            begun_s = self.admit(now_ns, limits, observer);
            if let Some(whole) = limits.whole {
                begun_s += whole.base_s;
                self.running.sort_by_key(|running| Reverse(running.last_iteration()));
            }
        }
        self.span_start_ns = now_ns;
        if self.running.is_empty() {
            self.span = 0;
            return;
        }
        let load: f64 = self.running.iter().map(|running| running.sequence.cost_factor).sum();
        let cost_s = limits.base_s + limits.per_sequence_s * load + begun_s;
        self.iteration_ns = ns(cost_s).max(1);
        self.span = if limits.skip && self.fresh == 0 { self.until_next_has_all() } else { 1 };
    }

    /// Until when an idle GPU waits for more to begin with; `None` when it begins now, or has nothing to begin with.
    fn gathers_until(&self, now_ns: i64, whole: WholeBatches, most: usize) -> Option<i64> {
        let head = self.waiting.front().filter(|_| self.running.is_empty())?;
        let until_ns = head.arrived_ns + whole.delay_ns;
        (self.waiting.len() < most && until_ns > now_ns).then_some(until_ns)
    }

    /// Iterations until the first of the running sequences has all its tokens.
    fn until_next_has_all(&self) -> u64 {
        let ahead = self.running.iter().map(Running::last_iteration).filter(|&last| last > self.iterations);
        ahead.min().map_or(1, |last| last - self.iterations)
    }

    /// Let the head of the queue in while there is room, strictly in order; the seconds that the prompts cost.
    fn admit(&mut self, now_ns: i64, limits: &Limits, observer: &mut impl Observer<P>) -> f64 {
        let mut prefill_s = 0.0;
        while let Some(head) = self.waiting.front() {
            if head.payload.cancelled() {
                if let Some(sequence) = self.waiting.pop_front() {
                    observer.abandoned(sequence);
                }
                continue;
            }
            let blocks = limits.blocks(head);
            if self.running.len() >= limits.max_batch || blocks > u64::from(self.free_blocks) {
                break;
            }
            let Some(sequence) = self.waiting.pop_front() else { break };
            self.free_blocks -= blocks as u32;
            let fresh_tokens = sequence.prompt_tokens.saturating_sub(sequence.cached_tokens);
            prefill_s += limits.prefill_per_token_s * f64::from(fresh_tokens) * sequence.cost_factor;
            self.running.push(Running {
                sequence,
                admitted_ns: now_ns,
                first_token_ns: -1,
                first_iteration: self.iterations,
                blocks: blocks as u32,
            });
            self.fresh += 1;
        }
        prefill_s
    }
}

/// Of GPUs.
impl<P: Payload> Cluster<Gpu<P>> {
    /// An idle cluster at time 0. With `skip`, runs of equal iterations are one event: exact, and as fast as it gets; without,
    /// every iteration is one, so that each token can be delivered.
    pub fn new(config: &ClusterConfig, skip: bool) -> Self {
        let shape = Shape {
            gpus: config.gpus,
            router: config.router,
            seed: config.seed,
            replicas: &config.replicas,
            start_delay_s: config.start_delay_s,
        };
        Self::of(shape, Limits::new(config, skip), || Gpu::new(config.kv_blocks))
    }

    /// Take a request at its `arrived_ns`, up to which the cluster must have advanced; returns its GPU.
    pub fn arrive(&mut self, sequence: Sequence<P>, observer: &mut impl Observer<P>) -> Result<usize, Refusal> {
        debug_assert!(sequence.output_tokens > 0, "a request without an answer");
        self.take(sequence.index, sequence.arrived_ns, sequence, observer)
    }

    /// Sequences in the batch of a GPU.
    pub fn running(&self, gpu: usize) -> usize {
        self.replica(gpu).running.len()
    }

    /// Requests in the queue of a GPU.
    pub fn waiting(&self, gpu: usize) -> usize {
        self.replica(gpu).waiting.len()
    }

    /// Blocks of KV cache in use on a GPU.
    pub fn used_blocks(&self, gpu: usize) -> u32 {
        self.model.kv_blocks - self.replica(gpu).free_blocks
    }

    /// Iterations that a GPU has finished.
    pub fn iterations(&self, gpu: usize) -> u64 {
        self.replica(gpu).iterations
    }

    /// Time that a GPU has spent on iterations up to `now_ns`, the one under way included.
    pub fn busy_until_ns(&self, gpu: usize, now_ns: i64) -> i64 {
        self.replica(gpu).busy_until_ns(now_ns)
    }
}
