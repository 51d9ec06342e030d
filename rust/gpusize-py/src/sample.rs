//! `gpusize._core.ResourceSampler`, and what is asked of cgroups without sampling.

use std::path::Path;

use gpusize_sampler::groups::Asked;
use pyo3::prelude::*;

use crate::batches::RecordBatches;
use crate::errors::{UsageError, raise};

/// Samples cgroups, process trees and the host on a thread of its own, until it is stopped or dropped.
#[pyclass(frozen, module = "gpusize._core")]
pub struct ResourceSampler(gpusize_sampler::Sampler);

#[pymethods]
impl ResourceSampler {
    #[new]
    fn new(py: Python<'_>, plan: &str) -> PyResult<Self> {
        let plan: gpusize_sampler::Plan = serde_json::from_str(plan).map_err(|error| {
            let todo = "see docs/reference/sampler.md";
            UsageError::new_err((format!("does not fit: {error}"), "plan".to_owned(), todo.to_owned()))
        })?;
        py.detach(|| gpusize_sampler::Sampler::start(plan)).map(Self).map_err(raise)
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

/// JSON: the mounted cgroup hierarchies; `root` is the directory that stands for `/`.
#[pyfunction]
#[pyo3(signature = (root = "/"))]
pub fn cgroup_mounts(py: Python<'_>, root: &str) -> PyResult<String> {
    py.detach(|| gpusize_sampler::groups::mounts(Path::new(root))).map(|told| told.to_string()).map_err(raise)
}

/// JSON: the group of a process, or the one at a path.
#[pyfunction]
#[pyo3(signature = (asked, root = "/"))]
pub fn cgroup_of(py: Python<'_>, asked: Named, root: &str) -> PyResult<String> {
    let root = Path::new(root);
    let found = py.detach(move || match asked {
        Named::Pid(pid) => gpusize_sampler::groups::group(root, Asked::Pid(pid)),
        Named::Path(path) => gpusize_sampler::groups::group(root, Asked::Path(&path)),
    });
    found.map(|told| told.to_string()).map_err(raise)
}

/// What a group is asked for by.
#[derive(FromPyObject)]
pub enum Named {
    /// A process.
    Pid(u32),
    /// Its path in the hierarchies, or its directory.
    Path(String),
}
