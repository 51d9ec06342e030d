//! Core errors as the Python classes of `gpusize.base.errors`.

use pyo3::PyErr;
use pyo3::import_exception;

import_exception!(gpusize.base.errors, UsageError);
import_exception!(gpusize.base.errors, TargetError);
import_exception!(gpusize.base.errors, EnvironmentLacks);

/// Raise the class that says it best, with what, where and what to do.
pub fn raise(error: gpusize_base::error::Error) -> PyErr {
    use gpusize_base::error::Error;
    match error {
        Error::Usage { what, place, todo } => UsageError::new_err((what, place, todo)),
        Error::Target { what, place, todo } => TargetError::new_err((what, place, todo)),
        Error::Environment { what, place, todo } => EnvironmentLacks::new_err((what, place, todo)),
        other => UsageError::new_err((other.to_string(),)),
    }
}

/// JSON from Python that does not fit its type.
pub fn bad_json(place: &str, error: &serde_json::Error) -> PyErr {
    UsageError::new_err((format!("does not fit: {error}"), place.to_owned(), "see docs/reference/engine.md".to_owned()))
}
