//! What is counted of every request, by second: no request is too many for it, whatever becomes of its row.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::columns::{Chunk, Counted};
use super::feed::Feed;
use super::row::NO_TIME;
use super::row_times::count_times;
use super::tables;
use super::tally::{Metric, Outcomes, Tally, add};
use super::window::Window;
pub use super::window::second_of;

/// A second of the level, counted from its start, and a stream.
pub type Key = (u32, u16);

/// Seconds that are kept apart at once; with more, what was counted is handed on early.
const MOST_KEYS: usize = 256;

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
    pub fn hand_on(&mut self) -> Result<Option<(RecordBatch, RecordBatch)>, ArrowError> {
        if self.events.is_empty() {
            return Ok(None);
        }
        let (events, due) = (std::mem::take(&mut self.events), std::mem::take(&mut self.due));
        Ok(Some((tables::seconds(&events)?, tables::histograms(&due)?)))
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

#[cfg(test)]
mod tests;
