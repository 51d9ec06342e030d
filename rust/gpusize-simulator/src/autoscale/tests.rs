use super::*;
use crate::{
    Arrivals, Beside, ClusterConfig, FlowBeside, FlowConfig, FlowResult, Gpu, Load, Outcome, Payload, ReplicaStep,
    run_beside, run_flow,
};
use gpusize_autoscale::{Fallback, FallbackBehavior, HpaPolicy, MetricSpec, Modifiers, ScaledObject, Target, Trigger};

fn scaling(source: Source, target: Target, series: Series) -> AutoscalerConfig {
    AutoscalerConfig {
        policy: HpaPolicy::new(8, MetricSpec { source, target }),
        signals: vec![Signal::Series(series)],
        keda: None,
        scrape_s: 15.0,
        first_sync_s: None,
        slowness: 1.0,
        outages: Vec::new(),
        front: FrontConfig::default(),
        begins_at_zero: false,
        until_s: 0.0,
        was_active: false,
    }
}

fn signal(quantity: Quantity) -> Series {
    Series { quantity, over_time: OverTime::Last, window_s: 300.0, across: Across::Sum }
}

fn series(autoscaler: &mut AutoscalerConfig) -> &mut Series {
    match &mut autoscaler.signals[0] {
        Signal::Series(series) => series,
        other => panic!("{other:?} is no series"),
    }
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
    series(&mut autoscaler).window_s = 5.0;
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

/// KEDA over one trigger: requests that have not been answered, 10 for each replica.
fn keda(min_replicas: i32) -> ScaledObject {
    ScaledObject {
        polling_s: 30.0,
        cooldown_s: 120,
        initial_cooldown_s: 0,
        min_replicas,
        idle_replicas: None,
        fallback: None,
        triggers: vec![Trigger {
            name: Some("unanswered".to_owned()),
            target: Target::AverageValue(10_000),
            activation: 0.0,
            use_cached: false,
            ignore_null: true,
        }],
        modifiers: None,
    }
}

fn with_keda(min_replicas: i32) -> AutoscalerConfig {
    let base = scaling(Source::External, Target::AverageValue(10_000), signal(Quantity::Unanswered));
    AutoscalerConfig { keda: Some(keda(min_replicas)), begins_at_zero: min_replicas == 0, ..base }
}

/// As [`servers`], with rows.
fn rows(autoscaler: &AutoscalerConfig, due_ns: &[i64]) -> FlowResult {
    let config = FlowConfig { gpus: 8, start_delay_s: 20.0, ..FlowConfig::new((1..=64).map(f64::from).collect()) };
    let config = FlowConfig { replicas: vec![ReplicaStep { at_s: 0.0, replicas: 1 }], ..config };
    let load = Load { warmup_requests: 0, arrivals: Arrivals::Plan, requests: None, ..Load::closed(1, 1) };
    let beside =
        FlowBeside { sizes: &[1.0], due_ns: Some(due_ns), autoscaler: Some(autoscaler), ..FlowBeside::default() };
    run_flow(&config, &load, beside).unwrap()
}

fn words(scaling: &Scaling) -> Vec<(f64, i32, &'static str)> {
    scaling.steps.iter().map(|step| (step.at_s, step.replicas, step.reason)).collect()
}

#[test]
fn from_zero_the_first_request_waits_for_a_poll_and_a_start() {
    // 5 requests from 100 s on, and 5 from 1000 s on, a second each.
    let mut due_ns = every(1_000_000_000, 100, 105);
    due_ns.extend(every(1_000_000_000, 1000, 1005));
    let found = rows(&with_keda(0), &due_ns);
    let scaling = found.summary.scaling.clone().unwrap();
    // Scraped at 105 s; polls are at 120, 150, ...: nothing is there from 141 s on. 120 s after the poll of 120 s (the poll of 150 s finds
    // none), at 240 s, it is removed; and again.
    let expected = [(120.0, 1, "activated"), (240.0, 0, "deactivated"), (1020.0, 1, "activated")];
    assert_eq!(words(&scaling), expected);
    assert_eq!(scaling.fronted, Fronted { held: 10, refused: 0, longest_s: 40.0 });
    // The first replica takes requests 20 s after the poll, all of them at once.
    assert!(found.columns.start_ns[..5].iter().all(|&at_ns| at_ns == 140_000_000_000));
    assert!(found.columns.end_ns[..5].iter().all(|&at_ns| at_ns == 141_000_000_000));
    assert_eq!(found.columns.sent_ns[1], 101_000_000_000);
    assert_eq!(scaling.polls["active"], 2);
    assert!(scaling.decisions["disabled"] > 40);
}

#[test]
fn without_a_holder_requests_are_refused_until_one_is_there() {
    let mut autoscaler = with_keda(0);
    autoscaler.front.holds = false;
    // Nothing waits anywhere, so that only what has come can wake the replicas.
    let mut rate = signal(Quantity::Arrived);
    (rate.over_time, rate.window_s) = (OverTime::Rate, 60.0);
    autoscaler.signals = vec![Signal::Series(rate)];
    let found = rows(&autoscaler, &every(1_000_000_000, 100, 200));
    let scaling = found.summary.scaling.clone().unwrap();
    assert_eq!(words(&scaling)[0], (120.0, 1, "activated"));
    assert_eq!(scaling.fronted, Fronted { held: 0, refused: 40, longest_s: 0.0 });
    assert_eq!((found.summary.outcomes[&Outcome::HttpError], found.summary.outcomes[&Outcome::Ok]), (40, 60));
    // The queue of the gateway would never have told of them.
    autoscaler.signals = vec![Signal::Series(signal(Quantity::Held))];
    assert_eq!(rows(&autoscaler, &every(1_000_000_000, 100, 200)).summary.outcomes.get(&Outcome::Ok), None);
}

#[test]
fn what_nobody_wakes_is_refused_in_the_end() {
    let mut autoscaler = with_keda(0);
    autoscaler.front.timeout_s = 50.0;
    // Of replicas that are not there nothing is scraped: absent, which KEDA takes for 0.
    autoscaler.signals = vec![Signal::Series(signal(Quantity::Waiting))];
    let found = rows(&autoscaler, &every(1_000_000_000, 100, 110));
    let scaling = found.summary.scaling.unwrap();
    assert_eq!((words(&scaling), scaling.fronted), (Vec::new(), Fronted { held: 0, refused: 10, longest_s: 0.0 }));
    assert!(found.columns.end_ns.iter().zip(&found.columns.due_ns).all(|(end, due)| end - due == 50_001_000_000));
    // A trigger that takes no value for a failure does not know either.
    autoscaler.keda.as_mut().unwrap().triggers[0].ignore_null = false;
    let scaling = rows(&autoscaler, &every(1_000_000_000, 100, 110)).summary.scaling.unwrap();
    assert_eq!((scaling.fronted.refused, scaling.polls.contains_key("failed")), (10, true));
}

#[test]
fn an_hpa_alone_wakes_by_what_is_there_without_replicas() {
    // HPAScaleToZero is on by default from Kubernetes 1.37 on.
    let mut autoscaler = scaling(Source::External, Target::AverageValue(10_000), signal(Quantity::Unanswered));
    (autoscaler.policy.min_replicas, autoscaler.begins_at_zero) = (0, true);
    let scaling = rows(&autoscaler, &every(1_000_000_000, 100, 105)).summary.scaling.unwrap();
    assert_eq!(words(&scaling)[0], (105.0, 1, "metrics"));
    autoscaler.signals = vec![Signal::Series(signal(Quantity::Waiting))];
    let scaling = rows(&autoscaler, &every(1_000_000_000, 100, 105)).summary.scaling.unwrap();
    assert_eq!((words(&scaling), scaling.fronted.refused), (Vec::new(), 5));
}

#[test]
fn a_fallback_stands_in_while_metrics_are_out() {
    let mut autoscaler = with_keda(1);
    autoscaler.outages = vec![Outage { from_s: 100.0, until_s: 400.0 }];
    let due_ns = every(50_000_000, 0, 1000); // 20 in flight: 2
    let due = |autoscaler: &AutoscalerConfig| words(&rows(autoscaler, &due_ns).summary.scaling.unwrap());
    // Without one nothing is changed.
    assert_eq!(due(&autoscaler), [(15.0, 2, "metrics")]);
    let fallback = Fallback { failure_threshold: 3, replicas: 6, behavior: FallbackBehavior::Static };
    autoscaler.keda.as_mut().unwrap().fallback = Some(fallback);
    // Failures: HPA 105, poll and HPA 120, HPA 135 is the fourth. Then 2 until a 6 of before 400 s is over.
    // No more than 4 at a time.
    let steps =
        |most| [(15.0, 2, "metrics"), (135.0, 4, "rate_limited"), (150.0, most, "metrics"), (705.0, 2, "metrics")];
    assert_eq!(due(&autoscaler), steps(6));
    // A formula sees nil.
    let keda = autoscaler.keda.as_mut().unwrap();
    keda.fallback = Some(Fallback { behavior: FallbackBehavior::ScalingModifiers, ..fallback });
    let formula = "(unanswered ?? 70) + 0".to_owned();
    keda.modifiers = Some(Modifiers { formula, target: "10".to_owned(), activation: 0.0, is_value: false });
    assert_eq!(due(&autoscaler), steps(7));
}

struct Plain;

impl Payload for Plain {}

#[test]
fn queries_are_made_of_each_other() {
    let config = AutoscalerConfig { slowness: 1.0, ..with_keda(1) };
    let mut scrapes = Scrapes::new(&config.signals);
    let cluster: Cluster<Gpu<Plain>> = Cluster::new(&ClusterConfig { gpus: 2, ..ClusterConfig::default() }, true);
    scrapes.take(0, 0, &cluster, None, Waiting { arrived: 5, held: 3 }, 1.0);
    let of = |text: &str| {
        let signal: Signal = serde_json::from_str(text).unwrap();
        signal.value(&scrapes, 0)
    };
    let held = r#"{"series": {"quantity": "held"}}"#;
    assert_eq!(of(held), Some(3.0));
    let two = r#"{"number": 2}"#;
    for (operator, expected) in [("add", 5.0), ("subtract", 1.0), ("multiply", 6.0), ("divide", 1.5)] {
        let text = format!(r#"{{"arithmetic": {{"operator": "{operator}", "left": {held}, "right": {two}}}}}"#);
        assert_eq!(of(&text), Some(expected));
    }
    // A rate needs two samples.
    let rate = r#"{"series": {"quantity": "arrived", "over_time": "rate", "window_s": 60}}"#;
    assert_eq!(of(rate), None);
    assert_eq!(of(&format!(r#"{{"or": [{rate}, {two}]}}"#)), Some(2.0));
    assert_eq!(of(&format!(r#"{{"arithmetic": {{"operator": "add", "left": {rate}, "right": {two}}}}}"#)), None);
    assert_eq!(of(r#"{"series": {"quantity": "ready_replicas"}}"#), Some(2.0));
    assert_eq!(of(r#"{"series": {"quantity": "in_flight", "across": "count"}}"#), Some(2.0));
}

type Change = fn(&mut AutoscalerConfig);

#[test]
fn what_cannot_be_simulated_is_refused() {
    let good = scaling(Source::Object, Target::Value(1000), signal(Quantity::Waiting));
    assert!(good.validate(8, false).is_ok());
    let cases: [(Change, &str); 11] = [
        (|it| it.policy.min_replicas = -1, "min_replicas"),
        (|it| it.outages.push(Outage { from_s: 5.0, until_s: 4.0 }), "autoscaler.outages[0].until_s"),
        (|it| it.front.timeout_s = 0.0, "autoscaler.front.timeout_s"),
        (|it| it.keda = Some(keda(0)), "autoscaler.policy.metrics"),
        (|it| series(it).quantity = Quantity::InFlightTokens, "autoscaler.signals[0].quantity"),
        (|it| it.policy.max_replicas = 9, "max_replicas of the simulated cluster must be at most gpus (8), not 9"),
        (|it| it.signals.clear(), "autoscaler.signals"),
        (|it| series(it).over_time = OverTime::Rate, "autoscaler.signals[0].over_time"),
        (|it| series(it).quantity = Quantity::Busy, "autoscaler.signals[0].over_time"),
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
