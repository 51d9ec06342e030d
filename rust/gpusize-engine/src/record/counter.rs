//! The thread that counts a level's requests by the second and passes their rows on to the disk. It never waits for the
//! disk, and workers never wait for it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::accounts::Accounts;
use super::columns::Chunk;
use super::feed::{Feed, Report};
use super::parts::PART_AGE;
use super::writer::{Writer, Written};
use gpusize_base::clock;

/// More than this waits neither to be counted nor for the disk: a machine that is slower than the load ends the level.
pub const MOST_WAITING_BYTES: u64 = 512 << 20;

/// What a worker tells.
#[derive(Debug)]
enum Told {
    /// Rows of a level that began at this time.
    Rows(Box<Chunk>, i64),
    /// A second is over.
    Report(Report),
    /// There will be nothing more, from nobody.
    End,
}

/// What is kept of a level's rows, and where.
#[derive(Clone, Debug, Default)]
pub struct Keeping {
    /// Folder of the Parquet parts, which exists; without one all rows stay in memory.
    pub dir: Option<PathBuf>,
    /// Rows stay in memory up to this size.
    pub keep_bytes: u64,
    /// One of so many requests is kept as a row.
    pub sample: u64,
    /// Rows may wait to be counted up to this size, and likewise for the disk.
    pub most_waiting_bytes: u64,
}

/// Where a worker tells. It never waits; beyond the bound it says that the level has failed, which ends it.
#[derive(Clone, Debug)]
pub struct Teller {
    sender: Sender<Told>,
    uncounted: Arc<Uncounted>,
    failed: Arc<AtomicBool>,
}

/// Rows on their way to the counter.
#[derive(Debug)]
struct Uncounted {
    bytes: AtomicU64,
    most_bytes: u64,
    /// The first size beyond the bound; 0 when there was none.
    overrun_bytes: AtomicU64,
}

impl Teller {
    /// Rows of a level that began at this time.
    pub fn rows(&self, chunk: Box<Chunk>, start_ns: i64) {
        let (uncounted, bytes) = (&self.uncounted, chunk.bytes());
        let waiting = uncounted.bytes.fetch_add(bytes, Relaxed) + bytes;
        if waiting > uncounted.most_bytes {
            let _ = uncounted.overrun_bytes.compare_exchange(0, waiting, Relaxed, Relaxed);
            self.failed.store(true, Relaxed);
        }
        self.send(Told::Rows(chunk, start_ns));
    }

    /// A second is over.
    pub fn report(&self, report: Report) {
        self.send(Told::Report(report));
    }

    fn send(&self, told: Told) {
        // A counter that died says so in the outcome.
        let _ = self.sender.send(told);
    }
}

/// A running counter, with its writer.
#[derive(Debug)]
pub struct Counter {
    teller: Teller,
    thread: JoinHandle<Written>,
    failed: Arc<AtomicBool>,
    feed: Arc<Feed>,
    waiting: Arc<AtomicU64>,
}

impl Counter {
    /// Start counting and keeping.
    pub fn start(keeping: Keeping) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let (failed, feed) = (Arc::new(AtomicBool::new(false)), Arc::new(Feed::default()));
        let writer = Writer::start(keeping.dir.clone(), keeping.keep_bytes, failed.clone())?;
        let waiting = writer.waiting();
        let uncounted = Arc::new(Uncounted {
            bytes: AtomicU64::new(0),
            most_bytes: keeping.most_waiting_bytes,
            overrun_bytes: AtomicU64::new(0),
        });
        let teller = Teller { sender, uncounted: uncounted.clone(), failed: failed.clone() };
        let work = CounterThread {
            uncounted,
            accounts: Accounts::new(feed.clone(), keeping.dir.is_some()),
            keeping,
            writer,
            feed: feed.clone(),
            failed: failed.clone(),
            handed_on: Instant::now(),
            overrun: None,
            rows: 0,
        };
        let thread = std::thread::Builder::new().name("gpusize-counter".into()).spawn(move || work.run(&receiver))?;
        Ok(Self { teller, thread, failed, feed, waiting })
    }

    /// Set as soon as rows can no longer be kept on disk, or not fast enough.
    pub fn failed(&self) -> Arc<AtomicBool> {
        self.failed.clone()
    }

    /// What has been counted so far.
    pub fn feed(&self) -> Arc<Feed> {
        self.feed.clone()
    }

    /// Bytes of the rows that wait for the disk.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// Where workers tell.
    pub fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// Close the last parts and wait for it; what is sent after this call is lost.
    pub fn finish(self) -> Written {
        // Not the end of the channel: a worker that died may hold its sender for ever. A thread that died answers below.
        self.teller.send(Told::End);
        self.thread.join().unwrap_or_else(|_| Written { error: Some("the counter died".into()), ..Written::default() })
    }
}

