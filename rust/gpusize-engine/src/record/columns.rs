//! Rows as columns: one chunk belongs to one worker until it is full, then becomes an Arrow batch without a copy.

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;

use super::lists::Lists;
pub use super::row::{Due, NO_TIME, Row};
use super::row::{NO_COUNT, NO_SESSION, NO_STATUS, NO_TURN};
use super::schema::{schema, schema_with_events};
use super::spans::SpanChunk;
use gpusize_base::arrays::{LARGEST_ROWS, filled, full, gaps};
use gpusize_base::sparse::{Sparse, keep};

/// What all rows of a chunk share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Common {
    /// Level visit.
    pub visit: u32,
    /// Number of the host.
    pub host: u16,
    /// Number of the engine's worker, over all hosts.
    pub worker: u16,
}

/// Rows of one worker and one level.
#[derive(Debug)]
pub struct Chunk {
    common: Common,
    stream: Sparse<u16>,
    seq: Vec<u64>,
    attempt: Vec<u16>,
    row: Vec<u32>,
    target: Sparse<u16>,
    model: Sparse<u16>,
    session: Sparse<u64>,
    turn: Sparse<u16>,
    conn: Vec<u32>,
    times: [Vec<i64>; 5],
    rare_times: [Sparse<i64>; 2],
    events: Vec<u32>,
    tokens: [Sparse<u32>; 4],
    bytes: [Vec<u64>; 2],
    status: Vec<u16>,
    outcome: Vec<u8>,
    error_id: Sparse<u32>,
    reasoning_events: Sparse<u32>,
    stream_times: [Sparse<i64>; 3],
    itl: [Sparse<i64>; 5],
    server: [Sparse<i64>; 2],
    events_ns: Option<Lists>,
    /// Buckets of the gaps of those that ended ok, and how many each row has; counted, not kept.
    gap_places: Vec<u16>,
    gap_counts: Sparse<u32>,
    spans: SpanChunk,
}

/// The columns of a chunk that counts are made of; those that end early have no value in the rows that follow.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// Streams of the load; ends early.
    pub stream: &'a [u16],
    /// When the schedule wanted each sent.
    pub due_ns: &'a [i64],
    /// When the pacer let it go.
    pub fired_ns: &'a [i64],
    /// Just before the first write.
    pub sent_ns: &'a [i64],
    /// First content; ends early.
    pub first_token_ns: &'a [i64],
    /// Just after the last read.
    pub end_ns: &'a [i64],
    /// Numbers of the outcomes.
    pub outcome: &'a [u8],
    /// How many of the buckets that follow belong to each row; ends early.
    pub gap_counts: &'a [u32],
    /// Numbers of the buckets of gaps between events.
    pub gap_places: &'a [u16],
}

impl Chunk {
    /// Most rows of a chunk. Each column of each batch costs Polars a kilobyte of fresh memory at the hand-over, so ten
    /// million rows must not come in hundreds of batches.
    pub const LARGEST_ROWS: usize = LARGEST_ROWS;

    /// Bytes of one row in memory, without the times of its events.
    pub const ROW_BYTES: u64 =
        4 + 2 + 8 + 2 + 4 + 2 + 2 + 8 + 2 + 2 + 2 + 4 + 9 * 8 + 4 + 4 * 4 + 2 * 8 + 2 + 1 + 4 + 4 + 6 * 8 + 2 * 8;

    /// A chunk with this many event times or calls is full whatever its rows.
    const LARGEST_PARTS: usize = 1 << 20;

    /// An empty chunk with room for `capacity` rows.
    pub fn new(common: Common, capacity: usize) -> Self {
        Self {
            common,
            stream: Sparse::default(),
            seq: Vec::with_capacity(capacity),
            attempt: Vec::with_capacity(capacity),
            row: Vec::with_capacity(capacity),
            target: Sparse::default(),
            model: Sparse::default(),
            session: Sparse::default(),
            turn: Sparse::default(),
            conn: Vec::with_capacity(capacity),
            times: std::array::from_fn(|_| Vec::with_capacity(capacity)),
            rare_times: Default::default(),
            events: Vec::with_capacity(capacity),
            tokens: Default::default(),
            bytes: std::array::from_fn(|_| Vec::with_capacity(capacity)),
            status: Vec::with_capacity(capacity),
            outcome: Vec::with_capacity(capacity),
            error_id: Sparse::default(),
            reasoning_events: Sparse::default(),
            stream_times: Default::default(),
            itl: Default::default(),
            server: Default::default(),
            events_ns: None,
            gap_places: Vec::new(),
            gap_counts: Sparse::default(),
            spans: SpanChunk::new(common),
        }
    }

