//! The schedule of an open loop, to be looked at, counted and exported without sending anything.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::builder::{Int32Builder, Int64Builder, UInt16Builder, UInt32Builder, UInt64Builder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use gpusize_base::error::{Error, Result};
use gpusize_engine::spec::{LevelPlan, LoadSpec, Open};
use gpusize_load::schedule::{Planned, Schedule, Sessions, Thinks};
use gpusize_load::stop::Rules;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::{bad_json, raise};

const BATCH_ROWS: usize = 1 << 16;

/// One arrival: index, stream, sequence number, due time, row, address, priority.
type Row = (u64, u16, u64, i64, u32, Option<u16>, i32);

/// The arrivals of a schedule as Arrow batches, made as they are read; each reading begins anew.
#[pyclass(frozen, module = "gpusize._core")]
pub struct ScheduleBatches {
    schedule: Schedule,
    rules: Rules,
}

#[pymethods]
impl ScheduleBatches {
    /// The arrivals one after another, for whoever sends them from Python.
    fn __iter__(&self) -> ScheduleItems {
        ScheduleItems { schedule: Mutex::new(self.schedule.clone()), rules: self.rules.clone() }
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol lets a producer ignore the schema that a consumer would like.
        drop(requested_schema);
        let reader =
            Reader { schema: schema(), schedule: self.schedule.clone(), rules: self.rules.clone(), over: false };
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }
}

/// A walk over the arrivals of a schedule.
#[pyclass(frozen, module = "gpusize._core")]
pub struct ScheduleItems {
    schedule: Mutex<Schedule>,
    rules: Rules,
}

#[pymethods]
impl ScheduleItems {
    fn __iter__(own: PyRef<'_, Self>) -> PyRef<'_, Self> {
        own
    }

    fn __next__(&self) -> Option<Row> {
        let item = self.schedule.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        let due = self.rules.allows(item.index, item.offset_ns).is_ok();
        due.then_some((item.index, item.stream, item.seq, item.offset_ns, item.row, item.target, item.priority))
    }
}

struct Reader {
    schema: SchemaRef,
    schedule: Schedule,
    rules: Rules,
    over: bool,
}

fn schema() -> SchemaRef {
    let fields = [
        ("index", DataType::UInt64),
        ("stream", DataType::UInt16),
        ("seq", DataType::UInt64),
        ("due_ns", DataType::Int64),
        ("row", DataType::UInt32),
        ("target", DataType::UInt16),
        ("priority", DataType::Int32),
    ];
    Arc::new(Schema::new(fields.map(|(name, kind)| Field::new(name, kind, name == "target")).to_vec()))
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Iterator for Reader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut index = UInt64Builder::with_capacity(BATCH_ROWS);
        let mut stream = UInt16Builder::with_capacity(BATCH_ROWS);
        let mut seq = UInt64Builder::with_capacity(BATCH_ROWS);
        let mut due_ns = Int64Builder::with_capacity(BATCH_ROWS);
        let mut row = UInt32Builder::with_capacity(BATCH_ROWS);
        let mut target = UInt16Builder::with_capacity(BATCH_ROWS);
        let mut priority = Int32Builder::with_capacity(BATCH_ROWS);
        let mut rows = 0;
        while rows < BATCH_ROWS && !self.over {
            match self.schedule.next() {
                Some(item) if self.rules.allows(item.index, item.offset_ns).is_ok() => {
                    index.append_value(item.index);
                    stream.append_value(item.stream);
                    seq.append_value(item.seq);
                    due_ns.append_value(item.offset_ns);
                    row.append_value(item.row);
                    target.append_option(item.target);
                    priority.append_value(item.priority);
                    rows += 1;
                }
                _ => self.over = true,
            }
        }
        (rows > 0).then(|| {
            let columns: Vec<arrow_array::ArrayRef> = vec![
                Arc::new(index.finish()),
                Arc::new(stream.finish()),
                Arc::new(seq.finish()),
                Arc::new(due_ns.finish()),
                Arc::new(row.finish()),
                Arc::new(target.finish()),
                Arc::new(priority.finish()),
            ];
            RecordBatch::try_new(self.schema.clone(), columns)
        })
    }
}

/// Lists that are handed over beside a plan, as little-endian bytes.
#[derive(Clone, Copy)]
pub struct Beside<'a> {
    pub due: Option<&'a [u8]>,
    pub rows: Option<&'a [u8]>,
    pub targets: Option<&'a [u8]>,
    pub streams: Option<&'a [u8]>,
}

impl Beside<'_> {
    /// Checked for their form, not yet against a load.
    pub fn read(self) -> Result<Option<Planned>> {
        Planned::from_bytes(self.due, self.rows, self.targets, self.streams)
    }
}

/// A plan of an open loop and what it needs to become a schedule.
struct Asked {
    plan: LevelPlan,
    planned: Option<Arc<Planned>>,
    sessions: Arc<Sessions>,
}