impl Uncounted {
    fn overrun(&self) -> Option<String> {
        let mib = Some(self.overrun_bytes.load(Relaxed)).filter(|bytes| *bytes > 0)? >> 20;
        Some(format!("records came faster than this machine counts them: {mib} MiB were waiting"))
    }
}

struct CounterThread {
    uncounted: Arc<Uncounted>,
    accounts: Accounts,
    keeping: Keeping,
    writer: Writer,
    feed: Arc<Feed>,
    failed: Arc<AtomicBool>,
    handed_on: Instant,
    overrun: Option<String>,
    rows: u64,
}

impl CounterThread {
    fn run(mut self, told: &Receiver<Told>) -> Written {
        loop {
            match told.recv_timeout(PART_AGE.saturating_sub(self.handed_on.elapsed())) {
                Ok(Told::Rows(chunk, start_ns)) => self.take(chunk, start_ns),
                Ok(Told::Report(report)) => self.feed.hear(&report),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.accounts.is_full() || self.handed_on.elapsed() >= PART_AGE {
                self.hand_on();
            }
        }
        self.feed.end();
        self.hand_on();
        let cpu_ns = clock::thread_cpu_ns();
        let mut written = self.writer.finish();
        written.cpu_ns += cpu_ns;
        written.rows = self.rows;
        if let Some(overrun) = self.uncounted.overrun().or(self.overrun) {
            written.error.get_or_insert(overrun);
        }
        written
    }

    fn take(&mut self, mut chunk: Box<Chunk>, start_ns: i64) {
        self.accounts.take(&chunk, start_ns);
        self.uncounted.bytes.fetch_sub(chunk.bytes(), Relaxed);
        if self.keeping.sample > 1 {
            chunk.sample(self.keeping.sample);
        }
        if chunk.is_empty() {
            return;
        }
        self.rows += chunk.len() as u64;
        let waiting = self.writer.rows(chunk);
        // Rows that are here are kept; the level ends, so that no more than those on their way come after them.
        if waiting > self.keeping.most_waiting_bytes && self.overrun.is_none() {
            let mib = waiting >> 20;
            self.overrun = Some(format!("records came faster than the disk takes them: {mib} MiB were waiting"));
            self.failed.store(true, Relaxed);
        }
    }

    fn hand_on(&mut self) {
        self.handed_on = Instant::now();
        match self.accounts.hand_on() {
            Ok(Some((seconds, histograms))) => self.writer.tables(seconds, histograms),
            Ok(None) => {}
            // Counts that are lost are no level's counts: it ends, and says why.
            Err(e) => {
                self.overrun.get_or_insert_with(|| format!("the counts by the second cannot be kept: {e}"));
                self.failed.store(true, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::record::columns::{Common, Due, Row};
    use crate::record::schema::PLAIN_COLUMNS;
    use crate::record::spans::{Domain, Span};
    use crate::test_folder::fresh;
    use arrow_array::RecordBatch;
    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt64Type;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::fs::File;
    use std::path::Path;

    fn read(part: &Path) -> Vec<RecordBatch> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(part).unwrap()).unwrap();
        let told = reader.metadata().file_metadata().key_value_metadata().unwrap();
        assert!(told.iter().any(|kv| kv.key == "gpusize.schema" && kv.value.as_deref() == Some("2")));
        reader.build().unwrap().map(Result::unwrap).collect()
    }

    fn start(dir: PathBuf, keep_bytes: u64) -> Counter {
        start_with(Keeping { dir: Some(dir), keep_bytes, sample: 1, most_waiting_bytes: MOST_WAITING_BYTES })
    }

    fn start_with(keeping: Keeping) -> Counter {
        Counter::start(keeping).unwrap()
    }

    fn folder(name: &str) -> PathBuf {
        let root = fresh(name);
        std::fs::create_dir_all(root.join("records")).unwrap();
        root
    }

    fn sum(batches: &[RecordBatch], column: &str) -> u64 {
        let columns = batches.iter().map(|b| b.column_by_name(column).unwrap().as_primitive::<UInt64Type>().values());
        columns.flat_map(|values| values.iter()).sum()
    }

    fn chunk(from: u64, n: u64) -> Box<Chunk> {
        let mut chunk = Chunk::new(Common { visit: 1, ..Common::default() }, n as usize);
        for seq in from..from + n {
            chunk.push(&Row::due(Due { seq, row: 0, due_ns: seq as i64, fired_ns: seq as i64, stream: 0 }));
        }
        Box::new(chunk)
    }

    #[test]
    fn every_row_comes_back_and_parts_are_bounded() {
        let dir = fresh("writer");
        let counter = start(dir.clone(), 1 << 20);
        let teller = counter.teller();
        let batches = 10;
        for i in 0..batches {
            teller.rows(chunk(i * 40_000, 40_000), 0);
        }
        let written = counter.finish();
        assert_eq!((written.parts.len(), &written.error), (2, &None));
        assert!(written.kept.is_none(), "400,000 rows outgrow a MiB");
        let mut rows = 0;
        for part in &written.parts {
            let batches = read(&dir.join(part));
            assert!(batches.iter().all(|b| b.num_columns() == PLAIN_COLUMNS), "columns without a value cost nothing");
            rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        }
        assert_eq!(rows, 400_000);
        assert!(std::fs::read_dir(&dir).unwrap().all(|f| f.unwrap().path().extension().unwrap() == "parquet"));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_full_disk_is_reported_and_not_fatal() {
        let counter = start(PathBuf::from("/nonexistent/folder"), 1 << 30);
        counter.teller().rows(chunk(0, 10), 0);
        counter.teller().rows(chunk(10, 10), 0);
        let failed = counter.failed();
        let written = counter.finish();
        assert!(failed.load(Relaxed));
        assert!(written.error.unwrap().contains("No such file") && written.parts.is_empty());
        assert_eq!(written.kept.unwrap().len(), 2, "nothing measured is lost");
    }
    #[test]
    fn rows_that_cannot_be_kept_are_an_error_and_not_an_empty_part() {
        let root = folder("torn");
        for dir in [None, Some(root.join("records"))] {
            let on_disk = dir.is_some();
            let counter =
                start_with(Keeping { dir, keep_bytes: 1 << 20, sample: 1, most_waiting_bytes: MOST_WAITING_BYTES });
            counter.teller().rows(chunk(0, 10), 0);
            counter.teller().rows(Box::new(Chunk::torn()), 0);
            let failed = counter.failed();
            let written = counter.finish();
            assert!(written.error.unwrap().contains("row count") && failed.load(Relaxed), "on disk: {on_disk}");
            assert!(written.kept.is_none() && written.parts.is_empty(), "a part would be taken for the whole");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn streams_event_times_and_calls_come_back() {
        let root = folder("writer-streams");
        let dir = root.join("records");
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
        let counter = start(dir.clone(), 1 << 20);
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
            Box::new(chunk)
        };
        for chunk in [chunk(0, 3), rows(None), chunk(3, 1), rows(Some([5, 9]))] {
            counter.teller().rows(chunk, 0);
        }
        let written = counter.finish();
        assert_eq!(written.error, None);
        let shapes: Vec<Vec<(usize, usize)>> = written
            .parts
            .iter()
            .map(|p| read(&dir.join(p)).iter().map(|b| (b.num_rows(), b.num_columns())).collect())
            .collect();
        assert_eq!(
            shapes,
            [vec![(3, 31)], vec![(2, 38)], vec![(1, 39)]],
            "a part of each kind, which keeps its columns"
        );
        assert_eq!((written.spans, written.span_parts.len(), written.kept_spans.len()), (2, 1, 1));
        assert_eq!(read(&root.join("spans/part-00000.parquet"))[0], written.kept_spans[0]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_sample_of_rows_is_kept_and_every_request_is_counted() {
        let root = folder("counter-sample");
        let keeping =
            Keeping { dir: Some(root.join("records")), keep_bytes: 1 << 20, sample: 10, most_waiting_bytes: 1 << 30 };
        let counter = start_with(keeping);
        for i in 0..5 {
            counter.teller().rows(chunk(i * 1_000, 1_000), 0);
        }
        let written = counter.finish();
        assert_eq!((written.rows, written.error), (500, None));
        let rows = read(&root.join("records").join(&written.parts[0]));
        assert!(rows.iter().all(|b| {
            b.column_by_name("seq").unwrap().as_primitive::<UInt64Type>().values().iter().all(|seq| seq % 10 == 0)
        }));
        let seconds = read(&root.join("seconds").join(&written.second_parts[0]));
        assert_eq!((sum(&seconds, "due"), sum(&seconds, "done"), sum(&seconds, "sent")), (5_000, 5_000, 0));
        assert_eq!(
            (sum(&seconds, "cancelled"), sum(&seconds, "due_cancelled"), sum(&seconds, "ok")),
            (5_000, 5_000, 0)
        );
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_disk_that_is_slower_than_the_load_ends_it_and_keeps_the_rows() {
        let root = folder("counter-slow");
        // A pipe that nobody reads: opening it for writing waits, as a disk may.
        let pipe = root.join("records/part-00000.unfinished");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let keeping =
            Keeping { dir: Some(root.join("records")), keep_bytes: 0, sample: 1, most_waiting_bytes: 1 << 20 };
        let counter = start_with(keeping);
        let failed = counter.failed();
        let mut sent = 0;
        while !failed.load(Relaxed) {
            counter.teller().rows(chunk(sent, 1_000), 0);
            sent += 1_000;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let most = (1 << 20) / (1_000 * Chunk::ROW_BYTES) + 1;
        assert!(sent >= most * 1_000, "{sent} rows are no more than may wait");
        let feed = counter.feed();
        let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
        let written = counter.finish();
        assert_eq!((written.rows, feed.totals().count()), (sent, sent), "what was taken is counted and kept");
        assert!(written.error.unwrap().contains("came faster than the disk"));
        assert!(reader.join().unwrap().starts_with(b"PAR1"));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_counter_that_gets_no_time_ends_the_level_and_keeps_the_rows() {
        let keeping = Keeping { dir: None, keep_bytes: 0, sample: 1, most_waiting_bytes: 1 << 20 };
        let counter = start_with(keeping);
        let (failed, feed, teller) = (counter.failed(), counter.feed(), counter.teller());
        let starved = feed.held();
        let most = (1 << 20) / (1_000 * Chunk::ROW_BYTES);
        let mut sent = 0;
        while !failed.load(Relaxed) {
            assert!(sent <= 3 * most * 1_000, "{sent} rows wait, and nobody stops the load");
            teller.rows(chunk(sent, 1_000), 0);
            sent += 1_000;
        }
        assert!(sent > most * 1_000, "{sent} rows may wait");
        // What was on its way when the level was told to end comes still.
        teller.rows(chunk(sent, 500), 0);
        drop(starved);
        let written = counter.finish();
        assert_eq!((written.rows, feed.totals().count()), (sent + 500, sent + 500), "all is counted and kept");
        assert!(written.error.unwrap().contains("faster than this machine counts them: 1 MiB"));
    }
}
