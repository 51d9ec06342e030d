//! What is asked for: a world, a load on it, how many GPUs, and a seed.

use serde::Deserialize;

use crate::batching::Batching;
use crate::clock::{Contention, Pauses};
use crate::disaggregated::Disaggregated;
use crate::engine::Engine;
use crate::fixed_batches::FixedBatches;
use crate::lengths::Lengths;
use crate::sharing::Sharing;

/// One line of standard input.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What a GPU does.
    pub world: World,
    /// What is asked of all of them.
    pub load: Load,
    /// How many there are.
    pub gpus: usize,
    /// Same seed, same draws.
    pub seed: u64,
}

/// A cluster of equal GPUs (or replicas).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct World {
    /// What one does.
    pub mechanics: Mechanics,
    /// Tokens of the requests.
    pub lengths: Lengths,
    /// Spread of a request's own cost: a lognormal factor with mean 1 and this sigma.
    #[serde(default)]
    pub noise_sigma: f64,
    /// In which a GPU stands still.
    #[serde(default)]
    pub pauses: Option<Pauses>,
    /// What GPUs cost each other.
    #[serde(default)]
    pub contention: Contention,
}

/// What a GPU does with its requests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanics {
    /// Continuous batching: memory-bound or compute-bound, chunked prefill, reserved or growing cache.
    Batching(Batching),
    /// Batches that run to their end.
    FixedBatches(FixedBatches),
    /// Prefill servers in front of a GPU that decodes.
    Disaggregated(Disaggregated),
    /// Processor sharing with a load-dependent rate.
    Sharing(Sharing),
    /// An engine for language models by a roofline.
    Engine(Engine),
}

/// Users in a closed loop, or a rate.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Users of a closed loop.
    #[serde(default)]
    pub users: Option<u32>,
    /// Requests per second of an open loop.
    #[serde(default)]
    pub rate: Option<f64>,
    /// When requests come, ascending, instead of users and a rate; as many as are counted and before them.
    #[serde(default)]
    pub due_s: Vec<f64>,
    /// Gaps of an open loop.
    #[serde(default)]
    pub process: Process,
    /// Mean time from an answer to the next question.
    #[serde(default)]
    pub think_s: f64,
    /// Spread of it.
    #[serde(default)]
    pub think: Think,
    /// Requests that are counted.
    pub requests: u32,
    /// Requests before them.
    pub warmup_requests: u32,
    /// Which GPU a request goes to.
    pub router: Router,
    /// Whether all users begin at once, and not spread over about one residence time.
    #[serde(default)]
    pub burst: bool,
}

/// Gaps of an open loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// Memoryless.
    #[default]
    Poisson,
    /// All equal.
    Constant,
}

/// Spread of think times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Think {
    /// There are none.
    #[default]
    None,
    /// Always the mean.
    Fixed,
    /// Memoryless.
    Exponential,
}

/// Which GPU a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Router {
    /// That with the fewest requests, the first of them.
    LeastLoaded,
    /// In turn.
    RoundRobin,
    /// By lot.
    Random,
}

impl Request {
    /// Refuse what cannot run.
    pub fn check(&self) -> Result<(), String> {
        let load = &self.load;
        match (load.users, load.rate, load.due_s.len()) {
            (Some(1..), None, 0) => {}
            (None, Some(rate), 0) if rate.is_finite() && rate > 0.0 => {}
            (None, None, planned) if planned == (load.requests + load.warmup_requests) as usize => {}
            _ => {
                return Err(
                    "load: either users, at least 1, or a rate above 0, or a due time for each request".to_owned()
                );
            }
        }
        if load.due_s.iter().any(|at| !at.is_finite() || *at < 0.0) || load.due_s.windows(2).any(|two| two[0] > two[1])
        {
            return Err("load: due times must ascend from 0".to_owned());
        }
        if self.gpus == 0 || load.requests == 0 {
            return Err("there must be at least one GPU and one request".to_owned());
        }
        if !(load.think_s.is_finite() && load.think_s >= 0.0 && self.world.noise_sigma >= 0.0) {
            return Err("think_s and noise_sigma must not be negative".to_owned());
        }
        if self.world.pauses.is_some_and(|pauses| !(pauses.every_s > 0.0 && pauses.mean_s >= 0.0)) {
            return Err("pauses: every_s must be above 0, mean_s not negative".to_owned());
        }
        self.world.lengths.check()?;
        match &self.world.mechanics {
            Mechanics::Batching(config) => config.check(),
            Mechanics::FixedBatches(config) => config.check(),
            Mechanics::Disaggregated(config) => config.check(),
            Mechanics::Sharing(config) => config.check(),
            Mechanics::Engine(_) if self.world.noise_sigma > 0.0 => {
                Err("engine: requests have no cost of their own; give it jitter_sigma or speed_sigma".to_owned())
            }
            Mechanics::Engine(config) => config.check(),
        }
    }
}
