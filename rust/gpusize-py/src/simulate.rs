//! The simulated cluster: as a server, and in virtual time.

use std::net::{IpAddr, SocketAddr};

use arrow_schema::ArrowError;
use gpusize_simulator::{
    self as core, AutoscalerConfig, Beside, ClusterConfig, FlowBeside, FlowConfig, Judge, Load, Mix, Plan, SimError,
    Tasks,
};
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

/// Run the cluster in virtual time; the rows, and a JSON summary. Lengths and costs come beside the load, as little-endian arrays: one
/// entry for each due time of a plan, or, without due times or with `resample`, a table to draw from.
#[pyfunction]
#[pyo3(signature = (config, load, *, due = None, prompt_tokens = None, output_tokens = None, cached_tokens = None, cost_factors = None, resample = false, judge = None, autoscaler = None, rows = true))]
#[allow(clippy::too_many_arguments)] // by name in Python
pub fn simulate(
    py: Python<'_>,
    config: &str,
    load: &str,
    due: Option<&[u8]>,
    prompt_tokens: Option<&[u8]>,
    output_tokens: Option<&[u8]>,
    cached_tokens: Option<&[u8]>,
    cost_factors: Option<&[u8]>,
    resample: bool,
    judge: Option<&str>,
    autoscaler: Option<&str>,
    rows: bool,
) -> PyResult<(RecordBatches, String)> {
    let config = ClusterConfig::from_json(config).map_err(raise)?;
    let load = Load::from_json(load).map_err(raise)?;
    let judge = judge.map(Judge::from_json).transpose().map_err(raise)?;
    let autoscaler = autoscaler.map(AutoscalerConfig::from_json).transpose().map_err(raise)?;
    let due_ns = due.map(|bytes| numbers("due", bytes, i64::from_le_bytes)).transpose()?;
    let counts = |name, bytes: Option<&[u8]>| bytes.map(|bytes| numbers(name, bytes, u32::from_le_bytes)).transpose();
    let (prompts, outputs) = (counts("prompt_tokens", prompt_tokens)?, counts("output_tokens", output_tokens)?);
    let cached = counts("cached_tokens", cached_tokens)?;
    let factors = cost_factors.map(|bytes| numbers("cost_factors", bytes, f64::from_le_bytes)).transpose()?;
    if factors.is_some() && due_ns.is_some() && !resample {
        let fix = "draw them together with the lengths (resample=True), or leave them out";
        return Err(UsageError::new_err(("cost factors do not go with due times", "cost_factors", fix)));
    }
    if cached.is_some() && due_ns.is_some() && !resample {
        let fix = "draw them together with the lengths (resample=True), or leave them out";
        return Err(UsageError::new_err(("cached tokens do not go with due times", "cached_tokens", fix)));
    }
    let mix = Mix {
        prompt_tokens: prompts.as_deref(),
        cached_tokens: cached.as_deref(),
        output_tokens: outputs.as_deref(),
        cost_factors: factors.as_deref(),
    };
    let drawn = resample || due_ns.is_none();
    let own = if drawn { Mix::default() } else { mix };
    let plan = due_ns.as_deref().map(|due_ns| {
        let Mix { prompt_tokens, output_tokens, .. } = own;
        Plan { due_ns, prompt_tokens, output_tokens }
    });
    let mix = (drawn && mix != Mix::default()).then_some(mix);
    let (judge, autoscaler) = (judge.as_ref(), autoscaler.as_ref());
    let beside = Beside { plan, mix, judge, autoscaler, summary_only: !rows };
    let result = py.detach(|| core::run_beside(&config, &load, beside)).map_err(raise)?;
    let batch = py.detach(|| result.columns.to_record_batch()).map_err(no_batch)?;
    Ok((RecordBatches::one(batch), json(&result.summary)?))
}

/// Run flow-equivalent servers in virtual time; the rows, and a JSON summary. Sizes are little-endian f64, due times i64.
/// Tasks are three arrays: the requests of each as u32, the time before each request and after each task as i64, ns.
#[pyfunction]
#[pyo3(signature = (config, load, sizes, *, tasks = None, due = None, judge = None, autoscaler = None, rows = true))]
#[allow(clippy::too_many_arguments)] // by name in Python
pub fn simulate_flow(
    py: Python<'_>,
    config: &str,
    load: &str,
    sizes: &[u8],
    tasks: Option<(&[u8], &[u8], &[u8])>,
    due: Option<&[u8]>,
    judge: Option<&str>,
    autoscaler: Option<&str>,
    rows: bool,
) -> PyResult<(RecordBatches, String)> {
    let config = FlowConfig::from_json(config).map_err(raise)?;
    let load = Load::from_json(load).map_err(raise)?;
    let judge = judge.map(Judge::from_json).transpose().map_err(raise)?;
    let autoscaler = autoscaler.map(AutoscalerConfig::from_json).transpose().map_err(raise)?;
    let sizes = numbers("sizes", sizes, f64::from_le_bytes)?;
    let due_ns = due.map(|bytes| numbers("due", bytes, i64::from_le_bytes)).transpose()?;
    let (judge, autoscaler) = (judge.as_ref(), autoscaler.as_ref());
    let tasks = tasks.map(|(requests, before, after)| {
        let requests = numbers("tasks", requests, u32::from_le_bytes)?;
        let before_ns = numbers("tasks", before, i64::from_le_bytes)?;
        PyResult::Ok((requests, before_ns, numbers("tasks", after, i64::from_le_bytes)?))
    });
    let tasks = tasks.transpose()?;
    let tasks = tasks.as_ref().map(|(requests, before_ns, after_ns)| Tasks { requests, before_ns, after_ns });
    let due_ns = due_ns.as_deref();
    let beside = FlowBeside { sizes: &sizes, tasks, due_ns, judge, autoscaler, summary_only: !rows };
    let result = py.detach(|| core::run_flow(&config, &load, beside)).map_err(raise)?;
    let batch = py.detach(|| result.columns.into_record_batch()).map_err(no_batch)?;
    Ok((RecordBatches::one(batch), json(&result.summary)?))
}

#[allow(clippy::needless_pass_by_value)] // as map_err hands it over
fn no_batch(error: ArrowError) -> PyErr {
    EnvironmentLacks::new_err((error.to_string(),))
}

/// The numbers of a little-endian array of `N` bytes each.
fn numbers<T, const N: usize>(name: &str, bytes: &[u8], read: impl Fn([u8; N]) -> T) -> PyResult<Vec<T>> {
    let (whole, rest) = bytes.as_chunks::<N>();
    if rest.is_empty() {
        return Ok(whole.iter().copied().map(read).collect());
    }
    let what = format!("{} bytes are not an array of numbers with {N} bytes each", bytes.len());
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
