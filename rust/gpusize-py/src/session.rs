//! `gpusize._core.Session`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpusize_base::error::Error;
use gpusize_engine::engine;
use gpusize_engine::spec::{Mix, Segment, TargetSpec};
use gpusize_load::schedule::Planned;
use pyo3::prelude::*;

use crate::errors::{UsageError, bad_json, raise};
use crate::level::{Level, json};
use crate::wait::wait;

/// Workers and connections to one target; they live across levels.
#[pyclass(frozen, module = "gpusize._core")]
pub struct Session {
    inner: Mutex<Option<engine::Session>>,
    /// Threads do not survive a fork: a child that uses the session would wait for ever.
    pid: u32,
}

impl Session {
    /// Use the session, while other threads of Python run.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&engine::Session) -> gpusize_base::error::Result<T> + Send,
    ) -> PyResult<T> {
        if self.pid != std::process::id() {
            let todo = "open a session in the child, or start processes with 'spawn'";
            return Err(UsageError::new_err(("the session belongs to the process before the fork", "Session", todo)));
        }
        let result = py.detach(|| {
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let closed = || Error::usage("the session is closed", "Session", "open a new one");
            call(inner.as_ref().ok_or_else(closed)?)
        });
        result.map_err(raise)
    }
}

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (target, segments, rows, *, workers=1, mix=None))]
    fn new(
        py: Python<'_>,
        target: &str,
        segments: &str,
        rows: Vec<Vec<Vec<u8>>>,
        workers: usize,
        mix: Option<&str>,
    ) -> PyResult<Self> {
        let target: TargetSpec = serde_json::from_str(target).map_err(|e| bad_json("target", &e))?;
        let segments: Vec<Segment> = serde_json::from_str(segments).map_err(|e| bad_json("segments", &e))?;
        let mix: Option<Mix> = mix.map(serde_json::from_str).transpose().map_err(|e| bad_json("mix", &e))?;
        let session = py.detach(|| engine::Session::open_mix(target, segments, rows, mix, workers)).map_err(raise)?;
        Ok(Self { inner: Mutex::new(Some(session)), pid: std::process::id() })
    }

    /// Queue one level (JSON of a `LevelPlan`); the call returns at once. Streams by plan have their due times, and if they
    /// like rows, addresses and streams, beside it: bytes of little-endian numbers.
    #[pyo3(signature = (plan, *, due=None, rows=None, targets=None, streams=None))]
    fn level(
        &self,
        py: Python<'_>,
        plan: &str,
        due: Option<&[u8]>,
        rows: Option<&[u8]>,
        targets: Option<&[u8]>,
        streams: Option<&[u8]>,
    ) -> PyResult<Level> {
        let plan = serde_json::from_str(plan).map_err(|e| bad_json("plan", &e))?;
        // A plan may be of gigabytes, and is copied and checked whole.
        let queue =
            |session: &engine::Session| session.level_by(plan, Planned::from_bytes(due, rows, targets, streams)?);
        self.with(py, queue).map(Level)
    }

    /// Send one request outside every level; JSON of what it brought.
    fn probe(&self, py: Python<'_>) -> PyResult<String> {
        let run = self.with(py, engine::Session::probe)?;
        match wait(py, Duration::MAX, |slice| run.wait(slice)) {
            Ok(Some(probe)) => json(&probe),
            Ok(None) => {
                Err(UsageError::new_err(("the probe gave nothing", "Session.probe", "report this as a defect")))
            }
            Err(interrupted) => {
                run.stop();
                Err(interrupted)
            }
        }
    }

    /// Stop what runs, record it, and end all threads. Ctrl-C ends the wait for them.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(session) = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        if self.pid != std::process::id() {
            std::mem::forget(session);
            return Ok(());
        }
        session.quit();
        match wait(py, Duration::MAX, |slice| session.wait_ended(slice).then_some(())) {
            Ok(_) => py.detach(|| drop(session)),
            Err(interrupted) => {
                session.abandon();
                return Err(interrupted);
            }
        }
        Ok(())
    }
}
