//! Each mechanism against a closed form, or against a law that it cannot break.
#![allow(clippy::unwrap_used, missing_docs)]

use bench_worlds::driver::{Rows, run};
use bench_worlds::spec::Request;
use serde_json::{Value, json};

fn ask(mechanics: &Value, world: &Value, load: &Value, gpus: usize, seed: u64) -> (Rows, usize) {
    let mut asked = json!({
        "world": {"mechanics": mechanics, "lengths": fixed(100, 50)},
        "load": {"router": "least_loaded", "requests": 4000, "warmup_requests": 400},
        "gpus": gpus, "seed": seed,
    });
    for (part, changes) in [("world", world), ("load", load)] {
        for (name, value) in changes.as_object().unwrap() {
            asked[part][name] = value.clone();
        }
    }
    let request: Request = serde_json::from_value(asked).unwrap();
    let rows = run(&request).unwrap();
    let wanted = request.load.requests + request.load.warmup_requests;
    assert_eq!(rows.due_ns.len(), wanted as usize);
    assert!(rows.due_ns.is_sorted());
    assert!((0..rows.end_ns.len()).all(|row| {
        let first = rows.first_token_ns[row];
        rows.end_ns[row] >= rows.due_ns[row] && (first == -1 || (rows.due_ns[row]..=rows.end_ns[row]).contains(&first))
    }));
    (rows, request.load.warmup_requests as usize)
}

fn fixed(prompt: u32, output: u32) -> Value {
    json!({"apart": {"prompt": {"fixed": {"value": prompt}}, "output": {"fixed": {"value": output}}}})
}

fn mixed() -> Value {
    json!({"apart": {
        "prompt": {"lognormal": {"median": 200, "sigma": 0.8, "max": 1500}},
        "output": {"bimodal": {"low": 20, "high": 200, "high_share": 0.3, "sigma": 0.2, "max": 500}},
    }})
}

fn runtimes_s(rows: &Rows, warmup: usize) -> Vec<f64> {
    (warmup..rows.due_ns.len()).map(|row| (rows.end_ns[row] - rows.due_ns[row]) as f64 / 1e9).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Requests answered per second between the first and the last of the middle of the run.
fn rate(rows: &Rows) -> f64 {
    let mut ends = rows.end_ns.clone();
    ends.sort_unstable();
    let inner = &ends[ends.len() / 5..ends.len() * 4 / 5];
    (inner.len() - 1) as f64 / ((inner[inner.len() - 1] - inner[0]) as f64 / 1e9)
}

fn close(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() < within, "{found} instead of {expected}");
}

fn every_mechanism() -> Vec<(&'static str, Value)> {
    let plain = json!({"base_s": 0.004, "per_token_s": 0.0002, "max_batch": 16, "kv_tokens": 100_000});
    vec![
        (
            "roofline",
            json!({"batching": {"base_s": 0.001, "floor_s": 0.006, "per_token_s": 0.0004, "context_token_s": 1e-6,
                "max_batch": 24, "token_budget": 128, "kv_tokens": 9000}}),
        ),
        (
            "preempting",
            json!({"batching": {"base_s": 0.005, "per_token_s": 0.0001, "max_batch": 64, "kv_tokens": 3000, "grow": true}}),
        ),
        (
            "fixed batches",
            json!({"fixed_batches": {"base_s": 0.01, "per_prompt_token_s": 1e-5, "step_s": 0.004,
                "step_per_member_s": 2e-4, "max_batch": 8, "delay_s": 0.05}}),
        ),
        (
            "disaggregated",
            json!({"disaggregated": {"prefill_servers": 2, "prefill_base_s": 0.01, "prefill_per_token_s": 5e-5,
                "transfer_base_s": 0.002, "transfer_per_token_s": 1e-6, "decode": plain}}),
        ),
        (
            "sharing",
            json!({"sharing": {"rates": [1.0, 1.6, 2.0, 2.2], "max_active": 12,
                "work": {"lognormal": {"median": 0.5, "sigma": 0.7, "max": 10}}}}),
        ),
    ]
}

