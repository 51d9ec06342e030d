//! Records as Arrow batches, handed to Polars through the `PyCapsule` interface without a copy.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, SchemaRef};
use gpusize_engine::record::columns::{Chunk, Common, Due, Row};
use gpusize_engine::record::schema::schema;
use gpusize_engine::record::spans;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Arrow batches of one schema.
#[pyclass(frozen, module = "gpusize._core")]
pub struct RecordBatches {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl RecordBatches {
    /// Records of a level.
    pub fn records(batches: Vec<RecordBatch>) -> Self {
        let schema = batches.first().map_or_else(schema, RecordBatch::schema);
        Self { schema, batches }
    }

    /// Calls inside the requests of a level.
    pub fn spans(batches: Vec<RecordBatch>) -> Self {
        Self { schema: spans::schema(), batches }
    }

    /// Any one batch.
    pub fn one(batch: RecordBatch) -> Self {
        Self { schema: batch.schema(), batches: vec![batch] }
    }

    /// Made-up records in chunks of the engine's size.
    pub fn synthetic(rows: u64) -> Result<Self, ArrowError> {
        const CHUNK: u64 = Chunk::LARGEST_ROWS as u64;
        let chunk = |from: u64| {
            let n = CHUNK.min(rows - from);
            let mut chunk = Chunk::new(Common::default(), n as usize);
            for seq in from..from + n {
                let due_ns = seq as i64 * 1_000;
                let mut row = Row::due(Due { seq, row: 0, due_ns, fired_ns: due_ns, stream: 0 });
                row.sent_ns = due_ns + 10;
                row.first_byte_ns = row.sent_ns + 1_000_000 + (seq.wrapping_mul(0x9E37_79B9) % 1_000_000) as i64;
                row.end_ns = row.first_byte_ns;
                row.outcome = gpusize_engine::outcome::Outcome::Ok;
                row.status = 200;
                chunk.push(&row);
            }
            chunk.into_batch()
        };
        Ok(Self::records((0..rows).step_by(CHUNK as usize).map(chunk).collect::<Result<_, _>>()?))
    }
}

#[pymethods]
impl RecordBatches {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol lets a producer ignore the schema that a consumer would like.
        drop(requested_schema);
        let reader = RecordBatchIterator::new(self.batches.clone().into_iter().map(Ok), self.schema.clone());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }
}
