//! The server that answers at once, for measuring the machine itself.

use std::net::{IpAddr, SocketAddr};

use gpusize_engine::null_server as core;
use pyo3::prelude::*;

use crate::errors::{EnvironmentLacks, UsageError};

/// Answers every HTTP/1.1 request with the same few bytes, on threads of its own.
#[pyclass(frozen, module = "gpusize._core")]
pub struct NullServer(core::NullServer);

#[pymethods]
impl NullServer {
    #[new]
    #[pyo3(signature = (host, port, *, threads = 1))]
    fn new(py: Python<'_>, host: &str, port: u16, threads: usize) -> PyResult<Self> {
        let address: IpAddr = host
            .parse()
            .map_err(|_| UsageError::new_err(("not an IP address", host.to_owned(), "listen on 127.0.0.1 or ::1")))?;
        let start = || core::NullServer::start(SocketAddr::new(address, port), threads);
        py.detach(start).map(Self).map_err(|error| {
            let what = format!("cannot listen: {error}");
            EnvironmentLacks::new_err((what, format!("{host}:{port}"), "choose another port, or 0".to_owned()))
        })
    }

    /// The port that it listens on.
    #[getter]
    fn port(&self) -> u16 {
        self.0.local_addr().port()
    }

    /// Requests answered so far.
    #[getter]
    fn requests(&self) -> u64 {
        self.0.requests()
    }

    /// Close every connection and end the threads; safe to call twice.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }
}
