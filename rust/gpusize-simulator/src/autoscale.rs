//! An autoscaler over the cluster in virtual time: it scrapes the replicas, and its policy decides by what it has scraped.

use std::collections::{BTreeMap, VecDeque};

use gpusize_autoscale::{Hpa, HpaPolicy, Phase, Pod, PodReading, Reading, Reason, Seen, Source};
use serde::{Deserialize, Serialize};

use super::config::in_range;
use super::replica::{Replica, Serve, Watch};
use super::{Cluster, ReplicaStep, SimError, ns, seconds};

/// What scales the cluster, and what it goes by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoscalerConfig {
    /// The rules.
    pub policy: HpaPolicy,
    /// Where each metric of the policy comes from, in their order.
    pub signals: Vec<Signal>,
    /// From one scrape of the replicas to the next.
    #[serde(default = "scrape_s")]
    pub scrape_s: f64,
    /// When the first decision is made; null: after one `sync_s`.
    #[serde(default)]
    pub first_sync_s: Option<f64>,
    /// The autoscaler's time over the cluster's: where replicas are simulated faster than they are, its clock goes slower.
    #[serde(default = "as_fast")]
    pub slowness: f64,
}

/// A metric, made from what was scraped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// What is scraped of each replica.
    pub quantity: Quantity,
    /// What is made of its samples.
    #[serde(default)]
    pub over_time: OverTime,
    /// How far back samples count; the last one counts for so long, too.
    #[serde(default = "lookback_s")]
    pub window_s: f64,
    /// What is made of the replicas' values; of no meaning where the policy wants one of each pod.
    #[serde(default)]
    pub across: Across,
    /// Factor on the value.
    #[serde(default = "as_fast")]
    pub factor: f64,
}

/// What a replica tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Requests at work.
    Running,
    /// Requests that wait.
    Waiting,
    /// Both.
    InFlight,
    /// Share of the KV cache that is held.
    CacheUsage,
    /// Requests that have come, since the start.
    Requests,
    /// Seconds at work, since the start: its rate is the utilization.
    Busy,
}

impl Quantity {
    fn is_counter(self) -> bool {
        matches!(self, Self::Requests | Self::Busy)
    }
}

/// What is made of a replica's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverTime {
    /// The last one.
    #[default]
    Last,
    /// `avg_over_time`.
    Average,
    /// `max_over_time`.
    Max,
    /// `rate`: the increase from the first to the last, by the time between them.
    Rate,
}

/// What is made of the replicas' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Across {
    /// `sum`.
    #[default]
    Sum,
    /// `avg`.
    Average,
    /// `max`.
    Max,
}

fn scrape_s() -> f64 {
    15.0
}

fn lookback_s() -> f64 {
    300.0
}

fn as_fast() -> f64 {
    1.0
}

impl AutoscalerConfig {
    /// Read the JSON of an autoscaler; it is validated where the cluster is known.
    pub fn from_json(text: &str) -> Result<Self, SimError> {
        serde_json::from_str(text).map_err(|source| SimError::Json { what: "autoscaler", source })
    }

    /// Refuse what cannot be simulated on so many replicas, naming the field.
    pub fn validate(&self, gpus: u32, has_cache: bool) -> Result<(), SimError> {
        self.policy
            .validate()
            .map_err(|error| SimError::value(&format!("autoscaler.policy.{}", error.field), error.problem))?;
        if self.policy.min_replicas < 1 {
            let problem = "must be at least 1: the simulated cluster has a replica at all times";
            return Err(SimError::value("autoscaler.policy.min_replicas", problem));
        }
        if self.policy.max_replicas > gpus as i32 {
            let problem = format!("must be at most gpus ({gpus}), not {}", self.policy.max_replicas);
            return Err(SimError::value("autoscaler.policy.max_replicas", problem));
        }
        in_range("autoscaler.scrape_s", self.scrape_s, 1e-3, 86_400.0)?;
        in_range("autoscaler.first_sync_s", self.first_sync_s.unwrap_or(0.0), 0.0, 1e9)?;
        in_range("autoscaler.slowness", self.slowness, 1e-3, 1e3)?;
        let wanted = self.policy.metrics.len();
        if self.signals.len() != wanted {
            let problem = format!("must be one per metric of the policy ({wanted}), not {}", self.signals.len());
            return Err(SimError::value("autoscaler.signals", problem));
        }
        for (place, (signal, metric)) in self.signals.iter().zip(&self.policy.metrics).enumerate() {
            signal.validate(&format!("autoscaler.signals[{place}]"), has_cache)?;
            if matches!(metric.source, Source::Cpu | Source::Resource) {
                let problem = "is a resource of the pods, which the simulated cluster does not have";
                return Err(SimError::value(&format!("autoscaler.policy.metrics[{place}].source"), problem));
            }
        }
        Ok(())
    }
}

