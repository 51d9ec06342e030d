//! The cluster in virtual time: against the closed form, against queueing laws, and against itself.

use gpusize_core::simulate::{
    Arrivals, ClusterConfig, Faults, Length, Load, Outcome, Process, Router, Start, Think, closed_form_runtime_s,
    run_virtual,
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
    assert_eq!((result.summary.requests, result.columns.len()), (500, 599));
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
