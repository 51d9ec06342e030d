//! Messages of the KServe v2 protocol over gRPC: JSON to bytes and back.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::raise;

/// The bytes of a request to `method`; `raw` are its raw tensors.
#[pyfunction]
pub fn kserve_encode<'py>(
    py: Python<'py>,
    method: &str,
    request_json: &str,
    raw: Vec<Vec<u8>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let encode = || gpusize_kserve::encode(method, request_json, raw.into_iter().map(Into::into).collect());
    let message = py.detach(encode).map_err(raise)?;
    Ok(PyBytes::new(py, &message))
}

/// The JSON of a response from `method`.
#[pyfunction]
pub fn kserve_decode(py: Python<'_>, method: &str, response: &[u8]) -> PyResult<String> {
    py.detach(|| gpusize_kserve::decode(method, response)).map_err(raise)
}

/// The raw tensors of a `ModelInferResponse`.
#[pyfunction]
pub fn kserve_raw_outputs<'py>(py: Python<'py>, response: &[u8]) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let tensors = py.detach(|| gpusize_kserve::raw_outputs(response)).map_err(raise)?;
    Ok(tensors.iter().map(|tensor| PyBytes::new(py, tensor)).collect())
}
