//! One Parquet file of whole numbers, column by column.
//!
//! Arrow's writer gathers the values of every column by a list of places, value by value, also where none is missing: more
//! than it costs to make a row. So columns that have all their values go to Parquet's own writers as they lie in memory; all
//! others, and lists and text, are left to Arrow's.

use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnWriter, get_column_writer};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};

/// A file with one group of rows.
pub struct PartFile {
    file: SerializedFileWriter<File>,
    schema: SchemaRef,
    columns: Vec<Column>,
}

enum Column {
    Whole(Box<Whole>),
    Arrow(Box<ArrowColumnWriter>),
}

/// A column that has had all its values so far.
struct Whole {
    writer: ColumnWriter<'static>,
    pages: Pages,
    is_optional: bool,
}

/// The pages of a column until the file is closed.
#[derive(Clone, Default)]
struct Pages(Arc<Mutex<Vec<u8>>>);

impl fmt::Debug for PartFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartFile").field("columns", &self.columns.len()).finish_non_exhaustive()
    }
}

impl PartFile {
    /// An empty file with the columns of `first`, which is the first to be written and is not written here.
    pub fn new(file: File, first: &RecordBatch, mut properties: WriterProperties) -> Result<Self> {
        let schema = first.schema();
        let converted = ArrowSchemaConverter::new().convert(&schema)?;
        add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
        let properties = Arc::new(properties);
        let file = SerializedFileWriter::new(file, converted.root_schema_ptr(), properties.clone())?;
        let by_arrow = ArrowRowGroupWriterFactory::new(&file, schema.clone()).create_column_writers(0)?;
        let leaves = file.schema_descr().columns();
        // A column of several leaves is none that is written here, and then its place says nothing about the others.
        let is_flat = leaves.len() == first.num_columns();
        let columns = by_arrow
            .into_iter()
            .enumerate()
            .map(|(at, writer)| {
                if !is_flat || !is_whole(first.column(at)) {
                    return Column::Arrow(Box::new(writer));
                }
                let (pages, leaf) = (Pages::default(), leaves[at].clone());
                let is_optional = leaf.max_def_level() > 0;
                let writer = get_column_writer(leaf, properties.clone(), Box::new(pages.clone()));
                Column::Whole(Box::new(Whole { writer, pages, is_optional }))
            })
            .collect();
        Ok(Self { file, schema, columns })
    }

