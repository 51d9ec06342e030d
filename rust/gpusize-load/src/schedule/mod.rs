//! When each request of an open loop is due, and which row it sends: pure functions of seed and sequence number.

mod arrivals;
mod exact;
mod planned;
mod rate;
mod rows;
mod sessions;
mod think;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use crate::spec::{self, Open, Order, StopSpec, Stream, Unit};
pub use arrivals::Arrivals;
use gpusize_base::error::{Error, Result};
pub use planned::Planned;
pub use rate::Curve;
pub use rows::Rows;
pub use sessions::Sessions;
pub use think::Thinks;

/// An arrival of the level's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Position in the schedule of all streams; worker `index` modulo their number serves it.
    pub index: u64,
    /// The stream that it belongs to.
    pub stream: u16,
    /// Position within the stream.
    pub seq: u64,
    /// Due time after the level's start.
    pub offset_ns: i64,
    /// Dataset row (with conversations: the first one's).
    pub row: u32,
    /// Address, where the plan says so.
    pub target: Option<u16>,
    /// The higher goes first among those that wait for a connection.
    pub priority: i32,
}

/// All streams of a level, merged by due time; those due at the same moment in the order of their list.
///
/// Every worker walks the same schedule and serves its stride of it, so it does not depend on their number. A clone begins
/// where the original stands.
#[derive(Clone, Debug)]
pub struct Schedule {
    lanes: Vec<Lane>,
    source: Source,
    sessions: Option<Arc<Sessions>>,
    /// Of the next item that is looked at.
    index: u64,
    /// Items of others before the next one, and between any two.
    skip: u64,
    stride: u64,
}

/// One stream.
#[derive(Clone, Debug)]
struct Lane {
    id: u16,
    priority: i32,
    rows: Rows,
    start_ns: i64,
    count: u64,
    /// None where due times were handed over.
    arrivals: Option<Arrivals>,
    /// Arrivals so far, where due times were handed over.
    planned: u64,
}

#[derive(Clone, Debug)]
enum Source {
    One,
    /// The next arrival of each stream that has one: due time, position of the stream, sequence number.
    Merged(BinaryHeap<Reverse<(i64, usize, u64)>>),
    Planned(Arc<Planned>),
}

/// Position of a stream, sequence number, due time.
type Arrival = (usize, u64, i64);

impl Schedule {
    /// The schedule of a load over a dataset of so many rows, each a unit of its own.
    ///
    /// `planned` must have passed [`Planned::check`].
    pub fn new(
        open: &Open,
        seed: u64,
        order: Order,
        dataset_rows: usize,
        planned: Option<Arc<Planned>>,
    ) -> Result<Self> {
        let within = |first: u32, count: u32| (u64::from(first), u64::from(count));
        Self::of(open, seed, order, dataset_rows, planned, &within)
    }

    /// Likewise with conversations: an arrival begins one, and its row is the first.
    pub fn of_sessions(
        open: &Open,
        seed: u64,
        order: Order,
        sessions: Arc<Sessions>,
        planned: Option<Arc<Planned>>,
    ) -> Result<Self> {
        if let Some(row) = planned.iter().filter_map(|p| p.rows.as_ref()).flatten().find(|row| !sessions.begins(**row))
        {
            let todo = "give the first row of a conversation";
            return Err(Error::usage(format!("row {row} begins no conversation"), "rows", todo));
        }
        let within = |first, count| sessions.within(first, count);
        let schedule = Self::of(open, seed, order, sessions.rows(), planned, &within)?;
        Ok(Self { sessions: Some(sessions), ..schedule })
    }

    /// The schedule as `open.unit` says; `sessions` are the dataset's conversations.
    pub fn by_unit(
        open: &Open,
        seed: u64,
        order: Order,
        sessions: &Arc<Sessions>,
        planned: Option<Arc<Planned>>,
    ) -> Result<Self> {
        match open.unit {
            Unit::Request => Self::new(open, seed, order, sessions.rows(), planned),
            Unit::Session => Self::of_sessions(open, seed, order, sessions.clone(), planned),
        }
    }

    fn of(
        open: &Open,
        seed: u64,
        order: Order,
        dataset_rows: usize,
        planned: Option<Arc<Planned>>,
        within: &dyn Fn(u32, u32) -> (u64, u64),
    ) -> Result<Self> {
        planned::belongs(open, planned.as_deref())?;
        let mut lanes = Vec::with_capacity(open.streams.len());
        for stream in &open.streams {
            let (first, count) = part_of(stream, dataset_rows)?;
            let (first, count) = within(first, count);
            if count == 0 {
                let todo = "give it rows with which a conversation begins";
                return Err(Error::usage("no conversation begins in a stream's rows", ROWS, todo));
            }
            lanes.push(Lane::new(stream, seed, Rows::within(first, count, order, seed, u64::from(stream.id))));
        }
        let source = match planned {
            Some(planned) => Source::Planned(planned),
            None if lanes.len() == 1 => Source::One,
            None => Source::Merged(heads(&mut lanes)),
        };
        Ok(Self { lanes, source, sessions: None, index: 0, skip: 0, stride: 1 })
    }

    /// Only the items of one of several workers; `worker` is below `workers`.
    #[must_use]
    pub fn of_worker(self, worker: usize, workers: usize) -> Self {
        Self { skip: worker as u64, stride: workers.max(1) as u64, ..self }
    }

