//! One GPU: a batch that changes at the boundaries of iterations, or one that runs to its end, a KV cache in blocks, and a queue.

use std::collections::VecDeque;

use super::batch::{Batch, Running};
use super::cluster::{Cluster, Shape};
use super::prefill::{PrefillLimits, Prefillers};
use super::replica::{Replica, Serve, Watch};
use super::{ClusterConfig, earliest, ns};

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
    /// Whether any can be cancelled.
    const CANCELS: bool = true;

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
    /// Tokens of one iteration, those of answers first; `None`: prompts are computed whole.
    batched_tokens: Option<u64>,
    /// Whether the cache fills token by token, and the youngest has to leave when it is full; else whole requests are reserved.
    grows: bool,
    /// Several equal iterations count as one event; without it every iteration is an event.
    skip: bool,
    /// Batches are put together and run to their end; else sequences join and leave at every iteration.
    whole: Option<WholeBatches>,
    /// Servers that prompts are computed by; else the iterations of the answers do that too.
    apart: Option<PrefillLimits>,
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
            batched_tokens: config.max_batched_tokens.map(u64::from),
            grows: config.kv_preemption,
            skip,
            whole: config
                .static_batching
                .map(|batches| WholeBatches { base_s: batches.base_s, delay_ns: ns(batches.delay_s) }),
            apart: config.prefill_servers.map(|servers| PrefillLimits::new(&servers, config.prefill_per_token_s)),
        }
    }

    fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(u64::from(self.kv_block_tokens))
    }

    /// Blocks that a sequence has to get before its prompt is computed.
    fn blocks_to_join<P>(&self, sequence: &Sequence<P>) -> u64 {
        self.blocks(if self.grows { u64::from(sequence.prompt_tokens) } else { sequence.tokens() })
    }

    /// Likewise one that has tokens already.
    fn blocks_to_go_on<P>(&self, running: &Running<P>) -> u64 {
        let made = u64::from(running.sequence.prompt_tokens) + u64::from(running.made);
        self.blocks(if self.grows { made } else { running.sequence.tokens() })
    }
}

/// One GPU; all that is seen of it is seen through its [`Cluster`].
#[derive(Debug)]
pub struct Gpu<P> {
    batch: Batch<P>,
    /// Whose prompt is computed in part.
    prefilling: Option<Running<P>>,
    /// Who has tokens already and no place: had to leave, the youngest last, or comes from a server of prompts. They go before anybody else.
    begun: VecDeque<Running<P>>,
    waiting: VecDeque<Sequence<P>>,
    prefillers: Prefillers<P>,
    free_blocks: u32,
    iterations: u64,
    span_start_ns: i64,
    iteration_ns: i64,
    /// Iterations under way as one event; 0 when idle.
    span: u64,
    /// While a batch is put together: when it begins at the latest.
    gathers_until_ns: Option<i64>,
    /// How many at the end of the batch joined with the current iteration.
    fresh: usize,
    busy_ns: i64,
}

