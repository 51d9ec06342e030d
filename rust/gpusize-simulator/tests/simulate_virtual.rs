//! The cluster in virtual time: against the closed form, against queueing laws, and against itself.

use gpusize_load::schedule::{Schedule, Thinks};
use gpusize_load::spec;
use gpusize_simulator::{
    Arrivals, Beside, Bound, ClusterConfig, Faults, FlowBeside, FlowConfig, Judge, JudgedMetric, Length, Load, Mix,
    Outcome, Plan, Process, Router, Start, Think, closed_form_runtime_s, run_beside, run_flow, run_virtual,
};

fn one_gpu() -> ClusterConfig {
    ClusterConfig { gpus: 1, output_tokens: Length::Fixed { tokens: 128 }, ..ClusterConfig::default() }
}

fn open(rate_per_s: f64, process: Process, requests: u64) -> Load {
    Load {
        arrivals: Arrivals::Open { rate_per_s, process },
        warmup_requests: requests / 5,
        ..Load::closed(1, requests)
    }
}

fn p50(config: &ClusterConfig, load: &Load) -> f64 {
    run_virtual(config, load).expect("a valid load").summary.runtime_s.expect("answers").p50
}

#[test]
fn the_median_runtime_is_that_of_the_closed_form() {
    let config = one_gpu();
    for users in [1, 2, 3, 7, 16, 31, 32] {
        let expected_s = closed_form_runtime_s(&config, users, 100, 128).unwrap();
        let measured_s = p50(&config, &Load::closed(users, 40 * u64::from(users)));
        assert!((measured_s / expected_s - 1.0).abs() < 0.01, "{users} users: {measured_s} against {expected_s}");
    }
}

#[test]
fn beyond_the_batch_users_share_what_a_full_batch_delivers() {
    let config = one_gpu();
    let cycle_s = 128.0 * (0.004 + 32.0 * 0.000_15) + 32.0 * 100.0 * 0.000_02;
    for users in [48, 64, 128] {
        let summary = run_virtual(&config, &Load::closed(users, 60 * u64::from(users))).unwrap().summary;
        let expected_s = f64::from(users) / 32.0 * cycle_s;
        let mean_s = summary.runtime_s.unwrap().mean;
        assert!((mean_s / expected_s - 1.0).abs() < 0.01, "{users} users: {mean_s} against {expected_s}");
    }
}

#[test]
fn littles_law_holds() {
    for load in [Load::closed(20, 4000), open(20.0, Process::Poisson, 4000)] {
        let summary = run_virtual(&ClusterConfig::default(), &load).unwrap().summary;
        let product = summary.rate_per_s * summary.runtime_s.unwrap().mean;
        assert!((product / summary.in_flight - 1.0).abs() < 0.02, "{product} against {}", summary.in_flight);
    }
    let closed = run_virtual(&ClusterConfig::default(), &Load::closed(20, 4000)).unwrap().summary;
    assert!((closed.in_flight - 20.0).abs() < 0.01, "{}", closed.in_flight);
}

#[test]
fn rows_are_consistent() {
    let config = ClusterConfig { noise_sigma: 0.3, max_batch: 4, router: Router::Random, ..ClusterConfig::default() };
    let result = run_virtual(&config, &Load::closed(17, 500)).unwrap();
    let columns = &result.columns;
    assert_eq!((columns.len(), result.summary.requests), (534, 500));
    assert_eq!(columns.warmup.iter().filter(|&&warmup| warmup).count(), 34);
    assert!(columns.due_ns.is_sorted());
    for row in 0..columns.len() {
        assert!(columns.due_ns[row] <= columns.start_ns[row]);
        assert!(columns.start_ns[row] < columns.first_token_ns[row]);
        assert!(columns.first_token_ns[row] <= columns.end_ns[row]);
        assert!(columns.gpu[row] < 2 && columns.tokens_out[row] >= 1);
    }
    assert_eq!(columns.to_record_batch().unwrap().num_rows(), 534);
    let json = serde_json::to_value(&result.summary).unwrap();
    assert_eq!(json["outcomes"]["ok"], 500);
    assert!(json["runtime_s"]["p95"].as_f64() > json["runtime_s"]["p50"].as_f64());
}

#[test]
fn the_seed_decides_and_nothing_else() {
    let load = Load::closed(10, 300);
    let config = ClusterConfig { noise_sigma: 0.2, ..ClusterConfig::default() };
    assert_eq!(run_virtual(&config, &load).unwrap(), run_virtual(&config, &load).unwrap());
    let other = ClusterConfig { seed: 2, ..config.clone() };
    assert_ne!(run_virtual(&config, &load).unwrap(), run_virtual(&other, &load).unwrap());
    // Another timing, the same lengths by request.
    let hurried = run_virtual(&config, &Load::closed(3, 300)).unwrap();
    let crowded = run_virtual(&config, &load).unwrap();
    assert_eq!(hurried.columns.tokens_out[..300], crowded.columns.tokens_out[..300]);
}