    /// Keep the times of events too.
    #[must_use]
    pub fn with_events(mut self) -> Self {
        self.events_ns = Some(Lists::default());
        self
    }

    /// The calls inside the requests.
    pub fn take_spans(&mut self) -> SpanChunk {
        std::mem::replace(&mut self.spans, SpanChunk::new(self.common))
    }

    /// The first version of the schema that has a column for every value.
    pub fn version(&self) -> u32 {
        let is_plain = self.stream_times[2].is_empty()
            && self.reasoning_events.is_empty()
            && self.itl[0].is_empty()
            && self.events_ns.is_none();
        match self.server.iter().all(Sparse::is_empty) {
            false => 3,
            true if is_plain => 1,
            true => 2,
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.len() as u64 * Self::ROW_BYTES + self.events_ns.as_ref().map_or(0, Lists::bytes)
    }

    /// Rows held.
    pub fn len(&self) -> usize {
        self.seq.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.seq.is_empty()
    }

    /// Whether another row would make the columns grow.
    pub fn is_full(&self) -> bool {
        self.seq.len() == self.seq.capacity()
            || self.spans.len().max(self.gap_places.len()) >= Self::LARGEST_PARTS
            || self.events_ns.as_ref().is_some_and(|l| l.len() >= Self::LARGEST_PARTS)
    }

    /// Add one row.
    pub fn push(&mut self, r: &Row) {
        let at = self.seq.len();
        self.seq.push(r.seq);
        self.attempt.push(r.attempt);
        self.row.push(r.row);
        self.conn.push(r.conn);
        let times = [r.due_ns, r.fired_ns, r.sent_ns, r.first_byte_ns, r.end_ns];
        for (column, value) in self.times.iter_mut().zip(times) {
            column.push(value);
        }
        self.events.push(r.events);
        self.bytes[0].push(r.bytes_in);
        self.bytes[1].push(r.bytes_out);
        self.status.push(r.status);
        self.outcome.push(r.outcome as u8);
        if r.has_rare() {
            self.push_rare(at, r);
        }
        if r.events > 0 {
            self.push_stream(at, r);
        }
        if let Some(lists) = &mut self.events_ns {
            lists.push(r.events_ns.as_deref().unwrap_or_default());
        }
        if let Some(spans) = &r.spans {
            self.spans.push(r, spans.to_vec());
        }
    }

    /// The gaps of the last row, by the numbers of their buckets.
    pub fn push_gaps(&mut self, places: &[u16]) {
        if let Some(at) = self.seq.len().checked_sub(1) {
            self.gap_counts.push(at, places.len() as u32, 0);
            self.gap_places.extend_from_slice(places);
        }
    }

    /// What is counted of the rows.
    pub fn counted(&self) -> Counted<'_> {
        let [due_ns, fired_ns, sent_ns, _, end_ns] = &self.times;
        Counted {
            stream: self.stream.values(),
            due_ns,
            fired_ns,
            sent_ns,
            first_token_ns: self.stream_times[0].values(),
            end_ns,
            outcome: &self.outcome,
            gap_counts: self.gap_counts.values(),
            gap_places: &self.gap_places,
        }
    }

