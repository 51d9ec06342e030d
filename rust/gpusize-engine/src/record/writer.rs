//! The thread that keeps a level's rows: as Parquet parts, in memory, or both. Nobody waits for it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;

use super::columns::Chunk;
use super::parts::{PART_AGE, Parts};
use super::schema::{VERSION, places_of};
use super::spans::SpanChunk;
use gpusize_base::clock;

/// What a batch takes besides its rows, which are few where a level is slow and long.
const BATCH_BYTES: u64 = 8 << 10;

/// What the writer leaves behind.
#[derive(Debug, Default)]
pub struct Written {
    /// Names of the closed parts, in order.
    pub parts: Vec<String>,
    /// Rows that were to be kept.
    pub rows: u64,
    /// CPU time of the threads.
    pub cpu_ns: i64,
    /// Why rows are missing on disk.
    pub error: Option<String>,
    /// The rows in memory, unless they outgrew their bound.
    pub kept: Option<Vec<RecordBatch>>,
    /// Calls inside the requests.
    pub spans: u64,
    /// Closed parts of the calls, in order.
    pub span_parts: Vec<String>,
    /// Closed parts of the table of seconds, in order.
    pub second_parts: Vec<String>,
    /// Closed parts of the table of histograms, in order.
    pub histogram_parts: Vec<String>,
    /// The calls in memory, while the rows are.
    pub kept_spans: Vec<RecordBatch>,
}

/// Something to be kept.
enum Item {
    Rows(Box<Chunk>),
    Tables(RecordBatch, RecordBatch),
    End,
}

/// A running writer.
#[derive(Debug)]
pub struct Writer {
    sender: Sender<Item>,
    thread: JoinHandle<Written>,
    /// Bytes of the rows that wait.
    waiting: Arc<AtomicU64>,
}

impl Writer {
    /// Start keeping rows: in `dir`, which exists, and in memory up to `keep_bytes`; without a `dir` all stay in memory.
    /// Other tables go into folders beside `dir`, which are made when their first rows come. `failed` is set as soon as
    /// something cannot be kept on disk.
    pub fn start(dir: Option<PathBuf>, keep_bytes: u64, failed: Arc<AtomicBool>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let keep_bytes = if dir.is_some() { keep_bytes } else { u64::MAX };
        let waiting = Arc::new(AtomicU64::new(0));
        let left = waiting.clone();
        let thread = std::thread::Builder::new()
            .name("gpusize-writer".into())
            .spawn(move || WriterThread::new(dir, keep_bytes).run(&receiver, &failed, &left))?;
        Ok(Self { sender, thread, waiting })
    }

    /// Keep these rows; says how many bytes of rows wait now.
    pub fn rows(&self, chunk: Box<Chunk>) -> u64 {
        let bytes = chunk.bytes();
        let waiting = self.waiting.fetch_add(bytes, Relaxed) + bytes;
        self.send(Item::Rows(chunk));
        waiting
    }

    /// Keep these rows of the tables of seconds and of histograms.
    pub fn tables(&self, seconds: RecordBatch, histograms: RecordBatch) {
        self.send(Item::Tables(seconds, histograms));
    }

    /// Bytes of the rows that wait.
    pub fn waiting(&self) -> Arc<AtomicU64> {
        self.waiting.clone()
    }

    fn send(&self, item: Item) {
        // A writer that died says so when it is joined.
        let _ = self.sender.send(item);
    }

    /// Close the last parts and wait for it.
    pub fn finish(self) -> Written {
        self.send(Item::End);
        self.thread.join().unwrap_or_else(|_| Written { error: Some("the writer died".into()), ..Written::default() })
    }
}

/// The tables of a level.
#[derive(Clone, Copy)]
enum Table {
    Rows,
    Spans,
    Seconds,
    Histograms,
}

struct WriterThread {
    tables: Option<[Parts; 4]>,
    keep_bytes: u64,
    kept_bytes: u64,
    written: Written,
}

