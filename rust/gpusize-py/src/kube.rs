//! What the objects of a Kubernetes cluster say of their moments.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpusize_kube::book::{Book, Met, News};
use gpusize_kube::chunks::Chunks;
use gpusize_kube::lines::{At, Ended, Told, take_lines};
use gpusize_kube::listing::{Differences, Listing};
use gpusize_kube::there::There;
use gpusize_kube::times;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::batches::RecordBatches;

/// What objects have said, and the rows and news that nobody has taken yet.
///
/// Its calls take some microseconds, and keep the interpreter meanwhile: to get it back would take longer.
#[pyclass(frozen, module = "gpusize._core")]
pub struct WatchBook(Mutex<Book>);

/// Kind, uid, namespace, name, labels, owner, workload, claims.
type MetObject<'py> =
    (String, String, Option<String>, String, Bound<'py, PyDict>, Option<String>, Option<String>, Vec<String>);
/// An error's code, reason and message, or what is wrong with a line.
#[derive(IntoPyObject)]
enum End {
    Error((i64, String, String)),
    NoObject(String),
}

impl WatchBook {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl WatchBook {
    #[new]
    #[pyo3(signature = (*, news = false))]
    fn new(news: bool) -> Self {
        Self(Mutex::new(Book::new(news)))
    }

    #[pyo3(signature = (kind, lines, received_ns, *, initial = false, late = false))]
    fn lines(
        &self,
        kind: &str,
        lines: &[u8],
        received_ns: i64,
        initial: bool,
        late: bool,
    ) -> (u64, Option<String>, bool, Option<End>) {
        let at = At { received_ns, initial, late };
        let Told { count, version, initial, ended } = take_lines(&mut self.book(), kind, lines, at);
        let end = |ended| match ended {
            Ended::Error { code, reason, message } => End::Error((code, reason, message)),
            Ended::NoObject(problem) => End::NoObject(problem),
        };
        (count, version, initial, ended.map(end))
    }

    fn objects(&self, kind: &str) -> usize {
        self.book().there(kind).map_or(0, There::count)
    }

    fn differs(&self, listing: &ObjectList) -> bool {
        self.book().differs(&listing.listing())
    }

    fn compare(&self, listing: &ObjectList, at_ns: i64) -> PyResult<(Vec<String>, usize, Vec<String>)> {
        let Differences { appeared, changed, vanished } =
            self.book().compare(&listing.listing(), at_ns).map_err(no_object)?;
        Ok((appeared, changed, vanished))
    }

    #[allow(clippy::needless_pass_by_value)] // as Python hands them over
    fn remember(&self, rows: Vec<(String, String, Option<String>, String, i64)>) {
        let mut book = self.book();
        for (uid, moment, part, source, at_ns) in &rows {
            book.remember(uid, moment, part.as_deref(), source, *at_ns);
        }
    }

    fn met<'py>(&self, py: Python<'py>) -> PyResult<Vec<MetObject<'py>>> {
        let met = self.book().take_met();
        met.into_iter()
            .map(|Met { kind, uid, namespace, name, labels, owner, workload, claims }| {
                let known = PyDict::new(py);
                for (name, value) in labels {
                    known.set_item(name, value)?;
                }
                Ok((kind, uid, namespace, name, known, owner, workload, claims))
            })
            .collect()
    }

    fn news(&self) -> Vec<(String, String, String, String)> {
        let news = self.book().take_news();
        news.into_iter().map(|News { kind, uid, name, moment }| (kind, uid, name, moment)).collect()
    }

    fn forget_events(&self, before_ns: i64) {
        self.book().forget_events(before_ns);
    }

    fn rows(&self) -> PyResult<RecordBatches> {
        let rows = self.book().take_rows();
        rows.map(RecordBatches::one).map_err(|problem| PyRuntimeError::new_err(problem.to_string()))
    }

    fn __len__(&self) -> usize {
        self.book().rows()
    }
}

/// A list of a kind's objects, page by page.
#[pyclass(frozen, module = "gpusize._core")]
pub struct ObjectList(Mutex<Listing>);

impl ObjectList {
    fn listing(&self) -> MutexGuard<'_, Listing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl ObjectList {
    #[new]
    fn new(kind: &str) -> Self {
        Self(Mutex::new(Listing::new(kind)))
    }

    fn add_page(&self, py: Python<'_>, body: &[u8]) -> PyResult<Option<String>> {
        py.detach(|| self.listing().add_page(body)).map_err(no_object)
    }

    #[getter]
    fn version(&self) -> String {
        self.listing().version().to_owned()
    }

    fn __len__(&self) -> usize {
        self.listing().len()
    }
}

#[allow(clippy::needless_pass_by_value)] // as map_err hands it over
fn no_object(problem: serde_json::Error) -> PyErr {
    PyValueError::new_err(problem.to_string())
}

/// The chunks of an HTTP body.
#[pyclass(frozen, module = "gpusize._core")]
#[derive(Default)]
pub struct ChunkedBody(Mutex<Chunks>);

#[pymethods]
impl ChunkedBody {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn feed<'py>(&self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let parts = self.chunks().feed(data).map_err(|problem| PyValueError::new_err(problem.to_string()))?;
        PyBytes::new_with(py, parts.iter().map(|part| part.len()).sum(), |mut body| {
            for part in parts {
                let (here, rest) = body.split_at_mut(part.len());
                here.copy_from_slice(part);
                body = rest;
            }
            Ok(())
        })
    }

    #[getter]
    fn ended(&self) -> bool {
        self.chunks().ended()
    }
}

impl ChunkedBody {
    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A time as an API server writes it, and its resolution, in ns; None for what is no time.
#[pyfunction]
pub fn kube_time(text: &str) -> Option<(i64, i64)> {
    times::parse_time(text)
}
