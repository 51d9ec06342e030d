//! `gpusize._core.grpc_call`.

use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpusize_engine::engine;
use gpusize_engine::spec::TargetSpec;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{EnvironmentLacks, UsageError, bad_json, raise};
use crate::wait::wait;

/// Call a unary gRPC method: status code, its text, and the reply's message. Ctrl-C is heard while it waits.
#[pyfunction]
#[pyo3(signature = (target, method, request, timeout_ns))]
pub fn grpc_call(
    py: Python<'_>,
    target: &str,
    method: String,
    request: Vec<u8>,
    timeout_ns: u64,
) -> PyResult<(u32, String, Py<PyBytes>)> {
    let target: TargetSpec = serde_json::from_str(target).map_err(|e| bad_json("target", &e))?;
    let timeout = Duration::from_nanos(timeout_ns);
    let (sender, receiver) = channel();
    let work = move || {
        // Nobody listens any more after Ctrl-C.
        let _ = sender.send(engine::grpc_call(&target, &method, &request, timeout));
    };
    std::thread::Builder::new().name("gpusize-call".into()).spawn(work).map_err(|e| {
        EnvironmentLacks::new_err((e.to_string(), "threads".to_owned(), "free some threads".to_owned()))
    })?;
    let receiver = Mutex::new(receiver);
    let next = |slice| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(slice).ok();
    // The call has its own time; name resolution has none, and ends by itself.
    match wait(py, Duration::MAX, next)? {
        Some(reply) => {
            let reply = reply.map_err(raise)?;
            Ok((reply.code, reply.message, PyBytes::new(py, &reply.body).unbind()))
        }
        None => Err(UsageError::new_err(("the call gave nothing", "grpc_call", "report this as a defect"))),
    }
}