impl<P> Gpu<P> {
    fn new(kv_blocks: u32, apart: Option<&PrefillLimits>) -> Self {
        Self {
            batch: Batch::new(),
            prefilling: None,
            begun: VecDeque::new(),
            waiting: VecDeque::new(),
            prefillers: Prefillers::new(apart),
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

    /// Sequences that have a place in the batch.
    fn joined(&self) -> usize {
        self.batch.len() + usize::from(self.prefilling.is_some())
    }

    /// End of the iterations under way, or of the wait for more to begin with.
    fn next_of_batch_ns(&self) -> Option<i64> {
        if self.span == 0 { self.gathers_until_ns } else { Some(self.iterations_end_ns()) }
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
        self.joined() + self.prefillers.len() + Replica::waiting(self)
    }

    fn waiting(&self) -> usize {
        self.waiting.len() + self.begun.len() + self.prefillers.waiting()
    }

    fn cache_usage(&self, limits: &Limits) -> Option<f64> {
        Some(1.0 - f64::from(self.free_blocks) / f64::from(limits.kv_blocks))
    }

    fn next_ns(&self, _limits: &Limits) -> Option<i64> {
        earliest(self.next_of_batch_ns(), self.prefillers.next_ns())
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
        if Replica::waiting(self) >= limits.queue { Err(Refusal::QueueFull) } else { Ok(()) }
    }

    fn queue(&mut self) -> &mut VecDeque<Sequence<P>> {
        &mut self.waiting
    }

    /// Of continuous batches the smallest comes first; of those that run to their end the one that is put together.
    fn place(&self, limits: &Limits) -> Option<usize> {
        if limits.whole.is_some() {
            return self.batch.is_empty().then_some(usize::from(!self.gathers()));
        }
        let load = self.joined() + Replica::waiting(self);
        (load < limits.max_batch).then_some(load)
    }

    fn gathers(&self) -> bool {
        self.gathers_until_ns.is_some()
    }
}

impl<P: Payload, O: Observer<P>> Serve<O> for Gpu<P> {
    /// Take a request at `now_ns`; `next_ns` may be another one afterwards.
    fn arrive(&mut self, gpu: usize, now_ns: i64, sequence: Sequence<P>, limits: &Limits, observer: &mut O) {
        if let Some(apart) = &limits.apart {
            return self.prefillers.arrive(now_ns, sequence, apart, observer);
        }
        if self.span == 0 {
            self.waiting.push_back(sequence);
            self.begin(gpu, now_ns, limits, observer);
            return;
        }
        let first = limits.whole.is_none() && Replica::waiting(self) == 0;
        self.let_in_soon(now_ns, first, limits.blocks_to_join(&sequence), limits);
        self.waiting.push_back(sequence);
    }

    /// The iterations under way are over: tokens go out, sequences leave and join, the next iterations begin. Or the wait for more to begin
    /// with is.
    fn step(&mut self, gpu: usize, end_ns: i64, limits: &Limits, observer: &mut O) {
        if let Some(apart) = limits.apart.as_ref().filter(|_| self.next_of_batch_ns() != Some(end_ns)) {
            return self.receive(gpu, end_ns, limits, apart, observer);
        }
        if self.span == 0 {
            self.begin(gpu, end_ns, limits, observer);
            return;
        }
        if limits.grows {
            self.grow(self.span, limits);
        }
        self.iterations += self.span;
        self.busy_ns += end_ns - self.span_start_ns;
        // In a batch that runs to its end the longest answers stand in front, and those behind may have all their tokens.
        let whole = limits.whole.is_some();
        let makes = if whole { self.batch.unfinished(self.iterations - 1) } else { self.batch.len() };
        let fresh = self.batch.len() - self.fresh;
        let batch = &self.batch.as_slice()[..makes];
        observer.iterations(gpu, end_ns, self.iteration_ns, self.span, batch, fresh.min(makes));
        let (iterations, free_blocks) = (self.iterations, &mut self.free_blocks);
        let leaves = |running: Running<P>| {
            *free_blocks += running.blocks;
            let tokens = running.tokens(iterations).min(running.sequence.output_tokens);
            observer.finished(gpu, end_ns, running, tokens);
        };
        if !whole {
            self.batch.remove_done(iterations, limits.grows, leaves);
        } else if self.batch.unfinished(iterations) == 0 {
            self.batch.remove_all(leaves);
        }
        if let Some(gone) = self.prefilling.take_if(|prefilling| prefilling.sequence.payload.cancelled()) {
            self.free_blocks += gone.blocks;
            let tokens = gone.made;
            observer.finished(gpu, end_ns, gone, tokens);
        }
        self.begin(gpu, end_ns, limits, observer);
    }

    fn wake(&mut self, gpu: usize, now_ns: i64, limits: &Limits, observer: &mut O) {
        self.begin(gpu, now_ns, limits, observer);
    }
}

impl<P: Payload> Gpu<P> {
    /// End the iterations under way at the next boundary, if one that has come `first` and needs so many blocks may join there: the batch
    /// can only take it before a sequence leaves if nothing is in its way.
    fn let_in_soon(&mut self, now_ns: i64, first: bool, blocks: u64, limits: &Limits) {
        let fits = self.joined() < limits.max_batch && blocks <= u64::from(self.free_blocks);
        if self.span > 1 && first && fits {
            let begun = (now_ns - self.span_start_ns) / self.iteration_ns + 1;
            self.span = self.span.min(begun as u64);
        }
    }

    /// Let happen what is due at the servers of prompts, and take in whom they are done with.
    fn receive(
        &mut self,
        gpu: usize,
        now_ns: i64,
        limits: &Limits,
        apart: &PrefillLimits,
        observer: &mut impl Observer<P>,
    ) {
        for running in self.prefillers.step(gpu, now_ns, apart, observer) {
            let first = self.begun.is_empty();
            self.let_in_soon(now_ns, first, limits.blocks_to_go_on(&running), limits);
            self.begun.push_back(running);
        }
        if self.span == 0 && !self.begun.is_empty() {
            self.begin(gpu, now_ns, limits, observer);
        }
    }

    fn begin(&mut self, gpu: usize, now_ns: i64, limits: &Limits, observer: &mut impl Observer<P>) {
        self.fresh = 0;
        self.gathers_until_ns = limits.whole.and_then(|whole| self.gathers_until(now_ns, whole, limits.max_batch));
        let goes_on = limits.whole.is_some() && !self.batch.is_empty();
        let all_have_room = !limits.grows || self.make_room(limits);
        let mut begun = None;
        if !goes_on && self.gathers_until_ns.is_none() {
            begun = self.prefill(gpu, now_ns, limits, all_have_room, observer);
            if let Some(whole) = limits.whole {
                begun = begun.map(|seconds| seconds + whole.base_s);
                self.batch.sort_longest_first();
            }
        }
        self.span_start_ns = now_ns;
        if self.joined() == 0 {
            self.span = 0;
            return;
        }
        let cost_s = limits.base_s + limits.per_sequence_s * self.batch.weight() + begun.unwrap_or(0.0);
        self.iteration_ns = ns(cost_s).max(1);
        self.span = 1;
        // Known already, as nothing ends an iteration before its time; at its end they would have to be looked for again.
        let before = self.batch.len() - self.fresh;
        for running in self.batch.iter_mut().skip(before) {
            running.first_token_ns = now_ns + self.iteration_ns;
        }
        // Who has to wait because somebody had to leave may join at the next boundary.
        if limits.skip && begun.is_none() && self.prefilling.is_none() && all_have_room {
            self.span = self.batch.until_next_has_all(self.iterations);
            if limits.grows {
                self.span = self.until_full(self.span, limits);
            }
        }
    }

    /// Until when an idle GPU waits for more to begin with; `None` when it begins now, or has nothing to begin with.
    fn gathers_until(&self, now_ns: i64, whole: WholeBatches, most: usize) -> Option<i64> {
        let head = self.waiting.front().filter(|_| self.batch.is_empty())?;
        let until_ns = head.arrived_ns + whole.delay_ns;
        (self.waiting.len() < most && until_ns > now_ns).then_some(until_ns)
    }

    /// Compute prompts within what the answers leave of the iteration's tokens, strictly in order, and let the heads of the queues in for
    /// it while there is room and `more` may join; the seconds that it costs, `None` where there was none to compute.
    fn prefill(
        &mut self,
        gpu: usize,
        now_ns: i64,
        limits: &Limits,
        more: bool,
        observer: &mut impl Observer<P>,
    ) -> Option<f64> {
        let decoding = self.batch.len() as u64;
        let mut left = limits.batched_tokens.map_or(u64::MAX, |most| most.saturating_sub(decoding));
        let mut seconds = None;
        while left > 0 {
            let next = self.prefilling.take();
            let Some(mut next) = next.or_else(|| if more { self.join(gpu, now_ns, limits, observer) } else { None })
            else {
                break;
            };
            let tokens = u64::from(next.to_prefill).min(left) as u32;
            let cost_s = limits.prefill_per_token_s * f64::from(tokens) * next.sequence.cost_factor;
            *seconds.get_or_insert(0.0) += cost_s;
            next.to_prefill -= tokens;
            left -= u64::from(tokens);
            if next.to_prefill > 0 {
                self.prefilling = Some(next);
                break;
            }
            next.first_iteration = self.iterations as i64 - i64::from(next.made);
            if next.first_token_ns < 0 {
                self.batch.insert(self.batch.len(), next);
                self.fresh += 1;
            } else {
                // It goes on with the answer that it had begun.
                self.batch.insert(self.batch.len() - self.fresh, next);
            }
        }
        seconds
    }

    /// Who comes next, with the blocks that it needs; `None` where nobody waits, or the first in the queue has no room.
    fn join(
        &mut self,
        gpu: usize,
        now_ns: i64,
        limits: &Limits,
        observer: &mut impl Observer<P>,
    ) -> Option<Running<P>> {
        while self.begun.front().is_some_and(|first| first.sequence.payload.cancelled()) {
            let Some(gone) = self.begun.pop_front() else { break };
            let tokens = gone.made;
            observer.finished(gpu, now_ns, gone, tokens);
        }
        while self.waiting.front().is_some_and(|first| first.payload.cancelled()) {
            let Some(gone) = self.waiting.pop_front() else { break };
            observer.abandoned(gone);
        }
        if self.joined() >= limits.max_batch {
            return None;
        }
        let free = u64::from(self.free_blocks);
        if let Some(first) = self.begun.front() {
            let blocks = limits.blocks_to_go_on(first);
            let mut back = if blocks <= free { self.begun.pop_front()? } else { return None };
            self.free_blocks -= blocks as u32;
            back.blocks = blocks as u32;
            return Some(back);
        }
        if limits.apart.is_some() {
            return None;
        }
        let blocks = self.waiting.front().map(|first| limits.blocks_to_join(first)).filter(|&blocks| blocks <= free)?;
        let sequence = self.waiting.pop_front()?;
        self.free_blocks -= blocks as u32;
        Some(Running { blocks: blocks as u32, ..Running::waiting(sequence, now_ns) })
    }

    /// Give all that run the blocks of their next token, for which the youngest have to leave; whether nobody had to.
    fn make_room(&mut self, limits: &Limits) -> bool {
        let mut nobody_left = true;
        while self.missing(1, limits) > u64::from(self.free_blocks) {
            let running = || {
                let mut youngest = self.batch.pop()?;
                youngest.made = youngest.tokens(self.iterations);
                Some(youngest)
            };
            let Some(mut youngest) = self.prefilling.take().or_else(running) else { break };
            self.free_blocks += youngest.blocks;
            // What it had computed is lost.
            youngest.to_prefill = youngest.sequence.prompt_tokens + youngest.made;
            youngest.blocks = 0;
            self.begun.push_front(youngest);
            nobody_left = false;
        }
        self.grow(1, limits);
        nobody_left
    }

    /// Blocks that all that run need beyond theirs for so many iterations.
    fn missing(&self, span: u64, limits: &Limits) -> u64 {
        let needs = |running: &Running<P>| limits.blocks(running.held(self.iterations, span));
        self.batch.as_slice().iter().map(|running| needs(running).saturating_sub(u64::from(running.blocks))).sum()
    }

    /// Give them those.
    fn grow(&mut self, span: u64, limits: &Limits) {
        for running in self.batch.iter_mut() {
            let more =
                limits.blocks(running.held(self.iterations, span)).saturating_sub(u64::from(running.blocks)) as u32;
            running.blocks += more;
            self.free_blocks -= more;
        }
    }

    /// Iterations, at most so many, for which the free blocks are enough; at least 1.
    fn until_full(&self, most: u64, limits: &Limits) -> u64 {
        let free = u64::from(self.free_blocks);
        let (mut enough, mut too_many) = (1, most + 1);
        while too_many - enough > 1 {
            let middle = enough.midpoint(too_many);
            if self.missing(middle, limits) <= free { enough = middle } else { too_many = middle }
        }
        enough
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
        let limits = Limits::new(config, skip);
        Self::of(shape, limits, || Gpu::new(config.kv_blocks, limits.apart.as_ref()))
    }

    /// Take a request at its `arrived_ns`, up to which the cluster must have advanced; returns its GPU, `None` where all GPUs share a queue.
    pub fn arrive(&mut self, sequence: Sequence<P>, observer: &mut impl Observer<P>) -> Result<Option<usize>, Refusal> {
        debug_assert!(sequence.output_tokens > 0, "a request without an answer");
        self.take(sequence.index, sequence.arrived_ns, sequence, observer)
    }

    /// Sequences in the batch of a GPU.
    pub fn running(&self, gpu: usize) -> usize {
        self.replica(gpu).joined()
    }

    /// Requests in the queue of a GPU.
    pub fn waiting(&self, gpu: usize) -> usize {
        Replica::waiting(self.replica(gpu))
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