#[test]
fn a_window_by_time_counts_what_was_due_in_it() {
    let load = Load {
        requests: None,
        duration_s: Some(10.0),
        warmup_requests: 0,
        warmup_s: 2.0,
        ..open(50.0, Process::Constant, 1)
    };
    let result = run_virtual(&ClusterConfig::default(), &load).unwrap();
    assert_eq!((result.summary.requests, result.columns.len()), (500, 600));
    assert!((result.summary.window_s - 10.0).abs() < 1e-6);
}

#[test]
fn a_burst_start_is_a_burst() {
    let arrivals =
        |start| Arrivals::Closed { users: 8, think_s: 0.5, think: Think::Exponential, start, stagger_s: Some(2.0) };
    let due = |start| {
        let load = Load { arrivals: arrivals(start), warmup_requests: 0, ..Load::closed(8, 8) };
        run_virtual(&ClusterConfig::default(), &load).unwrap().columns.due_ns
    };
    assert_eq!(due(Start::Burst), [0; 8]);
    assert_eq!(due(Start::Staggered)[..3], [0, 250_000_000, 500_000_000]);
}

#[test]
fn a_stall_is_seen_by_every_request_that_is_due_in_it() {
    let faults = Faults { stall_s: 1.0, stall_after_s: 3.0, ..Faults::default() };
    let config = ClusterConfig { faults, ..ClusterConfig::default() };
    let load = Load { requests: None, duration_s: Some(8.0), warmup_requests: 0, ..open(20.0, Process::Constant, 1) };
    let columns = run_virtual(&config, &load).unwrap().columns;
    let mut inside = 0;
    for row in 0..columns.len() {
        if (3_000_000_001..4_000_000_000).contains(&columns.due_ns[row]) {
            inside += 1;
            assert!(columns.first_token_ns[row] > 4_000_000_000);
        }
        assert!(!(3_000_000_001..4_000_000_000).contains(&columns.end_ns[row]), "an answer out of a stall");
    }
    assert!(inside >= 19);
}

#[test]
fn faults_are_outcomes_and_cannot_hang_the_run() {
    let faults = Faults { fail_rate: 0.2, reset_rate: 0.2, malformed_rate: 0.2, ..Faults::default() };
    let config = ClusterConfig { faults, ..ClusterConfig::default() };
    let summary = run_virtual(&config, &Load::closed(8, 3000)).unwrap().summary;
    for outcome in [Outcome::HttpError, Outcome::ProtocolError, Outcome::Truncated] {
        let share = summary.outcomes[&outcome] as f64 / 3000.0;
        assert!((share - 0.2).abs() < 0.03, "{outcome:?} {share}");
    }
    let faults = Faults { fail_rate: 1.0, ..Faults::default() };
    let load = Load { requests: None, duration_s: Some(1.0), ..Load::closed(2, 1) };
    let all = run_virtual(&ClusterConfig { faults, ..ClusterConfig::default() }, &load).unwrap().summary;
    assert_eq!((all.outcomes[&Outcome::HttpError], all.runtime_s), (all.requests, None));
}

#[test]
fn refused_requests_are_no_fast_answers() {
    let config = ClusterConfig { gpus: 1, max_batch: 1, queue_limit: Some(1), ..ClusterConfig::default() };
    let result = run_virtual(&config, &open(50.0, Process::Poisson, 500)).unwrap();
    assert!(result.summary.outcomes[&Outcome::HttpError] > 250);
}

#[test]
fn a_mix_is_drawn_from_row_by_row_whatever_the_loop() {
    let (prompts, outputs) = ([100, 2000, 30], [10, 20, 200]);
    let mix = Mix { prompt_tokens: Some(&prompts), output_tokens: Some(&outputs), ..Mix::default() };
    let config = ClusterConfig::default();
    let run = |load: &Load, beside| run_beside(&config, load, beside).expect("a mix").columns;
    let closed = run(&Load::closed(9, 900), Beside { mix: Some(mix), ..Beside::default() });
    for row in 0..closed.len() {
        let place = outputs.iter().position(|&tokens| tokens == closed.tokens_out[row]).expect("an answer of the mix");
        assert_eq!(closed.prompt_tokens[row], prompts[place]);
    }
    assert!(
        outputs.iter().all(|output| (250..370).contains(&closed.tokens_out.iter().filter(|&o| o == output).count()))
    );
    // The same request by request, however they come.
    let opened = run(&open(5.0, Process::Poisson, 500), Beside { mix: Some(mix), ..Beside::default() });
    assert_eq!(opened.tokens_out[..500], closed.tokens_out[..500]);
    let due_ns: Vec<i64> = (0..300).map(|row| row * 100_000_000).collect();
    let plan = Plan { due_ns: &due_ns, ..Plan::default() };
    let load = Load { arrivals: Arrivals::Plan, requests: None, warmup_requests: 0, ..Load::closed(1, 1) };
    let planned = run(&load, Beside { plan: Some(plan), mix: Some(mix), ..Beside::default() });
    assert_eq!(planned.prompt_tokens, closed.prompt_tokens[..300]);
    let both = Plan { prompt_tokens: Some(&[7; 300]), ..plan };
    let error = run_beside(&config, &load, Beside { plan: Some(both), mix: Some(mix), ..Beside::default() });
    assert!(error.expect_err("lengths twice").to_string().contains("mix"));
}