    /// Keep the rows whose number is a multiple of `n`, and their calls.
    pub fn sample(&mut self, n: u64) {
        let marks: Vec<bool> = self.seq.iter().map(|seq| seq.is_multiple_of(n)).collect();
        let marks = marks.as_slice();
        keep(&mut self.seq, marks);
        keep(&mut self.attempt, marks);
        keep(&mut self.row, marks);
        keep(&mut self.conn, marks);
        self.times.iter_mut().for_each(|column| keep(column, marks));
        keep(&mut self.events, marks);
        self.bytes.iter_mut().for_each(|column| keep(column, marks));
        keep(&mut self.status, marks);
        keep(&mut self.outcome, marks);
        for column in [&mut self.stream, &mut self.target, &mut self.model, &mut self.turn] {
            column.keep(marks);
        }
        self.session.keep(marks);
        self.rare_times.iter_mut().for_each(|column| column.keep(marks));
        self.tokens.iter_mut().for_each(|column| column.keep(marks));
        self.error_id.keep(marks);
        self.reasoning_events.keep(marks);
        self.stream_times.iter_mut().for_each(|column| column.keep(marks));
        self.itl.iter_mut().for_each(|column| column.keep(marks));
        self.server.iter_mut().for_each(|column| column.keep(marks));
        if let Some(lists) = &mut self.events_ns {
            lists.keep(marks);
        }
        self.spans.sample(n);
    }

    /// What most rows have none of.
    fn push_rare(&mut self, at: usize, r: &Row) {
        for (column, value) in self.rare_times.iter_mut().zip([r.connect_ns, r.tls_ns]) {
            column.push(at, value, NO_TIME);
        }
        let tokens = [r.tokens_in, r.tokens_out, r.tokens_cached, r.tokens_reasoning];
        for (column, value) in self.tokens.iter_mut().zip(tokens) {
            column.push(at, value.unwrap_or(NO_COUNT), NO_COUNT);
        }
        for (column, value) in self.server.iter_mut().zip([r.server_queue_ns, r.server_service_ns]) {
            column.push(at, value, NO_TIME);
        }
        self.error_id.push(at, r.error_id.unwrap_or(NO_COUNT), NO_COUNT);
        self.stream.push(at, r.stream, 0);
        self.target.push(at, r.target, 0);
        self.model.push(at, r.model, 0);
        self.session.push(at, r.session.unwrap_or(NO_SESSION), NO_SESSION);
        self.turn.push(at, r.turn.unwrap_or(NO_TURN), NO_TURN);
    }

    /// What only answers with content events have.
    fn push_stream(&mut self, at: usize, r: &Row) {
        self.reasoning_events.push(at, r.reasoning_events, 0);
        let times = [r.first_token_ns, r.last_token_ns, r.first_output_ns];
        for (column, value) in self.stream_times.iter_mut().zip(times) {
            column.push(at, value, NO_TIME);
        }
        if let Some(gaps) = &r.itl {
            let values = [gaps.min_ns, gaps.mean_ns, gaps.p50_ns, gaps.p99_ns, gaps.max_ns];
            for (column, value) in self.itl.iter_mut().zip(values) {
                column.push(at, value, NO_TIME);
            }
        }
    }

    /// The chunk as an Arrow batch; columns change owner, they are not copied. Columns that do not fit one another are an
    /// error, never rows that are missing.
    pub fn into_batch(self) -> Result<RecordBatch, ArrowError> {
        let n = self.len();
        let same = |value: u16| filled::<UInt16Type>(n, value);
        let [due, fired, sent, first_byte, end] = self.times;
        let [connect, tls] = self.rare_times.map(|times| times.into_array::<Int64Type>(n, NO_TIME));
        let [first_token, last_token, first_output] =
            self.stream_times.map(|times| times.into_array::<Int64Type>(n, NO_TIME));
        let [tokens_in, tokens_out, tokens_cached, tokens_reasoning] =
            self.tokens.map(|tokens| tokens.into_array::<UInt32Type>(n, NO_COUNT));
        let [bytes_in, bytes_out] = self.bytes;
        let mut columns: Vec<ArrayRef> = vec![
            filled::<UInt32Type>(n, self.common.visit),
            self.stream.into_full::<UInt16Type>(n, 0),
            full::<UInt64Type>(self.seq),
            full::<UInt16Type>(self.attempt),
            full::<UInt32Type>(self.row),
            self.target.into_full::<UInt16Type>(n, 0),
            self.model.into_full::<UInt16Type>(n, 0),
            self.session.into_array::<UInt64Type>(n, NO_SESSION),
            self.turn.into_array::<UInt16Type>(n, NO_TURN),
            same(self.common.host),
            same(self.common.worker),
            full::<UInt32Type>(self.conn),
            full::<Int64Type>(due),
            gaps::<Int64Type>(fired, NO_TIME),
            gaps::<Int64Type>(sent, NO_TIME),
            connect,
            tls,
            gaps::<Int64Type>(first_byte, NO_TIME),
            first_token,
            last_token,
            gaps::<Int64Type>(end, NO_TIME),
            full::<UInt32Type>(self.events),
            tokens_in,
            tokens_out,
            tokens_cached,
            tokens_reasoning,
            full::<UInt64Type>(bytes_in),
            full::<UInt64Type>(bytes_out),
            gaps::<UInt16Type>(self.status, NO_STATUS),
            full::<UInt8Type>(self.outcome),
            self.error_id.into_array::<UInt32Type>(n, NO_COUNT),
            self.reasoning_events.into_full::<UInt32Type>(n, 0),
            first_output,
        ];
        columns.extend(self.itl.map(|times| times.into_array::<Int64Type>(n, NO_TIME)));
        columns.extend(self.server.map(|times| times.into_array::<Int64Type>(n, NO_TIME)));
        let fields = if let Some(lists) = self.events_ns {
            columns.push(lists.into_array());
            schema_with_events()
        } else {
            schema()
        };
        let options = RecordBatchOptions::new().with_row_count(Some(n));
        RecordBatch::try_new_with_options(fields, columns, &options)
    }

