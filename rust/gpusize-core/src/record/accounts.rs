//! What is counted of every request, by second: no request is too many for it, whatever becomes of its row.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::columns::{Chunk, Counted};
use super::feed::Feed;
use super::row::NO_TIME;
use super::tables;
use super::tally::{Metric, Outcomes, Tally, add};
use crate::outcome::Outcome;

/// A second of the level, counted from its start, and a stream.
pub type Key = (u32, u16);

/// Seconds that are kept apart at once; with more, what was counted is handed on early.
const MOST_KEYS: usize = 256;

const SECOND_NS: u64 = 1_000_000_000;

/// The second after `start_ns` in which `ns` lies.
pub fn second_of(ns: i64, start_ns: i64) -> u32 {
    (ns.saturating_sub(start_ns).max(0) as u64 / SECOND_NS).min(u64::from(u32::MAX - 1)) as u32
}

/// Counts by the second of the event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    /// Requests that were due.
    pub due: u64,
    /// First writes.
    pub sent: u64,
    /// Ends, by outcome.
    pub ended: Outcomes,
    /// Requests that were due, by their outcome.
    pub of_due: Outcomes,
}

/// What has been counted since it was last handed on.
#[derive(Debug)]
pub struct Accounts {
    /// Requests that ended in the second at hand, by when they were due.
    scratch: Vec<(Key, Tally)>,
    index: BTreeMap<Key, usize>,
    /// The second at hand.
    at: u32,
    due: BTreeMap<Key, Tally>,
    events: BTreeMap<Key, Events>,
    feed: Arc<Feed>,
    /// Whether anybody takes what is counted by the second.
    hands_on: bool,
}

impl Accounts {
    /// Nothing counted yet; `feed` is told what ended in each second.
    pub fn new(feed: Arc<Feed>, hands_on: bool) -> Self {
        Self {
            scratch: Vec::new(),
            index: BTreeMap::new(),
            at: 0,
            due: BTreeMap::new(),
            events: BTreeMap::new(),
            feed,
            hands_on,
        }
    }

    /// Count the rows of a level that began at `start_ns`.
    ///
    /// Row for row it is found out which seconds a row belongs to, which nearly always are those of the row before; what
    /// such rows have in common is counted metric by metric.
    pub fn take(&mut self, chunk: &Chunk, start_ns: i64) {
        let rows = chunk.counted();
        let rows = &rows;
        let mut gaps = rows.gap_places;
        let (mut ended, mut due) = (Window::default(), Window::default());
        let (mut first, mut stream) = (0, 0);
        for i in 0..rows.end_ns.len() {
            let (due_ns, mine) = (rows.due_ns[i], rows.stream.get(i).copied().unwrap_or(0));
            let end_ns = if rows.end_ns[i] == NO_TIME { due_ns } else { rows.end_ns[i] };
            if ended.holds(end_ns) && due.holds(due_ns) && mine == stream {
                continue;
            }
            self.count(rows, first..i, (due.number, stream), start_ns, &mut gaps);
            if !ended.holds(end_ns) {
                self.settle();
                ended = Window::of(end_ns, start_ns);
                self.at = ended.number;
            }
            due = Window::of(due_ns, start_ns);
            (first, stream) = (i, mine);
        }
        self.count(rows, first..rows.end_ns.len(), (due.number, stream), start_ns, &mut gaps);
        self.settle();
    }

    /// Count rows of one key that ended in the second at hand.
    fn count(&mut self, rows: &Counted<'_>, range: Range<usize>, key: Key, start_ns: i64, gaps: &mut &[u16]) {
        if range.is_empty() {
            return;
        }
        let at = self.place(key);
        if self.hands_on {
            self.count_sent(&rows.sent_ns[range.clone()], key.1, start_ns);
        }
        let tally = &mut self.scratch[at].1;
        for outcome in &rows.outcome[range.clone()] {
            tally.outcomes[usize::from(*outcome)] += 1;
        }
        count_times(tally, rows, &range);
        let counted = range.start.min(rows.gap_counts.len())..range.end.min(rows.gap_counts.len());
        let count: usize = rows.gap_counts[counted].iter().map(|n| *n as usize).sum();
        let (these, others) = gaps.split_at(count.min(gaps.len()));
        *gaps = others;
        tally.times[Metric::Itl as usize].record_places(these.iter().copied());
    }

    fn count_sent(&mut self, sent_ns: &[i64], stream: u16, start_ns: i64) {
        let (mut second, mut n) = (Window::default(), 0);
        for sent_ns in sent_ns.iter().copied().filter(|ns| *ns != NO_TIME) {
            if !second.holds(sent_ns) {
                self.add_sent((second.number, stream), n);
                (second, n) = (Window::of(sent_ns, start_ns), 0);
            }
            n += 1;
        }
        self.add_sent((second.number, stream), n);
    }

