use super::*;
use crate::outcome::Outcome;
use crate::record::columns::{Common, Due, Row};
use crate::record::feed::Report;
use crate::record::window::SECOND_NS;
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
    let (seconds, histograms) = accounts.hand_on().unwrap().unwrap();
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
    assert!(accounts.hand_on().unwrap().is_none());
}

#[test]
fn what_is_handed_on_in_pieces_adds_up() {
    let rows: Vec<Row> = (0..20_000)
        .map(|i| {
            let row =
                request(i, (i % 3) as u16, (i as i64 * 7_919_113) % (40 * S), 1_000 + (i as i64 * 999_983) % (9 * S));
            if i % 17 == 0 { failed(row, Outcome::HttpError, i % 34 == 0) } else { row }
        })
        .collect();
    let feed = Arc::new(Feed::default());
    let mut accounts = Accounts::new(feed.clone(), true);
    let mut sums: BTreeMap<Key, Line> = BTreeMap::new();
    let mut buckets = 0;
    for part in rows.chunks(777) {
        accounts.take(&chunk(part), START);
        let (seconds, histograms) = accounts.hand_on().unwrap().unwrap();
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
    let (_, histograms) = accounts.hand_on().unwrap().unwrap();
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
                accounts.hand_on().unwrap();
            }
        }
        let through = second as u32;
        feed.hear(&Report { worker: 0, members: 1, through, ..Report::default() });
        let bytes = (accounts.bytes(), feed.bytes());
        most = (most.0.max(bytes.0), most.1.max(bytes.1));
    }
    assert!(most.0 < 16 << 20 && most.1 < 16 << 20, "{most:?}");
}
