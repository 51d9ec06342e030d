//! One Parquet file of whole numbers, column by column.
//!
//! Arrow's writer gathers the values of every column by a list of places, value by value, also where none is missing: more
//! than it costs to make a row. So columns that have all their values go to Parquet's own writers as they lie in memory, and
//! those that have one value only, or none, are not written before something else comes (`one_value`). All others, and lists
//! and text, are left to Arrow's.

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
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::one_value::{All, OneValue};

/// A file with one group of rows.
pub struct PartFile {
    file: SerializedFileWriter<File>,
    schema: SchemaRef,
    properties: WriterPropertiesPtr,
    columns: Vec<Column>,
}

enum Column {
    Same(ColumnDescPtr, OneValue),
    Whole(Box<Whole>),
    Arrow(Box<ArrowColumnWriter>),
}

/// A column of whole numbers, of which nearly all are there.
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
                let Some(array) = first.columns().get(at).filter(|_| is_flat) else {
                    return Column::Arrow(Box::new(writer));
                };
                match OneValue::of(array) {
                    Some(begun) => Column::Same(leaves[at].clone(), begun),
                    None if is_whole(array) => Column::Whole(Box::new(Whole::new(leaves[at].clone(), &properties))),
                    None => Column::Arrow(Box::new(writer)),
                }
            })
            .collect();
        Ok(Self { file, schema, properties, columns })
    }

    /// Append rows of the same columns.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut columns = self.columns.iter_mut();
        for (field, array) in self.schema.fields().iter().zip(batch.columns()) {
            let Some(column) = columns.next() else { break };
            if let Column::Same(leaf, rows) = column
                && !rows.take(array)
            {
                let mut whole = Whole::new(leaf.clone(), &self.properties);
                whole.repeat(rows)?;
                *column = Column::Whole(Box::new(whole));
            }
            match column {
                Column::Same(..) => {}
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
                Column::Same(leaf, rows) => {
                    let mut pages = Pages::default();
                    let closed = rows.close(&leaf, &mut pages)?;
                    group.append_column(&pages.taken(), closed)?;
                }
                Column::Whole(whole) => {
                    let Whole { writer, pages, .. } = *whole;
                    let closed = writer.close()?;
                    group.append_column(&pages.taken(), closed)?;
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
    fn new(leaf: ColumnDescPtr, properties: &WriterPropertiesPtr) -> Self {
        let (pages, is_optional) = (Pages::default(), leaf.max_def_level() > 0);
        Self { writer: get_column_writer(leaf, properties.clone(), Box::new(pages.clone())), pages, is_optional }
    }

    /// Append rows that are all alike.
    fn repeat(&mut self, same: &OneValue) -> Result<()> {
        let n = same.rows;
        let levels = self.is_optional.then(|| vec![i16::from(same.are_there()); n]);
        match &mut self.writer {
            ColumnWriter::Int32ColumnWriter(writer) => {
                let values = if let All::Are(value) = same.all { vec![value as i32; n] } else { Vec::new() };
                writer.write_batch(&values, levels.as_deref(), None)
            }
            ColumnWriter::Int64ColumnWriter(writer) => {
                let values = if let All::Are(value) = same.all { vec![value; n] } else { Vec::new() };
                writer.write_batch(&values, levels.as_deref(), None)
            }
            _ => return Err(parquet::errors::ParquetError::NYI("a column of no whole numbers".into())),
        }
        .map(drop)
    }

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

    fn taken(&self) -> Bytes {
        std::mem::take(&mut *self.bytes()).into()
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

    fn read(path: &std::path::Path, rows: usize) -> Vec<RecordBatch> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("the file"))
            .and_then(|builder| builder.with_batch_size(rows).build())
            .expect("Parquet");
        reader.map(|batch| batch.expect("rows")).collect()
    }

    fn properties() -> WriterProperties {
        let builder = WriterProperties::builder().set_encoding(Encoding::DELTA_BINARY_PACKED);
        builder.set_dictionary_enabled(false).build()
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
                let file = File::create(&path).expect("a file");
                let mut part = PartFile::new(file, &batches[0], properties()).expect("columns");
                let by_hand = part.columns.iter().filter(|column| matches!(column, Column::Whole(_))).count();
                assert_eq!(by_hand, if turns[0] { 2 } else { 4 });
                for batch in &batches {
                    part.write(batch).expect("rows");
                }
                part.close().expect("a whole file");
                let read = read(&path, 50_000);
                assert_eq!(read, batches);
            }
        }
        std::fs::remove_dir_all(folder).expect("the folder goes");
    }

    /// Rows of one value, of another, of none, and of both in turn; what cannot be missing is the other value instead.
    fn kind(number: usize, rows: usize) -> RecordBatch {
        fn column<T: ArrowPrimitiveType>(
            number: usize,
            rows: usize,
            one: T::Native,
            other: T::Native,
        ) -> [ArrayRef; 2] {
            let value = |row: usize, missing| match number {
                0 => Some(one),
                1 => Some(other),
                2 => missing,
                _ if row.is_multiple_of(2) => Some(one),
                _ => missing,
            };
            [Some(other), None].map(|missing| some::<T>((0..rows).map(|row| value(row, missing))))
        }
        let columns = [
            column::<Int64Type>(number, rows, i64::MIN, i64::MAX),
            column::<UInt64Type>(number, rows, u64::MAX, 0),
            column::<UInt32Type>(number, rows, u32::MAX, 1),
            column::<UInt16Type>(number, rows, u16::MAX, 7),
            column::<UInt8Type>(number, rows, u8::MAX, 0),
        ];
        let named = columns.into_iter().enumerate().flat_map(|(at, [full, holes])| {
            [(format!("full {at}"), full, false), (format!("holes {at}"), holes, true)]
        });
        RecordBatch::try_from_iter_with_nullable(named).expect("columns of one length")
    }

    #[test]
    fn columns_of_one_value_are_read_as_they_were_whatever_follows() {
        let folder = fresh("one_value");
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("part.parquet");
        // Runs are told by their lengths, whose own length changes at 64 and at 8,192.
        for (turn, rows) in (0..64).zip([1, 31, 32, 4_096, 20_000].into_iter().cycle()) {
            let kinds = [turn % 4, turn / 4 % 4, turn / 16];
            let batches = kinds.map(|number| kind(number, rows));
            let file = File::create(&path).expect("a file");
            let mut part = PartFile::new(file, &batches[0], properties()).expect("columns");
            for batch in &batches {
                part.write(batch).expect("rows");
            }
            let same = part.columns.iter().filter(|column| matches!(column, Column::Same(..))).count();
            // One row alone is always of one value, where it is there.
            let alike = kinds.iter().all(|k| *k == kinds[0]) && (kinds[0] < 3 || rows == 1);
            assert!(!alike || same == 10, "{same} columns of {kinds:?} with {rows} rows");
            part.close().expect("a whole file");
            assert_eq!(read(&path, rows), batches, "{kinds:?} with {rows} rows");
        }
        std::fs::remove_dir_all(folder).expect("the folder goes");
    }
}