    /// How many items there are before a count or a duration ends the level; with neither, and streams without end,
    /// `u64::MAX`.
    pub fn count(open: &Open, seed: u64, planned: Option<&Planned>, stop: &StopSpec) -> Result<u64> {
        planned::belongs(open, planned)?;
        let (most, end_ns) = (stop.count.unwrap_or(u64::MAX), stop.duration_ns.unwrap_or(i64::MAX));
        let due = match planned {
            Some(planned) => planned.due_ns.partition_point(|ns| *ns < end_ns) as u64,
            None => open.streams.iter().map(|s| count_of(s, seed, end_ns, most)).fold(0, u64::saturating_add),
        };
        Ok(due.min(most))
    }

    /// The arrival after `skip` others.
    fn arrival(&mut self, skip: u64) -> Option<Arrival> {
        match &mut self.source {
            Source::One => self.lanes[0].next(skip).map(|(seq, due_ns)| (0, seq, due_ns)),
            Source::Merged(heads) => {
                for _ in 0..skip {
                    pop(heads, &mut self.lanes)?;
                }
                pop(heads, &mut self.lanes)
            }
            Source::Planned(planned) => {
                let at = usize::try_from(self.index).ok()?;
                let due_ns = *planned.due_ns.get(at)?;
                let Some(streams) = &planned.streams else { return Some((0, self.index, due_ns)) };
                let mut last = (0, 0);
                for id in &streams[at - skip as usize..=at] {
                    let lane = self.lanes.iter().position(|lane| lane.id == *id)?;
                    last = (lane, self.lanes[lane].planned);
                    self.lanes[lane].planned += 1;
                }
                Some((last.0, last.1, due_ns))
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let skip = std::mem::replace(&mut self.skip, self.stride - 1);
        self.index += skip;
        let (place, seq, offset_ns) = self.arrival(skip)?;
        let (lane, index) = (&self.lanes[place], self.index);
        self.index += 1;
        let (mut row, mut target) = (None, None);
        if let Source::Planned(planned) = &self.source {
            row = planned.rows.as_ref().map(|rows| rows[index as usize]);
            target = planned.targets.as_ref().map(|targets| targets[index as usize]);
        }
        let row = row.unwrap_or_else(|| {
            let unit = lane.rows.at(seq);
            self.sessions.as_ref().map_or(unit, |sessions| sessions.first(unit as usize))
        });
        Some(Item { index, stream: lane.id, seq, offset_ns, row, target, priority: lane.priority })
    }
}

impl Lane {
    fn new(stream: &Stream, seed: u64, rows: Rows) -> Self {
        Self {
            id: stream.id,
            priority: stream.priority,
            rows,
            start_ns: stream.start_ns,
            count: stream.count.unwrap_or(u64::MAX),
            arrivals: arrivals_of(stream, seed),
            planned: 0,
        }
    }

    fn next(&mut self, skip: u64) -> Option<(u64, i64)> {
        let (seq, after_ns) = self.arrivals.as_mut()?.nth(skip as usize)?;
        (seq < self.count).then_some((seq, self.start_ns.checked_add(after_ns)?))
    }
}

fn arrivals_of(stream: &Stream, seed: u64) -> Option<Arrivals> {
    match &stream.arrivals {
        spec::Arrivals::Rate(rate) => Some(Arrivals::new(rate, seed, u64::from(stream.id))),
        spec::Arrivals::Plan => None,
    }
}

fn count_of(stream: &Stream, seed: u64, end_ns: i64, most: u64) -> u64 {
    let end_ns = if end_ns == i64::MAX { end_ns } else { end_ns - stream.start_ns };
    let most = most.min(stream.count.unwrap_or(u64::MAX));
    arrivals_of(stream, seed).map_or(0, |arrivals| arrivals.count_before(end_ns, most))
}

fn heads(lanes: &mut [Lane]) -> BinaryHeap<Reverse<(i64, usize, u64)>> {
    let first = |(place, lane): (usize, &mut Lane)| lane.next(0).map(|(seq, due_ns)| Reverse((due_ns, place, seq)));
    lanes.iter_mut().enumerate().filter_map(first).collect()
}

fn pop(heads: &mut BinaryHeap<Reverse<(i64, usize, u64)>>, lanes: &mut [Lane]) -> Option<Arrival> {
    let mut head = heads.peek_mut()?;
    let Reverse((due_ns, place, seq)) = *head;
    match lanes[place].next(0) {
        Some((next, next_due_ns)) => *head = Reverse((next_due_ns, place, next)),
        None => drop(PeekMut::pop(head)),
    }
    Some((place, seq, due_ns))
}

const ROWS: &str = "load.open.streams.rows";

/// First row and number of rows of a stream.
fn part_of(stream: &Stream, dataset_rows: usize) -> Result<(u32, u32)> {
    let (first, count) = stream.rows.unwrap_or((0, dataset_rows as u32));
    if u64::from(first) + u64::from(count) > dataset_rows as u64 {
        let what = format!("{count} rows from row {first} on, in a dataset of {dataset_rows}");
        return Err(Error::usage(what, ROWS, "give a part of the dataset"));
    }
    Ok((first, count))
}
