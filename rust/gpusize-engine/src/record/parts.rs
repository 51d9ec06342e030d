//! Parquet parts: a file at a time, closed by size or age, so that a crash loses little.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::part_file::PartFile;
use super::schema::version_of;

/// A part is closed after this many rows or this long, whichever comes first: a crash loses no more.
const PART_ROWS: usize = 1 << 18;
/// See `PART_ROWS`.
pub const PART_AGE: Duration = Duration::from_secs(5);
/// A day must not leave tens of thousands of files: a part may become this share of its table's age.
const PARTS_OF_AGE: u32 = 120;
/// But no older than this.
const OLDEST_PART: Duration = Duration::from_secs(60);

/// The parts of one table.
#[derive(Debug)]
pub struct Parts {
    dir: PathBuf,
    makes_dir: bool,
    began: Instant,
    open: Option<Part>,
    /// How many are closed; a list of them would grow as long as the level goes on.
    closed: usize,
}

#[derive(Debug)]
struct Part {
    writer: PartFile,
    schema: SchemaRef,
    unfinished: PathBuf,
    path: PathBuf,
    rows: usize,
    since: Instant,
}

impl Parts {
    /// Parts in `dir`.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, makes_dir: false, began: Instant::now(), open: None, closed: 0 }
    }

    /// Parts in `dir`, which is made with the first of them.
    pub fn beside(dir: PathBuf) -> Self {
        Self { makes_dir: true, ..Self::new(dir) }
    }

    fn age(&self) -> Duration {
        age_at(self.began.elapsed())
    }

    /// Whether the open part has these columns.
    pub fn has(&self, schema: &SchemaRef) -> bool {
        self.open.as_ref().is_some_and(|p| p.schema == *schema)
    }

    /// The version of the records in the open part; 1 where there is none.
    pub fn version(&self) -> u32 {
        self.open.as_ref().map_or(1, |p| version_of(&p.schema))
    }

    /// Time until the open part is due.
    pub fn time_left(&self) -> Duration {
        self.open.as_ref().map_or(PART_AGE, |p| self.age().saturating_sub(p.since.elapsed()))
    }

    /// Append to the open part, or to a new one where there is none with these columns.
    pub fn write(&mut self, batch: &RecordBatch) -> io::Result<()> {
        if !self.has(batch.schema_ref()) {
            self.close()?;
        }
        if self.open.is_none() && self.makes_dir && !self.dir.is_dir() {
            std::fs::create_dir(&self.dir)?;
        }
        let part = match &mut self.open {
            Some(part) => part,
            None => self.open.insert(open(&self.dir, self.closed, batch)?),
        };
        part.rows += batch.num_rows();
        part.writer.write(batch).map_err(io_error)
    }

    /// Close the open part if it is large or old enough.
    pub fn close_if_due(&mut self) -> io::Result<()> {
        let age = self.age();
        if self.open.as_ref().is_some_and(|p| p.rows >= PART_ROWS || p.since.elapsed() >= age) {
            return self.close();
        }
        Ok(())
    }

    /// Close the open part.
    pub fn close(&mut self) -> io::Result<()> {
        let Some(part) = self.open.take() else { return Ok(()) };
        let done = part.writer.close().map_err(io_error).and_then(|()| std::fs::rename(&part.unfinished, &part.path));
        if done.is_err() {
            let _ = std::fs::remove_file(&part.unfinished);
        }
        done?;
        self.closed += 1;
        Ok(())
    }

    /// Drop the open part and its file.
    pub fn give_up(&mut self) {
        if let Some(part) = self.open.take() {
            let _ = std::fs::remove_file(part.unfinished);
        }
    }

    /// Names of the closed parts, in order.
    pub fn closed(&self) -> Vec<String> {
        (0..self.closed).map(name).collect()
    }
}

/// How old a part may become after its table began so long ago.
fn age_at(elapsed: Duration) -> Duration {
    (elapsed / PARTS_OF_AGE).clamp(PART_AGE, OLDEST_PART)
}

fn name(number: usize) -> String {
    format!("part-{number:05}.parquet")
}

fn open(dir: &std::path::Path, number: usize, first: &RecordBatch) -> io::Result<Part> {
    let path = dir.join(name(number));
    let unfinished = path.with_extension("unfinished");
    let file = File::create(&unfinished)?;
    let schema = first.schema();
    let writer = PartFile::new(file, first, properties(version_of(&schema).max(2))).map_err(io_error)?;
    Ok(Part { writer, schema, unfinished, path, rows: 0, since: Instant::now() })
}

/// Columns that stay the same over many rows of most levels, and change once in a while in some.
const STEADY: [&str; 11] =
    ["visit", "stream", "attempt", "target", "model", "host", "worker", "events", "status", "outcome", "metric"];

/// Nearly every column is whole numbers, and deltas fold a time that creeps on. A steady column that does change costs an
/// eighth of that as it is: the compressor takes a run of one value in large steps. Dictionaries, statistics and a
/// compressor of all columns would each cost more than all the rest of a record (measured by instructions per row).
///
/// What has no column of version 3 is said to be of version 2, so that a reader of that version takes it.
fn properties(version: u32) -> WriterProperties {
    let version = KeyValue::new("gpusize.schema".to_owned(), version.to_string());
    let builder = WriterProperties::builder()
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(ColumnPath::from("name"), Encoding::DELTA_BYTE_ARRAY)
        .set_column_encoding(ColumnPath::from("kind"), Encoding::DELTA_BYTE_ARRAY)
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(vec![version]));
    STEADY
        .into_iter()
        .map(ColumnPath::from)
        .fold(builder, |builder, column| {
            builder
                .set_column_encoding(column.clone(), Encoding::PLAIN)
                .set_column_compression(column, Compression::LZ4_RAW)
        })
        .build()
}

fn io_error(e: parquet::errors::ParquetError) -> io::Error {
    match e {
        parquet::errors::ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_leaves_few_parts() {
        let mut parts = 0;
        let mut at = Duration::ZERO;
        while at < Duration::from_secs(86_400) {
            at += age_at(at);
            parts += 1;
        }
        assert_eq!((age_at(Duration::ZERO), age_at(Duration::from_secs(600))), (PART_AGE, PART_AGE));
        assert!((1_300..1_800).contains(&parts), "{parts}");
    }
}
