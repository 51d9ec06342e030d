//! Replicas that come and go: in the state machine, and in virtual time.

use std::collections::BTreeMap;

use gpusize_simulator::{
    Arrivals, Cluster, ClusterConfig, FlowBeside, FlowConfig, Length, Load, Observer, Payload, Plan, Process,
    ReplicaStep, Router, Running, Sequence, Watch, run_flow, run_plan, run_virtual,
};

#[derive(Debug)]
struct Plain;

impl Payload for Plain {}

/// When each request ended and on which GPU, and how many GPUs took requests from when on.
#[derive(Debug, Default, PartialEq)]
struct Log {
    ends: BTreeMap<u64, (usize, i64)>,
    ready: Vec<(i64, usize)>,
}

impl Watch for Log {
    fn replicas(&mut self, at_ns: i64, _desired: usize, ready: usize) {
        self.ready.push((at_ns, ready));
    }
}

impl Observer<Plain> for Log {
    fn iterations(&mut self, _: usize, _: i64, _: i64, _: u64, _: &[Running<Plain>], _: usize) {}

    fn finished(&mut self, gpu: usize, end_ns: i64, running: Running<Plain>, _: u32) {
        self.ends.insert(running.sequence.index, (gpu, end_ns));
    }

    fn abandoned(&mut self, _: Sequence<Plain>) {}
}

fn sequence(index: u64, arrived_ns: i64) -> Sequence<Plain> {
    Sequence {
        index,
        arrived_ns,
        prompt_tokens: 1,
        cached_tokens: 0,
        output_tokens: 10,
        cost_factor: 1.0,
        payload: Plain,
    }
}

/// One sequence at a time and GPU, 100 ms each.
fn one_at_a_time(gpus: u32, router: Router) -> ClusterConfig {
    ClusterConfig {
        gpus,
        max_batch: 1,
        router,
        iteration_base_s: 0.01,
        iteration_per_sequence_s: 0.0,
        prefill_per_token_s: 0.0,
        output_tokens: Length::Fixed { tokens: 10 },
        ..ClusterConfig::default()
    }
}

fn steps(steps: &[(f64, u32)]) -> Vec<ReplicaStep> {
    steps.iter().map(|&(at_s, replicas)| ReplicaStep { at_s, replicas }).collect()
}

#[test]
fn every_router_sends_to_those_that_are_ready_alone() {
    for router in [Router::LeastLoaded, Router::RoundRobin, Router::Random] {
        let replicas = steps(&[(0.0, 2), (1.0, 3), (2.0, 1)]);
        let config = ClusterConfig { replicas, start_delay_s: 0.5, ..one_at_a_time(3, router) };
        let mut cluster = Cluster::new(&config, true);
        let mut log = Log::default();
        let mut seen: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for index in 0..300 {
            let now_ns = index as i64 * 10_000_000;
            cluster.advance(now_ns, &mut log);
            let gpu = cluster.arrive(sequence(index, now_ns), &mut log).expect("room").expect("no queue for all");
            let phase = [0, 1_500_000_000, 2_000_000_000].iter().filter(|&&from_ns| from_ns <= now_ns).count();
            seen.entry(phase).or_default().push(gpu);
        }
        // The least loaded one may be the new one for a while.
        let last = |phase: usize| seen[&phase].iter().copied().max();
        assert_eq!([last(1), last(2), last(3)], [Some(1), Some(2), Some(0)], "{router:?}");
        assert_eq!(log.ready, [(1_000_000_000, 2), (1_500_000_000, 3), (2_000_000_000, 1)]);
    }
}

#[test]
fn a_removed_replica_finishes_what_it_has_its_queue_too() {
    let mut cluster = Cluster::new(&one_at_a_time(2, Router::RoundRobin), true);
    let mut log = Log::default();
    for index in 0..6 {
        cluster.arrive(sequence(index, 0), &mut log).expect("room");
    }
    cluster.scale(50_000_000, 1, &mut log);
    assert_eq!((cluster.ready(), cluster.desired(), cluster.is_up(1)), (1, 1, true));
    cluster.arrive(sequence(7, 50_000_000), &mut log).expect("room");
    cluster.advance(i64::MAX, &mut log);
    let on = |gpu: usize| {
        log.ends.iter().filter(move |(_, end)| end.0 == gpu).map(|(&index, end)| (index, end.1 / 1_000_000))
    };
    assert_eq!(on(0).collect::<Vec<_>>(), [(0, 100), (2, 200), (4, 300), (7, 400)]);
    assert_eq!(on(1).collect::<Vec<_>>(), [(1, 100), (3, 200), (5, 300)]);
    assert!(!cluster.is_up(1));
    assert_eq!(cluster.down_ns(1, 500_000_000), 200_000_000);
}

