//! The window of a run in virtual time: which requests are recorded, which of them count, and whether all of them have ended.

use super::{Arrivals, Load, ns};

/// An open loop goes on behind its window until all requests in it have ended, but not beyond so many times their number, and not
/// beyond this number if that is more. Where servers are shared by all that have come, and more comes than they can serve, the
/// last one's wait grows exponentially with its size: the load would go on until memory is full.
const MOST_BEHIND: usize = 10;
const LEAST_BEHIND: usize = 200_000;

/// The first rows are recorded: those that are due before the window closes, counted ones and warm-up.
#[derive(Debug, Default)]
pub(super) struct Window {
    open_ns: Option<i64>,
    close_ns: Option<i64>,
    counted: u64,
    recorded: usize,
    /// Recorded requests that have not ended.
    pending: usize,
}

impl Window {
    /// Open and close the window; whether request `row`, due at `due_ns`, is warm-up.
    pub(super) fn place(&mut self, load: &Load, row: usize, due_ns: i64) -> bool {
        if self.close_ns.is_some() {
            return false;
        }
        if self.open_ns.is_none() && row as u64 >= load.warmup_requests && due_ns >= ns(load.warmup_s) {
            // A plan's times count from its start, and so does its window.
            let begins = load.arrivals == Arrivals::Plan && load.warmup_requests == 0;
            self.open_ns = Some(if begins { ns(load.warmup_s) } else { due_ns });
        }
        let Some(open_ns) = self.open_ns else {
            self.record();
            return true;
        };
        let last_ns = load.duration_s.map_or(i64::MAX, |duration_s| open_ns + ns(duration_s));
        if due_ns >= last_ns || load.requests.is_some_and(|requests| self.counted >= requests) {
            self.close_ns = Some(due_ns.min(last_ns));
        } else {
            self.counted += 1;
            self.record();
        }
        false
    }

    fn record(&mut self) {
        self.pending += 1;
        self.recorded += 1;
    }

    /// The request that is due at `due_ns` is the last one.
    pub(super) fn close_behind(&mut self, load: &Load, due_ns: i64) {
        let open_ns = self.open_ns.unwrap_or(due_ns);
        let end_ns = load.duration_s.map_or(due_ns + 1, |duration_s| open_ns + ns(duration_s));
        self.close_ns.get_or_insert(end_ns);
    }

    /// Request `row` has ended.
    pub(super) fn end(&mut self, row: usize) {
        if row < self.recorded {
            self.pending -= 1;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.close_ns.is_some() && self.pending == 0
    }

    /// Whether the load may end with request `row`, whatever is under way.
    pub(super) fn has_enough_behind_it(&self, row: usize) -> bool {
        self.close_ns.is_some() && row - self.recorded >= self.recorded.saturating_mul(MOST_BEHIND).max(LEAST_BEHIND)
    }

    /// Rows that are recorded.
    pub(super) fn recorded(&self) -> usize {
        self.recorded
    }

    /// When it opens and closes, as far as that is known and matters for requests that end now: what has yet to open or close does so
    /// later than all that has happened.
    pub(super) fn known_ns(&self, load: &Load) -> (i64, i64) {
        let begins = load.arrivals == Arrivals::Plan && load.warmup_requests == 0;
        let unopened_ns = if begins { ns(load.warmup_s) } else { i64::MAX };
        let open_ns = self.open_ns.unwrap_or(unopened_ns);
        let last_ns = load.duration_s.map_or(i64::MAX, |duration_s| open_ns.saturating_add(ns(duration_s)));
        (open_ns, self.close_ns.unwrap_or(last_ns))
    }

    /// When it opened and closed, in a run that has come to `now_ns`.
    pub(super) fn bounds_ns(&self, now_ns: i64) -> (i64, i64) {
        (self.open_ns.unwrap_or(0), self.close_ns.unwrap_or(now_ns))
    }
}
