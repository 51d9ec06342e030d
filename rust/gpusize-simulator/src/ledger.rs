//! The requests under way, and what is kept of those that have ended: their rows, or sums alone.

use super::judge::Verdicts;
use super::result::{Columns, NEVER};
use super::tally::Tally;
use super::{Judge, Outcome, seconds};

/// A request from when it is due to when it ends. Times are the world's, -1 for what has not happened.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// Its number by due time.
    pub row: usize,
    pub user: u32,
    pub gpu: u32,
    /// What it brings: the tokens of its prompt, or the place of its size.
    pub input: u32,
    /// What came of it: the tokens of its answer, or how many it found.
    pub output: u32,
    pub due_ns: i64,
    pub sent_ns: i64,
    /// When a replica got it: later than it was sent, where it was held before.
    pub given_ns: i64,
    pub start_ns: i64,
    pub first_token_ns: i64,
    pub outcome: Outcome,
    pub warmup: bool,
    /// Due before the window closed.
    pub recorded: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            row: 0,
            user: 0,
            gpu: u32::MAX,
            input: 0,
            output: 0,
            due_ns: 0,
            sent_ns: NEVER,
            given_ns: NEVER,
            start_ns: NEVER,
            first_token_ns: NEVER,
            outcome: Outcome::Shed,
            warmup: false,
            recorded: true,
        }
    }
}

impl Request {
    /// Due to first token, where there was one.
    pub(super) fn ttft_s(&self) -> Option<f64> {
        (self.first_token_ns != NEVER).then(|| seconds(self.first_token_ns - self.due_ns))
    }

    /// Mean gap between tokens of an answer with at least two, which ended at `end_ns`.
    pub(super) fn itl_mean_s(&self, end_ns: i64) -> Option<f64> {
        let gaps = self.output.checked_sub(1).filter(|&gaps| gaps > 0 && self.first_token_ns != NEVER)?;
        Some(seconds(end_ns - self.first_token_ns) / f64::from(gaps))
    }
}

/// What is kept of requests that have ended.
#[derive(Debug)]
pub(super) enum Kept {
    /// All of it.
    Rows(Box<Columns>),
    /// Sums and histograms, whose size does not grow with the requests.
    Sums(Box<Tally>),
}

/// Requests by slots, which are used again.
#[derive(Debug)]
pub(super) struct Ledger {
    slots: Vec<Request>,
    free: Vec<usize>,
    kept: Kept,
    verdicts: Option<Verdicts>,
}

impl Ledger {
    pub(super) fn new(rows: bool, judge: Option<&Judge>) -> Self {
        let kept = if rows { Kept::Rows(Box::default()) } else { Kept::Sums(Box::default()) };
        Self { slots: Vec::new(), free: Vec::new(), kept, verdicts: judge.map(Verdicts::new) }
    }

    /// A request is due; its slot.
    pub(super) fn open(&mut self, request: Request) -> usize {
        if let Kept::Rows(columns) = &mut self.kept
            && request.recorded
        {
            columns.push(request.user, request.warmup, request.due_ns, request.input);
        }
        if let Some(slot) = self.free.pop() {
            self.slots[slot] = request;
            return slot;
        }
        self.slots.push(request);
        self.slots.len() - 1
    }

    pub(super) fn request(&mut self, slot: usize) -> &mut Request {
        &mut self.slots[slot]
    }

    /// A request has ended, in a run whose window is `window_ns` as far as is known; its slot is free.
    pub(super) fn end(&mut self, slot: usize, end_ns: i64, window_ns: (i64, i64)) {
        self.free.push(slot);
        let request = &self.slots[slot];
        if !request.recorded {
            return;
        }
        match &mut self.kept {
            Kept::Rows(columns) => columns.end(request, end_ns),
            Kept::Sums(tally) => tally.add(request, end_ns, window_ns),
        }
        if let Some(verdicts) = &mut self.verdicts
            && !request.warmup
        {
            verdicts.add(request, end_ns);
        }
    }

    pub(super) fn into_parts(self) -> (Kept, Option<super::Judged>) {
        (self.kept, self.verdicts.map(Verdicts::finish))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Totals;

    #[test]
    fn memory_is_that_of_the_requests_under_way() {
        let mut ledger = Ledger::new(false, None);
        let request = |row| Request { row, sent_ns: 0, outcome: Outcome::Ok, ..Request::default() };
        let mut slots: Vec<usize> = (0..5).map(|row| ledger.open(request(row))).collect();
        for row in 5..1000 {
            ledger.end(slots.remove(row % 5), row as i64, (0, 500));
            slots.push(ledger.open(request(row)));
        }
        assert_eq!(ledger.slots.len(), 5);
        let (Kept::Sums(tally), None) = ledger.into_parts() else { panic!("sums alone, and no verdicts") };
        let totals = Totals {
            gpus: 1,
            open_ns: 0,
            close_ns: 500,
            up_ns: 1,
            draining_ns: 0,
            busy_ns: 1,
            iterations: 0,
            tokens: 0,
            cut_ns: None,
        };
        let summary = tally.summary(&totals);
        assert_eq!((summary.requests, (summary.rate_per_s * summary.window_s).round()), (995, 495.0));
    }

    #[test]
    fn rows_are_written_where_they_belong() {
        let mut ledger = Ledger::new(true, None);
        let slots =
            [0, 1, 2].map(|row| ledger.open(Request { row, input: 7, recorded: row < 2, ..Request::default() }));
        for slot in [slots[2], slots[1], slots[0]] {
            let row = ledger.request(slot).row;
            ledger.end(slot, 10 + row as i64, (0, 5));
        }
        let (Kept::Rows(columns), None) = ledger.into_parts() else { panic!("rows, and no verdicts") };
        assert_eq!((columns.end_ns, columns.prompt_tokens), (vec![10, 11], vec![7, 7]));
    }
}
