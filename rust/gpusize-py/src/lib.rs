//! The extension module `gpusize._core`: convert, release the GIL, call the core, wrap.

use pyo3::prelude::*;

mod autoscale;
mod batches;
mod call;
mod errors;
mod kserve;
mod kube;
mod level;
mod null_server;
mod sample;
mod schedule;
mod session;
mod simulate;
mod wait;

/// The compiled half of gpusize.
#[pymodule]
mod _core {
    use super::{PyResult, Python, batches, clock, pyfunction};

    #[pymodule_export]
    use super::autoscale::{hpa_decisions, keda_course, keda_formula};
    #[pymodule_export]
    use super::batches::RecordBatches;
    #[pymodule_export]
    use super::call::grpc_call;
    #[pymodule_export]
    use super::kserve::{kserve_decode, kserve_encode, kserve_raw_outputs};
    #[pymodule_export]
    use super::kube::{ChunkedBody, ObjectList, WatchBook, kube_time};
    #[pymodule_export]
    use super::level::Level;
    #[pymodule_export]
    use super::null_server::NullServer;
    #[pymodule_export]
    use super::sample::{ResourceSampler, cgroup_mounts, cgroup_of};
    #[pymodule_export]
    use super::schedule::{ScheduleBatches, ScheduleItems, schedule, schedule_count, think_ns};
    #[pymodule_export]
    use super::session::Session;
    #[pymodule_export]
    use super::simulate::{SimServer, closed_form_runtime_s, simulate, simulate_flow};

    /// The cargo profile that built this extension.
    #[pymodule_export]
    const BUILD_PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

    /// The engine's clock, in nanoseconds.
    #[pyfunction]
    fn monotonic_ns() -> i64 {
        clock::now_ns()
    }

    /// One reading of both clocks: monotonic ns, wall ns since 1970, uncertainty ns.
    #[pyfunction]
    fn clock_pair() -> (i64, i64, i64) {
        let pair = clock::pair();
        (pair.mono_ns, pair.wall_ns, pair.uncertainty_ns)
    }

    /// Records of a made-up level, for benchmarks of the hand-over.
    #[pyfunction]
    fn synthetic_rows(py: Python<'_>, rows: u64) -> PyResult<batches::RecordBatches> {
        let made = py.detach(|| batches::RecordBatches::synthetic(rows));
        made.map_err(|e| pyo3::exceptions::PyRuntimeError::new_err(e.to_string()))
    }
}

use gpusize_base::clock;