    fn add_sent(&mut self, key: Key, n: u64) {
        if n > 0 {
            self.events.entry(key).or_default().sent += n;
        }
    }

    fn place(&mut self, key: Key) -> usize {
        let next = self.scratch.len();
        let place = *self.index.entry(key).or_insert(next);
        if place == next {
            self.scratch.push((key, Tally::default()));
        }
        place
    }

    /// What ended in the second at hand goes where it belongs.
    fn settle(&mut self) {
        if self.scratch.is_empty() {
            return;
        }
        self.index.clear();
        self.feed.add(self.at, self.scratch.iter().map(|(_, tally)| tally));
        for (key, tally) in self.scratch.drain(..) {
            if !self.hands_on {
                continue;
            }
            add(&mut self.events.entry((self.at, key.1)).or_default().ended, &tally.outcomes);
            let events = self.events.entry(key).or_default();
            events.due += tally.count();
            add(&mut events.of_due, &tally.outcomes);
            match self.due.entry(key) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(tally);
                }
                std::collections::btree_map::Entry::Occupied(mut sum) => sum.get_mut().merge(&tally),
            }
        }
    }

    /// Whether so much is kept apart that it should be handed on.
    pub fn is_full(&self) -> bool {
        self.due.len().max(self.events.len()) >= MOST_KEYS
    }

    /// Hand on what was counted since the last time: the counts, and the buckets of the times.
    pub fn hand_on(&mut self) -> Option<(RecordBatch, RecordBatch)> {
        if self.events.is_empty() {
            return None;
        }
        let (events, due) = (std::mem::take(&mut self.events), std::mem::take(&mut self.due));
        Some((tables::seconds(&events), tables::histograms(&due)))
    }

    /// Bytes on the heap, about.
    pub fn bytes(&self) -> usize {
        let of =
            |tally: &Tally| size_of::<Tally>() + tally.times.iter().map(super::histogram::Times::bytes).sum::<usize>();
        self.due.values().map(of).sum::<usize>()
            + self.events.len() * size_of::<(Key, Events)>()
            + self.scratch.capacity() * size_of::<(Key, Tally)>()
    }
}

/// A second on the clock of the records.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    number: u32,
    begins_ns: i64,
    ends_ns: i64,
}

impl Window {
    /// The second in which `ns` lies.
    fn of(ns: i64, start_ns: i64) -> Self {
        let number = second_of(ns, start_ns);
        let begins_ns = start_ns + i64::from(number) * SECOND_NS as i64;
        // Whatever lies before the start counts in the first second.
        let earliest = if number == 0 { i64::MIN } else { begins_ns };
        Self { number, begins_ns: earliest, ends_ns: begins_ns.saturating_add(SECOND_NS as i64) }
    }

    fn holds(&self, ns: i64) -> bool {
        ns >= self.begins_ns && ns < self.ends_ns
    }
}