impl AutoscalerConfig {
    /// The same, and refuse replicas that something else changes too.
    pub(super) fn validate_on(&self, gpus: u32, steps: &[ReplicaStep], has_cache: bool) -> Result<(), SimError> {
        self.validate(gpus, has_cache)?;
        if steps.len() > 1 {
            return Err(SimError::value("replicas", "must have one step at most where an autoscaler makes the others"));
        }
        Ok(())
    }
}

impl Signal {
    fn validate(&self, field: &str, has_cache: bool) -> Result<(), SimError> {
        in_range(&format!("{field}.window_s"), self.window_s, 1e-3, 86_400.0)?;
        in_range(&format!("{field}.factor"), self.factor, 1e-9, 1e9)?;
        if self.quantity == Quantity::CacheUsage && !has_cache {
            return Err(SimError::value(
                &format!("{field}.quantity"),
                "is not simulated: such replicas have no KV cache",
            ));
        }
        if self.quantity.is_counter() != (self.over_time == OverTime::Rate) {
            return Err(SimError::value(&format!("{field}.over_time"), "must be rate for counters, and only for them"));
        }
        Ok(())
    }
}

/// One step of the replicas that were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScalingStep {
    /// When.
    pub at_s: f64,
    /// How many from then on.
    pub replicas: i32,
    /// Why.
    pub reason: Reason,
}

/// What an autoscaler did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scaling {
    /// Decisions that changed the replicas.
    pub steps: Vec<ScalingStep>,
    /// Decisions by their reason.
    pub decisions: BTreeMap<&'static str, u64>,
}

/// What was scraped of one replica, cumulative where it counts.
#[derive(Debug, Clone, Copy)]
struct Sample {
    load: f64,
    waiting: f64,
    cache: f64,
    requests: f64,
    busy_s: f64,
}

/// A scrape: of each replica that was up, its sample.
#[derive(Debug)]
struct Scrape {
    at_ns: i64,
    samples: Vec<Option<Sample>>,
}

/// The autoscaler at work. Its times are its own; [`Self::next_ns`] is the cluster's.
#[derive(Debug)]
pub(super) struct Autoscaler {
    config: AutoscalerConfig,
    hpa: Hpa,
    scrapes: VecDeque<Scrape>,
    keep_ns: i64,
    next_scrape_ns: i64,
    next_sync_ns: i64,
    steps: Vec<ScalingStep>,
    decisions: BTreeMap<&'static str, u64>,
}

impl Autoscaler {
    /// One that has seen nothing yet.
    pub(super) fn new(config: &AutoscalerConfig) -> Result<Self, SimError> {
        let hpa = Hpa::new(config.policy.clone()).map_err(|error| SimError::value(&error.field, error.problem))?;
        let keep_s = config.signals.iter().map(|signal| signal.window_s).fold(0.0, f64::max);
        Ok(Self {
            config: config.clone(),
            hpa,
            scrapes: VecDeque::new(),
            keep_ns: ns(keep_s),
            next_scrape_ns: 0,
            next_sync_ns: ns(config.first_sync_s.unwrap_or(config.policy.sync_s)),
            steps: Vec::new(),
            decisions: BTreeMap::new(),
        })
    }

    /// When it acts next, in the cluster's time.
    pub(super) fn next_ns(&self) -> i64 {
        (self.next_scrape_ns.min(self.next_sync_ns) as f64 / self.config.slowness).ceil() as i64
    }

    /// Scrape or decide at `now_ns` of the cluster's time; at the same moment it scrapes first.
    pub(super) fn act<R: Serve<O>, O: Watch>(&mut self, now_ns: i64, cluster: &mut Cluster<R>, observer: &mut O) {
        if self.next_scrape_ns <= self.next_sync_ns {
            self.scrape(now_ns, cluster);
            self.next_scrape_ns += ns(self.config.scrape_s);
        } else {
            self.sync(now_ns, cluster, observer);
            self.next_sync_ns += ns(self.config.policy.sync_s);
        }
    }

