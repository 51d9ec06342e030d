//! What an autoscaler would have decided, step by step.

use gpusize_autoscale::{Hpa, HpaPolicy, Seen};
use pyo3::prelude::*;

use crate::errors::{UsageError, bad_json};
use crate::level::json;

/// The decisions of a `HorizontalPodAutoscaler` over what it sees, one after another; each is carried out.
#[pyfunction]
pub fn hpa_decisions(py: Python<'_>, policy: &str, replicas: i32, seen: &str) -> PyResult<String> {
    let policy: HpaPolicy = serde_json::from_str(policy).map_err(|error| bad_json("policy", &error))?;
    let seen: Vec<Seen> = serde_json::from_str(seen).map_err(|error| bad_json("seen", &error))?;
    let mut hpa = Hpa::new(policy).map_err(|error| {
        UsageError::new_err((error.to_string(), None::<String>, "see docs/reference/autoscale.md".to_owned()))
    })?;
    json(&py.detach(|| hpa.follow(replicas, seen)))
}