#[test]
fn one_that_is_asked_for_twice_is_ready_once_and_taken_back_is_never_ready() {
    let config =
        ClusterConfig { start_delay_s: 1.0, replicas: steps(&[(0.0, 1)]), ..one_at_a_time(4, Router::LeastLoaded) };
    let mut cluster = Cluster::new(&config, true);
    let mut log = Log::default();
    cluster.scale(100, 2, &mut log);
    cluster.scale(200, 2, &mut log);
    assert_eq!(cluster.next_event_ns(), Some(1_000_000_100));
    cluster.scale(300, 1, &mut log);
    assert_eq!((cluster.next_event_ns(), cluster.desired()), (None, 1));
    // Beyond its bounds it asks for what there is.
    cluster.scale(400, 99, &mut log);
    assert_eq!((cluster.desired(), cluster.ready()), (4, 1));
    cluster.advance(i64::MAX, &mut log);
    assert_eq!((cluster.ready(), log.ready.last()), (4, Some(&(1_000_000_400, 4))));
}

#[test]
fn skipping_equal_iterations_changes_nothing() {
    // With room in the cache for a batch, and without.
    let kinds = [(Router::LeastLoaded, 4096), (Router::Shared, 4096), (Router::Shared, 2)];
    for (start_delay_s, (router, kv_blocks)) in
        [0.0, 0.037].into_iter().flat_map(|delay_s| kinds.map(|kind| (delay_s, kind)))
    {
        let replicas = steps(&[(0.0, 1), (0.11, 4), (0.25, 2), (0.3, 3), (0.31, 1)]);
        let config = ClusterConfig {
            gpus: 4,
            max_batch: 3,
            router,
            kv_blocks,
            replicas,
            start_delay_s,
            ..ClusterConfig::default()
        };
        let run = |skip: bool| {
            let mut cluster = Cluster::new(&config, skip);
            let mut log = Log::default();
            for index in 0..200 {
                let now_ns = index as i64 * 2_345_678;
                cluster.advance(now_ns, &mut log);
                cluster.arrive(sequence(index, now_ns), &mut log).expect("room");
            }
            cluster.advance(i64::MAX, &mut log);
            assert_eq!(cluster.queued(), 0);
            log
        };
        let fast = run(true);
        assert_eq!(fast, run(false), "{router:?} with {kv_blocks} blocks");
        assert_eq!(fast.ends.len(), 200);
    }
}

#[test]
fn in_virtual_time_capacity_follows_the_replicas() {
    // A replica answers 10/s; offered are 15/s.
    let replicas = steps(&[(0.0, 1), (30.0, 2)]);
    let config = ClusterConfig { replicas, start_delay_s: 5.0, ..one_at_a_time(2, Router::LeastLoaded) };
    let load = Load {
        arrivals: Arrivals::Open { rate_per_s: 15.0, process: Process::Constant },
        duration_s: Some(100.0),
        ..Load { requests: None, warmup_requests: 0, ..Load::closed(1, 1) }
    };
    let result = run_virtual(&config, &load).expect("a valid load");
    let ended_in = |from_s: f64, to_s: f64| {
        let window = (from_s * 1e9) as i64..(to_s * 1e9) as i64;
        result.columns.end_ns.iter().filter(|end_ns| window.contains(end_ns)).count() as f64 / (to_s - from_s)
    };
    assert!((ended_in(5.0, 34.0) - 10.0).abs() < 0.1, "{}", ended_in(5.0, 34.0));
    // What had queued at the first is worked off there alone, as the router does not take it back.
    assert!((ended_in(36.0, 50.0) - 15.0).abs() < 5.1, "{}", ended_in(36.0, 50.0));
    assert!((ended_in(80.0, 100.0) - 15.0).abs() < 0.2, "{}", ended_in(80.0, 100.0));
    assert!(
        result
            .columns
            .gpu
            .iter()
            .zip(&result.columns.due_ns)
            .all(|(&gpu, &due_ns)| gpu == 0 || due_ns >= 35_000_000_000)
    );
    // The second GPU was there for 65 s of 100.
    assert!(result.summary.busy_share > 0.8 && result.summary.busy_share <= 1.0, "{}", result.summary.busy_share);
}

