//! What an autoscaler would have decided, step by step.

use gpusize_autoscale::{Event, Formula, Hpa, HpaPolicy, Keda, ScaledObject, Seen};
use pyo3::prelude::*;

use crate::errors::{UsageError, bad_json};
use crate::level::json;

#[allow(clippy::needless_pass_by_value)] // as map_err hands it over
fn wrong(error: impl ToString) -> PyErr {
    UsageError::new_err((error.to_string(), None::<String>, "see docs/reference/autoscale.md".to_owned()))
}

/// The decisions of a `HorizontalPodAutoscaler` over what it sees, one after another; each is carried out.
#[pyfunction]
pub fn hpa_decisions(py: Python<'_>, policy: &str, replicas: i32, seen: &str) -> PyResult<String> {
    let policy: HpaPolicy = serde_json::from_str(policy).map_err(|error| bad_json("policy", &error))?;
    let seen: Vec<Seen> = serde_json::from_str(seen).map_err(|error| bad_json("seen", &error))?;
    let mut hpa = Hpa::new(policy).map_err(wrong)?;
    json(&py.detach(|| hpa.follow(replicas, seen)))
}

/// What KEDA does over a course of polls and of the HPA's questions, one after another; polls are carried out.
#[pyfunction]
#[pyo3(signature = (scaled_object, events, *, replicas = 0))]
pub fn keda_course(py: Python<'_>, scaled_object: &str, events: &str, replicas: i32) -> PyResult<String> {
    let object: ScaledObject =
        serde_json::from_str(scaled_object).map_err(|error| bad_json("scaled object", &error))?;
    let events: Vec<Event> = serde_json::from_str(events).map_err(|error| bad_json("events", &error))?;
    let mut keda = Keda::new(object, 0, None).map_err(wrong)?;
    let outcomes = py.detach(|| keda.follow(replicas, &events));
    json(&outcomes.ok_or_else(|| wrong("an event has other triggers or metrics than the object"))?)
}

/// What a formula of `scalingModifiers` comes to; None is nil.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as Python hands them over
pub fn keda_formula(formula: &str, names: Vec<String>, values: Vec<Option<f64>>) -> PyResult<Option<f64>> {
    if names.len() != values.len() {
        return Err(wrong("there must be one value for each name"));
    }
    Formula::new(formula, &names).and_then(|formula| formula.evaluate(&values)).map_err(wrong)
}
