//! The state machine: what must hold for any cluster and any arrivals.

use std::collections::BTreeMap;

use gpusize_base::draw::Draw;
use gpusize_simulator::{Cluster, ClusterConfig, Observer, Payload, Refusal, Router, Running, Sequence, Watch};

#[derive(Debug)]
struct Ticket {
    patience: Option<u32>,
}

impl Payload for Ticket {
    fn cancelled(&self) -> bool {
        self.patience == Some(0)
    }
}

/// Writes down everything, and checks on the way what must hold at every iteration.
#[derive(Debug, Default, PartialEq)]
struct Log {
    max_batch: usize,
    tokens: BTreeMap<u64, u64>,
    first_token_ns: BTreeMap<u64, i64>,
    finished: BTreeMap<u64, (usize, i64, u32)>,
    admitted: BTreeMap<usize, Vec<u64>>,
    abandoned: Vec<u64>,
    last_end_ns: i64,
}

impl Watch for Log {}

impl Observer<Ticket> for Log {
    fn iterations(
        &mut self,
        gpu: usize,
        end_ns: i64,
        each_ns: i64,
        count: u64,
        batch: &[Running<Ticket>],
        fresh: usize,
    ) {
        assert!(end_ns >= self.last_end_ns, "time ran back");
        assert!(each_ns > 0 && count > 0 && batch.len() <= self.max_batch);
        assert!(fresh == batch.len() || count == 1);
        self.last_end_ns = end_ns;
        for running in batch {
            *self.tokens.entry(running.sequence.index).or_default() += count;
        }
        for running in &batch[fresh..] {
            assert!(running.admitted_ns >= running.sequence.arrived_ns);
            assert_eq!(self.first_token_ns.insert(running.sequence.index, end_ns), None);
            self.admitted.entry(gpu).or_default().push(running.sequence.index);
        }
    }

    fn finished(&mut self, gpu: usize, end_ns: i64, running: Running<Ticket>, tokens: u32) {
        if running.sequence.payload.patience.is_none() {
            assert_eq!(tokens, running.sequence.output_tokens);
        }
        assert_eq!(self.tokens[&running.sequence.index], u64::from(tokens));
        assert_eq!(self.finished.insert(running.sequence.index, (gpu, end_ns, tokens)), None);
    }

    fn abandoned(&mut self, sequence: Sequence<Ticket>) {
        self.abandoned.push(sequence.index);
    }
}

/// The same where prompts are computed in chunks, the cache fills token by token, or both.
fn with_chunks_and_preemption(mut config: ClusterConfig) -> ClusterConfig {
    if !config.seed.is_multiple_of(3) {
        config.max_batched_tokens = Some(config.max_batch + (config.seed % 17) as u32);
    }
    config.kv_preemption = config.seed % 3 != 1;
    config
}

/// A random cluster that is short of everything at times, and a random row of arrivals.
fn random_case(seed: u64) -> (ClusterConfig, Vec<(i64, u32, u32)>) {
    let draw = Draw::new(seed, 1, 1);
    let pick = |seq: u64, low: u32, high: u32| low + (draw.unit(seq) * f64::from(high - low + 1)) as u32;
    let config = ClusterConfig {
        gpus: pick(0, 1, 4),
        max_batch: pick(1, 1, 6),
        kv_blocks: pick(2, 8, 40),
        kv_block_tokens: pick(3, 1, 16),
        queue_limit: (draw.unit(4) < 0.3).then(|| pick(5, 1, 5)),
        router: [Router::LeastLoaded, Router::RoundRobin, Router::Random, Router::Shared][pick(6, 0, 3) as usize],
        seed,
        ..ClusterConfig::default()
    };
    let mut now_ns = 0;
    let arrivals = (0..300).map(|index| {
        let at = 100 + 4 * index;
        // Some at the same instant, some after a pause that drains the cluster.
        let gap_s = if draw.unit(at) < 0.2 { 0.0 } else { 0.02 * draw.exp(at + 1).powi(2) };
        now_ns += (gap_s * 1e9) as i64;
        (now_ns, pick(at + 2, 1, 120), pick(at + 3, 1, 40))
    });
    (config, arrivals.collect())
}

fn sequence(
    index: u64,
    (arrived_ns, prompt_tokens, output_tokens): (i64, u32, u32),
    patience: Option<u32>,
) -> Sequence<Ticket> {
    Sequence {
        index,
        arrived_ns,
        prompt_tokens,
        cached_tokens: 0,
        output_tokens,
        cost_factor: 1.0,
        payload: Ticket { patience },
    }
}

