//! Batches that nobody joins: their formula, the wait for others, and that all end with the longest answer.

use std::collections::BTreeMap;

use gpusize_simulator::{ClusterConfig, Length, Load, StaticBatching, VirtualResult, run_virtual};

const TOKENS: u32 = 10;
const PROMPT: u32 = 100;

fn config(max_batch: u32, delay_s: f64) -> ClusterConfig {
    ClusterConfig {
        gpus: 1,
        max_batch,
        static_batching: Some(StaticBatching { base_s: 0.05, delay_s }),
        output_tokens: Length::Fixed { tokens: TOKENS },
        ..ClusterConfig::default()
    }
}

fn run(config: &ClusterConfig, users: u32) -> VirtualResult {
    let load = Load { prompt_tokens: Length::Fixed { tokens: PROMPT }, ..Load::closed(users, 60 * u64::from(users)) };
    run_virtual(config, &load).expect("a valid load")
}

/// (up to the first tokens, as a whole) of a batch with so many members.
fn batch_s(config: &ClusterConfig, members: f64) -> (f64, f64) {
    let step_s = config.iteration_base_s + members * config.iteration_per_sequence_s;
    let begun_s = 0.05 + members * f64::from(PROMPT) * config.prefill_per_token_s;
    (begun_s + step_s, begun_s + f64::from(TOKENS) * step_s)
}

fn runtimes_s(result: &VirtualResult) -> Vec<f64> {
    let rows = &result.columns;
    (0..rows.due_ns.len())
        .filter(|&row| !rows.warmup[row])
        .map(|row| (rows.end_ns[row] - rows.due_ns[row]) as f64 / 1e9)
        .collect()
}

#[test]
fn a_lone_user_waits_the_delay_out_and_pays_for_a_batch() {
    let config = config(4, 0.2);
    let expected_s = 0.2 + batch_s(&config, 1.0).1;
    assert!(runtimes_s(&run(&config, 1)).iter().all(|runtime_s| (runtime_s - expected_s).abs() < 1e-6));
}

#[test]
fn full_batches_begin_at_once_and_users_beyond_them_wait_for_whole_batches() {
    let config = config(4, 30.0);
    for (users, batches) in [(4, 1.0), (8, 2.0), (20, 5.0)] {
        let expected_s = batches * batch_s(&config, 4.0).1;
        let found_s = runtimes_s(&run(&config, users));
        assert!(found_s.iter().all(|runtime_s| (runtime_s - expected_s).abs() < 1e-6), "{users}: {found_s:?}");
    }
}

#[test]
fn without_a_delay_whoever_comes_meanwhile_is_the_next_batch() {
    let config = config(8, 0.0);
    // One runs alone and seven wait; then the seven run and the one waits.
    let cycle_s = batch_s(&config, 1.0).1 + batch_s(&config, 7.0).1;
    let burst = Load { prompt_tokens: Length::Fixed { tokens: PROMPT }, ..Load::closed(8, 480) };
    let found = run_virtual(&config, &Load { arrivals: burst_of(8), ..burst }).expect("a valid load");
    assert!(runtimes_s(&found).iter().all(|runtime_s| (runtime_s - cycle_s).abs() < 1e-6));
}

fn burst_of(users: u32) -> gpusize_simulator::Arrivals {
    let text = format!(r#"{{"arrivals": {{"closed": {{"users": {users}, "start": "burst"}}}}, "requests": 1}}"#);
    Load::from_json(&text).expect("a valid load").arrivals
}

#[test]
fn all_answers_of_a_batch_begin_and_end_together_and_their_tokens_are_their_own() {
    let config = ClusterConfig { output_tokens: Length::Uniform { min_tokens: 2, max_tokens: 40 }, ..config(6, 0.0) };
    let result = run(&config, 24);
    let rows = &result.columns;
    let mut batches: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for row in 0..rows.due_ns.len() {
        batches.entry(rows.end_ns[row]).or_default().push(row);
    }
    let full: Vec<_> = batches.values().filter(|rows| rows.len() == 6).collect();
    assert!(full.len() > 100, "{}", full.len());
    let mut shorter = 0;
    for batch in full {
        let longest = batch.iter().map(|&row| rows.tokens_out[row]).max().expect("members");
        let (begun_s, _) = batch_s(&config, 6.0);
        let whole_s =
            begun_s + f64::from(longest - 1) * (config.iteration_base_s + 6.0 * config.iteration_per_sequence_s);
        for &row in batch {
            assert_eq!(rows.first_token_ns[row], rows.first_token_ns[batch[0]]);
            assert!(((rows.end_ns[row] - rows.start_ns[row]) as f64 / 1e9 - whole_s).abs() < 1e-6);
            shorter += usize::from(rows.tokens_out[row] < longest);
        }
    }
    assert!(shorter > 100);
    // A batch takes as many iterations as its longest answer has tokens, and the others' places stay empty.
    let tokens: u64 = rows.tokens_out.iter().map(|&tokens| u64::from(tokens)).sum();
    let longest = |batch: &Vec<usize>| batch.iter().map(|&row| u64::from(rows.tokens_out[row])).max().expect("members");
    let iterations: u64 = batches.values().map(longest).sum();
    let mean = tokens as f64 / iterations as f64;
    assert!((result.summary.mean_batch / mean - 1.0).abs() < 0.02, "{} not {mean}", result.summary.mean_batch);
    assert!(mean < 5.0, "{mean}");
}
