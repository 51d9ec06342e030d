//! A column of one value, or of none: a few bytes, however many rows there are.
//!
//! A third of the columns of a level never change, and as many are never filled. An encoder takes each of their values in
//! its hands, for a quarter of what a record costs in all.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, PrimitiveArray};
use arrow_schema::DataType;
use parquet::basic::{Compression, Encoding, EncodingMask, Type};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescPtr;

/// Rows of an array that are looked at together.
const TOGETHER: usize = 512;

/// What all rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum All {
    /// This number, or the bits of it.
    Are(i64),
    /// Not there.
    Missing,
}

/// The rows so far of a column in which all are alike.
#[derive(Debug)]
pub struct OneValue {
    pub all: All,
    pub rows: usize,
}

impl OneValue {
    /// A column without rows that may begin with this array; none where its rows differ, or it has none, or is not of whole
    /// numbers.
    pub fn of(array: &dyn Array) -> Option<Self> {
        Some(Self { all: all_of(array)?, rows: 0 })
    }

    /// Take the rows of an array; false where one of them differs.
    pub fn take(&mut self, array: &dyn Array) -> bool {
        let is_same = array.is_empty() || all_of(array) == Some(self.all);
        self.rows += if is_same { array.len() } else { 0 };
        is_same
    }

    /// Write the column: its value as a dictionary, and a run of its only number.
    pub fn close(&self, leaf: &ColumnDescPtr, pages: &mut dyn PageWriter) -> Result<ColumnCloseResult> {
        let mut written = Vec::new();
        let mut metadata = ColumnChunkMetaData::builder(leaf.clone());
        if let All::Are(value) = self.all {
            let spec = pages.write_page(page(Page::DictionaryPage {
                buf: plain(value, leaf.physical_type()).into(),
                num_values: 1,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            }))?;
            metadata = metadata.set_dictionary_page_offset(Some(spec.offset as i64));
            written.push(spec);
        }
        let encoding = if self.are_there() { Encoding::RLE_DICTIONARY } else { Encoding::PLAIN };
        let data = pages.write_page(page(Page::DataPage {
            buf: self.data(leaf.max_def_level() > 0).into(),
            num_values: self.rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }))?;
        metadata = metadata.set_data_page_offset(data.offset as i64);
        written.push(data);
        let total = |size: fn(&PageWriteSpec) -> usize| written.iter().map(size).sum::<usize>() as i64;
        let encodings = [Encoding::PLAIN, Encoding::RLE, encoding];
        let metadata = metadata
            .set_compression(Compression::UNCOMPRESSED)
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
            .set_total_compressed_size(total(|page| page.compressed_size))
            .set_total_uncompressed_size(total(|page| page.uncompressed_size))
            .set_num_values(self.rows as i64)
            .build()?;
        Ok(ColumnCloseResult {
            bytes_written: written.iter().map(|page| page.bytes_written).sum(),
            rows_written: self.rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        })
    }

    pub fn are_there(&self) -> bool {
        self.all != All::Missing
    }

    /// A data page: where rows may be missing whether they are, then the numbers of the values in the dictionary.
    fn data(&self, is_optional: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        if is_optional {
            let levels = run(self.rows, self.are_there().into());
            bytes.extend((levels.len() as u32).to_le_bytes());
            bytes.extend(levels);
        }
        if self.are_there() {
            // One bit for each number; some readers do not know numbers of no bits.
            bytes.push(1);
            bytes.extend(run(self.rows, 0));
        }
        bytes
    }
}

/// So many times the same number of one bit, as Parquet's hybrid of runs and packed bits has it.
fn run(times: usize, number: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut left = (times as u64) << 1;
    while left >= 0x80 {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.extend([left as u8, number]);
    bytes
}

fn page(page: Page) -> CompressedPage {
    let length = page.buffer().len();
    CompressedPage::new(page, length)
}

fn plain(value: i64, kind: Type) -> Vec<u8> {
    match kind {
        Type::INT32 => (value as i32).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

/// What all rows of an array are; none where they differ, or there is no row.
fn all_of(array: &dyn Array) -> Option<All> {
    match array.data_type() {
        DataType::Int64 => all(array.as_primitive::<Int64Type>(), |v| v),
        DataType::UInt64 => all(array.as_primitive::<UInt64Type>(), |v| v as i64),
        DataType::UInt32 => all(array.as_primitive::<UInt32Type>(), i64::from),
        DataType::UInt16 => all(array.as_primitive::<UInt16Type>(), i64::from),
        DataType::UInt8 => all(array.as_primitive::<UInt8Type>(), i64::from),
        _ => None,
    }
}

fn all<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, wide: fn(T::Native) -> i64) -> Option<All> {
    let first = *array.values().first()?;
    match array.null_count() {
        0 => {
            // Without a way out between them, so that several are looked at at once.
            let are_first = |rows: &[T::Native]| rows.iter().fold(0, |odd, v| odd | u8::from(*v != first)) == 0;
            array.values().chunks(TOGETHER).all(are_first).then(|| All::Are(wide(first)))
        }
        missing if missing == array.len() => Some(All::Missing),
        _ => None,
    }
}
