//! The one case in which the model has a formula.

use super::ClusterConfig;

/// Runtime of every request, in seconds, in the steady state of a staggered closed loop without think time on one GPU: `concurrency`
/// users, all with the same `prompt_tokens` and `output_tokens`.
///
/// With L output tokens, P prompt tokens, base cost b, cost per sequence s and prefill cost p per token:
///
/// - A single user finds the GPU idle: L iterations of its own, one of them with its prompt, `L (b + s) + P p`.
/// - With c > 1 a request arrives as an iteration begins, waits for its end, and is then served for L iterations: each user's cycle is
///   L + 1 iterations of the GPU. In any such stretch every user is active in L of them and is prefilled once, so it costs
///   `(L + 1) b + c (L s + P p)`, whatever the users' phases; and one cycle is one runtime.
///
/// `None` where this does not hold: static batching, chunked prompts, prompts on servers of their own, more than one GPU, a `concurrency` of 0 or above `max_batch`, or less KV cache than `concurrency`
/// sequences need. Noise, faults and stalls are left out.
pub fn closed_form_runtime_s(
    config: &ClusterConfig,
    concurrency: u32,
    prompt_tokens: u32,
    output_tokens: u32,
) -> Option<f64> {
    let blocks = config.blocks(u64::from(prompt_tokens) + u64::from(output_tokens));
    let fits = blocks.saturating_mul(u64::from(concurrency)) <= u64::from(config.kv_blocks);
    let apart = config.prefill_servers.is_some();
    let other = config.static_batching.is_some() || config.max_batched_tokens.is_some() || apart;
    if other || config.gpus != 1 || output_tokens == 0 || !(1..=config.max_batch).contains(&concurrency) || !fits {
        return None;
    }
    let (tokens, users) = (f64::from(output_tokens), f64::from(concurrency));
    let own_s = tokens * config.iteration_per_sequence_s + f64::from(prompt_tokens) * config.prefill_per_token_s;
    let iterations = if concurrency == 1 { tokens } else { tokens + 1.0 };
    Some(iterations * config.iteration_base_s + users * own_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PrefillServers, StaticBatching};

    #[test]
    fn it_holds_only_where_it_is_derived() {
        let config = ClusterConfig { gpus: 1, max_batch: 8, kv_blocks: 64, ..ClusterConfig::default() };
        assert!(closed_form_runtime_s(&config, 8, 10, 100).is_some());
        assert_eq!(closed_form_runtime_s(&config, 9, 10, 100), None);
        assert_eq!(closed_form_runtime_s(&config, 0, 10, 100), None);
        assert_eq!(closed_form_runtime_s(&config, 8, 10, 200), None);
        let whole = ClusterConfig { static_batching: Some(StaticBatching::default()), ..config.clone() };
        assert_eq!(closed_form_runtime_s(&whole, 8, 10, 100), None);
        let apart = ClusterConfig { prefill_servers: Some(PrefillServers::default()), ..config.clone() };
        assert_eq!(closed_form_runtime_s(&apart, 8, 10, 100), None);
        assert_eq!(closed_form_runtime_s(&ClusterConfig { gpus: 2, ..config }, 8, 10, 100), None);
    }

    #[test]
    fn a_single_user_pays_for_itself() {
        let config = ClusterConfig { gpus: 1, ..ClusterConfig::default() };
        let runtime_s = closed_form_runtime_s(&config, 1, 100, 128).unwrap();
        assert!((runtime_s - (128.0 * 0.004_15 + 100.0 * 0.000_02)).abs() < 1e-12);
    }
}
