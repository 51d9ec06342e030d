//! Flow-equivalent servers against queueing theory.

use gpusize_simulator::{
    Arrivals, Bound, FlowBeside, FlowConfig, FlowResult, Judge, JudgedMetric, Load, Outcome, Process, ReplicaStep,
    Router, Tasks, Think, run_flow,
};

const S: i64 = 1_000_000_000;

fn closed(users: u32, requests: u64) -> Load {
    Load { warmup_requests: 4 * u64::from(users), ..Load::closed(users, requests) }
}

fn thinking(users: u32, think_s: f64, think: Think, requests: u64) -> Load {
    let Load { arrivals: Arrivals::Closed { start, stagger_s, .. }, .. } = Load::closed(users, 1) else {
        unreachable!("a closed loop")
    };
    Load { arrivals: Arrivals::Closed { users, think_s, think, start, stagger_s }, ..closed(users, requests) }
}

fn open(rate_per_s: f64, requests: u64) -> Load {
    let arrivals = Arrivals::Open { rate_per_s, process: Process::Poisson };
    Load { arrivals, warmup_requests: requests / 10, ..Load::closed(1, requests) }
}

fn flow(config: &FlowConfig, load: &Load, sizes: &[f64]) -> FlowResult {
    run_flow(config, load, FlowBeside { sizes, ..FlowBeside::default() }).expect("a run")
}

/// Sizes of mean 1 with an exponential spread, by equal shares of the probability.
fn exponential(count: usize) -> Vec<f64> {
    let sizes: Vec<f64> = (0..count).map(|i| -(1.0 - (i as f64 + 0.5) / count as f64).ln()).collect();
    let mean = sizes.iter().sum::<f64>() / count as f64;
    sizes.into_iter().map(|size| size / mean).collect()
}

