//! What was scraped of the replicas and of the gateway, as far back as any signal looks.

use std::collections::VecDeque;

use super::front::Waiting;
use super::meters::{Histogram, Meter, Meters};
use super::signal::{Quantity, Signal};
use crate::cluster::Cluster;
use crate::replica::Replica;
use crate::{ns, seconds};

/// What was scraped of one target, cumulative where it counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    load: f64,
    waiting: f64,
    cache: f64,
    requests: f64,
    busy_s: f64,
    prompt_tokens: f64,
    output_tokens: f64,
    flying_tokens: f64,
    held: f64,
    arrived: f64,
    dispatched: f64,
    flying: f64,
    unanswered: f64,
    ready: f64,
    /// Of the histograms that are asked about, in their order: counts of buckets and the sum.
    histograms: Vec<(Vec<u64>, f64)>,
}

/// A scrape: of each replica that was up its sample, and that of the gateway.
#[derive(Debug)]
struct Scrape {
    at_ns: i64,
    replicas: Vec<Option<Sample>>,
    gateway: Sample,
}

/// A target: a replica, or the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Replica(usize),
    Gateway,
}

#[derive(Debug)]
pub(super) struct Scrapes {
    all: VecDeque<Scrape>,
    keep_ns: i64,
    histograms: Vec<Histogram>,
}

impl Scrapes {
    /// None yet, for these signals.
    pub(super) fn new(signals: &[Signal]) -> Self {
        let keep_s = signals.iter().map(Signal::longest_window_s).fold(0.0, f64::max);
        let asked = |histogram: &Histogram| signals.iter().any(|signal| signal.needs(*histogram));
        let histograms = Histogram::ALL.into_iter().filter(asked).collect();
        Self { all: VecDeque::new(), keep_ns: ns(keep_s), histograms }
    }

    pub(super) fn take<R: Replica>(
        &mut self,
        at_ns: i64,
        now_ns: i64,
        cluster: &Cluster<R>,
        meters: Option<&Meters>,
        waiting: Waiting,
        slowness: f64,
    ) {
        while self.all.front().is_some_and(|first| at_ns - first.at_ns > self.keep_ns) {
            self.all.pop_front();
        }
        // The last ones are those that are down: none of them is kept.
        let up = (0..cluster.gpus()).rev().find(|&gpu| cluster.is_up(gpu)).map_or(0, |last| last + 1);
        let sample = |gpu: usize| {
            let replica = cluster.replica(gpu);
            let meter = meters.map(|meters| &meters.replicas[gpu]);
            Sample {
                load: replica.load() as f64,
                waiting: replica.waiting() as f64,
                cache: replica.cache_usage(&cluster.model).unwrap_or(0.0),
                requests: cluster.taken(gpu) as f64,
                busy_s: seconds(replica.busy_until_ns(now_ns)) * slowness,
                prompt_tokens: meter.map_or(0.0, |meter| meter.prompt_tokens as f64),
                output_tokens: meter.map_or(0.0, |meter| meter.output_tokens as f64),
                flying_tokens: meter.map_or(0.0, |meter| meter.flying_tokens as f64),
                histograms: self.histograms_of(meter, false),
                ..Sample::default()
            }
        };
        let replicas: Vec<_> = (0..up).map(|gpu| cluster.is_up(gpu).then(|| sample(gpu))).collect();
        let flying: usize = (0..up).map(|gpu| cluster.replica(gpu).load()).sum();
        let held = waiting.held + cluster.queued();
        let gateway = Sample {
            held: held as f64,
            arrived: waiting.arrived as f64,
            dispatched: (0..cluster.gpus()).map(|gpu| cluster.taken(gpu)).sum::<u64>() as f64,
            flying: flying as f64,
            unanswered: (held + flying) as f64,
            ready: cluster.ready() as f64,
            histograms: self.histograms_of(meters.map(|meters| &meters.gateway), true),
            ..Sample::default()
        };
        self.all.push_back(Scrape { at_ns, replicas, gateway });
    }

    fn histograms_of(&self, meter: Option<&Meter>, of_gateway: bool) -> Vec<(Vec<u64>, f64)> {
        let Some(meter) = meter else { return Vec::new() };
        let copy = |histogram: &Histogram| {
            if histogram.is_of_gateway() != of_gateway {
                return (Vec::new(), 0.0);
            }
            let buckets = meter.buckets(*histogram);
            (buckets.counts.clone(), buckets.sum_s)
        };
        self.histograms.iter().map(copy).collect()
    }

    /// Replicas of the last scrape, with those that were down in between.
    pub(super) fn replicas(&self) -> usize {
        self.all.back().map_or(0, |scrape| scrape.replicas.len())
    }

    /// A target's samples of the last so many seconds, the latest first; those from before it was gone for a while do not count.
    pub(super) fn recent(&self, target: Target, window_s: f64, at_ns: i64) -> impl Iterator<Item = (i64, &Sample)> {
        let oldest_ns = at_ns - ns(window_s);
        let recent = self.all.iter().rev().take_while(move |scrape| scrape.at_ns >= oldest_ns);
        recent.map_while(move |scrape| {
            let sample = match target {
                Target::Gateway => Some(&scrape.gateway),
                Target::Replica(gpu) => scrape.replicas.get(gpu)?.as_ref(),
            };
            sample.map(|sample| (scrape.at_ns, sample))
        })
    }

    /// Of a sample one quantity.
    pub(super) fn quantity(&self, quantity: Quantity, sample: &Sample) -> f64 {
        match quantity {
            Quantity::Running => sample.load - sample.waiting,
            Quantity::Waiting => sample.waiting,
            Quantity::InFlight => sample.load,
            Quantity::CacheUsage => sample.cache,
            Quantity::Requests => sample.requests,
            Quantity::Busy => sample.busy_s,
            Quantity::PromptTokens => sample.prompt_tokens,
            Quantity::OutputTokens => sample.output_tokens,
            Quantity::InFlightTokens => sample.flying_tokens,
            Quantity::Held => sample.held,
            Quantity::Arrived => sample.arrived,
            Quantity::Dispatched => sample.dispatched,
            Quantity::GatewayInFlight => sample.flying,
            Quantity::Unanswered => sample.unanswered,
            Quantity::ReadyReplicas => sample.ready,
            Quantity::Sum(histogram) => self.histogram(histogram, sample).map_or(0.0, |(_, sum_s)| *sum_s),
            Quantity::Count(histogram) => {
                self.histogram(histogram, sample).map_or(0.0, |(counts, _)| counts.iter().sum::<u64>() as f64)
            }
        }
    }

    /// Of a sample the counts of a histogram's buckets, and its sum.
    pub(super) fn histogram<'s>(&self, histogram: Histogram, sample: &'s Sample) -> Option<&'s (Vec<u64>, f64)> {
        let place = self.histograms.iter().position(|each| *each == histogram)?;
        sample.histograms.get(place)
    }
}
