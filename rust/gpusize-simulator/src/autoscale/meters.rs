//! What servers and the gateway count: tokens, and times by histogram.

use serde::{Deserialize, Serialize};

/// A histogram that is scraped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Histogram {
    /// From when a replica gets a request to its first token.
    Ttft,
    /// From one token of a request to its next.
    Itl,
    /// From when a replica gets a request to its end.
    Runtime,
    /// From when a replica gets a request to when it works at it.
    Queue,
    /// From when the gateway gets a request to its first token: what it holds waits there too.
    GatewayTtft,
    /// From when the gateway gets a request to its end.
    GatewayRuntime,
}

/// Of vLLM (`vllm/v1/metrics/loggers.py`): first token.
const FIRST_TOKEN_S: [f64; 21] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0,
];
/// Between tokens.
const GAP_S: [f64; 19] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
/// Of whole requests, and of their wait.
const REQUEST_S: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
/// Of the endpoint picker (`pkg/epp/metrics/metrics.go`).
const GATEWAY_S: [f64; 35] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

impl Histogram {
    pub(super) const ALL: [Self; 6] =
        [Self::Ttft, Self::Itl, Self::Runtime, Self::Queue, Self::GatewayTtft, Self::GatewayRuntime];

    pub(super) fn is_of_gateway(self) -> bool {
        matches!(self, Self::GatewayTtft | Self::GatewayRuntime)
    }

    /// Whether only servers that tell of tokens have it.
    pub(super) fn needs_tokens(self) -> bool {
        !matches!(self, Self::Runtime | Self::GatewayRuntime)
    }

    /// Upper bounds of its buckets, in seconds; one more is above all of them.
    pub(super) fn bounds_s(self) -> &'static [f64] {
        match self {
            Self::Ttft => &FIRST_TOKEN_S,
            Self::Itl => &GAP_S,
            Self::Runtime | Self::Queue => &REQUEST_S,
            Self::GatewayTtft | Self::GatewayRuntime => &GATEWAY_S,
        }
    }

    fn place(self) -> usize {
        self as usize
    }
}

/// Counts since the start.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    /// Not cumulated; the last is above all bounds.
    pub(super) counts: Vec<u64>,
    pub(super) sum_s: f64,
}

/// One server's, or the gateway's.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
    /// Of the requests that it has.
    pub(super) flying_tokens: u64,
    buckets: [Buckets; 6],
}

impl Meter {
    fn new() -> Self {
        let buckets = Histogram::ALL.map(|each| Buckets { counts: vec![0; each.bounds_s().len() + 1], sum_s: 0.0 });
        Self { prompt_tokens: 0, output_tokens: 0, flying_tokens: 0, buckets }
    }

    pub(super) fn buckets(&self, histogram: Histogram) -> &Buckets {
        &self.buckets[histogram.place()]
    }
}

/// All of them. Times that come in are the cluster's; those in the histograms are the autoscaler's.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(super) replicas: Vec<Meter>,
    pub(super) gateway: Meter,
    /// Seconds of the autoscaler in a nanosecond of the cluster.
    s_per_ns: f64,
}

impl Meters {
    pub(crate) fn new(gpus: u32, slowness: f64) -> Self {
        Self {
            replicas: vec![Meter::new(); gpus as usize],
            gateway: Meter::new(),
            s_per_ns: slowness / crate::NS_PER_S,
        }
    }

    /// A replica gets a request.
    pub(crate) fn given(&mut self, gpu: usize, prompt_tokens: u32) {
        self.replicas[gpu].flying_tokens += u64::from(prompt_tokens);
    }

    /// Its first token: prompts count as they are worked off.
    pub(crate) fn first_token(&mut self, gpu: usize, prompt_tokens: u32) {
        self.replicas[gpu].prompt_tokens += u64::from(prompt_tokens);
    }

    pub(crate) fn made(&mut self, gpu: usize, tokens: u64) {
        self.replicas[gpu].output_tokens += tokens;
    }

    /// It is done with one.
    pub(crate) fn ended(&mut self, gpu: usize, prompt_tokens: u32) {
        let flying = &mut self.replicas[gpu].flying_tokens;
        *flying = flying.saturating_sub(u64::from(prompt_tokens));
    }

    /// Something took so long, `count` times.
    pub(crate) fn took(&mut self, gpu: usize, histogram: Histogram, time_ns: i64, count: u64) {
        if count == 0 {
            return;
        }
        let meter = if histogram.is_of_gateway() { &mut self.gateway } else { &mut self.replicas[gpu] };
        let time_s = time_ns as f64 * self.s_per_ns;
        let buckets = &mut meter.buckets[histogram.place()];
        buckets.counts[histogram.bounds_s().partition_point(|&bound_s| bound_s < time_s)] += count;
        buckets.sum_s += time_s * count as f64;
    }
}