/// Mean runtime and its standard error over seeds.
fn mean_runtime_s(config: &FlowConfig, load: &Load, sizes: &[f64], seeds: u64) -> (f64, f64) {
    let means: Vec<f64> = (1..=seeds)
        .map(|seed| flow(&FlowConfig { seed, ..config.clone() }, load, sizes).summary.runtime_s.expect("answers").mean)
        .collect();
    let mean = means.iter().sum::<f64>() / seeds as f64;
    let variance = means.iter().map(|found| (found - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64;
    (mean, (variance / seeds as f64).sqrt())
}

fn assert_within_3_errors(what: &str, (mean, error): (f64, f64), expected: f64) {
    assert!((mean - expected).abs() < 3.0 * error, "{what}: {mean} +- {error} against {expected}");
}

/// (mean number, throughput) of one load-dependent server among `users` who think for `think_s` on average, by the product form of its
/// birth-death process: p(k) ~ p(k-1) (users - k + 1) / think / rate(k).
fn repairman(users: u32, think_s: f64, rates: &[f64]) -> (f64, f64) {
    let rate = |k: u32| rates[(k as usize).min(rates.len()) - 1];
    let mut weights = vec![1.0];
    for k in 1..=users {
        weights.push(weights[k as usize - 1] * f64::from(users - k + 1) / think_s / rate(k));
    }
    let sum: f64 = weights.iter().sum();
    let over = |f: &dyn Fn(u32) -> f64| (1..=users).map(|k| weights[k as usize] / sum * f(k)).sum::<f64>();
    (over(&f64::from), over(&rate))
}

#[test]
fn the_mean_response_of_an_open_server_is_that_of_m_m_1() {
    let config = FlowConfig::new(vec![1.0]);
    for load in [0.3, 0.7, 0.85] {
        let found = mean_runtime_s(&config, &open(load, 20_000), &exponential(1000), 10);
        assert_within_3_errors(&format!("load {load}"), found, 1.0 / (1.0 - load));
    }
}

#[test]
fn sharing_makes_the_mean_insensitive_to_the_spread_of_sizes() {
    let config = FlowConfig::new(vec![1.0]);
    let bimodal: Vec<f64> = (0..100).map(|i| if i < 90 { 0.2 } else { 8.2 }).collect();
    for sizes in [vec![1.0], bimodal] {
        let found = mean_runtime_s(&config, &open(0.7, 20_000), &sizes, 10);
        assert_within_3_errors(&format!("{} sizes", sizes.len()), found, 1.0 / 0.3);
    }
    // First come, first served is not: M/G/1 by Pollaczek and Khinchine, with constant sizes half the waiting.
    let one_by_one = FlowConfig { max_active: Some(1), ..config };
    let found = mean_runtime_s(&one_by_one, &open(0.7, 20_000), &[1.0], 10);
    assert_within_3_errors("one by one", found, 1.0 + 0.7 / 2.0 / 0.3);
}

#[test]
fn a_closed_loop_on_one_server_keeps_its_number() {
    let rates: Vec<f64> = (1..=20).map(|k| f64::from(k) / (1.0 + 0.05 * f64::from(k))).collect();
    let sizes = [0.5, 1.0, 2.5];
    for users in [1, 7, 20, 30] {
        let config = FlowConfig::new(rates.clone());
        let result = flow(&config, &closed(users, 3000), &sizes);
        let each = rates[(users as usize).min(20) - 1] / f64::from(users);
        let columns = &result.columns;
        for row in 0..columns.len() {
            if columns.warmup[row] {
                continue;
            }
            assert_eq!(columns.active_at_arrival[row], users);
            assert_eq!(columns.start_ns[row], columns.due_ns[row]);
            let expected_s = sizes[columns.size[row] as usize] / each;
            let found_s = (columns.end_ns[row] - columns.due_ns[row]) as f64 / S as f64;
            // Each event in between may be rounded up by a nanosecond.
            assert!((found_s - expected_s).abs() < 1e-6, "{users} users: {found_s} against {expected_s}");
        }
        assert!((result.summary.in_flight - f64::from(users)).abs() < 1e-3, "{}", result.summary.in_flight);
        assert!((result.summary.mean_active / f64::from(users) - 1.0).abs() < 0.05);
    }
}

#[test]
fn think_time_gives_the_product_form_whatever_the_spreads() {
    let (users, think_s) = (12, 4.0);
    let rates: Vec<f64> = (1..=8).map(|k| f64::from(k).powf(0.6)).collect();
    let (number, throughput) = repairman(users, think_s, &rates);
    let config = FlowConfig::new(rates);
    // Little's law turns number and throughput into the response.
    for (think, sizes) in [
        (Think::Exponential, exponential(500)),
        (Think::Exponential, vec![0.4, 1.6]),
        (Think::Constant, exponential(500)),
    ] {
        let load = thinking(users, think_s, think, 15_000);
        let found = mean_runtime_s(&config, &load, &sizes, 10);
        assert_within_3_errors(&format!("{think:?} with {} sizes", sizes.len()), found, number / throughput);
    }
}

#[test]
fn the_least_loaded_of_several_keeps_floor_and_ceiling() {
    let config = FlowConfig { gpus: 7, ..FlowConfig::new(vec![1.0, 1.8, 2.4, 2.8]) };
    let columns = flow(&config, &closed(7 * 3 + 2, 5000), &exponential(100)).columns;
    let warm = (0..columns.len()).filter(|&row| !columns.warmup[row]);
    // Who asks again finds its own place free: 2 servers have 4, 5 have 3.
    let found: Vec<u32> = warm.map(|row| columns.active_at_arrival[row]).collect();
    assert!(found.iter().all(|active| (3..=4).contains(active)), "{:?}", found.iter().max());
    assert!(found.contains(&3));
    let alone = flow(&config, &closed(7, 500), &exponential(100)).columns;
    assert!(alone.active_at_arrival[28..].iter().all(|&active| active == 1));
}

#[test]
fn routers_spread_as_they_say() {
    let config = FlowConfig { gpus: 4, router: Router::RoundRobin, ..FlowConfig::new(vec![1.0]) };
    let turns = flow(&config, &open(2.0, 1000), &[1.0]).columns;
    assert!((0..turns.len()).all(|row| turns.gpu[row] as usize == row % 4));
    let random = FlowConfig { router: Router::Random, ..config };
    // Poisson arrivals split by lot stay Poisson: each server is M/G/1-PS of its own.
    let found = mean_runtime_s(&random, &open(2.0, 20_000), &[0.2, 1.8], 10);
    assert_within_3_errors("by lot", found, 1.0 / 0.5);
}

#[test]
fn beyond_the_limit_requests_wait() {
    let config = FlowConfig { max_active: Some(2), ..FlowConfig::new(vec![1.0, 2.0]) };
    let columns = flow(&config, &closed(5, 200), &[1.0]).columns;
    for row in 20..columns.len() {
        assert_eq!(columns.active_at_arrival[row], 5);
        // Two at a time for a second each, and three in front.
        let (start_s, end_s) =
            (columns.start_ns[row] - columns.due_ns[row], columns.end_ns[row] - columns.start_ns[row]);
        assert!((end_s - S).abs() < 100 && (start_s - 3 * S / 2).abs() < S, "{row}: {start_s} {end_s}");
    }
}

#[test]
fn replicas_come_and_go() {
    let step = |at_s, replicas| ReplicaStep { at_s, replicas };
    let replicas = vec![step(0.0, 1), step(20.0, 3), step(60.0, 1)];
    let config = FlowConfig { gpus: 3, replicas, start_delay_s: 5.0, ..FlowConfig::new(vec![1.0]) };
    let due_ns: Vec<i64> = (0..200).map(|i| i * S / 2).collect();
    let load = Load { arrivals: Arrivals::Plan, requests: None, warmup_requests: 0, ..Load::closed(1, 1) };
    let beside = FlowBeside { sizes: &[0.4], due_ns: Some(&due_ns), ..FlowBeside::default() };
    let columns = run_flow(&config, &load, beside).expect("a plan").columns;
    assert_eq!(columns.due_ns, due_ns);
    let on_others = |from_s: i64, to_s: i64| {
        (0..200).filter(|&row| (from_s * S..to_s * S).contains(&due_ns[row]) && columns.gpu[row] > 0).count()
    };
    assert_eq!((on_others(0, 25), on_others(60, 100)), (0, 0));
    // Nobody waits for anybody here, so all go to the first; with longer requests the others have their share.
    let columns = run_flow(&config, &load, FlowBeside { sizes: &[1.2], ..beside }).expect("a plan").columns;
    let on_others = (0..200).filter(|&row| columns.gpu[row] > 0);
    assert!(on_others.clone().count() > 30 && on_others.clone().all(|row| (25 * S..60 * S).contains(&due_ns[row])));
}

#[test]
fn connections_shed_and_judges_count_it() {
    let config = FlowConfig::new(vec![1.0]);
    let due_ns: Vec<i64> = (0..100).map(|i| i * S / 2).collect();
    let load = Load {
        arrivals: Arrivals::Plan,
        requests: None,
        warmup_requests: 0,
        connections: Some(1),
        queue: Some(1),
        ..Load::closed(1, 1)
    };
    let bound = |metric, bound_s| Bound { metric, bound_s };
    let bounds =
        vec![bound(JudgedMetric::Service, 1.0), bound(JudgedMetric::Runtime, 1.1), bound(JudgedMetric::Ttft, 1.0)];
    let judge = Judge { bounds, every_s: Some(10.0) };
    let rows = FlowBeside { sizes: &[1.0], due_ns: Some(&due_ns), judge: Some(&judge), ..FlowBeside::default() };
    let result = run_flow(&config, &load, rows).expect("a plan");
    let shed = result.columns.outcome.iter().filter(|&&outcome| outcome == Outcome::Shed).count() as u64;
    assert!((48..=50).contains(&shed), "{shed}");
    let judged = result.summary.judged.clone().expect("a verdict");
    let [service, runtime, ttft] = judged.bounds[..] else { panic!("three counts: {:?}", judged.bounds) };
    assert_eq!((service.within, service.over), (100 - shed, shed));
    assert_eq!((runtime.within, runtime.over), (1, 99), "all but the first wait for the connection");
    assert_eq!((ttft.over, ttft.undetermined), (shed, 100 - shed));
    let steps = judged.steps.expect("counts by time");
    assert_eq!((steps.requests, steps.within[0].iter().sum::<u64>()), (vec![20; 5], 100 - shed));
    let summary = run_flow(&config, &load, FlowBeside { summary_only: true, ..rows }).expect("a plan");
    assert!(summary.columns.is_empty() && summary.summary.judged == result.summary.judged);
}

#[test]
fn a_load_far_beyond_what_is_served_comes_to_an_end_and_says_so() {
    // All that have come share the server, so a size of 30 would be done after e^60 times the run so far.
    let config = FlowConfig::new(vec![1.0]);
    let beside = FlowBeside { sizes: &[1.0, 1.0, 1.0, 30.0], summary_only: true, ..FlowBeside::default() };
    let summary = run_flow(&config, &open(25.0, 1_000), beside).expect("a run").summary;
    let sent_s = summary.load_cut_s.expect("more came than can be served");
    assert!((sent_s * 25.0 / 201_000.0 - 1.0).abs() < 0.1, "{sent_s} s at 25/s");
    assert_eq!((summary.requests, summary.outcomes[&Outcome::Ok]), (1_000, 1_000));
    // What can be served is waited for, however long requests take.
    let served = FlowBeside { sizes: &[1.0], summary_only: true, ..FlowBeside::default() };
    assert_eq!(run_flow(&config, &open(0.9, 1_000), served).expect("a run").summary.load_cut_s, None);
}

#[test]
fn the_seed_decides_and_a_summary_alone_says_the_same() {
    let config = FlowConfig { gpus: 3, ..FlowConfig::new(vec![1.0, 1.5]) };
    let load = thinking(40, 2.0, Think::Exponential, 20_000);
    let sizes = exponential(200);
    let all = flow(&config, &load, &sizes);
    assert_eq!(all, flow(&config, &load, &sizes));
    assert_ne!(all, flow(&FlowConfig { seed: 2, ..config.clone() }, &load, &sizes));
    let beside = FlowBeside { sizes: &sizes, summary_only: true, ..FlowBeside::default() };
    let alone = run_flow(&config, &load, beside).expect("a run");
    assert!(alone.columns.is_empty());
    let (exact, binned) = (all.summary, alone.summary);
    assert_eq!((exact.requests, exact.sent, &exact.outcomes), (binned.requests, binned.sent, &binned.outcomes));
    let (runtime, of_bins) = (exact.runtime_s.expect("answers"), binned.runtime_s.expect("answers"));
    for (exact, binned) in [
        (exact.rate_per_s, binned.rate_per_s),
        (exact.in_flight, binned.in_flight),
        (runtime.mean, of_bins.mean),
        (runtime.p50, of_bins.p50),
        (runtime.p99, of_bins.p99),
        (runtime.max, of_bins.max),
    ] {
        assert!((exact / binned - 1.0).abs() < 2e-3, "{exact} against {binned}");
    }
    assert_eq!(all.columns.into_record_batch().expect("a batch").num_rows(), 20_160);
}

#[test]
fn what_cannot_be_is_refused() {
    let config = FlowConfig::new(vec![1.0]);
    for (sizes, load, needle) in [
        (&[][..], Load::closed(1, 1), "flow.sizes"),
        (&[0.0], Load::closed(1, 1), "flow.sizes"),
        (&[f64::NAN], Load::closed(1, 1), "flow.sizes"),
        (&[1.0], Load { arrivals: Arrivals::Plan, ..Load::closed(1, 1) }, "needs due times"),
        (&[1.0], Load::closed(0, 1), "users"),
    ] {
        let error = run_flow(&config, &load, FlowBeside { sizes, ..FlowBeside::default() }).expect_err(needle);
        assert!(error.to_string().contains(needle), "{error}");
    }
}

/// Tasks of one to five requests with pauses between them, by equal shares: (requests of each, sizes, before, after).
fn agents(count: usize) -> (Vec<u32>, Vec<f64>, Vec<i64>, Vec<i64>) {
    let requests: Vec<u32> = (0..count).map(|task| 1 + (task % 5) as u32).collect();
    let all = requests.iter().sum::<u32>() as usize;
    // Sizes and pauses in an order of their own each, so that long ones do not meet.
    let sizes = exponential(all);
    let sizes = (0..all).map(|place| sizes[place * 7919 % all]).collect();
    let before_ns = (0..all).map(|place| (place * 104_729 % 3_000) as i64 * 1_000_000).collect();
    let after_ns = (0..count).map(|task| (task % 2) as i64 * S).collect();
    (requests, sizes, before_ns, after_ns)
}

#[test]
fn a_task_alone_takes_its_pauses_and_its_work() {
    let tasks = Tasks { requests: &[3], before_ns: &[S, 2 * S, 0], after_ns: &[4 * S] };
    let beside = FlowBeside { sizes: &[1.0, 0.5, 2.0], tasks: Some(tasks), ..FlowBeside::default() };
    let found = run_flow(&FlowConfig::new(vec![0.5]), &closed(1, 10), beside).expect("a run");
    assert!((found.summary.runtime_s.expect("answers").mean - (3.0 + 7.0 + 4.0)).abs() < 1e-6);
    // It is at the server for a half of its time.
    assert!((found.summary.busy_share - 0.5).abs() < 0.01, "{}", found.summary.busy_share);
    let two = FlowConfig { gpus: 2, ..FlowConfig::new(vec![0.5]) };
    let both = run_flow(&two, &closed(1, 10), beside).expect("a run").columns;
    assert!(both.end_ns.iter().zip(&both.due_ns).all(|(end_ns, due_ns)| end_ns - due_ns == 14 * S));
    assert_eq!(both.calls, vec![3; both.len()]);
    assert!(both.calls_ns.chunks(3).all(|task| task == [2 * S, S, 4 * S]));
}

#[test]
fn a_task_without_a_request_takes_its_time_and_no_server() {
    let tasks = Tasks { requests: &[0, 1], before_ns: &[0], after_ns: &[3 * S, 0] };
    let beside = FlowBeside { sizes: &[1.0], tasks: Some(tasks), ..FlowBeside::default() };
    let found = run_flow(&FlowConfig::new(vec![0.1]), &closed(1, 40), beside).expect("a run").columns;
    for (row, &calls) in found.calls.iter().enumerate() {
        let took_ns = found.end_ns[row] - found.due_ns[row];
        assert_eq!((calls, took_ns), if found.size[row] == 0 { (0, 3 * S) } else { (1, 10 * S) });
    }
    assert!(found.calls.contains(&0) && found.calls.contains(&1));
}

#[test]
fn requests_of_tasks_have_their_times_in_the_row_of_their_task() {
    // Two that share a server: the first is alone for a second, then both for two, and so on; by hand.
    let tasks = Tasks { requests: &[2], before_ns: &[0, S], after_ns: &[0] };
    let beside =
        FlowBeside { sizes: &[1.0, 2.0], tasks: Some(tasks), due_ns: Some(&[0, S / 2]), ..FlowBeside::default() };
    let load = Load { arrivals: Arrivals::Plan, ..Load::closed(1, 1) };
    let found = run_flow(&FlowConfig::new(vec![1.0]), &load, beside).expect("a run").columns;
    assert_eq!(found.calls, [2, 2]);
    // Shared from 0.5 s: the first ends its half at 1.5 s, the second at 2 s; they meet again from 3 s on.
    assert_eq!(found.calls_ns[..2], [3 * S / 2, 7 * S / 2]);
    assert_eq!(found.calls_ns[2..], [3 * S / 2, 7 * S / 2]);
    let alone = FlowBeside { sizes: &[1.0], ..FlowBeside::default() };
    assert!(run_flow(&FlowConfig::new(vec![1.0]), &closed(1, 5), alone).expect("a run").columns.calls_ns.is_empty());
}

#[test]
fn tasks_are_served_as_the_product_form_says() {
    let (requests, sizes, before_ns, after_ns) = agents(2_000);
    let all = sizes.len() as f64;
    let each = all / requests.len() as f64;
    let pause_s = before_ns.iter().chain(&after_ns).sum::<i64>() as f64 / 1e9 / all;
    let tasks = Tasks { requests: &requests, before_ns: &before_ns, after_ns: &after_ns };
    for (users, rates) in [(3, vec![1.0]), (12, vec![1.0, 1.8, 2.4, 2.8]), (40, vec![2.0, 3.0])] {
        let mean = |seed| {
            let beside = FlowBeside { sizes: &sizes, tasks: Some(tasks), summary_only: true, ..FlowBeside::default() };
            let config = FlowConfig { seed, ..FlowConfig::new(rates.clone()) };
            run_flow(&config, &closed(users, 6_000), beside).expect("a run").summary.rate_per_s
        };
        let found: Vec<f64> = (1..=4).map(mean).collect();
        let (_, served) = repairman(users, pause_s, &rates);
        let average = found.iter().sum::<f64>() / 4.0;
        let expected = served / each;
        assert!((average / expected - 1.0).abs() < 0.015, "{users} users: {average} against {expected}");
    }
}

#[test]
fn requests_of_tasks_go_each_to_the_server_that_has_the_fewest() {
    // Two tasks of ten requests without pauses: with a server each they never meet, whole tasks or not.
    let tasks = Tasks { requests: &[10], before_ns: &[0; 10], after_ns: &[0] };
    let beside = FlowBeside { sizes: &[1.0; 10], tasks: Some(tasks), ..FlowBeside::default() };
    let config = FlowConfig { gpus: 2, ..FlowConfig::new(vec![1.0, 1.0]) };
    let columns = run_flow(&config, &closed(2, 50), beside).expect("a run").columns;
    assert!(columns.end_ns.iter().zip(&columns.due_ns).all(|(end_ns, due_ns)| end_ns - due_ns == 10 * S));
}

#[test]
fn tasks_that_cannot_be_are_refused() {
    let good = Tasks { requests: &[2, 1], before_ns: &[0, 0, 0], after_ns: &[0, 0] };
    for (tasks, needle) in [
        (Tasks { requests: &[], ..good }, "flow.tasks.requests"),
        (Tasks { requests: &[2, 2], ..good }, "must be for 3, not 4"),
        (Tasks { before_ns: &[0, 0], ..good }, "flow.tasks.before_ns"),
        (Tasks { after_ns: &[0], ..good }, "flow.tasks.after_ns"),
        (Tasks { before_ns: &[0, -5, 0], ..good }, "not -5"),
    ] {
        let beside = FlowBeside { sizes: &[1.0; 3], tasks: Some(tasks), ..FlowBeside::default() };
        let error = run_flow(&FlowConfig::new(vec![1.0]), &closed(1, 5), beside).expect_err(needle).to_string();
        assert!(error.contains(needle), "{error}");
    }
}