impl WriterThread {
    fn new(dir: Option<PathBuf>, keep_bytes: u64) -> Self {
        let tables = dir.map(|dir| {
            let beside = |name: &str| Parts::beside(dir.with_file_name(name));
            let others = [beside("spans"), beside("seconds"), beside("histograms")];
            let [spans, seconds, histograms] = others;
            [Parts::new(dir), spans, seconds, histograms]
        });
        let written = Written { kept: Some(Vec::new()), ..Written::default() };
        Self { tables, keep_bytes, kept_bytes: 0, written }
    }

    fn run(mut self, items: &Receiver<Item>, failed: &AtomicBool, waiting: &AtomicU64) -> Written {
        loop {
            let wait = self.tables.iter().flatten().map(Parts::time_left).min();
            match items.recv_timeout(wait.unwrap_or(PART_AGE)) {
                Ok(Item::Rows(mut chunk)) => {
                    let bytes = chunk.bytes();
                    let spans = chunk.take_spans();
                    self.take_rows(*chunk);
                    self.take_spans(spans);
                    waiting.fetch_sub(bytes, Relaxed);
                }
                Ok(Item::Tables(seconds, histograms)) => {
                    self.write(Table::Seconds, &seconds);
                    self.write(Table::Histograms, &histograms);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Item::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.each(Parts::close_if_due);
            if self.written.error.is_some() {
                failed.store(true, Relaxed);
            }
        }
        self.each(Parts::close);
        if let Some(tables) = self.tables {
            let [parts, span_parts, second_parts, histogram_parts] = tables.map(|parts| parts.closed());
            self.written = Written { parts, span_parts, second_parts, histogram_parts, ..self.written };
        }
        self.written.cpu_ns = clock::thread_cpu_ns();
        self.written
    }

    fn take_rows(&mut self, chunk: Chunk) {
        let mut version = chunk.version();
        self.kept_bytes += chunk.bytes() + BATCH_BYTES;
        let batch = match chunk.into_batch() {
            Ok(batch) => batch,
            Err(e) => return self.lose(io::Error::other(e)),
        };
        // What no row has would still cost every row its place in every column. A part that has begun keeps its columns.
        if let Some(tables) = &self.tables {
            version = version.max(tables[Table::Rows as usize].version());
        }
        if version < VERSION {
            match batch.project(&places_of(version, batch.schema_ref())) {
                Ok(batch) => self.write(Table::Rows, &batch),
                Err(e) => self.note(Err(io::Error::other(e))),
            }
        } else {
            self.write(Table::Rows, &batch);
        }
        // Rows stay in memory all or not at all: a part of a level would be taken for the whole.
        match &mut self.written.kept {
            Some(batches) if self.kept_bytes <= self.keep_bytes => batches.push(batch),
            _ => {
                self.written.kept = None;
                self.written.kept_spans = Vec::new();
            }
        }
    }

    fn take_spans(&mut self, spans: SpanChunk) {
        if spans.is_empty() {
            return;
        }
        self.written.spans += spans.len() as u64;
        let batch = match spans.into_batch() {
            Ok(batch) => batch,
            Err(e) => return self.lose(io::Error::other(e)),
        };
        self.write(Table::Spans, &batch);
        if self.written.kept.is_some() {
            self.kept_bytes += batch.get_array_memory_size() as u64;
            self.written.kept_spans.push(batch);
        }
    }

    fn write(&mut self, table: Table, batch: &RecordBatch) {
        if self.written.error.is_none()
            && let Some(tables) = &mut self.tables
        {
            let result = tables[table as usize].write(batch);
            self.note(result);
        }
    }

    fn each(&mut self, act: fn(&mut Parts) -> io::Result<()>) {
        for parts in self.tables.iter_mut().flatten() {
            if let Err(e) = act(parts) {
                self.written.error.get_or_insert_with(|| e.to_string());
            }
        }
    }

    /// Rows that are nowhere: what is in memory is not the whole any more.
    fn lose(&mut self, e: io::Error) {
        self.written.kept = None;
        self.written.kept_spans = Vec::new();
        self.note(Err(e));
    }

    /// After a failure nothing more is written; what was closed stays.
    fn note(&mut self, result: io::Result<()>) {
        if let Err(e) = result {
            self.written.error.get_or_insert_with(|| e.to_string());
            self.tables.iter_mut().flatten().for_each(Parts::give_up);
        }
    }
}
