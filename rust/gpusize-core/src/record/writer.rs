//! The thread that keeps a level's rows: as Parquet parts, in memory, or both. Workers never wait for it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;

use super::columns::Chunk;
use super::parts::{PART_AGE, Parts};
use super::schema::PLAIN_COLUMNS;
use super::spans::SpanChunk;
use crate::clock;

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
    /// Calls inside the requests.
    pub spans: u64,
    /// Closed parts of the calls, in order.
    pub span_parts: Vec<PathBuf>,
    /// The calls in memory, while the rows are.
    pub kept_spans: Vec<RecordBatch>,
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
    /// Calls inside the requests go into the folder `spans` beside `dir`, which is made when the first one comes.
    pub fn start(dir: Option<PathBuf>, keep_bytes: u64) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let keep_bytes = if dir.is_some() { keep_bytes } else { u64::MAX };
        let failed = Arc::new(AtomicBool::new(false));
        let flag = failed.clone();
        let thread = std::thread::Builder::new()
            .name("gpusize-writer".into())
            .spawn(move || Work::new(dir, keep_bytes).run(&receiver, &flag))?;
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

struct Work {
    rows: Option<Parts>,
    spans: Option<Parts>,
    keep_bytes: u64,
    kept_bytes: u64,
    written: Written,
}

impl Work {
    fn new(dir: Option<PathBuf>, keep_bytes: u64) -> Self {
        let spans = dir.as_ref().map(|d| Parts::new(d.with_file_name("spans")));
        let written = Written { kept: Some(Vec::new()), ..Written::default() };
        Self { rows: dir.map(Parts::new), spans, keep_bytes, kept_bytes: 0, written }
    }

    fn run(mut self, chunks: &Receiver<Option<Chunk>>, failed: &AtomicBool) -> Written {
        loop {
            let wait = [&self.rows, &self.spans].into_iter().flatten().map(Parts::time_left).min();
            match chunks.recv_timeout(wait.unwrap_or(PART_AGE)) {
                Ok(Some(mut chunk)) => {
                    let spans = chunk.take_spans();
                    self.take_rows(chunk);
                    self.take_spans(spans);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.each(Parts::close_if_due);
            failed.store(self.written.error.is_some(), Relaxed);
        }
        self.each(Parts::close);
        self.written.parts = self.rows.map(Parts::closed).unwrap_or_default();
        self.written.span_parts = self.spans.map(Parts::closed).unwrap_or_default();
        self.written.cpu_ns = clock::thread_cpu_ns();
        self.written
    }

    fn take_rows(&mut self, chunk: Chunk) {
        let plain = chunk.is_plain();
        self.kept_bytes += chunk.bytes();
        let batch = chunk.into_batch();
        if let Some(parts) = self.rows.as_mut().filter(|_| self.written.error.is_none()) {
            let all = batch.schema();
            // What no row has would still cost every row its place in every column. A part that has begun keeps its columns.
            let result = if plain && !parts.has(&all) {
                batch
                    .project(&(0..PLAIN_COLUMNS).collect::<Vec<_>>())
                    .map_err(io::Error::other)
                    .and_then(|b| parts.write(&b))
            } else {
                parts.write(&batch)
            };
            self.note(result);
        }
        // Rows stay in memory all or not at all: a part of a level would be taken for the whole.
        match &mut self.written.kept {
            Some(batches) if self.kept_bytes <= self.keep_bytes => batches.push(batch),
            _ => {
                self.written.kept = None;
                self.written.kept_spans.clear();
            }
        }
    }

    fn take_spans(&mut self, spans: SpanChunk) {
        if spans.is_empty() {
            return;
        }
        self.written.spans += spans.len() as u64;
        let batch = spans.into_batch();
        if let Some(parts) = self.spans.as_mut().filter(|_| self.written.error.is_none()) {
            let result = parts.write(&batch);
            self.note(result);
        }
        if self.written.kept.is_some() {
            self.kept_bytes += batch.get_array_memory_size() as u64;
            self.written.kept_spans.push(batch);
        }
    }

    fn each(&mut self, act: fn(&mut Parts) -> io::Result<()>) {
        for parts in [&mut self.rows, &mut self.spans].into_iter().flatten() {
            if let Err(e) = act(parts) {
                self.written.error.get_or_insert_with(|| e.to_string());
            }
        }
    }

    /// After a failure nothing more is written; what was closed stays.
    fn note(&mut self, result: io::Result<()>) {
        if let Err(e) = result {
            self.written.error.get_or_insert_with(|| e.to_string());
            [&mut self.rows, &mut self.spans].into_iter().flatten().for_each(Parts::give_up);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::record::columns::{Common, Due, Row};
    use crate::record::spans::{Domain, Span};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::fs::File;
    use std::path::Path;

    fn read(part: &Path) -> Vec<RecordBatch> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(part).unwrap()).unwrap();
        let told = reader.metadata().file_metadata().key_value_metadata().unwrap();
        assert!(told.iter().any(|kv| kv.key == "gpusize.schema" && kv.value.as_deref() == Some("2")));
        reader.build().unwrap().map(Result::unwrap).collect()
    }

    fn chunk(from: u64, n: u64) -> Chunk {
        let mut chunk = Chunk::new(Common { visit: 1, worker: 0 }, n as usize);
        for seq in from..from + n {
            chunk.push(&Row::due(Due { seq, row: 0, due_ns: seq as i64, fired_ns: seq as i64, stream: 0 }));
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
            let batches = read(part);
            assert!(batches.iter().all(|b| b.num_columns() == PLAIN_COLUMNS), "columns without a value cost nothing");
            rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
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
    #[test]
    fn streams_event_times_and_calls_come_back() {
        let root = std::env::temp_dir().join(format!("gpusize-writer-streams-{}", std::process::id()));
        let dir = root.join("records");
        std::fs::create_dir_all(&dir).unwrap();
        let span = Span {
            kind: "llm".into(),
            name: "m".into(),
            start_ns: 1,
            end_ns: Some(2),
            first_token_ns: None,
            tokens_in: None,
            tokens_out: None,
            outcome: Outcome::Ok,
            domain: Domain::Server,
        };
        let writer = Writer::start(Some(dir), 1 << 20).unwrap();
        let rows = |events: Option<[i64; 2]>| {
            let mut chunk = Chunk::new(Common::default(), 2);
            if events.is_some() {
                chunk = chunk.with_events();
            }
            let mut row = Row::due(Due::default());
            row.events_ns = events.map(|e| Box::new(e) as Box<[i64]>);
            row.events = 2;
            row.first_output_ns = 5;
            row.spans = events.map(|_| vec![span.clone(), span.clone()].into());
            chunk.push(&row);
            chunk
        };
        for chunk in [chunk(0, 3), rows(None), chunk(3, 1), rows(Some([5, 9]))] {
            writer.sender().send(Some(chunk)).unwrap();
        }
        let written = writer.finish();
        assert_eq!(written.error, None);
        let shapes: Vec<Vec<(usize, usize)>> =
            written.parts.iter().map(|p| read(p).iter().map(|b| (b.num_rows(), b.num_columns())).collect()).collect();
        assert_eq!(
            shapes,
            [vec![(3, 31)], vec![(2, 38)], vec![(1, 39)]],
            "a part of each kind, which keeps its columns"
        );
        assert_eq!((written.spans, written.span_parts.len(), written.kept_spans.len()), (2, 1, 1));
        assert_eq!(read(&root.join("spans/part-00000.parquet"))[0], written.kept_spans[0]);
        std::fs::remove_dir_all(root).unwrap();
    }
}