    fn scrape<R: Replica>(&mut self, now_ns: i64, cluster: &Cluster<R>) {
        let at_ns = self.next_scrape_ns;
        while self.scrapes.front().is_some_and(|first| at_ns - first.at_ns > self.keep_ns) {
            self.scrapes.pop_front();
        }
        // The last ones are those that are down: none of them is kept.
        let up = (0..cluster.gpus()).rev().find(|&gpu| cluster.is_up(gpu)).map_or(0, |last| last + 1);
        let sample = |gpu: usize| {
            let replica = cluster.replica(gpu);
            Sample {
                load: replica.load() as f64,
                waiting: replica.waiting() as f64,
                cache: replica.cache_usage(&cluster.model).unwrap_or(0.0),
                requests: cluster.taken(gpu) as f64,
                busy_s: seconds(replica.busy_until_ns(now_ns)) * self.config.slowness,
            }
        };
        let samples = (0..up).map(|gpu| cluster.is_up(gpu).then(|| sample(gpu))).collect();
        self.scrapes.push_back(Scrape { at_ns, samples });
    }

    fn sync<R: Serve<O>, O: Watch>(&mut self, now_ns: i64, cluster: &mut Cluster<R>, observer: &mut O) {
        let at_ns = self.next_sync_ns;
        let desired = cluster.desired();
        let seen = Seen {
            now_ns: at_ns,
            spec_replicas: desired as i32,
            status_replicas: desired as i32,
            pods: (0..desired).map(|gpu| pod(gpu < cluster.ready())).collect(),
            readings: (0..self.config.signals.len()).map(|place| self.reading(place, at_ns, cluster)).collect(),
        };
        let decision = self.hpa.sync(&seen);
        *self.decisions.entry(reason_word(decision.reason)).or_default() += 1;
        if decision.replicas != seen.spec_replicas {
            cluster.scale(now_ns, decision.replicas.max(1) as u32, observer);
            self.steps.push(ScalingStep { at_s: seconds(at_ns), replicas: decision.replicas, reason: decision.reason });
        }
    }

    /// The metric as its API would give it: of each pod that takes requests, or over all that were scraped.
    fn reading<R: Replica>(&self, place: usize, at_ns: i64, cluster: &Cluster<R>) -> Reading {
        let signal = &self.config.signals[place];
        if self.config.policy.metrics[place].source == Source::Pods {
            let of = |gpu: usize| {
                let value = if gpu < cluster.ready() { self.value(signal, gpu, at_ns)? } else { return None };
                Some(PodReading { value: milli(value * signal.factor), at_ns, window_ns: 0 })
            };
            let readings: Vec<_> = (0..cluster.desired()).map(of).collect();
            return if readings.iter().all(Option::is_none) { Reading::Failed } else { Reading::PerPod(readings) };
        }
        let last = self.scrapes.back().map_or(0, |scrape| scrape.samples.len());
        let values: Vec<f64> = (0..last).filter_map(|gpu| self.value(signal, gpu, at_ns)).collect();
        if values.is_empty() {
            return Reading::Failed;
        }
        let sum: f64 = values.iter().sum();
        let value = match signal.across {
            Across::Sum => sum,
            Across::Average => sum / values.len() as f64,
            Across::Max => values.iter().copied().fold(f64::MIN, f64::max),
        };
        Reading::Values(vec![milli(value * signal.factor)])
    }

    /// What the samples of one replica come to; those from before it was gone for a while do not count.
    fn value(&self, signal: &Signal, gpu: usize, at_ns: i64) -> Option<f64> {
        let oldest_ns = at_ns - ns(signal.window_s);
        let of =
            |scrape: &Scrape| Some((scrape.at_ns, signal.quantity.of(scrape.samples.get(gpu).copied().flatten()?)));
        let mut recent = self.scrapes.iter().rev().take_while(|scrape| scrape.at_ns >= oldest_ns).map_while(of);
        let (last_ns, last) = recent.next()?;
        match signal.over_time {
            OverTime::Last => Some(last),
            OverTime::Average => {
                let (sum, count) = recent.fold((last, 1.0), |(sum, count), (_, value)| (sum + value, count + 1.0));
                Some(sum / count)
            }
            OverTime::Max => Some(recent.fold(last, |most, (_, value)| most.max(value))),
            OverTime::Rate => {
                let (first_ns, first) = recent.last()?;
                Some((last - first) / seconds(last_ns - first_ns))
            }
        }
    }

    /// Least and most replicas that its policy may ask for.
    pub(super) fn bounds(&self) -> (i32, i32) {
        (self.config.policy.min_replicas, self.config.policy.max_replicas)
    }

    /// What it did.
    pub(super) fn finish(self) -> Scaling {
        Scaling { steps: self.steps, decisions: self.decisions }
    }
}

