//! Tasks of several requests, one after the other with time between them: what an agent does, or a workflow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::SimError;

/// Tasks to draw from. A client's request is then one of them, and each of its own requests goes to a server by itself.
#[derive(Debug, Clone, Copy)]
pub struct Tasks<'a> {
    /// How many requests each task has, which may be none; their sizes follow each other in the sizes that are handed over.
    pub requests: &'a [u32],
    /// Time before each request, in nanoseconds, in the order of the sizes.
    pub before_ns: &'a [i64],
    /// Time after the last request of each task, in nanoseconds.
    pub after_ns: &'a [i64],
}

impl Tasks<'_> {
    /// Refuse what does not go together with so many sizes.
    pub(super) fn validate(&self, sizes: usize) -> Result<(), SimError> {
        let all = self.requests.iter().map(|&requests| u64::from(requests)).sum::<u64>();
        if self.requests.is_empty() {
            return Err(SimError::value("flow.tasks.requests", "must be those of at least one task"));
        }
        for (field, found, wanted) in [
            ("flow.tasks.requests", all, sizes),
            ("flow.tasks.before_ns", self.before_ns.len() as u64, sizes),
            ("flow.tasks.after_ns", self.after_ns.len() as u64, self.requests.len()),
        ] {
            if found != wanted as u64 {
                return Err(SimError::value(field, format!("must be for {wanted}, not {found}")));
            }
        }
        match self.before_ns.iter().chain(self.after_ns).find(|pause_ns| **pause_ns < 0) {
            Some(bad) => Err(SimError::value("flow.tasks", format!("pauses must be at least 0, not {bad}"))),
            None => Ok(()),
        }
    }
}

/// How long the requests of tasks took, each from when it came, in the order in which they ended.
#[derive(Debug, Default)]
pub(super) struct Took {
    rows: Vec<usize>,
    took_ns: Vec<i64>,
}

impl Took {
    pub(super) fn push(&mut self, row: usize, took_ns: i64) {
        self.rows.push(row);
        self.took_ns.push(took_ns);
    }

    /// The times row by row, and how many each of so many rows has; without those of further ones.
    pub(super) fn by_row(&self, rows: usize) -> (Vec<i64>, Vec<u32>) {
        let counted = || self.rows.iter().zip(&self.took_ns).filter(|(row, _)| **row < rows);
        let mut each = vec![0; rows];
        counted().for_each(|(&row, _)| each[row] += 1);
        let mut next = vec![0; rows];
        let mut sum = 0;
        for (begin, &count) in next.iter_mut().zip(&each) {
            *begin = sum;
            sum += count as usize;
        }
        let mut times_ns = vec![0; sum];
        for (&row, &took_ns) in counted() {
            times_ns[next[row]] = took_ns;
            next[row] += 1;
        }
        (times_ns, each)
    }
}

/// Where a task goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// With the request at this place of the sizes.
    Request(usize),
    /// Nowhere: it has ended.
    End,
}

/// A task under way: the place of its next request, where its requests end, the time after them, and when the last one came.
#[derive(Debug, Clone, Copy, Default)]
struct UnderWay {
    next: usize,
    end: usize,
    after_ns: i64,
    came_ns: i64,
}

/// The tasks that are under way, by slot, and when those go on that pause. Without tasks each size is one of one request.
#[derive(Debug)]
pub(super) struct Course<'a> {
    tasks: Option<Tasks<'a>>,
    /// Where the requests of each task begin.
    begins: Vec<usize>,
    under_way: Vec<UnderWay>,
    paused: BinaryHeap<Reverse<(i64, u64, usize)>>,
    order: u64,
}

impl<'a> Course<'a> {
    pub(super) fn new(tasks: Option<Tasks<'a>>) -> Self {
        let requests = tasks.map_or(&[][..], |tasks| tasks.requests);
        let begins = requests.iter().scan(0, |sum, &requests| {
            let begin = *sum;
            *sum += requests as usize;
            Some(begin)
        });
        Self { tasks, begins: begins.collect(), under_way: Vec::new(), paused: BinaryHeap::new(), order: 0 }
    }

    /// How many there are to draw from.
    pub(super) fn len(&self, sizes: usize) -> usize {
        self.tasks.map_or(sizes, |tasks| tasks.requests.len())
    }

    /// The task `drawn` begins in a slot: its first request, where nothing comes before it, or its end.
    pub(super) fn begin(&mut self, slot: usize, drawn: usize, now_ns: i64) -> Option<Step> {
        let Some(tasks) = self.tasks else { return Some(Step::Request(drawn)) };
        if self.under_way.len() <= slot {
            self.under_way.resize(slot + 1, UnderWay::default());
        }
        let next = self.begins[drawn];
        let end = next + tasks.requests[drawn] as usize;
        self.under_way[slot] = UnderWay { next, end, after_ns: tasks.after_ns[drawn], came_ns: now_ns };
        let pause_ns = if next == end { tasks.after_ns[drawn] } else { tasks.before_ns[next] };
        if pause_ns > 0 {
            self.pause(slot, now_ns.saturating_add(pause_ns));
            return None;
        }
        Some(self.step(slot, now_ns))
    }

    /// When a task's request came that is under way in a slot; none without tasks.
    pub(super) fn came_ns(&self, slot: usize) -> Option<i64> {
        self.tasks.map(|_| self.under_way[slot].came_ns)
    }

    /// A request has ended: whether its task has, too. Else it goes on after a pause, be it of no length.
    pub(super) fn ends(&mut self, slot: usize, now_ns: i64) -> bool {
        let Some(tasks) = self.tasks else { return true };
        let UnderWay { next, end, after_ns, .. } = self.under_way[slot];
        if next == end && after_ns == 0 {
            return true;
        }
        let pause_ns = if next == end { after_ns } else { tasks.before_ns[next] };
        self.pause(slot, now_ns.saturating_add(pause_ns));
        false
    }

    fn pause(&mut self, slot: usize, until_ns: i64) {
        self.paused.push(Reverse((until_ns, self.order, slot)));
        self.order += 1;
    }

    /// When a task goes on next.
    pub(super) fn next_ns(&self) -> Option<i64> {
        self.paused.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// The slot of the one that goes on by then, and where.
    pub(super) fn go_on(&mut self, now_ns: i64) -> Option<(usize, Step)> {
        if self.next_ns().is_none_or(|at_ns| at_ns > now_ns) {
            return None;
        }
        let Reverse((at_ns, _, slot)) = self.paused.pop()?;
        Some((slot, self.step(slot, at_ns)))
    }

    fn step(&mut self, slot: usize, now_ns: i64) -> Step {
        let task = &mut self.under_way[slot];
        task.came_ns = now_ns;
        if task.next == task.end {
            return Step::End;
        }
        task.next += 1;
        Step::Request(task.next - 1)
    }
}
