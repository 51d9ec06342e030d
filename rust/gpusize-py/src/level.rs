//! `gpusize._core.Level`.

use std::time::Duration;

use gpusize_engine::engine;
use gpusize_load::stop::Reason;
use pyo3::prelude::*;

use crate::batches::RecordBatches;
use crate::errors::{UsageError, raise};
use crate::wait::wait;

/// One queued, running or finished visit of a level.
#[pyclass(frozen, module = "gpusize._core")]
pub struct Level(pub engine::Level);

#[pymethods]
impl Level {
    /// JSON of a Progress.
    fn poll(&self, py: Python<'_>) -> PyResult<String> {
        let progress = py.detach(|| self.0.poll());
        json(&progress)
    }

    /// No new request from now on; those in flight have `drain_ns` and are then cancelled and recorded. The outcome tells
    /// the reason: stopped, slo, saturation or errors.
    #[pyo3(signature = (drain_ns, reason="stopped"))]
    fn stop(&self, py: Python<'_>, drain_ns: i64, reason: &str) -> PyResult<()> {
        let reason = Reason::of_caller(reason).map_err(raise)?;
        py.detach(|| self.0.stop_for(drain_ns, reason));
        Ok(())
    }

    /// Wait until the level's connections have been tried, or it has begun or is over; False when the time ran out.
    fn prepared(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).unwrap_or(Duration::MAX);
        Ok(wait(py, timeout, |slice| self.0.prepared(slice).then_some(()))?.is_some())
    }

    /// Start a level that is held, at this time of the engine's clock. A time less than 2 ms ahead is refused.
    fn start_at(&self, py: Python<'_>, start_ns: i64) -> PyResult<()> {
        py.detach(|| self.0.start_at(start_ns)).map_err(raise)
    }

    /// Move the end of a level that ends by the clock; one less than 0.1 s ahead is refused.
    fn set_close_at(&self, py: Python<'_>, close_at_ns: i64) -> PyResult<()> {
        py.detach(|| self.0.set_close_at(close_at_ns)).map_err(raise)
    }

    /// JSON list of the complete seconds from number `after` on.
    fn seconds(&self, py: Python<'_>, after: i64) -> PyResult<String> {
        let after = u32::try_from(after.max(0)).unwrap_or(u32::MAX);
        json(&py.detach(|| self.0.seconds(after)))
    }

    /// Wait until every request has its record and every part is on disk; False when the time ran out.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(timeout_s.max(0.0)).unwrap_or(Duration::MAX);
        Ok(wait(py, timeout, |slice| self.0.wait(slice).then_some(()))?.is_some())
    }

    /// JSON of the `LevelOutcome`; only after `wait` returned True.
    fn outcome(&self, py: Python<'_>) -> PyResult<String> {
        let outcome = py.detach(|| self.0.outcome());
        json(&outcome.ok_or_else(|| {
            UsageError::new_err(("the level is not over", "Level.outcome", "call it after wait() returned True"))
        })?)
    }

    /// The records still in memory, or None when they are on disk only.
    fn rows(&self) -> Option<RecordBatches> {
        self.0.rows().map(RecordBatches::records)
    }

    /// The calls inside the requests, or None when they are on disk only.
    fn spans(&self) -> Option<RecordBatches> {
        self.0.spans().map(RecordBatches::spans)
    }
}

/// Our own types always serialize; a failure would be a defect and is shown as one.
pub fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| pyo3::exceptions::PyRuntimeError::new_err(e.to_string()))
}
