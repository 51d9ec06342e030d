//! What the simulated cluster is made of.

use serde::{Deserialize, Serialize};

use super::{AutoscalerConfig, KserveConfig, Length, ReplicaStep, SimError, TensorModel, replicas};

/// The whole cluster. Every field has a default; unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Name under which the model is served.
    pub model: String,
    /// GPUs, each a replica of the model with its own batch, KV cache and queue; with `replicas`, the most there can be.
    pub gpus: u32,
    /// How many replicas there are at first, and from when on how many are asked for; empty: all GPUs.
    pub replicas: Vec<ReplicaStep>,
    /// From when a replica is asked for to when it takes requests; those at the start take them at once.
    pub start_delay_s: f64,
    /// What scales the replicas, within the GPUs that there are; null: nothing does.
    pub autoscaler: Option<AutoscalerConfig>,
    /// Cost of an iteration that serves nobody.
    pub iteration_base_s: f64,
    /// What each running sequence adds to an iteration.
    pub iteration_per_sequence_s: f64,
    /// What each prompt token of a newly admitted sequence adds to its first iteration.
    pub prefill_per_token_s: f64,
    /// Most sequences that run at once on one GPU.
    pub max_batch: u32,
    /// Batches are put together while the GPU is idle and run to the end of their longest answer. Null: sequences join and leave at every
    /// iteration.
    pub static_batching: Option<StaticBatching>,
    /// Tokens of one iteration: one for each answer, and what is left for prompts, which are computed in chunks. Null: prompts are
    /// computed whole, whatever their length.
    pub max_batched_tokens: Option<u32>,
    /// Servers that compute the prompts of a replica, whose iterations then make answers alone. Null: iterations do both.
    pub prefill_servers: Option<PrefillServers>,
    /// Blocks of KV cache per GPU. A sequence holds the blocks of its whole length from admission to end, unless `kv_preemption`.
    pub kv_blocks: u32,
    /// Whether the cache fills token by token: when it is full, the youngest sequence has to leave and is computed again later.
    pub kv_preemption: bool,
    /// Tokens per block of KV cache.
    pub kv_block_tokens: u32,
    /// Most requests that may wait in front of one busy GPU; more are refused. Null: no limit.
    pub queue_limit: Option<u32>,
    /// Which GPU a request goes to.
    pub router: Router,
    /// Length of answers; a request's `max_tokens` cuts it, and with `ignore_eos` sets it.
    pub output_tokens: Length,
    /// How a prompt's tokens are counted when a request does not say: its characters divided by this, rounded up.
    pub characters_per_token: f64,
    /// Spread of a request's own cost (its share of iterations and its prefill): a lognormal factor with mean 1 and this sigma.
    pub noise_sigma: f64,
    /// Same seed, same answers' lengths, costs, routes and faults by request index.
    pub seed: u64,
    /// Failures on request.
    pub faults: Faults,
    /// Models behind the KServe API, each with instances of its own on every GPU.
    pub tensor_models: Vec<TensorModel>,
    /// How the KServe server differs from an open one.
    pub kserve: KserveConfig,
    /// What chat answers consist of.
    pub chat: ChatConfig,
    /// Whether the prefix of a conversation that was served before is cached.
    pub prefix_cache: bool,
    /// Whether an answer says how long its request waited and was served, as vLLM's do with `--enable-per-request-metrics`.
    pub per_request_metrics: bool,
    /// What `/generate/full` does.
    pub workflow: WorkflowConfig,
}

/// Batches that nobody joins, as of a dynamic batcher in front of a model: all answers end with the longest one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StaticBatching {
    /// Cost of a batch, beside its iterations and prompts.
    pub base_s: f64,
    /// How long the first of a batch that is not full waits for others.
    pub delay_s: f64,
}

/// Servers that compute prompts and make first tokens, each replica's own. What they compute goes over to where answers are made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrefillServers {
    /// How many there are. Each has a queue of its own, and a request goes to the first of those with the fewest.
    pub servers: u32,
    /// Cost of one of their iterations, beside its tokens.
    pub base_s: f64,
    /// Tokens of one of their iterations: prompts strictly in order, in chunks where they are longer. Null: one prompt at a time, whole.
    pub max_batched_tokens: Option<u32>,
    /// What it takes from a first token until the answer may go on, beside the cache's turn on the link.
    pub transfer_s: f64,
    /// For how long each token of a prompt holds the link up: a replica has one, and caches go over it one after the other.
    pub transfer_per_token_s: f64,
}