#[test]
fn the_time_that_removed_replicas_take_to_finish_is_told() {
    // Ten requests at once, five on each replica, 0.1 s each; the second is removed as it has 4.5 of them left.
    let due_ns = [0; 10];
    let plan = Plan { due_ns: &due_ns, prompt_tokens: Some(&[1; 10]), output_tokens: Some(&[10; 10]) };
    let load = Load { arrivals: Arrivals::Plan, requests: None, warmup_requests: 0, ..Load::closed(1, 1) };
    let replicas = steps(&[(0.0, 2), (0.05, 1)]);
    let config = ClusterConfig { replicas: replicas.clone(), ..one_at_a_time(2, Router::RoundRobin) };
    let batching = run_plan(&config, &load, plan).expect("a valid plan").summary;
    assert!((batching.draining_s - 0.45).abs() < 1e-9, "{}", batching.draining_s);
    let servers = FlowConfig {
        gpus: 2,
        max_active: Some(1),
        router: Router::RoundRobin,
        replicas,
        ..FlowConfig::new(vec![10.0])
    };
    let beside = FlowBeside { sizes: &[1.0], due_ns: Some(&due_ns), ..FlowBeside::default() };
    let flow = run_flow(&servers, &load, beside).expect("a valid plan").summary;
    assert!((flow.draining_s - 0.45).abs() < 1e-6, "{}", flow.draining_s);
    // Nothing drains where nothing is removed.
    let stays = ClusterConfig { replicas: Vec::new(), ..config };
    assert!(run_plan(&stays, &load, plan).expect("a valid plan").summary.draining_s.abs() < 1e-9);
}

#[test]
fn all_gpus_from_the_start_are_as_no_replicas_at_all() {
    let load = Load::closed(20, 2000);
    let plain = run_virtual(&ClusterConfig::default(), &load).expect("a valid load");
    let config = ClusterConfig { replicas: steps(&[(0.0, 2)]), start_delay_s: 9.0, ..ClusterConfig::default() };
    assert_eq!(run_virtual(&config, &load).expect("a valid load"), plain);
}

#[test]
fn a_plan_is_sent_when_it_says() {
    let due_ns: Vec<i64> = (0..500).map(|index| index * 7_000_000).collect();
    let (prompt_tokens, output_tokens) = (vec![50; 500], (0..500).map(|index| 1 + index % 20).collect::<Vec<u32>>());
    let plan = Plan { due_ns: &due_ns, prompt_tokens: Some(&prompt_tokens), output_tokens: Some(&output_tokens) };
    let load = Load { arrivals: Arrivals::Plan, requests: None, warmup_requests: 0, ..Load::closed(1, 1) };
    let result = run_plan(&ClusterConfig::default(), &load, plan).expect("a valid plan");
    assert_eq!((&result.columns.due_ns, &result.columns.sent_ns), (&due_ns, &due_ns));
    assert_eq!((&result.columns.prompt_tokens, &result.columns.tokens_out), (&prompt_tokens, &output_tokens));
    assert!((result.summary.window_s - 499.0 * 0.007).abs() < 1e-6);
    // The same requests as those of an open loop that comes at the same times.
    let open = Load {
        arrivals: Arrivals::Open { rate_per_s: 1e9 / 7e6, process: Process::Constant },
        ..Load { warmup_requests: 0, ..Load::closed(1, 400) }
    };
    let open = run_virtual(&ClusterConfig::default(), &open).expect("a valid load").columns;
    let free = run_plan(&ClusterConfig::default(), &load, Plan { due_ns: &open.due_ns, ..Plan::default() });
    // The open loop goes on until all of its 400 have ended; that is of no interest to the first.
    assert!(open.end_ns[..100].iter().all(|&end_ns| end_ns < open.due_ns[399]));
    assert_eq!(free.expect("a valid plan").columns.end_ns[..100], open.end_ns[..100]);
    for load in [Load::closed(1, 1), load.clone()] {
        let needs_plan = load.arrivals == Arrivals::Plan;
        let error = if needs_plan {
            run_virtual(&ClusterConfig::default(), &load)
        } else {
            run_plan(&ClusterConfig::default(), &load, plan)
        };
        assert!(error.expect_err("not a plan").to_string().contains("load.arrivals"));
    }
}

