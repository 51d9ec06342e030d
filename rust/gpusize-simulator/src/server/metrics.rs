//! What the server counts, under vLLM's names where vLLM has one.

use std::collections::BTreeMap;
use std::io;

use hdrhistogram::Histogram;

use super::super::{ClusterConfig, Running, seconds};
use super::exposition::Buckets;

/// Bounds of vLLM's histogram of times to the first token.
const TTFT_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
/// vLLM's bounds begin at 10 ms, which is an iteration or two here; finer ones are put before them.
const GAP_S: &[f64] = &[
    0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
    0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const REQUEST_S: &[f64] = &[
    0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 50_000.0,
    100_000.0,
];
const LATE_S: &[f64] = &[
    0.000_02, 0.000_05, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0,
];
const LATENESS_MAX_NS: u64 = 3_600_000_000_000;

/// All of it.
pub(super) struct Metrics {
    pub gpus: Vec<GpuMetrics>,
    /// Answers by what became of them: `ok`, `failed`, `reset`, `malformed`, `refused`, `invalid`.
    pub answers: BTreeMap<&'static str, u64>,
    /// Requests whose client left while they were in a queue.
    pub abandoned: u64,
    pub connections: u64,
    /// How long after it was made a token was handed to the connection's writer.
    pub lateness_ns: Histogram<u64>,
    pub lateness: Buckets,
}

/// Counts of one GPU, in the cluster's own time.
pub(super) struct GpuMetrics {
    pub prompt_tokens: u64,
    /// Of these, those that were in the prefix cache.
    pub cached_tokens: u64,
    pub generation_tokens: u64,
    /// Sequences that ended by themselves.
    pub stopped: u64,
    /// Sequences that their request's limit ended.
    pub cut: u64,
    /// Sequences whose client left.
    pub aborted: u64,
    pub ttft: Buckets,
    pub gap: Buckets,
    pub runtime: Buckets,
    pub queue: Buckets,
    pub prefill: Buckets,
    pub decode: Buckets,
    pub per_token: Buckets,
    pub prompt: Buckets,
    pub generation: Buckets,
    pub iteration: Buckets,
}

impl GpuMetrics {
    fn new() -> Self {
        Self {
            prompt_tokens: 0,
            cached_tokens: 0,
            generation_tokens: 0,
            stopped: 0,
            cut: 0,
            aborted: 0,
            ttft: Buckets::new(TTFT_S),
            gap: Buckets::new(GAP_S),
            runtime: Buckets::new(REQUEST_S),
            queue: Buckets::new(REQUEST_S),
            prefill: Buckets::new(REQUEST_S),
            decode: Buckets::new(REQUEST_S),
            per_token: Buckets::new(GAP_S),
            prompt: Buckets::new(TOKENS),
            generation: Buckets::new(TOKENS),
            iteration: Buckets::new(TOKENS),
        }
    }

    pub(super) fn note_iteration(&mut self, iteration_ns: i64, batch: usize, fresh: usize) {
        self.generation_tokens += batch as u64;
        self.iteration.observe(batch as f64);
        self.gap.observe_n(seconds(iteration_ns), fresh as u64);
    }

    pub(super) fn note_first_token<P>(&mut self, running: &Running<P>, end_ns: i64) {
        let sequence = &running.sequence;
        self.prompt_tokens += u64::from(sequence.prompt_tokens);
        self.cached_tokens += u64::from(sequence.cached_tokens);
        self.ttft.observe(seconds(end_ns - sequence.arrived_ns));
        self.queue.observe(seconds(running.admitted_ns - sequence.arrived_ns));
        self.prefill.observe(seconds(end_ns - running.admitted_ns));
    }

    pub(super) fn note_end<P>(&mut self, running: &Running<P>, end_ns: i64, tokens: u32, cut: bool) {
        let sequence = &running.sequence;
        if tokens < sequence.output_tokens {
            self.aborted += 1;
            return;
        }
        if cut {
            self.cut += 1;
        } else {
            self.stopped += 1;
        }
        let decode_s = seconds(end_ns - running.first_token_ns);
        self.runtime.observe(seconds(end_ns - sequence.arrived_ns));
        self.decode.observe(decode_s);
        if tokens > 1 {
            self.per_token.observe(decode_s / f64::from(tokens - 1));
        }
        self.prompt.observe(f64::from(sequence.prompt_tokens));
        self.generation.observe(f64::from(tokens));
    }
}

impl Metrics {
    pub(super) fn new(config: &ClusterConfig) -> io::Result<Self> {
        Ok(Self {
            gpus: (0..config.gpus).map(|_| GpuMetrics::new()).collect(),
            answers: BTreeMap::new(),
            abandoned: 0,
            connections: 0,
            lateness_ns: Histogram::new_with_max(LATENESS_MAX_NS, 3).map_err(io::Error::other)?,
            lateness: Buckets::new(LATE_S),
        })
    }

    pub(super) fn note_answer(&mut self, kind: &'static str) {
        *self.answers.entry(kind).or_default() += 1;
    }

    pub(super) fn note_lateness(&mut self, late_ns: i64) {
        let late_ns = late_ns.clamp(0, LATENESS_MAX_NS as i64);
        self.lateness_ns.saturating_record(late_ns as u64);
        self.lateness.observe(seconds(late_ns));
    }
}