    /// One whose columns do not fit one another, as only a fault of ours could make it.
    #[cfg(test)]
    pub fn torn() -> Self {
        let mut chunk = Self::new(Common::default(), 2);
        chunk.push(&Row::due(Due::default()));
        chunk.seq.push(1);
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use crate::record::gaps::Gaps;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;

    #[test]
    fn a_batch_holds_what_was_pushed() {
        let mut chunk = Chunk::new(Common { visit: 7, host: 2, worker: 3 }, 4);
        let mut row = Row::due(Due { seq: 5, row: 2, due_ns: 100, fired_ns: 101, stream: 0 });
        chunk.push(&row);
        row.seq = 6;
        row.sent_ns = 110;
        row.end_ns = 120;
        row.status = 200;
        row.outcome = Outcome::Ok;
        row.tokens_out = Some(0);
        chunk.push(&row);
        chunk.push(&Row::due(Due { seq: 7, row: 2, due_ns: 100, fired_ns: 101, stream: 0 }));
        let batch = chunk.into_batch().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (3, schema().fields().len()));
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert_eq!(column("seq").as_primitive::<UInt64Type>().values(), &[5, 6, 7]);
        assert_eq!(column("visit").as_primitive::<UInt32Type>().values(), &[7, 7, 7]);
        let whose = ["host", "worker"].map(|name| column(name).as_primitive::<UInt16Type>().value(2));
        assert_eq!(whose, [2, 3]);
        assert!(column("sent_ns").is_null(0) && column("sent_ns").is_valid(1));
        assert!(column("status").is_null(0) && column("tokens_out").is_null(0) && column("tokens_out").is_valid(1));
        assert_eq!((column("tokens_out").null_count(), column("tokens_in").null_count()), (2, 3));
        assert_eq!(column("session").null_count(), 3);
        assert_eq!(column("fired_ns").null_count(), 0);
        assert_eq!(column("outcome").as_primitive::<UInt8Type>().values(), &[8, 0, 8]);
        assert_eq!(column("reasoning_events").as_primitive::<UInt32Type>().values(), &[0, 0, 0]);
        assert_eq!((column("first_output_ns").null_count(), column("itl_p50_ns").null_count()), (3, 3));
        assert_eq!(column("target").as_primitive::<UInt16Type>().values(), &[0, 0, 0]);
        assert!(batch.column_by_name("events_ns").is_none());
    }

    #[test]
    fn rows_that_cannot_become_a_batch_are_an_error() {
        assert!(Chunk::torn().into_batch().unwrap_err().to_string().contains("row count"));
    }

