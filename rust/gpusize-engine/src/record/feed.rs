//! The last minutes of a level by the second, and what was counted in all, for those who watch it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

pub use super::kept::Second;
use super::kept::{Facts, KEPT_SECONDS, KeptSeconds};
use super::tally::{Metric, Tally};

/// What the last full second was like; nothing where nothing ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recent {
    /// Runtime.
    pub p50_ns: Option<i64>,
    /// Runtime.
    pub p95_ns: Option<i64>,
    /// Runtime.
    pub p99_ns: Option<i64>,
    /// Time to the first token.
    pub ttft_p50_ns: Option<i64>,
    /// Time to the first token.
    pub ttft_p99_ns: Option<i64>,
    /// Due to first write.
    pub lateness_p99_ns: Option<i64>,
    /// Due to when the pacer let it go.
    pub pacer_late_p99_ns: Option<i64>,
}

/// Numbers of seconds, with what became due and what was sent in each.
pub type Begun = Vec<(u32, u64, u64)>;

/// What a worker says at the end of a second, or of several.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of the worker.
    pub worker: usize,
    /// Workers that take part.
    pub members: usize,
    /// Seconds before this one are complete.
    pub through: u32,
    /// Per second, what became due and what was sent, since the last report.
    pub events: Begun,
    /// CPU time so far.
    pub cpu_ns: i64,
    /// Due requests that wait for a connection.
    pub waiting: u64,
}

#[derive(Debug, Default)]
struct OpenSecond {
    due: u64,
    sent: u64,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    through: u32,
    cpu_ns: i64,
    waiting: u64,
}

#[derive(Debug, Default)]
struct State {
    totals: Tally,
    open: BTreeMap<u32, OpenSecond>,
    heard: Vec<Heard>,
    /// The first second that is not complete.
    next: u32,
    due: u64,
    done: u64,
    cpu_ns: i64,
    recent: Recent,
    kept: KeptSeconds,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Feed(Mutex<State>);

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keep whoever counts waiting until what comes back is dropped.
    #[cfg(test)]
    pub(super) fn held(&self) -> impl Drop + '_ {
        self.state()
    }

    /// These requests ended in this second; in the first one still open, when it is complete already.
    pub fn add<'a>(&self, second: u32, tallies: impl Iterator<Item = &'a Tally>) {
        let state = &mut *self.state();
        let open = state.open.entry(second.max(state.next)).or_default();
        for tally in tallies {
            open.tally.merge(tally);
            state.totals.merge(tally);
        }
    }

    /// A worker has reported; seconds that all have reported are complete.
    pub fn hear(&self, report: &Report) {
        let state = &mut *self.state();
        state.heard.resize(state.heard.len().max(report.members).max(report.worker + 1), Heard::default());
        state.heard[report.worker] = Heard { through: report.through, cpu_ns: report.cpu_ns, waiting: report.waiting };
        for (second, due, sent) in &report.events {
            let open = state.open.entry((*second).max(state.next)).or_default();
            open.due += due;
            open.sent += sent;
        }
        let through = state.heard.iter().take(report.members).map(|h| h.through).min().unwrap_or(0);
        state.complete(through);
    }

    /// Nobody will report any more.
    pub fn end(&self) {
        self.state().complete(u32::MAX);
    }

    /// All that was counted.
    pub fn totals(&self) -> Tally {
        self.state().totals.clone()
    }

    /// Shares of the runtime and of the lateness of the whole level so far, and the last second.
    pub fn watch(&self) -> ([Option<i64>; 2], Option<i64>, Recent) {
        let state = self.state();
        let [lateness] = state.totals.of(Metric::Lateness).quantiles_ns([0.99]);
        (state.totals.of(Metric::Runtime).quantiles_ns([0.5, 0.95]), lateness, state.recent)
    }

    /// Complete seconds from `after` on, as far as they are kept.
    pub fn seconds(&self, after: u32) -> Vec<Second> {
        let copied = self.state().kept.copy(after);
        copied.unpacked()
    }

    /// Bytes on the heap, about.
    pub fn bytes(&self) -> usize {
        let state = self.state();
        let times = |tally: &Tally| tally.times.iter().map(super::histogram::Times::bytes).sum::<usize>();
        times(&state.totals)
            + state.open.values().map(|open| size_of::<OpenSecond>() + times(&open.tally)).sum::<usize>()
            + state.kept.bytes()
    }
}

