//! The thread that keeps a level's rows: as Parquet parts, in memory, or both. Workers never wait for it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::columns::Chunk;
use super::schema::schema;
use crate::clock;

/// A part is closed after this many rows or this long, whichever comes first: a crash loses no more.
const PART_ROWS: usize = 1 << 18;
const PART_AGE: Duration = Duration::from_secs(5);

/// What the writer leaves behind.
#[derive(Debug, Default)]
pub struct Written {
    /// Closed parts, in order.
    pub parts: Vec<PathBuf>,
    /// CPU time of the thread.
    pub cpu_ns: i64,
    /// Why rows are missing on disk.
    pub error: Option<String>,
    /// The rows in memory, unless they outgrew their bound.
    pub kept: Option<Vec<RecordBatch>>,
}

/// A running writer.
#[derive(Debug)]
pub struct Writer {
    sender: Sender<Option<Chunk>>,
    thread: JoinHandle<Written>,
    failed: Arc<AtomicBool>,
}

impl Writer {
    /// Start keeping rows: in `dir`, which exists, and in memory up to `keep_bytes`; without a `dir` all stay in memory.
    pub fn start(dir: Option<PathBuf>, keep_bytes: u64) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let keep_bytes = if dir.is_some() { keep_bytes } else { u64::MAX };
        let failed = Arc::new(AtomicBool::new(false));
        let flag = failed.clone();
        let thread = std::thread::Builder::new()
            .name("gpusize-writer".into())
            .spawn(move || work(dir.as_deref(), keep_bytes, &receiver, &flag))?;
        Ok(Self { sender, thread, failed })
    }

    /// Set as soon as rows can no longer be kept on disk.
    pub fn failed(&self) -> Arc<AtomicBool> {
        self.failed.clone()
    }

    /// Where chunks go.
    pub fn sender(&self) -> Sender<Option<Chunk>> {
        self.sender.clone()
    }

    /// Close the last part and wait for it; what is sent after this call is lost.
    pub fn finish(self) -> Written {
        // Not the end of the channel: a worker that died may hold its sender for ever. A writer that died answers below.
        let _ = self.sender.send(None);
        self.thread.join().unwrap_or_else(|_| Written { error: Some("the writer died".into()), ..Written::default() })
    }
}

struct Part {
    writer: ArrowWriter<File>,
    unfinished: PathBuf,
    path: PathBuf,
    rows: usize,
    since: Instant,
}