/// Little's law on the requests themselves: users = rate x (runtime + think time), in every mechanism, with all that may disturb it.
#[test]
fn users_are_neither_made_nor_lost() {
    for (name, mechanics) in every_mechanism() {
        for (router, gpus) in [("least_loaded", 1), ("round_robin", 3), ("random", 4)] {
            let world = json!({"lengths": mixed(), "noise_sigma": 0.3, "contention": {"sigma": 0.05, "kappa": 0.0},
                "pauses": {"every_s": 5.0, "mean_s": 0.2, "sigma": 0.5}});
            let load =
                json!({"users": 40, "think_s": 0.5, "think": "exponential", "router": router, "requests": 12_000});
            let (rows, warmup) = ask(&mechanics, &world, &load, gpus, 3);
            let mut in_flight = vec![(0_i64, 0_i32); 0];
            for row in 0..rows.due_ns.len() {
                in_flight.push((rows.due_ns[row], 1));
                in_flight.push((rows.end_ns[row], -1));
            }
            in_flight.sort_unstable();
            let most = in_flight
                .iter()
                .scan(0, |sum, step| {
                    *sum += step.1;
                    Some(*sum)
                })
                .max()
                .unwrap();
            assert!(most <= 40, "{name}: {most} in flight");
            close(rate(&rows) * (mean(&runtimes_s(&rows, warmup)) + 0.5), 40.0, 0.04);
            for user in 0..40 {
                let own: Vec<usize> = (0..rows.user.len()).filter(|&row| rows.user[row] == user).collect();
                let apart = own.windows(2).all(|pair| rows.due_ns[pair[1]] >= rows.end_ns[pair[0]]);
                assert!(apart, "{name}: user {user} asks before it is answered");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_rows_and_another_one_others() {
    for (name, mechanics) in every_mechanism() {
        let load = json!({"rate": 3.0});
        let world = json!({"lengths": mixed()});
        let first = ask(&mechanics, &world, &load, 2, 5).0;
        assert_eq!(first, ask(&mechanics, &world, &load, 2, 5).0, "{name}");
        assert_ne!(first, ask(&mechanics, &world, &load, 2, 6).0, "{name}");
    }
}

/// A single user: `L` iterations, the first of them with the prompt.
#[test]
fn a_single_sequence_takes_its_iterations() {
    let mechanics = json!({"batching": {"base_s": 0.001, "floor_s": 0.01, "per_token_s": 0.0005, "context_token_s": 1e-5,
        "max_batch": 4, "kv_tokens": 10_000}});
    let (rows, warmup) = ask(&mechanics, &json!({}), &json!({"users": 1}), 1, 1);
    // The prompt is computed by 100 tokens x 0.5 ms, more than the floor; 49 decoding iterations see contexts of 101 to 149 tokens.
    let context: f64 = (101..150).map(|tokens| f64::from(tokens) * 1e-5).sum();
    let whole = 0.001 + 0.05 + 49.0 * 0.011 + context;
    close(mean(&runtimes_s(&rows, warmup)), whole, 1e-6);
    close((rows.first_token_ns[9] - rows.due_ns[9]) as f64 / 1e9, 0.051, 1e-6);
}

/// A prompt in chunks of 32 takes four iterations of at least the floor.
#[test]
fn chunks_spread_a_prompt_over_iterations() {
    let mechanics = json!({"batching": {"base_s": 0.0, "floor_s": 0.01, "per_token_s": 0.0001, "max_batch": 4,
        "token_budget": 32, "kv_tokens": 10_000}});
    let (rows, warmup) = ask(&mechanics, &json!({}), &json!({"users": 1}), 1, 1);
    close(mean(&runtimes_s(&rows, warmup)), 53.0 * 0.01, 1e-6);
}

/// A full batch without prompts: every iteration makes `max_batch` tokens, so the rate is bounded, and reached.
#[test]
fn a_full_batch_reaches_its_bound() {
    let mechanics = json!({"batching": {"base_s": 0.004, "per_token_s": 0.001, "max_batch": 8, "kv_tokens": 100_000}});
    let world = json!({"lengths": fixed(1, 50)});
    let (rows, _) = ask(&mechanics, &world, &json!({"users": 64}), 1, 1);
    // 50 tokens each, of which the first is made with the prompt's single token: the same cost.
    close(rate(&rows), 8.0 / (50.0 * (0.004 + 8.0 * 0.001)), 0.01);
}

/// In the compute-bound regime the floor is never seen, in the memory-bound one nothing else.
#[test]
fn the_roof_has_two_parts() {
    for (floor_s, per_token_s, iteration_s) in [(0.02, 0.001, 0.02), (0.001, 0.001, 0.008)] {
        let mechanics = json!({"batching": {"base_s": 0.0, "floor_s": floor_s, "per_token_s": per_token_s, "max_batch": 8,
            "kv_tokens": 100_000}});
        let (rows, _) = ask(&mechanics, &json!({"lengths": fixed(1, 50)}), &json!({"users": 64}), 1, 1);
        close(rate(&rows), 8.0 / (50.0 * iteration_s), 0.01);
    }
}

/// Where the cache never fills, growing it is no different from reserving it; where it does, work is lost.
#[test]
fn only_a_full_cache_makes_sequences_leave() {
    let run_with = |kv_tokens: u64, grow: bool| {
        let mechanics = json!({"batching": {"base_s": 0.004, "per_token_s": 0.0002, "max_batch": 12,
            "kv_tokens": kv_tokens, "grow": grow}});
        rate(&ask(&mechanics, &json!({"lengths": mixed()}), &json!({"users": 24}), 1, 2).0)
    };
    close(run_with(1_000_000, true), run_with(1_000_000, false), 1e-9);
    assert!(run_with(3000, true) < 0.95 * run_with(1_000_000, true));
}

/// Batches that never wait and never mix: formula of the batch.
#[test]
fn a_fixed_batch_takes_its_formula() {
    let mechanics = json!({"fixed_batches": {"base_s": 0.1, "per_prompt_token_s": 0.001, "step_s": 0.01,
        "step_per_member_s": 0.002, "max_batch": 8, "delay_s": 0.3}});
    // A single user waits for others until the delay is over.
    let (rows, warmup) = ask(&mechanics, &json!({}), &json!({"users": 1}), 1, 1);
    close(mean(&runtimes_s(&rows, warmup)), 0.3 + 0.1 + 0.1 + 50.0 * 0.012, 1e-6);
    // Many users: every batch is full, and eight leave at once.
    let (rows, _) = ask(&mechanics, &json!({}), &json!({"users": 64}), 1, 1);
    close(rate(&rows), 8.0 / (0.1 + 0.8 + 50.0 * 0.026), 0.01);
}

/// Prefill servers alone, then transfer, then an empty batch.
#[test]
fn disaggregated_stages_add_up_and_the_slowest_bounds_the_rate() {
    let decode = json!({"base_s": 0.004, "per_token_s": 0.0, "max_batch": 64, "kv_tokens": 1_000_000});
    let mechanics = json!({"disaggregated": {"prefill_servers": 2, "prefill_base_s": 0.05, "prefill_per_token_s": 0.001,
        "transfer_base_s": 0.01, "transfer_per_token_s": 0.0001, "decode": decode}});
    let (rows, warmup) = ask(&mechanics, &json!({}), &json!({"users": 1}), 1, 1);
    close(mean(&runtimes_s(&rows, warmup)), 0.15 + 0.02 + 49.0 * 0.004, 1e-6);
    let (rows, _) = ask(&mechanics, &json!({}), &json!({"users": 64}), 1, 1);
    close(rate(&rows), 2.0 / 0.15, 0.01);
}

/// M/M/1-PS: the mean is that of M/M/1, 1 / (mu - lambda); and it does not depend on the distribution of sizes (insensitivity).
#[test]
fn sharing_has_the_mean_of_its_formula_whatever_the_sizes() {
    let works = [
        json!({"exponential": {"mean": 1.0, "max": 1e9}}),
        json!({"fixed": {"value": 1.0}}),
        json!({"bimodal": {"low": 0.5, "high": 3.0, "high_share": 0.2, "sigma": 0.0, "max": 1e9}}),
    ];
    for work in works {
        let mechanics = json!({"sharing": {"rates": [10.0], "max_active": 1_000_000, "work": work}});
        let load = json!({"rate": 7.0, "requests": 200_000, "warmup_requests": 5000});
        let (rows, warmup) = ask(&mechanics, &json!({}), &load, 1, 11);
        close(mean(&runtimes_s(&rows, warmup)), 1.0 / (10.0 - 7.0), 0.04);
    }
}

/// A closed network of one sharing server with exponential sizes and think times: the machine repairman with load-dependent rates.
#[test]
fn a_closed_loop_has_its_product_form() {
    let rates = [1.0, 1.7, 2.2, 2.5, 2.6];
    let (users, think_s) = (8_usize, 2.0);
    let mut weights = vec![1.0_f64];
    for busy in 1..=users {
        let arrivals = (users - busy + 1) as f64 / think_s;
        weights.push(weights[busy - 1] * arrivals / rates[busy.min(rates.len()) - 1]);
    }
    let total: f64 = weights.iter().sum();
    let throughput: f64 = (1..=users).map(|busy| weights[busy] / total * rates[busy.min(rates.len()) - 1]).sum();
    let mechanics =
        json!({"sharing": {"rates": rates, "max_active": 1000, "work": {"exponential": {"mean": 1.0, "max": 1e9}}}});
    let load = json!({"users": users, "think_s": think_s, "think": "exponential", "requests": 100_000});
    let (rows, warmup) = ask(&mechanics, &json!({}), &load, 1, 4);
    close(rate(&rows), throughput, 0.015);
    close(mean(&runtimes_s(&rows, warmup)), users as f64 / throughput - think_s, 0.02);
}

/// With room for one at a time it is M/D/1 in order of arrival: Pollaczek and Khinchine.
#[test]
fn one_at_a_time_is_a_queue_in_order() {
    let mechanics = json!({"sharing": {"rates": [1.0], "max_active": 1, "work": {"fixed": {"value": 1.0}}}});
    let load = json!({"rate": 0.6, "requests": 200_000, "warmup_requests": 5000});
    let (rows, warmup) = ask(&mechanics, &json!({}), &load, 1, 8);
    close(mean(&runtimes_s(&rows, warmup)), 1.0 + 0.6 / (2.0 * 0.4), 0.03);
    assert!(rows.end_ns.is_sorted());
}

#[test]
fn routers_spread_as_they_say() {
    let mechanics = json!({"sharing": {"rates": [10.0], "max_active": 100, "work": {"fixed": {"value": 1.0}}}});
    for (router, spread) in [("round_robin", 0.0), ("random", 0.1)] {
        let (rows, _) = ask(&mechanics, &json!({}), &json!({"rate": 5.0, "router": router}), 4, 2);
        let counts = [0, 1, 2, 3].map(|gpu| rows.gpu.iter().filter(|&&at| at == gpu).count() as f64 / 1100.0);
        assert!(counts.iter().all(|count| (count - 1.0).abs() <= spread), "{router}: {counts:?}");
    }
    // At a trickle the first one is always free.
    let (rows, _) = ask(&mechanics, &json!({}), &json!({"rate": 0.001, "router": "least_loaded"}), 4, 2);
    assert!(rows.gpu.iter().all(|&gpu| gpu == 0));
}

#[test]
fn pauses_and_contention_stretch_the_time() {
    let mechanics = json!({"sharing": {"rates": [10.0], "max_active": 100, "work": {"fixed": {"value": 1.0}}}});
    let plain = rate(&ask(&mechanics, &json!({}), &json!({"users": 20}), 2, 1).0);
    let world = json!({"contention": {"sigma": 0.5, "kappa": 0.0}});
    close(rate(&ask(&mechanics, &world, &json!({"users": 20}), 2, 1).0), plain / 1.5, 0.01);
    let world = json!({"pauses": {"every_s": 1.0, "mean_s": 0.25, "sigma": 0.3}});
    close(rate(&ask(&mechanics, &world, &json!({"users": 20, "requests": 40_000}), 2, 1).0), plain / 1.25, 0.03);
}

#[test]
fn what_cannot_run_is_refused() {
    let asked = |mechanics: Value, load: Value| {
        let request =
            json!({"world": {"mechanics": mechanics, "lengths": fixed(1, 1)}, "load": load, "gpus": 1, "seed": 1});
        serde_json::from_value::<Request>(request).map_err(|error| error.to_string()).and_then(|each| run(&each))
    };
    let sharing = |rate: f64| json!({"sharing": {"rates": [rate], "max_active": 1, "work": {"fixed": {"value": 1.0}}}});
    let load = json!({"users": 1, "requests": 1, "warmup_requests": 0, "router": "random"});
    assert!(asked(sharing(1.0), load.clone()).is_ok());
    assert!(asked(sharing(0.0), load.clone()).unwrap_err().contains("rates"));
    assert!(asked(sharing(1.0), json!({"requests": 1, "warmup_requests": 0, "router": "random"})).is_err());
    assert!(asked(json!({"magic": {}}), load).unwrap_err().contains("magic"));
}
