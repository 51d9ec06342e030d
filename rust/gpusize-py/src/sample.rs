//! `gpusize._core.ResourceSampler`.

use gpusize_core::sample;
use pyo3::prelude::*;

use crate::batches::RecordBatches;
use crate::errors::{UsageError, raise};

/// Samples cgroups, process trees and the host on a thread of its own, until it is stopped or dropped.
#[pyclass(frozen, module = "gpusize._core")]
pub struct ResourceSampler(sample::Sampler);

#[pymethods]
impl ResourceSampler {
    #[new]
    fn new(py: Python<'_>, plan: &str) -> PyResult<Self> {
        let plan: sample::Plan = serde_json::from_str(plan).map_err(|error| {
            let todo = "see docs/reference/sampler.md";
            UsageError::new_err((format!("does not fit: {error}"), "plan".to_owned(), todo.to_owned()))
        })?;
        py.detach(|| sample::Sampler::start(plan)).map(Self).map_err(raise)
    }

    /// The readings since the last call: each source's name and its rows.
    fn drain(&self, py: Python<'_>) -> Vec<(String, RecordBatches)> {
        let batches = py.detach(|| self.0.drain());
        batches.into_iter().map(|(name, batch)| (name, RecordBatches::one(batch))).collect()
    }

    /// JSON: what is known about the sampler and each source.
    fn facts(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.facts().to_string())
    }

    /// Read everything now and begin new high-water marks where the kernel can. JSON: name, `t_ns`, the sources whose mark is new.
    fn mark(&self, py: Python<'_>, name: &str) -> String {
        py.detach(|| self.0.mark(name).to_string())
    }

    /// Read everything once more and end; JSON of the facts. Safe to call twice; `drain` still has what was not fetched.
    fn stop(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.stop().to_string())
    }
}