/// Count the times of these rows.
fn count_times(tally: &mut Tally, rows: &Counted<'_>, range: &Range<usize>) {
    let (due, fired) = (&rows.due_ns[range.clone()], &rows.fired_ns[range.clone()]);
    let (sent, end) = (&rows.sent_ns[range.clone()], &rows.end_ns[range.clone()]);
    let outcome = &rows.outcome[range.clone()];
    let all_sent = sent.iter().all(|ns| *ns != NO_TIME) && fired.iter().all(|ns| *ns != NO_TIME);
    let ok = |i: &usize| outcome[*i] == Outcome::Ok as u8 && sent[*i] != NO_TIME && end[*i] != NO_TIME;
    let all_ended = end.iter().all(|ns| *ns != NO_TIME);
    if all_sent && all_ended && outcome.iter().all(|o| *o == Outcome::Ok as u8) {
        // Nearly always, so that the tests of each row are worth leaving out.
        tally.record_all(Metric::Lateness, sent.iter().zip(due).map(|(a, b)| a - b));
        tally.record_all(Metric::PacerLate, fired.iter().zip(due).map(|(a, b)| a - b));
        tally.record_all(Metric::NoConnection, sent.iter().zip(fired).map(|(a, b)| a - b));
        tally.record_all(Metric::Runtime, end.iter().zip(due).map(|(a, b)| a - b));
        tally.record_all(Metric::Service, end.iter().zip(sent).map(|(a, b)| a - b));
    } else {
        let went = |i: &usize| sent[*i] != NO_TIME;
        let fell = |i: &usize| went(i) && fired[*i] != NO_TIME;
        let n = range.len();
        tally.record_all(Metric::Lateness, (0..n).filter(went).map(|i| sent[i] - due[i]));
        tally.record_all(Metric::PacerLate, (0..n).filter(fell).map(|i| fired[i] - due[i]));
        tally.record_all(Metric::NoConnection, (0..n).filter(fell).map(|i| sent[i] - fired[i]));
        tally.record_all(Metric::Runtime, (0..n).filter(ok).map(|i| end[i] - due[i]));
        tally.record_all(Metric::Service, (0..n).filter(ok).map(|i| end[i] - sent[i]));
    }
    let first = rows.first_token_ns;
    let first = &first[range.start.min(first.len())..range.end.min(first.len())];
    let began = |i: &usize| first[*i] != NO_TIME && ok(i);
    tally.record_all(Metric::Ttft, (0..first.len()).filter(began).map(|i| first[i] - due[i]));
    tally.record_all(Metric::TtftSent, (0..first.len()).filter(began).map(|i| first[i] - sent[i]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::columns::{Common, Due, Row};
    use crate::record::feed::Report;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};

    const S: i64 = SECOND_NS as i64;
    const START: i64 = 1_000 * S + 123;

    /// A request that ended ok `took_ns` after it was due, written 1,000 ns after it was let go, and that 500 ns late.
    fn request(seq: u64, stream: u16, due_ns: i64, took_ns: i64) -> Row {
        let mut row = Row::due(Due { seq, stream, due_ns: START + due_ns, fired_ns: START + due_ns + 500, row: 0 });
        row.sent_ns = row.fired_ns + 1_000;
        row.end_ns = row.due_ns + took_ns;
        row.outcome = Outcome::Ok;
        row
    }

    fn failed(mut row: Row, outcome: Outcome, sent: bool) -> Row {
        row.outcome = outcome;
        if !sent {
            row.sent_ns = NO_TIME;
        }
        row
    }

    fn chunk(rows: &[Row]) -> Chunk {
        let mut chunk = Chunk::new(Common::default(), rows.len());
        for row in rows {
            chunk.push(row);
        }
        chunk
    }

    type Line = BTreeMap<String, u64>;

    fn lines(batch: &RecordBatch) -> Vec<Line> {
        let schema = batch.schema();
        let of = |i: usize| {
            let values = schema.fields().iter().map(|f| {
                let column = batch.column_by_name(f.name()).unwrap();
                let value = match f.name().as_str() {
                    "second" => column.as_primitive::<UInt32Type>().value(i).into(),
                    "stream" => column.as_primitive::<UInt16Type>().value(i).into(),
                    _ => column.as_primitive::<UInt64Type>().value(i),
                };
                (f.name().clone(), value)
            });
            values.filter(|(_, value)| *value > 0).collect()
        };
        (0..batch.num_rows()).map(of).collect()
    }

    fn line(values: &[(&str, u64)]) -> Line {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn requests_count_where_they_were_due_sent_and_ended() {
        let mut accounts = Accounts::new(Arc::default(), true);
        accounts.take(
            &chunk(&[
                request(0, 0, S / 2, S / 4),
                failed(request(1, 0, S / 2, S), Outcome::Timeout, true),
                request(2, 3, S - 600, 2 * S),
                failed(request(3, 0, 3 * S, 0), Outcome::Shed, false),
            ]),
            START,
        );
        let (seconds, histograms) = accounts.hand_on().unwrap();
        let want = [
            line(&[("due", 2), ("sent", 2), ("done", 1), ("ok", 1), ("due_ok", 1), ("due_timeout", 1)]),
            line(&[("stream", 3), ("due", 1), ("due_ok", 1)]),
            line(&[("second", 1), ("done", 1), ("timeout", 1)]),
            // Due just before the second, sent just after its beginning.
            line(&[("second", 1), ("stream", 3), ("sent", 1)]),
            line(&[("second", 2), ("stream", 3), ("done", 1), ("ok", 1)]),
            line(&[("second", 3), ("due", 1), ("done", 1), ("shed", 1), ("due_shed", 1)]),
        ];
        assert_eq!(lines(&seconds), want);
        let text = |i: usize| histograms.column(0).as_string::<i32>().value(i).to_owned();
        let low = histograms.column(3).as_primitive::<Int64Type>();
        let runtimes: Vec<i64> =
            (0..histograms.num_rows()).filter(|i| text(*i) == "runtime").map(|i| low.value(i)).collect();
        assert_eq!(runtimes.len(), 2, "of those that ended ok");
        assert!((runtimes[0] - S / 4).abs() < S / 400 && (runtimes[1] - 2 * S).abs() < S / 50, "{runtimes:?}");
        let lateness = (0..histograms.num_rows()).filter(|i| text(*i) == "lateness").count();
        assert_eq!(lateness, 2, "one bucket in each of two streams: a timeout was sent, too");
        assert!(accounts.hand_on().is_none());
    }

    #[test]
    fn what_is_handed_on_in_pieces_adds_up() {
        let rows: Vec<Row> = (0..20_000)
            .map(|i| {
                let row = request(
                    i,
                    (i % 3) as u16,
                    (i as i64 * 7_919_113) % (40 * S),
                    1_000 + (i as i64 * 999_983) % (9 * S),
                );
                if i % 17 == 0 { failed(row, Outcome::HttpError, i % 34 == 0) } else { row }
            })
            .collect();
        let feed = Arc::new(Feed::default());
        let mut accounts = Accounts::new(feed.clone(), true);
        let mut sums: BTreeMap<Key, Line> = BTreeMap::new();
        let mut buckets = 0;
        for part in rows.chunks(777) {
            accounts.take(&chunk(part), START);
            let (seconds, histograms) = accounts.hand_on().unwrap();
            for found in lines(&seconds) {
                let of = |name: &str| found.get(name).copied().unwrap_or(0);
                let sum = sums.entry((of("second") as u32, of("stream") as u16)).or_default();
                for (name, value) in &found {
                    *sum.entry(name.clone()).or_default() += value;
                }
            }
            buckets += histograms.column(5).as_primitive::<UInt64Type>().values().iter().sum::<u64>();
        }
        let by = |of: &dyn Fn(&Row) -> i64, only: &dyn Fn(&Row) -> bool| {
            let mut counts: BTreeMap<Key, u64> = BTreeMap::new();
            for row in rows.iter().filter(|r| only(r)) {
                *counts.entry((((of(row) - START) / S) as u32, row.stream)).or_default() += 1;
            }
            counts
        };
        let found = |name: &str| -> BTreeMap<Key, u64> {
            sums.iter().filter_map(|(key, line)| Some((*key, *line.get(name)?))).collect()
        };
        let all = |_: &Row| true;
        assert_eq!(found("due"), by(&|r| r.due_ns, &all));
        assert_eq!(found("done"), by(&|r| r.end_ns, &all));
        assert_eq!(found("sent"), by(&|r| r.sent_ns, &|r| r.sent_ns != NO_TIME));
        assert_eq!(found("due_ok"), by(&|r| r.due_ns, &|r| r.outcome == Outcome::Ok));
        assert_eq!(found("http_error"), by(&|r| r.end_ns, &|r| r.outcome == Outcome::HttpError));
        let (ok, sent) = (feed.totals().of(Metric::Runtime).count(), feed.totals().of(Metric::Lateness).count());
        assert_eq!(buckets, 2 * ok + 3 * sent, "each request in each of its metrics once");
        assert_eq!(feed.totals().count(), 20_000);
    }

    #[test]
    fn gaps_belong_to_their_requests() {
        let feed = Arc::new(Feed::default());
        let mut accounts = Accounts::new(feed.clone(), true);
        let mut rows = Chunk::new(Common::default(), 4);
        rows.push(&request(0, 0, 0, 10));
        rows.push(&request(1, 0, 2 * S, 10));
        rows.push_gaps(&[5, 5, 900]);
        rows.push(&request(2, 0, 4 * S, 10));
        rows.push_gaps(&[7]);
        accounts.take(&rows, START);
        let (_, histograms) = accounts.hand_on().unwrap();
        let metric = histograms.column(0).as_string::<i32>();
        let second = histograms.column(1).as_primitive::<UInt32Type>();
        let count = histograms.column(5).as_primitive::<UInt64Type>();
        let gaps: Vec<(u32, u64)> = (0..histograms.num_rows())
            .filter(|i| metric.value(*i) == "itl")
            .map(|i| (second.value(i), count.value(i)))
            .collect();
        assert_eq!(gaps, [(2, 2), (2, 1), (4, 1)]);
        assert_eq!(feed.totals().of(Metric::Itl).count(), 4);
    }

    #[test]
    fn memory_does_not_grow_with_the_seconds() {
        let feed = Arc::new(Feed::default());
        let mut accounts = Accounts::new(feed.clone(), true);
        let mut most = (0, 0);
        for second in 0..1_500_i64 {
            // Ten a second, each of which ends minutes later: many seconds are open at once.
            let rows: Vec<Row> = (0..10)
                .map(|i| request(0, 0, second * S + i * S / 10, 1_000_000 + (second * 10 + i) * 7_777_777 % (400 * S)))
                .collect();
            for row in &rows {
                accounts.take(&chunk(std::slice::from_ref(row)), START);
                if accounts.is_full() {
                    accounts.hand_on();
                }
            }
            let through = second as u32;
            feed.hear(&Report { worker: 0, members: 1, through, ..Report::default() });
            let bytes = (accounts.bytes(), feed.bytes());
            most = (most.0.max(bytes.0), most.1.max(bytes.1));
        }
        assert!(most.0 < 16 << 20 && most.1 < 16 << 20, "{most:?}");
    }
}
