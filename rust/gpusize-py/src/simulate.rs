//! The simulated cluster: as a server, and in virtual time.

use std::net::{IpAddr, SocketAddr};

use gpusize_core::simulate::{self as core, ClusterConfig, Load, Plan, SimError};
use pyo3::prelude::*;

use crate::batches::RecordBatches;
use crate::errors::{EnvironmentLacks, UsageError};
use crate::level::json;

#[allow(clippy::needless_pass_by_value)] // as map_err hands it over
fn raise(error: SimError) -> PyErr {
    let what = error.to_string();
    match error {
        SimError::Json { .. } | SimError::Value { .. } => {
            UsageError::new_err((what, None::<String>, "see docs/reference/simulate.md".to_owned()))
        }
        SimError::Bind { .. } => {
            EnvironmentLacks::new_err((what, None::<String>, "choose another --port, or 0 for any free one".to_owned()))
        }
        _ => EnvironmentLacks::new_err((what,)),
    }
}

/// The simulated cluster as an HTTP server on its own thread.
#[pyclass(frozen, module = "gpusize._core")]
pub struct SimServer(core::SimServer);

#[pymethods]
impl SimServer {
    #[new]
    #[pyo3(signature = (config, host, port, *, grpc_port = 0))]
    fn new(py: Python<'_>, config: &str, host: &str, port: u16, grpc_port: u16) -> PyResult<Self> {
        let config = ClusterConfig::from_json(config).map_err(raise)?;
        let address: IpAddr = host
            .parse()
            .map_err(|_| UsageError::new_err(("not an IP address", host.to_owned(), "listen on 127.0.0.1 or ::1")))?;
        let start = || core::SimServer::start_with_grpc(config, SocketAddr::new(address, port), grpc_port);
        Ok(Self(py.detach(start).map_err(raise)?))
    }

    /// The port that it listens on.
    #[getter]
    fn port(&self) -> u16 {
        self.0.local_addr().port()
    }

    /// The port that it listens on for gRPC.
    #[getter]
    fn grpc_port(&self) -> u16 {
        self.0.grpc_addr().port()
    }

    /// Statistics as JSON: those of now, or the last ones of a stopped server.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.stats_json()).map_err(raise)
    }

    /// Close every connection and end the thread.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.stop()).map_err(raise).map(drop)
    }
}

/// Run the cluster in virtual time; the rows, and a JSON summary. For arrivals of a plan, due times and token counts come beside the
/// load, as little-endian arrays.
#[pyfunction]
#[pyo3(signature = (config, load, *, due = None, prompt_tokens = None, output_tokens = None))]
pub fn simulate(
    py: Python<'_>,
    config: &str,
    load: &str,
    due: Option<&[u8]>,
    prompt_tokens: Option<&[u8]>,
    output_tokens: Option<&[u8]>,
) -> PyResult<(RecordBatches, String)> {
    let config = ClusterConfig::from_json(config).map_err(raise)?;
    let load = Load::from_json(load).map_err(raise)?;
    let due_ns = due.map(|bytes| numbers("due", bytes, i64::from_le_bytes)).transpose()?;
    let counts = |name, bytes: Option<&[u8]>| bytes.map(|bytes| numbers(name, bytes, u32::from_le_bytes)).transpose();
    let (prompts, outputs) = (counts("prompt_tokens", prompt_tokens)?, counts("output_tokens", output_tokens)?);
    let run = || match &due_ns {
        None if prompts.is_none() && outputs.is_none() => core::run_virtual(&config, &load),
        due_ns => {
            let due_ns = due_ns.as_deref().unwrap_or_default();
            let (prompt_tokens, output_tokens) = (prompts.as_deref(), outputs.as_deref());
            core::run_plan(&config, &load, Plan { due_ns, prompt_tokens, output_tokens })
        }
    };
    let result = py.detach(run).map_err(raise)?;
    let batch = result.columns.to_record_batch().map_err(|e| EnvironmentLacks::new_err((e.to_string(),)))?;
    Ok((RecordBatches::one(batch), json(&result.summary)?))
}

/// The numbers of a little-endian array of `N` bytes each.
fn numbers<T, const N: usize>(name: &str, bytes: &[u8], read: impl Fn([u8; N]) -> T) -> PyResult<Vec<T>> {
    let (whole, rest) = bytes.as_chunks::<N>();
    if rest.is_empty() {
        return Ok(whole.iter().copied().map(read).collect());
    }
    let what = format!("{} bytes are no array of numbers with {N} bytes each", bytes.len());
    Err(UsageError::new_err((what, name.to_owned(), "hand over a little-endian array".to_owned())))
}

/// Runtime in seconds of every request of a closed loop on one GPU, where the model has a formula.
#[pyfunction]
pub fn closed_form_runtime_s(
    config: &str,
    concurrency: u32,
    prompt_tokens: u32,
    output_tokens: u32,
) -> PyResult<Option<f64>> {
    let config = ClusterConfig::from_json(config).map_err(raise)?;
    Ok(core::closed_form_runtime_s(&config, concurrency, prompt_tokens, output_tokens))
}