/// What chat answers consist of, beside their text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatConfig {
    /// So many of an answer's tokens come first, as reasoning; the text has at least one.
    pub reasoning_tokens: u32,
    /// Answer with a call of the first tool, where a request offers tools.
    pub tool_call: bool,
}

/// The LLM calls of one workflow: the first begins at once, each other so long after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowConfig {
    /// How many there are.
    pub llm_calls: u32,
    /// From the beginning of one call to that of the next; null: each begins when the one before has ended.
    pub stagger_s: Option<f64>,
}

/// The rule that picks a GPU for an arriving request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Router {
    /// Fewest requests running and waiting; the first such GPU.
    LeastLoaded,
    /// In turn.
    RoundRobin,
    /// By lot.
    Random,
    /// None: all wait in one queue, and the first in it goes to the first GPU that has a place.
    Shared,
}

/// Failures that the cluster commits on request. The three rates exclude each other and add up to at most 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Share of requests that are answered with status 500 at once.
    pub fail_rate: f64,
    /// Share of requests whose connection is reset halfway through the answer.
    pub reset_rate: f64,
    /// Share of requests whose answer is broken in the middle: JSON cut short, or the framing of a chunk.
    pub malformed_rate: f64,
    /// How long a stall freezes all GPUs; 0: no stalls.
    pub stall_s: f64,
    /// When the first stall begins, from the start.
    pub stall_after_s: f64,
    /// From the beginning of one stall to that of the next; null: a single stall.
    pub stall_every_s: Option<f64>,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            model: "simulated".to_owned(),
            gpus: 2,
            replicas: Vec::new(),
            start_delay_s: 0.0,
            autoscaler: None,
            iteration_base_s: 0.004,
            iteration_per_sequence_s: 0.000_15,
            prefill_per_token_s: 0.000_02,
            max_batch: 32,
            static_batching: None,
            max_batched_tokens: None,
            prefill_servers: None,
            kv_blocks: 4096,
            kv_preemption: false,
            kv_block_tokens: 16,
            queue_limit: None,
            router: Router::LeastLoaded,
            output_tokens: Length::Lognormal { median_tokens: 64.0, sigma: 0.25, max_tokens: 512 },
            characters_per_token: 4.0,
            noise_sigma: 0.0,
            seed: 1,
            faults: Faults::default(),
            tensor_models: TensorModel::defaults(),
            kserve: KserveConfig::default(),
            chat: ChatConfig::default(),
            prefix_cache: false,
            per_request_metrics: false,
            workflow: WorkflowConfig::default(),
        }
    }
}

impl Default for PrefillServers {
    fn default() -> Self {
        Self { servers: 1, base_s: 0.004, max_batched_tokens: None, transfer_s: 0.0, transfer_per_token_s: 0.0 }
    }
}

impl Default for WorkflowConfig {
    fn default() -> Self {
        Self { llm_calls: 1, stagger_s: None }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            fail_rate: 0.0,
            reset_rate: 0.0,
            malformed_rate: 0.0,
            stall_s: 0.0,
            stall_after_s: 5.0,
            stall_every_s: None,
        }
    }
}

impl ClusterConfig {
    /// Read and validate the JSON of a configuration; `{}` is the default one.
    pub fn from_json(text: &str) -> Result<Self, SimError> {
        let config: Self = serde_json::from_str(text).map_err(|source| SimError::Json { what: "config", source })?;
        config.validate()?;
        Ok(config)
    }

