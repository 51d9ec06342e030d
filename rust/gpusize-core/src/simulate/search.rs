//! The true answer: the smallest cluster that meets an SLO, found by simulating clusters of different sizes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::config::in_range;
use super::{ClusterConfig, Load, Outcome, SimError, VirtualResult, run_virtual};

/// What an SLO of the simulation bounds; both count from when the request was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// To the last byte.
    Runtime,
    /// To the first token.
    Ttft,
}

/// The share of requests that must end ok within the bound: `p95 runtime <= 10s` is share 0.95 and bound 10.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrueSlo {
    /// What is bounded.
    pub metric: Metric,
    /// Share of the requests, above 0 and at most 1.
    pub share: f64,
    /// The bound in seconds.
    pub bound_s: f64,
}

impl TrueSlo {
    /// Read and validate the JSON of an SLO.
    pub fn from_json(text: &str) -> Result<Self, SimError> {
        let slo: Self = serde_json::from_str(text).map_err(|source| SimError::Json { what: "slo", source })?;
        slo.validate()?;
        Ok(slo)
    }

    fn validate(&self) -> Result<(), SimError> {
        in_range("slo.share", self.share, f64::MIN_POSITIVE, 1.0)?;
        in_range("slo.bound_s", self.bound_s, f64::MIN_POSITIVE, 1e9)
    }

    /// Share of the counted requests that ended ok within the bound; every other outcome is a miss.
    pub fn attainment(&self, result: &VirtualResult) -> f64 {
        let columns = &result.columns;
        let within = |row: usize| {
            let value_s = match self.metric {
                Metric::Runtime => Some(columns.runtime_s(row)),
                Metric::Ttft => columns.ttft_s(row),
            };
            columns.outcome[row] == Outcome::Ok && value_s.is_some_and(|value_s| value_s <= self.bound_s)
        };
        let (mut hits, mut counted) = (0_u64, 0_u64);
        for row in (0..columns.len()).filter(|&row| !columns.warmup[row]) {
            counted += 1;
            hits += u64::from(within(row));
        }
        hits as f64 / counted.max(1) as f64
    }
}

/// Attainment of one cluster size over all seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Attainment {
    /// The size.
    pub gpus: u32,
    /// Mean over the seeds.
    pub mean: f64,
    /// Worst seed.
    pub low: f64,
    /// Best seed.
    pub high: f64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SmallestGpus {
    /// The smallest size that meets the SLO in the mean over the seeds; null when `max_gpus` does not.
    pub gpus: Option<u32>,
    /// Every size that was simulated, in order of size: the answer and the one below it among them.
    pub tried: Vec<Attainment>,
}

/// The smallest number of GPUs, up to `max_gpus`, with which `load` meets `slo` on an otherwise equal cluster.
///
/// Each size is simulated once per seed. The size is found by doubling and bisection, and then lowered as long as the one below
/// meets the SLO as well, so that the answer stands beside a measured "no" at one GPU less.
pub fn smallest_gpus(
    config: &ClusterConfig,
    load: &Load,
    slo: &TrueSlo,
    seeds: &[u64],
    max_gpus: u32,
) -> Result<SmallestGpus, SimError> {
    slo.validate()?;
    if seeds.is_empty() {
        return Err(SimError::value("seeds", "must have at least one seed"));
    }
    ClusterConfig { gpus: max_gpus, ..config.clone() }.validate()?;
    let mut search = Search { config, load, slo, seeds, tried: BTreeMap::new() };
    let (mut no, mut yes) = (0, 1);
    while !search.meets(yes)? {
        if yes == max_gpus {
            return Ok(search.answer(None));
        }
        (no, yes) = (yes, yes.saturating_mul(2).min(max_gpus));
    }
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if search.meets(middle)? { yes = middle } else { no = middle }
    }
    while yes > 1 && search.meets(yes - 1)? {
        yes -= 1;
    }
    Ok(search.answer(Some(yes)))
}

struct Search<'a> {
    config: &'a ClusterConfig,
    load: &'a Load,
    slo: &'a TrueSlo,
    seeds: &'a [u64],
    tried: BTreeMap<u32, Attainment>,
}

impl Search<'_> {
    fn meets(&mut self, gpus: u32) -> Result<bool, SimError> {
        if let Some(attainment) = self.tried.get(&gpus) {
            return Ok(attainment.mean >= self.slo.share);
        }
        let (mut sum, mut low, mut high) = (0.0, 1.0_f64, 0.0_f64);
        for &seed in self.seeds {
            let config = ClusterConfig { gpus, seed, ..self.config.clone() };
            let attainment = self.slo.attainment(&run_virtual(&config, self.load)?);
            sum += attainment;
            low = low.min(attainment);
            high = high.max(attainment);
        }
        let mean = sum / self.seeds.len() as f64;
        self.tried.insert(gpus, Attainment { gpus, mean, low, high });
        Ok(mean >= self.slo.share)
    }

    fn answer(self, gpus: Option<u32>) -> SmallestGpus {
        SmallestGpus { gpus, tried: self.tried.into_values().collect() }
    }
}