#[test]
fn overload_is_what_connections_and_queue_make_of_it() {
    // One GPU answers 10/s; 20/s are offered for 60 s by 4 connections with room for 6 in their queue.
    let config = one_at_a_time(1, Router::LeastLoaded);
    let due_ns: Vec<i64> = (0..1200).map(|index| index * 50_000_000).collect();
    let load = Load {
        arrivals: Arrivals::Plan,
        requests: None,
        duration_s: Some(60.0),
        warmup_requests: 0,
        connections: Some(4),
        queue: Some(6),
        ..Load::closed(1, 1)
    };
    let result = run_plan(&config, &load, Plan { due_ns: &due_ns, ..Plan::default() }).expect("a valid plan");
    let summary = &result.summary;
    let shed = summary.outcomes[&gpusize_simulator::Outcome::Shed];
    assert_eq!((summary.requests, summary.sent + shed), (1200, 1200));
    // 600 are answered in the 60 s, 10 more are under way or wait at their end.
    assert!(summary.sent.abs_diff(610) <= 1, "{}", summary.sent);
    assert!((summary.rate_per_s - 10.0).abs() < 0.05 && (summary.sent_rate_per_s - 10.0).abs() < 0.1);
    // In the steady state six wait for a connection, each for six answers; the four sent take four answers.
    let (waiting_s, service_s) = (summary.waiting_s.expect("sent"), summary.service_s.expect("answers"));
    assert!((waiting_s.p50 - 0.6).abs() < 0.051, "{waiting_s:?}");
    assert!((service_s.p50 - 0.4).abs() < 0.001, "{service_s:?}");
    assert!((summary.runtime_s.expect("answers").p50 - 1.0).abs() < 0.051);
    assert!((summary.in_flight - 4.0).abs() < 0.05, "{}", summary.in_flight);
    let columns = &result.columns;
    let sent: Vec<i64> =
        (0..columns.len()).filter(|&row| columns.is_sent(row)).map(|row| columns.sent_ns[row]).collect();
    assert!(sent.is_sorted(), "not first come, first sent");
    // Never more than four at once.
    let mut events: Vec<(i64, i32)> = Vec::new();
    for row in (0..columns.len()).filter(|&row| columns.is_sent(row)) {
        events.push((columns.sent_ns[row], 1));
        events.push((columns.end_ns[row], -1));
    }
    events.sort_unstable();
    let most = events
        .iter()
        .scan(0, |now, &(_, step)| {
            *now += step;
            Some(*now)
        })
        .max();
    assert_eq!(most, Some(4));
}

#[test]
fn with_no_queue_everything_without_a_connection_is_shed() {
    let config = one_at_a_time(1, Router::LeastLoaded);
    let due_ns: Vec<i64> = (0..100).map(|index| index * 50_000_000).collect();
    let load = Load {
        arrivals: Arrivals::Plan,
        requests: None,
        warmup_requests: 0,
        connections: Some(1),
        queue: Some(0),
        ..Load::closed(1, 1)
    };
    let columns = run_plan(&config, &load, Plan { due_ns: &due_ns, ..Plan::default() }).expect("a valid plan").columns;
    // A connection is free at the very moment at which the answer ends.
    assert!((0..100).all(|row| columns.is_sent(row) == (row % 2 == 0)));
    assert_eq!(columns.to_record_batch().expect("a batch").num_columns(), 12);
}

#[test]
fn gpus_and_servers_that_take_one_request_at_a_time_are_the_same_cluster() {
    // Gaps of 0 to 54 ms in turn.
    let due_ns: Vec<i64> =
        (0..400_i64).map(|index| 9_000_000 * (index / 7 * 21 + (0..index % 7).sum::<i64>())).collect();
    let load = Load { arrivals: Arrivals::Plan, requests: None, warmup_requests: 0, ..Load::closed(1, 1) };
    for router in [Router::LeastLoaded, Router::RoundRobin, Router::Random, Router::Shared] {
        let (replicas, start_delay_s) = (steps(&[(0.0, 2), (2.0, 4), (5.0, 1), (8.0, 3)]), 0.33);
        // 10 tokens of 10 ms, or as many units of work as nanoseconds: both without rounding.
        let gpus = ClusterConfig { replicas: replicas.clone(), start_delay_s, ..one_at_a_time(4, router) };
        let gpus = run_plan(&gpus, &load, Plan { due_ns: &due_ns, ..Plan::default() }).expect("a valid plan");
        let servers =
            FlowConfig { max_active: Some(1), gpus: 4, router, replicas, start_delay_s, ..FlowConfig::new(vec![1e9]) };
        let beside = FlowBeside { sizes: &[1e8], due_ns: Some(&due_ns), ..FlowBeside::default() };
        let servers = run_flow(&servers, &load, beside).expect("a valid plan");
        let (of_gpus, of_servers) = (&gpus.columns, &servers.columns);
        assert!(of_gpus.gpu == of_servers.gpu, "{router:?}");
        assert!((&of_gpus.start_ns, &of_gpus.end_ns) == (&of_servers.start_ns, &of_servers.end_ns), "{router:?}");
        let (of_gpus, of_servers) = (&gpus.summary, &servers.summary);
        // With a queue for all, a removed one has nothing but what it is at.
        let least_s = if router == Router::Shared { 0.0 } else { 0.1 };
        assert!(of_gpus.draining_s > least_s && (of_gpus.draining_s - of_servers.draining_s).abs() < 1e-9);
        assert!((of_gpus.busy_share - of_servers.busy_share).abs() < 1e-9);
    }
}