fn run(config: &ClusterConfig, arrivals: &[(i64, u32, u32)], skip: bool) -> (Log, usize) {
    let mut cluster = Cluster::new(config, skip);
    let mut log = Log { max_batch: config.max_batch as usize, ..Log::default() };
    let mut refused = 0;
    for (index, &arrival) in arrivals.iter().enumerate() {
        cluster.advance(arrival.0, &mut log);
        match cluster.arrive(sequence(index as u64, arrival, None), &mut log) {
            Ok(gpu) => assert!(gpu.is_none_or(|gpu| gpu < config.gpus as usize)),
            Err(Refusal::QueueFull) => refused += 1,
            Err(Refusal::TooLong { tokens, limit }) => {
                assert!(tokens > limit);
                refused += 1;
            }
        }
        assert!(config.queue_limit.is_none_or(|limit| cluster.queued() <= limit as usize));
        for gpu in 0..cluster.gpus() {
            assert!(cluster.used_blocks(gpu) <= config.kv_blocks);
            // Who had to leave is not refused.
            let preempted = if config.kv_preemption { config.max_batch } else { 0 };
            assert!(config.queue_limit.is_none_or(|limit| cluster.waiting(gpu) <= (limit + preempted) as usize));
        }
    }
    while cluster.next_event_ns().is_some() {
        cluster.step(&mut log);
    }
    assert_eq!(cluster.queued(), 0);
    for gpu in 0..cluster.gpus() {
        assert_eq!((cluster.used_blocks(gpu), cluster.running(gpu), cluster.waiting(gpu)), (0, 0, 0));
    }
    (log, refused)
}

#[test]
fn tokens_are_conserved_and_everyone_is_served_in_order() {
    let mut refusals = 0;
    for (seed, mechanics) in (0..60).flat_map(|seed| [(seed, false), (seed, true)]) {
        let (mut config, arrivals) = random_case(seed);
        if mechanics {
            config = with_chunks_and_preemption(config);
        }
        let (log, refused) = run(&config, &arrivals, true);
        refusals += refused;
        assert_eq!(log.finished.len() + refused, arrivals.len(), "seed {seed}");
        for (&index, &(_, _, tokens)) in &log.finished {
            assert_eq!(tokens, arrivals[index as usize].2);
        }
        for admitted in log.admitted.values() {
            assert!(admitted.is_sorted(), "a GPU served out of order, seed {seed}");
        }
    }
    assert!(refusals > 0, "no case was short of room");
}

#[test]
fn skipping_equal_iterations_changes_nothing() {
    for seed in 100..160 {
        let (config, arrivals) = random_case(seed);
        let (fast, _) = run(&config, &arrivals, true);
        let (slow, _) = run(&config, &arrivals, false);
        assert_eq!(fast, slow, "seed {seed}");
        let config = with_chunks_and_preemption(config);
        let (fast, _) = run(&config, &arrivals, true);
        let (slow, _) = run(&config, &arrivals, false);
        assert_eq!(fast, slow, "seed {seed}, {config:?}");
    }
}

#[test]
fn an_arrival_at_the_end_of_an_iteration_waits_for_the_next() {
    let config = ClusterConfig { gpus: 1, prefill_per_token_s: 0.0, ..ClusterConfig::default() };
    let mut cluster = Cluster::new(&config, true);
    let mut log = Log { max_batch: 32, ..Log::default() };
    cluster.arrive(sequence(0, (0, 1, 10), None), &mut log).unwrap();
    let first_ns = cluster.next_event_ns().unwrap();
    assert_eq!(first_ns, 4_150_000);
    cluster.advance(first_ns, &mut log);
    cluster.arrive(sequence(1, (first_ns, 1, 10), None), &mut log).unwrap();
    cluster.advance(i64::MAX, &mut log);
    assert_eq!(log.first_token_ns[&1], first_ns + 4_150_000 + 4_300_000);
}

#[test]
fn cancelled_requests_leave_at_the_next_boundary() {
    let config = ClusterConfig { gpus: 1, max_batch: 1, ..ClusterConfig::default() };
    let mut cluster = Cluster::new(&config, false);
    let mut log = Log { max_batch: 1, ..Log::default() };
    cluster.arrive(sequence(0, (0, 1, 3), None), &mut log).unwrap();
    cluster.arrive(sequence(1, (1, 1, 30), Some(0)), &mut log).unwrap();
    cluster.arrive(sequence(2, (2, 1, 2), None), &mut log).unwrap();
    cluster.advance(i64::MAX, &mut log);
    assert_eq!(log.abandoned, [1]);
    assert_eq!(log.finished.keys().copied().collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn what_never_fits_is_refused_at_once() {
    let config = ClusterConfig { gpus: 1, kv_blocks: 4, kv_block_tokens: 10, ..ClusterConfig::default() };
    let mut cluster = Cluster::new(&config, true);
    let mut log = Log { max_batch: 32, ..Log::default() };
    let refusal = cluster.arrive(sequence(0, (0, 20, 21), None), &mut log);
    assert_eq!(refusal, Err(Refusal::TooLong { tokens: 41, limit: 40 }));
    assert_eq!(cluster.arrive(sequence(1, (0, 20, 20), None), &mut log), Ok(Some(0)));
    assert_eq!(cluster.used_blocks(0), 4);
}