impl Quantity {
    fn of(self, sample: Sample) -> f64 {
        match self {
            Self::Running => sample.load - sample.waiting,
            Self::Waiting => sample.waiting,
            Self::InFlight => sample.load,
            Self::CacheUsage => sample.cache,
            Self::Requests => sample.requests,
            Self::Busy => sample.busy_s,
        }
    }
}

/// Thousandths, rounded up as the client of the metrics API does.
fn milli(value: f64) -> i64 {
    (value * 1000.0).ceil() as i64
}

/// A pod whose containers run; it is ready once it takes requests.
fn pod(is_ready: bool) -> Pod {
    Pod {
        phase: Phase::Running,
        ready: Some(is_ready),
        ready_since_ns: 0,
        started_ns: Some(0),
        deleted: false,
        request: 0,
    }
}

fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::Metrics => "metrics",
        Reason::MetricFailed => "metric_failed",
        Reason::Stabilized => "stabilized",
        Reason::RateLimited => "rate_limited",
        Reason::Bounds => "bounds",
        Reason::Disabled => "disabled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrivals, Beside, ClusterConfig, FlowBeside, FlowConfig, Load, ReplicaStep, run_beside, run_flow};
    use gpusize_autoscale::{MetricSpec, Target};

    fn scaling(source: Source, target: Target, signal: Signal) -> AutoscalerConfig {
        AutoscalerConfig {
            policy: HpaPolicy::new(8, MetricSpec { source, target }),
            signals: vec![signal],
            scrape_s: 15.0,
            first_sync_s: None,
            slowness: 1.0,
        }
    }

    fn signal(quantity: Quantity) -> Signal {
        Signal { quantity, over_time: OverTime::Last, window_s: 300.0, across: Across::Sum, factor: 1.0 }
    }

    /// Servers that take a second for each request, however many they have; 1 request each `gap_ns`.
    fn servers(autoscaler: &AutoscalerConfig, due_ns: &[i64], first: u32) -> crate::FlowSummary {
        let config = FlowConfig {
            gpus: 8,
            replicas: vec![ReplicaStep { at_s: 0.0, replicas: first }],
            start_delay_s: 20.0,
            ..FlowConfig::new((1..=64).map(f64::from).collect())
        };
        let load = Load { warmup_requests: 0, arrivals: Arrivals::Plan, requests: None, ..Load::closed(1, 1) };
        let beside =
            FlowBeside { sizes: &[1.0], due_ns: Some(due_ns), autoscaler: Some(autoscaler), ..FlowBeside::default() };
        run_flow(&config, &load, beside).unwrap().summary
    }

    fn every(gap_ns: i64, from_s: i64, until_s: i64) -> Vec<i64> {
        (from_s * 1_000_000_000..until_s * 1_000_000_000).step_by(gap_ns as usize).collect()
    }

    fn steps(scaling: &Scaling) -> Vec<(f64, i32)> {
        scaling.steps.iter().map(|step| (step.at_s, step.replicas)).collect()
    }

    #[test]
    fn an_average_asks_for_the_sum_over_the_target() {
        // Little's law: 40 requests/s of a second each are 40 in flight; for 10 on each replica it takes 4.
        let autoscaler = scaling(Source::External, Target::AverageValue(10_000), signal(Quantity::InFlight));
        let mut due_ns = every(25_000_000, 0, 1000);
        due_ns.extend(every(100_000_000, 1000, 2000)); // then 10 in flight: 1
        let found = servers(&autoscaler, &due_ns, 1).scaling.unwrap();
        // 4 were asked for last at 990 s: that counts at 1290 s still.
        assert_eq!(steps(&found), [(15.0, 4), (1305.0, 1)]);
        assert_eq!(found.decisions.values().sum::<u64>(), 133);
    }

    #[test]
    fn without_a_scrape_nothing_is_decided() {
        let mut autoscaler = scaling(Source::External, Target::AverageValue(10_000), signal(Quantity::InFlight));
        autoscaler.signals[0].window_s = 5.0;
        autoscaler.scrape_s = 100.0;
        autoscaler.first_sync_s = Some(10.0);
        let found = servers(&autoscaler, &every(25_000_000, 0, 400), 1).scaling.unwrap();
        // Syncs at 10, 25, ... 100: only that at 100 s has a sample that is not stale. It scrapes before it decides.
        assert_eq!(steps(&found), [(100.0, 4)]);
        assert!(found.decisions["metric_failed"] > 10, "{found:?}");
    }

    #[test]
    fn rates_and_utilization_come_from_counters() {
        let mut rate = signal(Quantity::Requests);
        (rate.over_time, rate.window_s) = (OverTime::Rate, 60.0);
        let autoscaler = scaling(Source::External, Target::AverageValue(8_000), rate);
        assert_eq!(steps(&servers(&autoscaler, &every(25_000_000, 0, 600), 5).scaling.unwrap()), []);
        let due_ns = every(20_000_000, 0, 600);
        // Two scrapes are enough for a rate: those at 0 and 15 s.
        assert_eq!(steps(&servers(&autoscaler, &due_ns, 5).scaling.unwrap()), [(15.0, 7)]);
        // Each of 4 replicas is at work whenever it has a request: of 4 requests/s one at a time, all of the time.
        let mut busy = rate;
        (busy.quantity, busy.across) = (Quantity::Busy, Across::Average);
        let autoscaler = scaling(Source::Object, Target::Value(500), busy);
        let found = servers(&autoscaler, &every(250_000_000, 0, 100), 4).scaling.unwrap();
        assert_eq!(steps(&found)[0], (15.0, 8));
    }

    #[test]
    fn pods_that_start_hold_back_what_the_others_ask_for() {
        // 40 in flight on one replica, 10 wanted: 4 at once. While those start, the ready one asks for 4 times as many again, and the
        // missing ones count as empty: 40 / 4 is on target.
        let autoscaler = scaling(Source::Pods, Target::AverageValue(10_000), signal(Quantity::InFlight));
        let found = servers(&autoscaler, &every(25_000_000, 0, 300), 1).scaling.unwrap();
        assert_eq!(steps(&found), [(15.0, 4)]);
        // `Value` multiplies what is ready by the ratio, whatever else is on its way.
        let autoscaler = scaling(Source::External, Target::Value(20_000), signal(Quantity::InFlight));
        let found = servers(&autoscaler, &every(25_000_000, 0, 300), 1).scaling.unwrap();
        assert_eq!(steps(&found)[0], (15.0, 2));
    }

    #[test]
    fn gpus_have_a_cache_and_slower_ones_a_slower_clock() {
        let mut cache = signal(Quantity::CacheUsage);
        cache.across = Across::Max;
        let mut autoscaler = scaling(Source::External, Target::Value(500), cache);
        let config = ClusterConfig {
            gpus: 8,
            kv_blocks: 64,
            replicas: vec![ReplicaStep { at_s: 0.0, replicas: 1 }],
            ..ClusterConfig::default()
        };
        let load = Load { warmup_requests: 0, requests: None, duration_s: Some(60.0), ..Load::closed(64, 1) };
        let run = |autoscaler: &AutoscalerConfig| {
            let beside = Beside { autoscaler: Some(autoscaler), summary_only: true, ..Beside::default() };
            run_beside(&config, &load, beside).unwrap().summary.scaling.unwrap()
        };
        assert_eq!(steps(&run(&autoscaler))[0], (15.0, 2));
        // Its 15 s are 5 s of such a cluster, so there are three times as many decisions.
        let before = run(&autoscaler).decisions.values().sum::<u64>();
        autoscaler.slowness = 3.0;
        assert_eq!(run(&autoscaler).decisions.values().sum::<u64>(), 3 * before);
        let refused = autoscaler.validate(8, false).expect_err("no cache").to_string();
        assert!(refused.contains("autoscaler.signals[0].quantity"), "{refused}");
    }

    type Change = fn(&mut AutoscalerConfig);

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let good = scaling(Source::External, Target::Value(1000), signal(Quantity::Waiting));
        assert!(good.validate(8, false).is_ok());
        let cases: [(Change, &str); 7] = [
            (|it| it.policy.min_replicas = 0, "min_replicas"),
            (|it| it.policy.max_replicas = 9, "max_replicas of the simulated cluster must be at most gpus (8), not 9"),
            (|it| it.signals.clear(), "autoscaler.signals"),
            (|it| it.signals[0].over_time = OverTime::Rate, "autoscaler.signals[0].over_time"),
            (|it| it.signals[0].quantity = Quantity::Busy, "autoscaler.signals[0].over_time"),
            (|it| it.scrape_s = 0.0, "autoscaler.scrape_s"),
            (|it| it.policy.metrics[0] = MetricSpec { source: Source::Cpu, target: Target::Utilization(50) }, "source"),
        ];
        for (change, needle) in cases {
            let mut bad = good.clone();
            change(&mut bad);
            let error = bad.validate(8, false).expect_err(needle).to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
