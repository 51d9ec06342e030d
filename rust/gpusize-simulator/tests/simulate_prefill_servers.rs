//! Prompts that servers of their own compute: what can be worked out by hand, and what no arrangement may change.

use gpusize_simulator::{
    Arrivals, ClusterConfig, Length, Load, Mix, PrefillServers, Process, VirtualResult, run_beside, run_virtual,
};

const OUTPUT: u32 = 10;
const PROMPT: u32 = 500;

fn config(servers: PrefillServers) -> ClusterConfig {
    ClusterConfig {
        gpus: 1,
        output_tokens: Length::Fixed { tokens: OUTPUT },
        prefill_servers: Some(servers),
        ..ClusterConfig::default()
    }
}

fn run(config: &ClusterConfig, users: u32, prompt: u32) -> VirtualResult {
    let load = Load { prompt_tokens: Length::Fixed { tokens: prompt }, ..Load::closed(users, 60 * u64::from(users)) };
    run_virtual(config, &load).expect("a valid load")
}

/// (to the first token, from it to the last) of each request that counts, in seconds.
fn times_s(result: &VirtualResult) -> Vec<(f64, f64)> {
    let rows = &result.columns;
    (0..rows.due_ns.len())
        .filter(|&row| !rows.warmup[row])
        .map(|row| {
            let (due, first, end) = (rows.due_ns[row], rows.first_token_ns[row], rows.end_ns[row]);
            ((first - due) as f64 / 1e9, (end - first) as f64 / 1e9)
        })
        .collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

#[test]
fn a_lone_request_pays_for_its_chunks_its_transfer_and_its_answer() {
    for (budget, chunks) in [(None, 1), (Some(500), 1), (Some(200), 3), (Some(499), 2), (Some(1), 500)] {
        let apart = PrefillServers {
            base_s: 0.003,
            max_batched_tokens: budget,
            transfer_s: 0.002,
            transfer_per_token_s: 0.000_001,
            ..PrefillServers::default()
        };
        let config = config(apart);
        let computed_s = 0.003 * f64::from(chunks) + f64::from(PROMPT) * config.prefill_per_token_s;
        let token_s = config.iteration_base_s + config.iteration_per_sequence_s;
        let answered_s = 0.002 + 0.000_5 + f64::from(OUTPUT - 1) * token_s;
        for (ttft_s, rest_s) in times_s(&run(&config, 1, PROMPT)) {
            assert!((ttft_s - computed_s).abs() < 1e-6, "{budget:?}: {ttft_s} not {computed_s}");
            assert!((rest_s - answered_s).abs() < 1e-6, "{budget:?}: {rest_s} not {answered_s}");
        }
    }
}

#[test]
fn an_answer_of_one_token_ends_with_its_prompt() {
    let one = ClusterConfig { output_tokens: Length::Fixed { tokens: 1 }, ..config(PrefillServers::default()) };
    let each = times_s(&run(&one, 3, PROMPT));
    assert!(each.iter().all(|&(_, rest_s)| rest_s == 0.0));
}

#[test]
fn answers_do_not_wait_for_prompts() {
    // However long the prompts, iterations that make answers cost the same; what is left is the wait for the next boundary.
    let config = ClusterConfig { prefill_per_token_s: 0.001, ..config(PrefillServers::default()) };
    let longest_s = f64::from(OUTPUT) * (config.iteration_base_s + 8.0 * config.iteration_per_sequence_s);
    for prompt in [10, 2000] {
        let longest = times_s(&run(&config, 8, prompt)).iter().map(|&(_, rest_s)| rest_s).fold(0.0, f64::max);
        assert!(longest <= longest_s, "{prompt}: {longest} beyond {longest_s}");
    }
}

#[test]
fn servers_that_are_never_idle_set_the_rate() {
    // 30 users, of whom prompts hold up nearly all: servers / service time, whatever answers cost.
    for servers in [1, 3] {
        let apart = PrefillServers { servers, base_s: 0.01, ..PrefillServers::default() };
        let config = ClusterConfig { prefill_per_token_s: 0.000_2, ..config(apart) };
        let users = 30;
        let each = times_s(&run(&config, users, PROMPT));
        let residence_s = mean(each.iter().map(|&(first_s, rest_s)| first_s + rest_s));
        let rate = f64::from(users) / residence_s;
        let most = f64::from(servers) / (0.01 + 0.000_2 * f64::from(PROMPT));
        assert!((rate / most - 1.0).abs() < 0.02, "{servers}: {rate} per s, not {most}");
    }
}

#[test]
fn a_link_that_is_never_idle_sets_the_rate() {
    let apart = PrefillServers { servers: 10, transfer_per_token_s: 0.000_1, ..PrefillServers::default() };
    let each = times_s(&run(&config(apart), 40, PROMPT));
    let residence_s = mean(each.iter().map(|&(first_s, rest_s)| first_s + rest_s));
    let rate = 40.0 / residence_s;
    assert!((rate * 0.000_1 * f64::from(PROMPT) - 1.0).abs() < 0.02, "{rate}");
}

#[test]
fn one_server_before_free_answers_is_a_queue_of_constant_service() {
    // M/D/1 (Pollaczek and Khinchine): a mean wait of rho s / (2 (1 - rho)).
    let apart = PrefillServers { base_s: 0.01, ..PrefillServers::default() };
    let config = ClusterConfig { prefill_per_token_s: 0.000_02, max_batch: 10_000, ..config(apart) };
    let service_s = 0.01 + 0.000_02 * f64::from(PROMPT);
    for rho in [0.3, 0.7] {
        let arrivals = Arrivals::Open { rate_per_s: rho / service_s, process: Process::Poisson };
        let load = Load { arrivals, prompt_tokens: Length::Fixed { tokens: PROMPT }, ..Load::closed(1, 60_000) };
        let each = times_s(&run_virtual(&config, &load).expect("a valid load"));
        let wait_s = mean(each.iter().map(|&(first_s, _)| first_s)) - service_s;
        let expected_s = rho * service_s / (2.0 * (1.0 - rho));
        assert!((wait_s / expected_s - 1.0).abs() < 0.05, "{rho}: {wait_s} not {expected_s}");
    }
}

#[test]
fn prompts_that_share_an_iteration_share_its_base() {
    let apart = PrefillServers { base_s: 0.05, ..PrefillServers::default() };
    let alone = config(apart);
    let together = config(PrefillServers { max_batched_tokens: Some(100_000), ..apart });
    let first_s = |config: &ClusterConfig| mean(times_s(&run(config, 16, 50)).iter().map(|&(first_s, _)| first_s));
    assert!(first_s(&together) < 0.25 * first_s(&alone), "{} {}", first_s(&together), first_s(&alone));
}

#[test]
fn everybody_is_served_once_and_one_server_gives_first_tokens_in_order() {
    let config = config(PrefillServers { transfer_per_token_s: 0.000_01, ..PrefillServers::default() });
    let rows = run(&config, 12, PROMPT).columns;
    let mut order: Vec<usize> = (0..rows.due_ns.len()).collect();
    order.sort_by_key(|&row| rows.due_ns[row]);
    let firsts: Vec<i64> = order.iter().map(|&row| rows.first_token_ns[row]).filter(|&at_ns| at_ns >= 0).collect();
    assert!(firsts.is_sorted());
    assert!(rows.tokens_out.iter().all(|&tokens| tokens == OUTPUT || tokens == 0));
}

#[test]
fn a_full_cache_makes_answers_wait_or_leave_and_all_of_them_end() {
    let base = config(PrefillServers::default());
    let residence_s = |blocks, grows| {
        let config = ClusterConfig { kv_blocks: blocks, kv_block_tokens: 1, kv_preemption: grows, ..base.clone() };
        mean(times_s(&run(&config, 8, 20)).iter().map(|&(first_s, rest_s)| first_s + rest_s))
    };
    let wide_s = residence_s(10_000, false);
    assert!((residence_s(10_000, true) - wide_s).abs() < 1e-9);
    for grows in [true, false] {
        assert!(residence_s(70, grows) > 1.02 * wide_s);
    }
}

#[test]
fn cached_tokens_of_a_mix_cost_no_prefill() {
    let config = config(PrefillServers { base_s: 0.001, ..PrefillServers::default() });
    let mix = Mix { prompt_tokens: Some(&[400]), cached_tokens: Some(&[300]), ..Mix::default() };
    let beside = gpusize_simulator::Beside { mix: Some(mix), ..gpusize_simulator::Beside::default() };
    let result = run_beside(&config, &Load::closed(1, 50), beside).expect("a valid load");
    let expected_s = 0.001 + 100.0 * config.prefill_per_token_s;
    assert!(times_s(&result).iter().all(|&(first_s, _)| (first_s - expected_s).abs() < 1e-6));
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (text, needle) in [
        (r#"{"prefill_servers": {"servers": 0}}"#, "prefill_servers.servers"),
        (r#"{"prefill_servers": {"base_s": -1}}"#, "prefill_servers.base_s"),
        (r#"{"prefill_servers": {}, "static_batching": {}}"#, "does not go with prefill_servers"),
    ] {
        let error = ClusterConfig::from_json(text).expect_err(needle).to_string();
        assert!(error.contains(needle), "{error}");
    }
}