impl State {
    fn complete(&mut self, through: u32) {
        let last = self.open.last_key_value().map(|(second, _)| second + 1);
        let through = if through == u32::MAX { last.unwrap_or(self.next) } else { through };
        if through <= self.next {
            return;
        }
        let cpu_ns: i64 = self.heard.iter().map(|h| h.cpu_ns).sum();
        let each = (cpu_ns - self.cpu_ns) / i64::from(through - self.next);
        let waiting = self.heard.iter().map(|h| h.waiting).sum();
        self.cpu_ns = cpu_ns;
        // After a long silence only the seconds that would be kept are written out.
        let first = self.next.max(through.saturating_sub(KEPT_SECONDS as u32));
        for number in self.next..through {
            let Some(open) = self.open.remove(&number).or_else(|| (number >= first).then(OpenSecond::default)) else {
                continue;
            };
            self.due += open.due;
            self.done += open.tally.count();
            self.recent = Recent::of(&open.tally);
            let facts = Facts {
                number,
                due: open.due,
                sent: open.sent,
                outcomes: open.tally.outcomes,
                in_flight: self.due.saturating_sub(self.done),
                waiting,
                cpu_ns: each,
            };
            self.kept.push(facts, &open.tally);
        }
        self.next = through;
    }
}

impl Recent {
    fn of(tally: &Tally) -> Self {
        let [p50_ns, p95_ns, p99_ns] = tally.of(Metric::Runtime).quantiles_ns([0.5, 0.95, 0.99]);
        let [ttft_p50_ns, ttft_p99_ns] = tally.of(Metric::Ttft).quantiles_ns([0.5, 0.99]);
        let [lateness_p99_ns] = tally.of(Metric::Lateness).quantiles_ns([0.99]);
        let [pacer_late_p99_ns] = tally.of(Metric::PacerLate).quantiles_ns([0.99]);
        Self { p50_ns, p95_ns, p99_ns, ttft_p50_ns, ttft_p99_ns, lateness_p99_ns, pacer_late_p99_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;

    fn tally(ok: u64, runtime_ns: i64) -> Tally {
        let mut tally = Tally::default();
        tally.outcomes[Outcome::Ok as usize] = ok;
        (0..ok).for_each(|_| tally.record(Metric::Runtime, runtime_ns));
        tally
    }

    fn report(worker: usize, through: u32, events: &[(u32, u64, u64)], cpu_ns: i64) -> Report {
        Report { worker, members: 2, through, events: events.to_vec(), cpu_ns, waiting: 1 }
    }

    #[test]
    fn a_second_is_complete_when_every_worker_has_said_so() {
        let feed = Feed::default();
        feed.add(0, [&tally(3, 1_000_000), &tally(1, 9_000_000)].into_iter());
        feed.hear(&report(0, 1, &[(0, 4, 4)], 50));
        assert!(feed.seconds(0).is_empty(), "the other worker may have more");
        feed.add(1, [&tally(1, 5)].into_iter());
        feed.hear(&report(1, 2, &[(0, 2, 1), (1, 1, 1)], 30));
        let found = feed.seconds(0);
        assert_eq!(found.len(), 1);
        let first = &found[0];
        assert_eq!((first.second, first.due, first.sent, first.done, first.in_flight), (0, 6, 5, 4, 2));
        assert_eq!((first.waiting, first.cpu_ns, first.outcomes["ok"]), (2, 80, 4));
        assert_eq!(first.times["runtime"].iter().map(|b| b.2).collect::<Vec<_>>(), [3, 1]);
        let (_, _, recent) = feed.watch();
        assert!(recent.p50_ns.is_some_and(|p| (p - 1_000_000).abs() < 10_000) && recent.ttft_p50_ns.is_none());
        // A row that comes late is not lost.
        feed.add(0, [&tally(2, 7)].into_iter());
        feed.hear(&report(0, 4, &[], 90));
        feed.hear(&report(1, 4, &[], 90));
        let found = feed.seconds(1);
        let brief: Vec<_> = found.iter().map(|s| (s.second, s.due, s.done, s.in_flight, s.cpu_ns)).collect();
        assert_eq!(brief, [(1, 1, 3, 0, 40), (2, 0, 0, 0, 30), (3, 0, 0, 0, 30)]);
        assert_eq!(feed.watch().2, Recent::default(), "nothing ended in the last one");
        assert_eq!((feed.watch().0[0].is_some(), feed.totals().count()), (true, 7));
    }

    #[test]
    fn the_end_completes_what_is_open_and_old_seconds_go() {
        let feed = Feed::default();
        for second in 0..700 {
            feed.add(second, [&tally(1, 5)].into_iter());
        }
        feed.end();
        let found = feed.seconds(0);
        assert_eq!((found.len(), found[0].second, found.last().map(|s| s.second)), (600, 100, Some(699)));
        assert_eq!((feed.seconds(698).len(), feed.totals().count()), (2, 700));
        let idle = Feed::default();
        idle.hear(&Report { worker: 0, members: 1, through: 4_000_000, ..Report::default() });
        assert_eq!(idle.seconds(0).len(), 600, "an idle month is over in no time");
    }
}