    /// Append rows of the same columns.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut columns = self.columns.iter_mut();
        for (field, array) in self.schema.fields().iter().zip(batch.columns()) {
            let Some(column) = columns.next() else { break };
            match column {
                Column::Whole(whole) => whole.write(array)?,
                Column::Arrow(writer) => {
                    let mut leaves = compute_leaves(field, array)?.into_iter();
                    if let Some(leaf) = leaves.next() {
                        writer.write(&leaf)?;
                    }
                    for (leaf, column) in leaves.zip(&mut columns) {
                        if let Column::Arrow(writer) = column {
                            writer.write(&leaf)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Write what is still in memory, and the end of the file.
    pub fn close(mut self) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for column in self.columns {
            match column {
                Column::Arrow(writer) => writer.close()?.append_to_row_group(&mut group)?,
                Column::Whole(whole) => {
                    let Whole { writer, pages, .. } = *whole;
                    let closed = writer.close()?;
                    let bytes = Bytes::from(std::mem::take(&mut *pages.bytes()));
                    group.append_column(&bytes, closed)?;
                }
            }
        }
        group.close()?;
        self.file.close().map(drop)
    }
}

/// Whether a column is of whole numbers that are all there.
fn is_whole(array: &dyn Array) -> bool {
    use DataType::{Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(array.data_type(), Int64 | UInt8 | UInt16 | UInt32 | UInt64) && array.null_count() == 0
}

impl Whole {
    /// Append values, of which some may be missing now.
    fn write(&mut self, array: &dyn Array) -> Result<()> {
        let levels: Option<Vec<i16>> = self.is_optional.then(|| match array.nulls() {
            None => vec![1; array.len()],
            Some(nulls) => nulls.iter().map(i16::from).collect(),
        });
        let levels = levels.as_deref();
        match (&mut self.writer, array.data_type()) {
            (ColumnWriter::Int64ColumnWriter(writer), DataType::Int64) => {
                writer.write_batch(&present(array, array.as_primitive::<Int64Type>().values()), levels, None)
            }
            // The bits of an unsigned number, as Parquet keeps it.
            (ColumnWriter::Int64ColumnWriter(writer), DataType::UInt64) => {
                let values = array.as_primitive::<UInt64Type>().values().inner().typed_data::<i64>();
                writer.write_batch(&present(array, values), levels, None)
            }
            (ColumnWriter::Int32ColumnWriter(writer), DataType::UInt32) => {
                let values = array.as_primitive::<UInt32Type>().values().inner().typed_data::<i32>();
                writer.write_batch(&present(array, values), levels, None)
            }
            (ColumnWriter::Int32ColumnWriter(writer), DataType::UInt16) => {
                let values: Vec<i32> =
                    array.as_primitive::<UInt16Type>().values().iter().map(|v| (*v).into()).collect();
                writer.write_batch(&present(array, &values), levels, None)
            }
            (ColumnWriter::Int32ColumnWriter(writer), DataType::UInt8) => {
                let values: Vec<i32> = array.as_primitive::<UInt8Type>().values().iter().map(|v| (*v).into()).collect();
                writer.write_batch(&present(array, &values), levels, None)
            }
            (_, other) => return Err(parquet::errors::ParquetError::NYI(format!("a column of {other}"))),
        }
        .map(drop)
    }
}

/// The values that are there.
fn present<'a, T: Copy>(array: &dyn Array, values: &'a [T]) -> std::borrow::Cow<'a, [T]> {
    match array.nulls() {
        None => values.into(),
        Some(nulls) => nulls.valid_indices().map(|at| values[at]).collect::<Vec<T>>().into(),
    }
}

impl Pages {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        let mut bytes = self.bytes();
        let offset = bytes.len() as u64;
        let mut sink = TrackedWrite::new(&mut *bytes);
        let spec = SerializedPageWriter::new(&mut sink).write_page(page)?;
        sink.into_inner()?;
        Ok(PageWriteSpec { offset, ..spec })
    }

    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::test_folder::fresh;
    use arrow_array::types::ArrowPrimitiveType;
    use arrow_array::{ArrayRef, Int64Array, ListArray, PrimitiveArray, UInt8Array};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::basic::Encoding;

    fn some<T: ArrowPrimitiveType>(values: impl IntoIterator<Item = Option<T::Native>>) -> ArrayRef {
        Arc::new(values.into_iter().collect::<PrimitiveArray<T>>())
    }

    /// With holes, every third value of the optional columns is missing.
    fn batch(rows: u64, holes: bool, lists: bool) -> RecordBatch {
        let there = |i: &u64| !holes || !i.is_multiple_of(3);
        let lengths = (0..rows).map(|i| Some((0..i % 3).map(|k| Some(k as i64)).collect::<Vec<_>>()));
        let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("a", some::<UInt64Type>((0..rows).map(|i| Some(u64::MAX - i))), false),
            ("b", some::<Int64Type>((0..rows).map(|i| there(&i).then_some(-(i as i64)))), true),
            ("c", some::<UInt32Type>((0..rows).map(|i| Some(u32::MAX - i as u32))), false),
            ("d", some::<UInt16Type>((0..rows).map(|i| there(&i).then_some(u16::MAX - i as u16))), true),
            ("e", Arc::new(UInt8Array::from(vec![255; rows as usize])), false),
            ("f", Arc::new(Int64Array::new_null(rows as usize)), true),
        ];
        if lists {
            columns.push(("g", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lengths)), true));
        }
        RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
    }

    #[test]
    fn what_is_written_is_read_whatever_comes_after_the_first_rows() {
        let folder = fresh("part_file");
        std::fs::create_dir_all(&folder).expect("a folder");
        for lists in [false, true] {
            for turns in [[false, true, false], [true, false, true]] {
                let path = folder.join("part.parquet");
                let batches: Vec<_> = turns.iter().map(|holes| batch(50_000, *holes, lists)).collect();
                let properties = WriterProperties::builder()
                    .set_encoding(Encoding::DELTA_BINARY_PACKED)
                    .set_dictionary_enabled(false)
                    .build();
                let mut part =
                    PartFile::new(File::create(&path).expect("a file"), &batches[0], properties).expect("columns");
                let by_hand = part.columns.iter().filter(|column| matches!(column, Column::Whole(_))).count();
                assert_eq!(by_hand, if turns[0] { 3 } else { 5 });
                for batch in &batches {
                    part.write(batch).expect("rows");
                }
                part.close().expect("a whole file");
                let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).expect("the file"))
                    .and_then(|builder| builder.with_batch_size(50_000).build())
                    .expect("Parquet");
                let read: Vec<_> = reader.map(|batch| batch.expect("rows")).collect();
                assert_eq!(read, batches);
            }
        }
        std::fs::remove_dir_all(folder).expect("the folder goes");
    }
}