    /// Refuse what the model cannot do, naming the field.
    pub fn validate(&self) -> Result<(), SimError> {
        if self.model.is_empty() {
            return Err(SimError::value("model", "must not be empty"));
        }
        let apart = self.prefill_servers.unwrap_or_default();
        for (field, value, most) in [
            ("gpus", self.gpus, 100_000),
            ("max_batch", self.max_batch, 1_000_000),
            ("kv_blocks", self.kv_blocks, u32::MAX),
            ("kv_block_tokens", self.kv_block_tokens, u32::MAX),
            ("queue_limit", self.queue_limit.unwrap_or(1), u32::MAX),
            ("prefill_servers.servers", apart.servers, 10_000),
            ("prefill_servers.max_batched_tokens", apart.max_batched_tokens.unwrap_or(1), u32::MAX),
        ] {
            if !(1..=most).contains(&value) {
                return Err(SimError::value(field, format!("must be between 1 and {most}, not {value}")));
            }
        }
        let batches = self.static_batching.unwrap_or_default();
        for (field, value, least, most) in [
            ("iteration_base_s", self.iteration_base_s, 0.0, 3600.0),
            ("iteration_per_sequence_s", self.iteration_per_sequence_s, 0.0, 3600.0),
            ("prefill_per_token_s", self.prefill_per_token_s, 0.0, 3600.0),
            ("noise_sigma", self.noise_sigma, 0.0, 5.0),
            ("characters_per_token", self.characters_per_token, 0.01, 1e6),
            ("start_delay_s", self.start_delay_s, 0.0, 1e9),
            ("static_batching.base_s", batches.base_s, 0.0, 3600.0),
            ("static_batching.delay_s", batches.delay_s, 0.0, 3600.0),
            ("prefill_servers.base_s", apart.base_s, 0.0, 3600.0),
            ("prefill_servers.transfer_s", apart.transfer_s, 0.0, 3600.0),
            ("prefill_servers.transfer_per_token_s", apart.transfer_per_token_s, 0.0, 3600.0),
        ] {
            in_range(field, value, least, most)?;
        }
        if self.iteration_base_s + self.iteration_per_sequence_s <= 0.0 {
            return Err(SimError::value("iteration_base_s", "must not be 0 when iteration_per_sequence_s is 0 too"));
        }
        self.validate_batches()?;
        replicas::validate(&self.replicas, self.gpus)?;
        if let Some(autoscaler) = &self.autoscaler {
            autoscaler.validate_on(self.gpus, &self.replicas, true)?;
            autoscaler.validate_served()?;
        }
        self.output_tokens.validate("output_tokens")?;
        self.validate_tensor_models()?;
        self.kserve.validate()?;
        self.workflow.validate()?;
        self.faults.validate()
    }

    fn validate_batches(&self) -> Result<(), SimError> {
        if self.static_batching.is_some() && (self.max_batched_tokens.is_some() || self.kv_preemption) {
            let problem = "does not go with max_batched_tokens or kv_preemption: its batches are computed whole";
            return Err(SimError::value("static_batching", problem));
        }
        if self.static_batching.is_some() && self.prefill_servers.is_some() {
            let problem = "does not go with prefill_servers: its batches compute their own prompts";
            return Err(SimError::value("static_batching", problem));
        }
        if self.router == Router::Shared && self.prefill_servers.is_some() {
            let problem = "cannot be shared with prefill_servers: prompts wait for the servers of their own GPU";
            return Err(SimError::value("router", problem));
        }
        match self.max_batched_tokens {
            Some(tokens) if tokens < self.max_batch => {
                let problem = format!("must be at least max_batch ({}), not {tokens}", self.max_batch);
                Err(SimError::value("max_batched_tokens", problem))
            }
            _ => Ok(()),
        }
    }

    fn validate_tensor_models(&self) -> Result<(), SimError> {
        for (place, model) in self.tensor_models.iter().enumerate() {
            model.validate(&format!("tensor_models[{place}]"))?;
            if self.tensor_models[..place].iter().any(|other| other.name == model.name) {
                let problem = format!("has {} twice", model.name);
                return Err(SimError::value("tensor_models", problem));
            }
        }
        Ok(())
    }

