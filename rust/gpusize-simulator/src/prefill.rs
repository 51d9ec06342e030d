//! Servers of a replica that compute prompts and nothing else, and the way from them to where answers are made: prefill and decode apart,
//! as engines for language models can be run.

use std::collections::{BTreeMap, VecDeque};

use super::batch::Running;
use super::gpu::{Observer, Payload, Sequence};
use super::{PrefillServers, ns};

/// What their iterations cost and hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrefillLimits {
    servers: usize,
    base_s: f64,
    per_token_s: f64,
    /// Tokens of one of their iterations; `None`: one prompt at a time, whole.
    batched_tokens: Option<u64>,
    transfer_s: f64,
    transfer_per_token_s: f64,
}

impl PrefillLimits {
    pub(super) fn new(config: &PrefillServers, per_token_s: f64) -> Self {
        Self {
            servers: config.servers as usize,
            base_s: config.base_s,
            per_token_s,
            batched_tokens: config.max_batched_tokens.map(u64::from),
            transfer_s: config.transfer_s,
            transfer_per_token_s: config.transfer_per_token_s,
        }
    }

    /// How long a cache holds the link up, and how long it takes beside that.
    fn transfer_ns(&self, prompt_tokens: u32) -> (i64, i64) {
        (ns(self.transfer_per_token_s * f64::from(prompt_tokens)), ns(self.transfer_s))
    }
}

/// The servers, and the caches on their way.
#[derive(Debug)]
pub(super) struct Prefillers<P> {
    servers: Vec<Server<P>>,
    /// When the link has sent all that it was given.
    link_free_ns: i64,
    /// By when they are there, and by the request's number.
    moving: BTreeMap<(i64, u64), Running<P>>,
}

#[derive(Debug)]
struct Server<P> {
    waiting: VecDeque<Sequence<P>>,
    /// Those in the iteration under way; of the last one a part may be left to compute after it.
    batch: Vec<Running<P>>,
    /// From when to when it lasts; `None`: idle.
    lasts_ns: Option<(i64, i64)>,
}

impl<P> Prefillers<P> {
    pub(super) fn new(limits: Option<&PrefillLimits>) -> Self {
        let servers = limits.map_or(0, |limits| limits.servers);
        Self {
            servers: (0..servers)
                .map(|_| Server { waiting: VecDeque::new(), batch: Vec::new(), lasts_ns: None })
                .collect(),
            link_free_ns: 0,
            moving: BTreeMap::new(),
        }
    }

    /// Requests that are computed or moved.
    pub(super) fn len(&self) -> usize {
        self.moving.len() + self.servers.iter().map(|server| server.batch.len()).sum::<usize>()
    }

    /// Requests that wait to be computed.
    pub(super) fn waiting(&self) -> usize {
        self.servers.iter().map(|server| server.waiting.len()).sum()
    }

    /// When something happens next.
    pub(super) fn next_ns(&self) -> Option<i64> {
        let ends = self.servers.iter().filter_map(|server| server.lasts_ns.map(|(_, end_ns)| end_ns));
        ends.chain(self.moving.first_key_value().map(|(&(at_ns, _), _)| at_ns)).min()
    }
}

impl<P: Payload> Prefillers<P> {
    /// Give a request to the first of the servers with the fewest.
    pub(super) fn arrive(
        &mut self,
        now_ns: i64,
        sequence: Sequence<P>,
        limits: &PrefillLimits,
        observer: &mut impl Observer<P>,
    ) {
        let fewest = self.servers.iter_mut().min_by_key(|server| server.waiting.len() + server.batch.len());
        let Some(server) = fewest else { return };
        server.waiting.push_back(sequence);
        if server.lasts_ns.is_none() {
            server.begin(now_ns, limits, observer);
        }
    }

    /// Let happen what is due at `now_ns`: first tokens go out, servers begin anew, caches set out. Those that are there, in order.
    pub(super) fn step(
        &mut self,
        gpu: usize,
        now_ns: i64,
        limits: &PrefillLimits,
        observer: &mut impl Observer<P>,
    ) -> Vec<Running<P>> {
        for server in &mut self.servers {
            let Some((begun_ns, _)) = server.lasts_ns.filter(|&(_, end_ns)| end_ns <= now_ns) else { continue };
            let through = server.batch.iter().take_while(|running| running.to_prefill == 0).count();
            let mut computed: Vec<_> = server.batch.drain(..through).collect();
            for running in &mut computed {
                running.first_token_ns = now_ns;
                running.made = 1;
            }
            observer.iterations(gpu, now_ns, now_ns - begun_ns, 1, &computed, 0);
            for running in computed {
                if running.sequence.output_tokens == 1 || running.sequence.payload.cancelled() {
                    observer.finished(gpu, now_ns, running, 1);
                } else {
                    let (sends_ns, beside_ns) = limits.transfer_ns(running.sequence.prompt_tokens);
                    self.link_free_ns = self.link_free_ns.max(now_ns) + sends_ns;
                    self.moving.insert((self.link_free_ns + beside_ns, running.sequence.index), running);
                }
            }
            server.begin(now_ns, limits, observer);
        }
        let on_the_way = self.moving.split_off(&(now_ns + 1, 0));
        std::mem::replace(&mut self.moving, on_the_way).into_values().collect()
    }
}

impl<P: Payload> Server<P> {
    /// Begin an iteration with what is left of a prompt and those who wait, in order; or be idle.
    fn begin(&mut self, now_ns: i64, limits: &PrefillLimits, observer: &mut impl Observer<P>) {
        let mut left = limits.batched_tokens.unwrap_or(u64::MAX);
        let mut seconds = limits.base_s;
        let mut place = 0;
        while left > 0 {
            if place == self.batch.len() {
                let Some(sequence) = next_of(&mut self.waiting, observer) else { break };
                self.batch.push(Running::waiting(sequence, now_ns));
            }
            let next = &mut self.batch[place];
            let tokens = u64::from(next.to_prefill).min(left) as u32;
            seconds += limits.per_token_s * f64::from(tokens) * next.sequence.cost_factor;
            next.to_prefill -= tokens;
            left -= u64::from(tokens);
            place += 1;
            if limits.batched_tokens.is_none() {
                break;
            }
        }
        self.lasts_ns = (!self.batch.is_empty()).then(|| (now_ns, now_ns + ns(seconds).max(1)));
    }
}

/// The first who waits and for whom somebody waits.
fn next_of<P: Payload>(waiting: &mut VecDeque<Sequence<P>>, observer: &mut impl Observer<P>) -> Option<Sequence<P>> {
    while let Some(first) = waiting.pop_front() {
        if !first.payload.cancelled() {
            return Some(first);
        }
        observer.abandoned(first);
    }
    None
}
