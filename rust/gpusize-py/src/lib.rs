//! The extension module `gpusize._core`.
use pyo3::prelude::*;

/// The compiled half of gpusize.
#[pymodule]
mod _core {
    /// The cargo profile that built this extension.
    #[pymodule_export]
    const BUILD_PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };
}