    /// Blocks of KV cache that a sequence of so many tokens holds.
    pub fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(u64::from(self.kv_block_tokens))
    }

    /// Tokens of a prompt of so many characters, by `characters_per_token`; at least 1.
    pub fn count_prompt_tokens(&self, characters: usize) -> u32 {
        (characters as f64 / self.characters_per_token).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

impl WorkflowConfig {
    fn validate(&self) -> Result<(), SimError> {
        if !(1..=64).contains(&self.llm_calls) {
            let problem = format!("must be between 1 and 64, not {}", self.llm_calls);
            return Err(SimError::value("workflow.llm_calls", problem));
        }
        in_range("workflow.stagger_s", self.stagger_s.unwrap_or(0.0), 0.0, 3600.0)
    }
}

impl Faults {
    fn validate(&self) -> Result<(), SimError> {
        for (field, value, most) in [
            ("faults.fail_rate", self.fail_rate, 1.0),
            ("faults.reset_rate", self.reset_rate, 1.0),
            ("faults.malformed_rate", self.malformed_rate, 1.0),
            ("faults.stall_s", self.stall_s, 86_400.0),
            ("faults.stall_after_s", self.stall_after_s, 1e9),
        ] {
            in_range(field, value, 0.0, most)?;
        }
        let sum = self.fail_rate + self.reset_rate + self.malformed_rate;
        if sum > 1.0 + 1e-9 {
            let problem = format!("fail_rate, reset_rate and malformed_rate add up to {sum}, which is more than 1");
            return Err(SimError::value("faults", problem));
        }
        match self.stall_every_s {
            Some(every) if !(every.is_finite() && every > self.stall_s) => {
                let problem = format!("must be longer than stall_s ({}), not {every}", self.stall_s);
                Err(SimError::value("faults.stall_every_s", problem))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn in_range(field: &str, value: f64, least: f64, most: f64) -> Result<(), SimError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SimError::value(field, format!("must be between {least} and {most}, not {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_object_is_the_default_and_json_goes_round() {
        let config = ClusterConfig::from_json("{}").unwrap();
        assert_eq!(config, ClusterConfig::default());
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(ClusterConfig::from_json(&text).unwrap(), config);
    }

    #[test]
    fn bad_values_name_the_field() {
        for (text, needle) in [
            (r#"{"gpu": 2}"#, "unknown field `gpu`"),
            (r#"{"gpus": 0}"#, "gpus of the simulated cluster must be between 1"),
            (r#"{"queue_limit": 0}"#, "queue_limit"),
            (r#"{"iteration_base_s": -1.0}"#, "iteration_base_s"),
            (r#"{"iteration_base_s": 0.0, "iteration_per_sequence_s": 0.0}"#, "must not be 0"),
            (r#"{"model": ""}"#, "model"),
            (r#"{"router": "best"}"#, "unknown variant `best`"),
            (r#"{"router": "shared", "prefill_servers": {}}"#, "router of the simulated cluster cannot be shared"),
            (r#"{"faults": {"fail_rate": 1.5}}"#, "faults.fail_rate"),
            (r#"{"faults": {"fail_rate": 0.6, "reset_rate": 0.6}}"#, "add up to 1.2"),
            (r#"{"faults": {"stall_s": 2.0, "stall_every_s": 1.0}}"#, "faults.stall_every_s"),
            (r#"{"faults": {"stalls": 2.0}}"#, "unknown field"),
            (r#"{"tensor_models": [{"name": "a/b"}]}"#, "tensor_models[0].name"),
            (r#"{"tensor_models": [{}, {}]}"#, "has double twice"),
            (r#"{"tensor_models": [{"inputs": []}]}"#, "tensor_models[0].inputs"),
            (r#"{"tensor_models": [{"inputs": [{"name": "a", "datatype": "BYTES", "shape": [1]}]}]}"#, "same datatype"),
            (
                r#"{"tensor_models": [{"outputs": [{"name": "a", "datatype": "FP32", "shape": [0]}]}]}"#,
                "neither positive",
            ),
            (r#"{"tensor_models": [{"instances": 0}]}"#, "tensor_models[0].instances"),
            (r#"{"kserve": {"restricted": ["stats"]}}"#, "kserve.restricted"),
            (r#"{"kserve": {"restricted": ["statistics"]}}"#, "kserve.restricted_key"),
            (r#"{"workflow": {"llm_calls": 0}}"#, "workflow.llm_calls"),
            (r#"{"replicas": [{"at_s": 0.0, "replicas": 3}]}"#, "replicas[0].replicas"),
            (r#"{"replicas": [{"at_s": 0.0}]}"#, "missing field `replicas`"),
            (r#"{"start_delay_s": -1.0}"#, "start_delay_s"),
            (r#"{"static_batching": {"delay_s": -1.0}}"#, "static_batching.delay_s"),
            (r#"{"static_batching": {"delay": 1.0}}"#, "unknown field `delay`"),
        ] {
            let error = ClusterConfig::from_json(text).expect_err(text).to_string();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }

    #[test]
    fn prompts_are_counted_by_characters() {
        let config = ClusterConfig::default();
        assert_eq!([0, 1, 4, 5, 400].map(|characters| config.count_prompt_tokens(characters)), [1, 1, 1, 2, 100]);
    }
}