#[test]
fn cost_factors_of_a_mix_scale_a_request() {
    let config = ClusterConfig { iteration_base_s: 0.0, ..one_gpu() };
    let mix = |factors| Mix { cost_factors: Some(factors), ..Mix::default() };
    let run = |factors| {
        let beside = Beside { mix: Some(mix(factors)), ..Beside::default() };
        run_beside(&config, &Load::closed(1, 50), beside).expect("a mix").columns
    };
    let (plain, twice) = (run(&[1.0]), run(&[2.0]));
    for row in 0..plain.len() {
        assert!((twice.runtime_s(row) / plain.runtime_s(row) - 2.0).abs() < 1e-6);
    }
}

#[test]
fn a_summary_alone_says_the_same_without_rows() {
    let config = ClusterConfig { faults: Faults { fail_rate: 0.02, ..Faults::default() }, ..ClusterConfig::default() };
    let bounds = [(JudgedMetric::Runtime, 0.7), (JudgedMetric::Ttft, 0.02), (JudgedMetric::ItlMean, 0.008)]
        .map(|(metric, bound_s)| Bound { metric, bound_s });
    let judge = Judge { bounds: bounds.to_vec(), every_s: Some(5.0) };
    for load in [
        Load::closed(20, 4000),
        open(40.0, Process::Poisson, 4000),
        Load { requests: None, duration_s: Some(30.0), warmup_s: 5.0, ..open(40.0, Process::Poisson, 1) },
        // Some wait for a connection, and some find no room in the queue.
        Load { connections: Some(18), queue: Some(6), ..open(40.0, Process::Poisson, 4000) },
    ] {
        let beside = Beside { judge: Some(&judge), ..Beside::default() };
        let all = run_beside(&config, &load, beside).expect("a run");
        let alone = run_beside(&config, &load, Beside { summary_only: true, ..beside }).expect("a run");
        assert!(alone.columns.is_empty());
        let (exact, binned) = (all.summary, alone.summary);
        assert_eq!((exact.requests, exact.sent, &exact.outcomes), (binned.requests, binned.sent, &binned.outcomes));
        assert_eq!((exact.iterations, &exact.judged), (binned.iterations, &binned.judged));
        let judged = exact.judged.expect("a verdict");
        let columns = &all.columns;
        let counted = |row: &usize| !columns.warmup[*row];
        let kept = |row: &usize| columns.outcome[*row] == Outcome::Ok && columns.runtime_s(*row) <= 0.7;
        assert_eq!(judged.bounds[0].within, (0..columns.len()).filter(counted).filter(kept).count() as u64);
        assert_eq!(judged.bounds[0].within + judged.bounds[0].over, exact.requests);
        assert_eq!(judged.steps.expect("counts by time").requests.iter().sum::<u64>(), exact.requests);
        let ok = |row: &usize| counted(row) && columns.outcome[*row] == Outcome::Ok;
        let sent = |row: &usize| counted(row) && columns.sent_ns[*row] >= 0;
        let between_s = |from: &[i64], to: &[i64], rows: &dyn Fn(&usize) -> bool| -> Vec<f64> {
            (0..columns.len()).filter(|row| rows(row)).map(|row| (to[row] - from[row]) as f64 / 1e9).collect()
        };
        for (exact, binned, times_s) in [
            (exact.runtime_s, binned.runtime_s, between_s(&columns.due_ns, &columns.end_ns, &ok)),
            (exact.service_s, binned.service_s, between_s(&columns.sent_ns, &columns.end_ns, &ok)),
            (exact.waiting_s, binned.waiting_s, between_s(&columns.due_ns, &columns.sent_ns, &sent)),
            (exact.ttft_s, binned.ttft_s, between_s(&columns.due_ns, &columns.first_token_ns, &ok)),
            (exact.itl_mean_s, binned.itl_mean_s, vec![]),
        ] {
            let (exact, binned) = (exact.expect("answers"), binned.expect("answers"));
            assert!((exact.mean - binned.mean).abs() <= exact.mean * 1e-9);
            for (share, found_s) in [(0.5, binned.p50), (0.95, binned.p95), (0.99, binned.p99)] {
                let below = |bound_s: f64| {
                    times_s.iter().filter(|&&time_s| time_s <= bound_s).count() as f64 / times_s.len() as f64
                };
                assert!(times_s.is_empty() || below(found_s * 1.001) >= share, "{share}: {found_s}");
                assert!(times_s.is_empty() || found_s == 0.0 || below(found_s * 0.999) < share, "{share}: {found_s}");
            }
        }
        for (exact, binned) in [
            (exact.rate_per_s, binned.rate_per_s),
            (exact.sent_rate_per_s, binned.sent_rate_per_s),
            (exact.tokens_per_s, binned.tokens_per_s),
            (exact.in_flight, binned.in_flight),
        ] {
            assert!((exact / binned - 1.0).abs() < 1e-6, "{exact} against {binned}");
        }
    }
}