    #[test]
    fn a_sample_keeps_whole_rows() {
        let mut chunk = Chunk::new(Common::default(), 8).with_events();
        for seq in 0..8 {
            let mut row = Row::due(Due { seq, row: seq as u32, due_ns: 10, fired_ns: 11, stream: u16::from(seq == 3) });
            if seq % 2 == 1 {
                (row.tokens_out, row.events) = (Some(seq as u32), 1);
                row.events_ns = Some(vec![seq as i64; seq as usize].into());
            }
            chunk.push(&row);
            chunk.push_gaps(&[7; 3][..(seq % 3) as usize]);
        }
        assert_eq!(chunk.counted().gap_counts, [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!((chunk.counted().gap_places.len(), chunk.counted().stream), (7, &[0, 0, 0, 1][..]));
        chunk.sample(3);
        let batch = chunk.into_batch().unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert_eq!(column("seq").as_primitive::<UInt64Type>().values(), &[0, 3, 6]);
        assert_eq!(column("row").as_primitive::<UInt32Type>().values(), &[0, 3, 6]);
        assert_eq!(column("stream").as_primitive::<UInt16Type>().values(), &[0, 1, 0]);
        assert_eq!(column("tokens_out").as_primitive::<UInt32Type>().value(1), 3);
        assert_eq!(column("tokens_out").null_count(), 2);
        let lists = column("events_ns").as_list::<i32>();
        assert!(lists.is_null(0) && lists.is_null(2));
        assert_eq!(lists.value(1).as_primitive::<Int64Type>().values(), &[3, 3, 3]);
    }

    #[test]
    fn what_servers_say_has_columns_of_its_own() {
        let mut chunk = Chunk::new(Common::default(), 4);
        for (seq, queue_ns, service_ns) in [(0, NO_TIME, NO_TIME), (1, 5, NO_TIME), (2, NO_TIME, 0), (3, 7, 8)] {
            let row = Row::due(Due { seq, ..Due::default() });
            assert_eq!(chunk.version(), if seq < 2 { 1 } else { 3 });
            chunk.push(&Row { server_queue_ns: queue_ns, server_service_ns: service_ns, ..row });
        }
        chunk.sample(3);
        let batch = chunk.into_batch().unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        assert_eq!(column("server_queue_ns").iter().collect::<Vec<_>>(), [None, Some(7)]);
        assert_eq!(column("server_service_ns").iter().collect::<Vec<_>>(), [None, Some(8)]);
    }

    #[test]
    fn a_batch_holds_conversations_streams_and_event_times() {
        let mut chunk = Chunk::new(Common::default(), 4).with_events();
        chunk.push(&Row::due(Due::default()));
        let mut row = Row::due(Due { seq: 1, ..Due::default() });
        (row.stream, row.target, row.model, row.session, row.turn) = (9, 2, 3, Some(0), Some(0));
        (row.events, row.reasoning_events, row.first_output_ns) = (2, 1, 77);
        row.itl = Some(Gaps { min_ns: 1, mean_ns: 2, p50_ns: 3, p99_ns: 4, max_ns: 5 });
        row.events_ns = Some(Box::new([70, 77]));
        chunk.push(&row);
        chunk.push(&Row { events: 1, ..Row::due(Due { seq: 2, ..Due::default() }) });
        assert!(chunk.version() == 2 && chunk.bytes() == 3 * Chunk::ROW_BYTES + 2 * 8);
        let batch = chunk.into_batch().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (3, schema_with_events().fields().len()));
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert_eq!(column("stream").as_primitive::<UInt16Type>().values(), &[0, 9, 0]);
        assert_eq!(column("target").as_primitive::<UInt16Type>().values(), &[0, 2, 0]);
        assert_eq!(column("model").as_primitive::<UInt16Type>().values(), &[0, 3, 0]);
        assert_eq!((column("session").null_count(), column("turn").null_count()), (2, 2));
        assert_eq!(column("reasoning_events").as_primitive::<UInt32Type>().values(), &[0, 1, 0]);
        assert_eq!(column("first_output_ns").as_primitive::<Int64Type>().value(1), 77);
        for (name, want) in
            [("itl_min_ns", 1), ("itl_mean_ns", 2), ("itl_p50_ns", 3), ("itl_p99_ns", 4), ("itl_max_ns", 5)]
        {
            assert_eq!((column(name).as_primitive::<Int64Type>().value(1), column(name).null_count()), (want, 2));
        }
        let lists = column("events_ns").as_list::<i32>();
        assert_eq!(lists.value(1).as_primitive::<Int64Type>().values(), &[70, 77]);
        assert!(lists.is_null(0) && lists.is_null(2));
    }
}
