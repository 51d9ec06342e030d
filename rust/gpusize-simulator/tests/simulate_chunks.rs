//! Prompts in chunks and a cache that fills token by token: what both cost, where it can be worked out by hand.

use gpusize_simulator::{ClusterConfig, Length, Load, VirtualResult, run_virtual};

const OUTPUT: u32 = 10;

fn config() -> ClusterConfig {
    ClusterConfig { gpus: 1, output_tokens: Length::Fixed { tokens: OUTPUT }, ..ClusterConfig::default() }
}

fn run(config: &ClusterConfig, users: u32, prompt: u32) -> VirtualResult {
    let load = Load { prompt_tokens: Length::Fixed { tokens: prompt }, ..Load::closed(users, 60 * u64::from(users)) };
    run_virtual(config, &load).expect("a valid load")
}

/// (to the first token, to the last) of each request that counts, in seconds.
fn times_s(result: &VirtualResult) -> Vec<(f64, f64)> {
    let rows = &result.columns;
    let since = |row: usize, at_ns: i64| (at_ns - rows.due_ns[row]) as f64 / 1e9;
    (0..rows.due_ns.len())
        .filter(|&row| !rows.warmup[row])
        .map(|row| (since(row, rows.first_token_ns[row]), since(row, rows.end_ns[row])))
        .collect()
}

#[test]
fn a_lone_prompt_takes_an_iteration_for_each_chunk_and_its_last_one_makes_the_first_token() {
    for (prompt, chunks) in [(1, 1), (100, 1), (101, 2), (1000, 10), (1050, 11)] {
        let config = ClusterConfig { max_batch: 8, max_batched_tokens: Some(100), ..config() };
        let computed_s = f64::from(chunks) * config.iteration_base_s
            + f64::from(prompt) * config.prefill_per_token_s
            + config.iteration_per_sequence_s;
        let token_s = config.iteration_base_s + config.iteration_per_sequence_s;
        for (ttft_s, runtime_s) in times_s(&run(&config, 1, prompt)) {
            assert!((ttft_s - computed_s).abs() < 1e-6, "{prompt}: {ttft_s} not {computed_s}");
            assert!((runtime_s - computed_s - f64::from(OUTPUT - 1) * token_s).abs() < 1e-6);
        }
    }
}

#[test]
fn no_answer_waits_longer_between_two_tokens_than_a_chunk_takes() {
    let chunked = ClusterConfig { max_batch: 8, max_batched_tokens: Some(64), ..config() };
    let longest_s =
        chunked.iteration_base_s + 8.0 * chunked.iteration_per_sequence_s + 64.0 * chunked.prefill_per_token_s;
    let gaps = |config: &ClusterConfig| -> f64 {
        let each = times_s(&run(config, 8, 2000)).into_iter();
        each.map(|(first_s, last_s)| (last_s - first_s) / f64::from(OUTPUT - 1)).fold(0.0, f64::max)
    };
    assert!(gaps(&chunked) <= longest_s, "{} beyond {longest_s}", gaps(&chunked));
    assert!(gaps(&config()) > 2.0 * longest_s, "whole prompts hold answers up: {}", gaps(&config()));
}

#[test]
fn a_budget_that_no_iteration_fills_changes_nothing() {
    let wide = ClusterConfig { max_batched_tokens: Some(1_000_000), ..config() };
    assert_eq!(run(&wide, 20, 300).columns.end_ns, run(&config(), 20, 300).columns.end_ns);
}

#[test]
fn a_cache_that_is_never_full_may_as_well_be_reserved() {
    let grows = ClusterConfig { kv_preemption: true, kv_blocks: 100_000, ..config() };
    let reserved = ClusterConfig { kv_blocks: 100_000, ..config() };
    assert_eq!(run(&grows, 20, 300).columns.end_ns, run(&reserved, 20, 300).columns.end_ns);
}

#[test]
fn a_full_cache_costs_the_youngest_its_work() {
    // Two prompts of 20 fit with 10 tokens of room, where two answers of 10 need 18.
    let tight = ClusterConfig { kv_preemption: true, kv_blocks: 50, kv_block_tokens: 1, ..config() };
    let wide = ClusterConfig { kv_blocks: 1000, ..tight.clone() };
    let reserved = ClusterConfig { kv_preemption: false, ..tight.clone() };
    let mean = |config: &ClusterConfig| {
        let each = times_s(&run(config, 2, 20));
        each.iter().map(|(_, runtime_s)| runtime_s).sum::<f64>() / each.len() as f64
    };
    let (tight_s, wide_s, reserved_s) = (mean(&tight), mean(&wide), mean(&reserved));
    assert!(wide_s < tight_s, "{wide_s} {tight_s}");
    // One at a time is what reserving means here.
    assert!(tight_s < reserved_s, "{tight_s} {reserved_s}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (text, needle) in [
        (
            r#"{"max_batched_tokens": 31}"#,
            "max_batched_tokens of the simulated cluster must be at least max_batch (32)",
        ),
        (r#"{"static_batching": {}, "max_batched_tokens": 64}"#, "static_batching"),
        (r#"{"static_batching": {}, "kv_preemption": true}"#, "static_batching"),
    ] {
        let error = ClusterConfig::from_json(text).expect_err(text).to_string();
        assert!(error.contains(needle), "{text}: {error}");
    }
}