/// What the engine sends by, for a load of one stream at this rate.
fn schedule(seed: u64, rate_per_s: f64, process: spec::Process) -> Schedule {
    let phases = vec![spec::Phase { duration_ns: None, from: rate_per_s, to: rate_per_s }];
    let rate = spec::Rate { phases, repeat: false, process, shape: 1.0, lead: 0.0 };
    let stream =
        spec::Stream { id: 0, arrivals: spec::Arrivals::Rate(rate), start_ns: 0, rows: None, priority: 0, count: None };
    let open = spec::Open {
        streams: vec![stream],
        connections: 1,
        max_connections: None,
        queue: 0,
        overload: spec::Overload::default(),
        unit: spec::Unit::default(),
        think: spec::Think::default(),
    };
    Schedule::new(&open, seed, spec::Order::File, 1, None).expect("one stream at a rate")
}

#[test]
fn requests_at_a_rate_are_due_on_the_nanosecond_at_which_the_engine_sends_them() {
    for (process, sent_by) in [(Process::Poisson, spec::Process::Poisson), (Process::Constant, spec::Process::Constant)]
    {
        for (seed, rate_per_s) in [(1, 0.3), (7, 20.0), (1 << 60, 123.456_789)] {
            let sent: Vec<i64> = schedule(seed, rate_per_s, sent_by).take(400).map(|item| item.offset_ns).collect();
            let load = Load { warmup_requests: 0, ..open(rate_per_s, process, 400) };
            let gpus = ClusterConfig { seed, ..ClusterConfig::default() };
            assert!(run_virtual(&gpus, &load).unwrap().columns.due_ns == sent, "{process:?} {seed} {rate_per_s}");
            let servers = FlowConfig { seed, max_active: Some(4), ..FlowConfig::new(vec![1e6]) };
            let flow = run_flow(&servers, &load, FlowBeside { sizes: &[1.0], ..FlowBeside::default() }).unwrap();
            assert!(flow.columns.due_ns == sent, "{process:?} {seed} {rate_per_s}");
        }
    }
}

#[test]
fn users_think_to_the_nanosecond_as_the_engine_has_them_think() {
    for (think, thinks) in [
        (Think::Constant, spec::Think::Fixed(250_000_000)),
        (Think::Exponential, spec::Think::Exponential(250_000_000)),
    ] {
        for seed in [1, 1 << 60] {
            let pauses = Thinks::new(thinks, seed, 0);
            let arrivals = Arrivals::Closed { users: 1, think_s: 0.25, think, start: Start::Burst, stagger_s: None };
            let load = Load { arrivals, warmup_requests: 0, ..Load::closed(1, 400) };
            let gpus = ClusterConfig { seed, ..ClusterConfig::default() };
            let found = run_virtual(&gpus, &load).unwrap().columns;
            let servers = FlowConfig { seed, ..FlowConfig::new(vec![10.0]) };
            let flow =
                run_flow(&servers, &load, FlowBeside { sizes: &[1.0], ..FlowBeside::default() }).unwrap().columns;
            for (due_ns, end_ns) in [(found.due_ns, found.end_ns), (flow.due_ns, flow.end_ns)] {
                for seq in 0..399 {
                    // As the engine has it: after request `seq` of the stream, by the number of that request.
                    let pause_ns = pauses.before_ns(seq as u64, None);
                    assert_eq!(due_ns[seq + 1] - end_ns[seq], pause_ns, "{think:?} {seed} {seq}");
                }
            }
        }
    }
}
