//! One GPU: a batch that changes at the boundaries of iterations, or one that runs to its end, a KV cache in blocks, and a queue.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::{ClusterConfig, Observer, ns};

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

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    base_s: f64,
    per_sequence_s: f64,
    prefill_per_token_s: f64,
    max_batch: usize,
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
    pub(super) fn new(config: &ClusterConfig, skip: bool) -> Self {
        Self {
            base_s: config.iteration_base_s,
            per_sequence_s: config.iteration_per_sequence_s,
            prefill_per_token_s: config.prefill_per_token_s,
            max_batch: config.max_batch as usize,
            kv_block_tokens: config.kv_block_tokens,
            skip,
            whole: config
                .static_batching
                .map(|batches| WholeBatches { base_s: batches.base_s, delay_ns: ns(batches.delay_s) }),
        }
    }

    fn blocks<P>(&self, sequence: &Sequence<P>) -> u64 {
        let tokens = u64::from(sequence.prompt_tokens) + u64::from(sequence.output_tokens);
        tokens.div_ceil(u64::from(self.kv_block_tokens))
    }
}

#[derive(Debug)]
pub(super) struct Gpu<P> {
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

impl<P: Payload> Gpu<P> {
    pub(super) fn new(kv_blocks: u32) -> Self {
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

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether it has nothing to do, and nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.span == 0 && self.waiting.is_empty()
    }

    pub(super) fn free_blocks(&self) -> u32 {
        self.free_blocks
    }

    pub(super) fn iterations(&self) -> u64 {
        self.iterations
    }

    pub(super) fn busy_ns(&self) -> i64 {
        self.busy_ns
    }

    pub(super) fn busy_until_ns(&self, now_ns: i64) -> i64 {
        let under_way = if self.span == 0 { 0 } else { now_ns.min(self.iterations_end_ns()) - self.span_start_ns };
        self.busy_ns + under_way.max(0)
    }

    /// End of the iterations under way, or of the wait for more to begin with.
    pub(super) fn end_ns(&self) -> Option<i64> {
        if self.span == 0 { self.gathers_until_ns } else { Some(self.iterations_end_ns()) }
    }

    fn iterations_end_ns(&self) -> i64 {
        self.span_start_ns + self.iteration_ns * self.span as i64
    }

    /// Take a request at `now_ns`; `end_ns` may be another one afterwards.
    pub(super) fn arrive(
        &mut self,
        now_ns: i64,
        sequence: Sequence<P>,
        limits: &Limits,
        observer: &mut impl Observer<P>,
    ) {
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
    pub(super) fn finish(&mut self, gpu: usize, limits: &Limits, observer: &mut impl Observer<P>) {
        if self.span == 0 {
            if let Some(now_ns) = self.gathers_until_ns {
                self.begin(now_ns, limits, observer);
            }
            return;
        }
        let end_ns = self.iterations_end_ns();
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
