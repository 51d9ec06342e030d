//! Waiting in Rust without making Ctrl-C dead.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long signals may wait.
const SLICE: Duration = Duration::from_millis(100);

/// Call `step` with short timeouts, GIL released, until it gives something or the time is over.
pub fn wait<T: Send>(
    py: Python<'_>,
    timeout: Duration,
    step: impl Fn(Duration) -> Option<T> + Sync,
) -> PyResult<Option<T>> {
    let start = Instant::now();
    loop {
        let slice = SLICE.min(timeout.saturating_sub(start.elapsed()));
        if let Some(value) = py.detach(|| step(slice)) {
            return Ok(Some(value));
        }
        py.check_signals()?;
        if start.elapsed() >= timeout {
            return Ok(None);
        }
    }
}