impl Asked {
    fn read(
        plan: &str,
        dataset_rows: usize,
        beside: Beside<'_>,
        limit: Option<u64>,
        sessions: Option<&[u64]>,
        turns: Option<&[u16]>,
    ) -> PyResult<Self> {
        let mut plan: LevelPlan = serde_json::from_str(plan).map_err(|e| bad_json("plan", &e))?;
        plan.check().map_err(raise)?;
        if let Some(limit) = limit {
            plan.stop.count = Some(plan.stop.count.map_or(limit, |count| count.min(limit)));
        }
        let planned = beside.read().map_err(raise)?.map(Arc::new);
        let sessions = Sessions::new(dataset_rows, sessions, turns);
        let asked = Self { plan, planned, sessions: Arc::new(sessions.map_err(raise)?) };
        if let Some(planned) = &asked.planned {
            planned.check(asked.open().map_err(raise)?, dataset_rows, None).map_err(raise)?;
        }
        Ok(asked)
    }

    fn open(&self) -> Result<&Open> {
        match &self.plan.load {
            LoadSpec::Open(open) => Ok(open),
            LoadSpec::Closed(_) => {
                let todo = "ask for an open loop: a rate, stages of rates, streams or a trace";
                Err(Error::usage("a closed loop has no schedule: its requests are due when answers come", "load", todo))
            }
        }
    }

    fn schedule(&self) -> Result<Schedule> {
        let plan = &self.plan;
        Schedule::by_unit(self.open()?, plan.seed, plan.order, &self.sessions, self.planned.clone())
    }
}

/// Every arrival of a plan of an open loop, until its count or duration, `limit`, or the end of its streams.
#[pyfunction]
#[pyo3(signature = (
    plan, dataset_rows, *, limit=None, due=None, rows=None, targets=None, streams=None, sessions=None, turns=None,
    worker=0, workers=1
))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "keywords in Python, converted by PyO3")]
pub fn schedule(
    plan: &str,
    dataset_rows: usize,
    limit: Option<u64>,
    due: Option<&[u8]>,
    rows: Option<&[u8]>,
    targets: Option<&[u8]>,
    streams: Option<&[u8]>,
    sessions: Option<Vec<u64>>,
    turns: Option<Vec<u16>>,
    worker: usize,
    workers: usize,
) -> PyResult<ScheduleBatches> {
    if worker >= workers {
        let what = format!("there is no worker {worker} among {workers}");
        return Err(raise(Error::usage(what, "worker", "count them from 0")));
    }
    let beside = Beside { due, rows, targets, streams };
    let asked = Asked::read(plan, dataset_rows, beside, limit, sessions.as_deref(), turns.as_deref())?;
    let rules = Rules::new(&asked.plan.stop);
    let schedule = asked.schedule().map_err(raise)?.of_worker(worker, workers);
    Ok(ScheduleBatches { schedule, rules })
}

/// How many arrivals `schedule` has; without a walk where gaps are even.
#[pyfunction]
#[pyo3(signature = (plan, dataset_rows, *, limit=None, due=None, rows=None, targets=None, streams=None, sessions=None, turns=None))]
#[expect(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "keywords in Python, converted by PyO3")]
pub fn schedule_count(
    py: Python<'_>,
    plan: &str,
    dataset_rows: usize,
    limit: Option<u64>,
    due: Option<&[u8]>,
    rows: Option<&[u8]>,
    targets: Option<&[u8]>,
    streams: Option<&[u8]>,
    sessions: Option<Vec<u64>>,
    turns: Option<Vec<u16>>,
) -> PyResult<u64> {
    let beside = Beside { due, rows, targets, streams };
    let asked = Asked::read(plan, dataset_rows, beside, limit, sessions.as_deref(), turns.as_deref())?;
    asked.schedule().map_err(raise)?;
    let open = asked.open().map_err(raise)?;
    py.detach(|| Schedule::count(open, asked.plan.seed, asked.planned.as_deref(), &asked.plan.stop)).map_err(raise)
}

/// Pauses before the requests `first` to `first + count - 1` of a stream, in nanoseconds.
#[pyfunction]
#[pyo3(signature = (plan, stream, first, count))]
pub fn think_ns(plan: &str, stream: u16, first: u64, count: usize) -> PyResult<Vec<i64>> {
    let plan: LevelPlan = serde_json::from_str(plan).map_err(|e| bad_json("plan", &e))?;
    plan.check().map_err(raise)?;
    let think = match &plan.load {
        LoadSpec::Closed(closed) => closed.think,
        LoadSpec::Open(open) => open.think,
    };
    let thinks = Thinks::new(think, plan.seed, u64::from(stream));
    Ok((first..).take(count).map(|seq| thinks.before_ns(seq, None)).collect())
}