fn work(dir: Option<&Path>, keep_bytes: u64, chunks: &Receiver<Option<Chunk>>, failed: &AtomicBool) -> Written {
    let mut written = Written { kept: Some(Vec::new()), ..Written::default() };
    let mut part: Option<Part> = None;
    let mut kept_bytes = 0;
    loop {
        let wait = part.as_ref().map_or(PART_AGE, |p| PART_AGE.saturating_sub(p.since.elapsed()));
        let result = match chunks.recv_timeout(wait) {
            Ok(Some(chunk)) => {
                let batch = chunk.into_batch();
                let result = match dir {
                    Some(dir) if written.error.is_none() => take(dir, &mut part, written.parts.len(), &batch),
                    _ => Ok(()),
                };
                kept_bytes += batch.num_rows() as u64 * Chunk::ROW_BYTES;
                keep(&mut written.kept, batch, kept_bytes <= keep_bytes);
                result
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
        };
        let due = part.as_ref().is_some_and(|p| p.rows >= PART_ROWS || p.since.elapsed() >= PART_AGE);
        let result = result.and_then(|()| if due { close(&mut part, &mut written.parts) } else { Ok(()) });
        note(&mut written, &mut part, result);
        failed.store(written.error.is_some(), Relaxed);
    }
    let result = close(&mut part, &mut written.parts);
    note(&mut written, &mut part, result);
    written.cpu_ns = clock::thread_cpu_ns();
    written
}

/// Rows stay in memory all or not at all: a part of a level would be taken for the whole.
fn keep(kept: &mut Option<Vec<RecordBatch>>, batch: RecordBatch, fits: bool) {
    match kept {
        Some(batches) if fits => batches.push(batch),
        _ => *kept = None,
    }
}

/// After a failure nothing more is written; what was closed stays.
fn note(written: &mut Written, part: &mut Option<Part>, result: io::Result<()>) {
    if let Err(e) = result {
        written.error.get_or_insert_with(|| e.to_string());
        if let Some(part) = part.take() {
            let _ = std::fs::remove_file(part.unfinished);
        }
    }
}

fn take(dir: &Path, part: &mut Option<Part>, number: usize, batch: &RecordBatch) -> io::Result<()> {
    let part = match part {
        Some(part) => part,
        None => part.insert(open(dir, number)?),
    };
    part.rows += batch.num_rows();
    part.writer.write(batch).map_err(io_error)
}

fn open(dir: &Path, number: usize) -> io::Result<Part> {
    let path = dir.join(format!("part-{number:05}.parquet"));
    let unfinished = path.with_extension("unfinished");
    let file = File::create(&unfinished)?;
    let writer = ArrowWriter::try_new(file, schema(), Some(properties())).map_err(io_error)?;
    Ok(Part { writer, unfinished, path, rows: 0, since: Instant::now() })
}

fn close(part: &mut Option<Part>, parts: &mut Vec<PathBuf>) -> io::Result<()> {
    let Some(part) = part.take() else { return Ok(()) };
    let done = part.writer.close().map_err(io_error).and_then(|_| std::fs::rename(&part.unfinished, &part.path));
    if done.is_err() {
        let _ = std::fs::remove_file(&part.unfinished);
    }
    done?;
    parts.push(part.path);
    Ok(())
}

/// Every column is whole numbers, and deltas fold both a constant and a time that creeps on. Dictionaries, statistics and
/// a compressor would each cost more than all the rest of a record (measured by instructions per row).
fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
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
    use crate::record::columns::{Common, Due, Row};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    fn chunk(from: u64, n: u64) -> Chunk {
        let mut chunk = Chunk::new(Common { visit: 1, stream: 0, worker: 0 }, n as usize);
        for seq in from..from + n {
            chunk.push(&Row::due(Due { seq, row: 0, due_ns: seq as i64, fired_ns: seq as i64 }));
        }
        chunk
    }

    #[test]
    fn every_row_comes_back_and_parts_are_bounded() {
        let dir = std::env::temp_dir().join(format!("gpusize-writer-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let writer = Writer::start(Some(dir.clone()), 1 << 20).unwrap();
        let sender = writer.sender();
        let batches = 10;
        for i in 0..batches {
            sender.send(Some(chunk(i * 40_000, 40_000))).unwrap();
        }
        let written = writer.finish();
        assert_eq!((written.parts.len(), &written.error), (2, &None));
        assert!(written.kept.is_none(), "400,000 rows outgrow a MiB");
        let mut rows = 0;
        for part in &written.parts {
            let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(part).unwrap()).unwrap().build().unwrap();
            rows += reader.map(|b| b.unwrap().num_rows()).sum::<usize>();
        }
        assert_eq!(rows, 400_000);
        assert!(std::fs::read_dir(&dir).unwrap().all(|f| f.unwrap().path().extension().unwrap() == "parquet"));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_full_disk_is_reported_and_not_fatal() {
        let writer = Writer::start(Some(PathBuf::from("/nonexistent/folder")), 1 << 30).unwrap();
        writer.sender().send(Some(chunk(0, 10))).unwrap();
        writer.sender().send(Some(chunk(10, 10))).unwrap();
        let written = writer.finish();
        assert!(written.error.unwrap().contains("No such file") && written.parts.is_empty());
        assert_eq!(written.kept.unwrap().len(), 2, "nothing measured is lost");
    }
}
