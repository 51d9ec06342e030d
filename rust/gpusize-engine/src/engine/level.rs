//! One visit of a level: what its workers share.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::context::Context;
use super::errors::Errors;
use super::names::{AddressUse, Before, Name};
use super::partition::{Workers, plain_pause_ns, shares_numbers, unit};
use super::stalls::Stalls;
use super::tags::Tags;
use crate::outcome::Outcome;
use crate::record::counter::{Counter, Keeping, MOST_WAITING_BYTES, Teller};
use crate::record::feed::Feed;
use crate::record::writer::Written;
use crate::spec::{LevelPlan, LoadSpec, Unit};
use gpusize_base::error::{Error, Result};
use gpusize_load::schedule::{Planned, Rows, Sessions};
use gpusize_load::stop::{Reason, Rules};

/// One part in so many: no two clocks of hosts that are kept to time run at speeds further apart.
pub const MOST_DRIFT: i64 = 1000;

/// So often an end that may be moved is looked at: more often than it may come nearer.
const END_LOOK_NS: i64 = 50_000_000;

/// Lock without caring whether another thread panicked: all guarded data are plain counts and lists.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts of one worker. Each has a single writer, so that adding needs no locked instruction.
#[derive(Debug, Default)]
#[repr(align(128))] // two cache lines: neighbours must not share one
pub struct Share {
    pub due: AtomicU64,
    pub sent: AtomicU64,
    /// Requests that were sent a second time, because the server had done nothing about the first.
    pub asked_again: AtomicU64,
    pub outcomes: [AtomicU64; Outcome::ALL.len()],
    pub connects: AtomicU64,
    pub reconnects: AtomicU64,
    pub service_sum_ns: AtomicU64,
    pub served: AtomicU64,
    pub cpu_ns: AtomicI64,
    pub last_end_ns: AtomicI64,
    /// Due requests that wait for a connection.
    pub waiting: AtomicU64,
    /// Connections that are open now.
    pub connections: AtomicU64,
    pub stalls: Stalls,
}

/// Add to a count that only this thread writes.
pub fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Relaxed) + by, Relaxed);
}

/// Counts at one moment, as somebody saw them.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub at_ns: i64,
    pub due: u64,
    pub sent: u64,
    pub done: u64,
}

/// Per second, over about the last one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    pub due: f64,
    pub sent: f64,
    pub done: f64,
}

/// What the workers of a level share.
#[derive(Debug)]
pub struct LevelShared {
    pub plan: LevelPlan,
    pub rules: Rules,
    pub rows: Rows,
    /// The dataset's conversations.
    pub sessions: Arc<Sessions>,
    /// What is sent are conversations, turn after turn.
    pub by_session: bool,
    /// The pause between two requests of a slot where it is always the same; in an open loop there is none.
    pub plain_pause_ns: Option<i64>,
    /// What the dataset says of the pauses before its rows.
    pub recorded_ns: Option<Arc<Vec<i64>>>,
    /// Due times that were handed over beside the plan.
    pub planned: Option<Arc<Planned>>,
    pub shares: Vec<Share>,
    /// Workers on which due requests wait for a connection.
    pub queues: AtomicUsize,
    /// Workers that send no new request.
    pub closed: AtomicUsize,
    /// Those of all hosts, and which of them are here.
    pub workers: Workers,
    /// How many of those here take part, the first ones.
    pub members: usize,
    /// The next number of a closed loop by count whose users leave: those who stay send what is left of the count. Others have
    /// their stride of the numbers each, and share nothing.
    pub next_number: Option<AtomicU64>,
    pub errors: Mutex<Errors>,
    /// What records tell of their dataset rows.
    pub tags: Option<Arc<Tags>>,
    /// Records keep the times of their events.
    pub keeps_times: bool,
    start_ns: AtomicI64,
    /// When its time is over; `i64::MAX` where it has none, or has not begun.
    ends_ns: AtomicI64,
    /// The plan's `close_at_ns`, which may be moved; `i64::MAX` where it has none.
    close_at_ns: AtomicI64,
    /// Its connections have been tried, or it has begun.
    prepared: AtomicBool,
    close_ns: AtomicI64,
    cancel_ns: AtomicI64,
    reason: AtomicU8,
    /// What has been counted so far.
    pub feed: Arc<Feed>,
    write_failed: Arc<AtomicBool>,
    counter: Mutex<Option<Counter>>,
    written: Mutex<Option<Written>>,
    finished: Condvar,
    recent: Mutex<VecDeque<Seen>>,
    /// The target's hosts, what of their connections was over when the level began, and how they were used in it.
    names: Vec<Arc<Name>>,
    before: OnceLock<Before>,
    used: OnceLock<Vec<AddressUse>>,
    /// Why records are missing, besides what the writer says.
    lost: Mutex<Option<String>>,
}

impl LevelShared {
    /// Check the plan and start what counts and keeps its rows.
    pub fn new(plan: LevelPlan, dataset_rows: usize, workers: usize) -> Result<Self> {
        plan.check()?;
        let workers_of_all = Workers::new(&plan, workers)?;
        let counter = Counter::start(Keeping {
            dir: plan.dir.as_ref().map(PathBuf::from),
            keep_bytes: plan.keep_bytes,
            sample: plan.sample,
            most_waiting_bytes: MOST_WAITING_BYTES,
        })
        .map_err(|e| Error::environment(e.to_string(), "writer threads", "free some threads"))?;
        Ok(Self {
            rules: Rules::new(&plan.stop),
            rows: Rows::new(dataset_rows, plan.order, plan.seed, 0),
            sessions: Arc::default(),
            by_session: unit(&plan.load) == Unit::Session,
            plain_pause_ns: plain_pause_ns(&plan.load),
            recorded_ns: None,
            planned: None,
            queues: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            shares: (0..workers).map(|_| Share::default()).collect(),
            workers: workers_of_all,
            members: workers_of_all.members,
            close_at_ns: AtomicI64::new(plan.close_at_ns.unwrap_or(i64::MAX)),
            next_number: shares_numbers(&plan).then(AtomicU64::default),
            plan,
            errors: Mutex::default(),
            tags: None,
            keeps_times: false,
            start_ns: AtomicI64::new(0),
            ends_ns: AtomicI64::new(i64::MAX),
            prepared: AtomicBool::new(false),
            close_ns: AtomicI64::new(0),
            cancel_ns: AtomicI64::new(i64::MAX),
            reason: AtomicU8::new(0),
            feed: counter.feed(),
            write_failed: counter.failed(),
            counter: Mutex::new(Some(counter)),
            written: Mutex::default(),
            finished: Condvar::new(),
            recent: Mutex::default(),
            names: Vec::new(),
            before: OnceLock::new(),
            used: OnceLock::new(),
            lost: Mutex::default(),
        })
    }

    /// Due times handed over beside the plan; checked.
    pub fn with_planned(mut self, planned: Option<Arc<Planned>>) -> Self {
        self.planned = planned;
        self
    }

    /// What the session says about its requests and records.
    pub fn with(mut self, context: &Context) -> Self {
        self.tags.clone_from(&context.tags);
        self.names = context.endpoints.iter().map(|endpoint| endpoint.name.clone()).collect();
        self.keeps_times = context.target.record_events;
        self.recorded_ns.clone_from(&context.recorded_ns);
        self.sessions.clone_from(&context.sessions);
        if self.by_session {
            self.rows = Rows::new(self.sessions.len(), self.plan.order, self.plan.seed, 0);
        }
        self
    }

    /// Whether no worker sends a new request.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed) >= self.members
    }

    /// Slots in all, for a closed loop.
    pub fn concurrency(&self) -> Option<u32> {
        match &self.plan.load {
            LoadSpec::Closed(closed) => Some(closed.most()),
            LoadSpec::Open(_) => None,
        }
    }

    pub fn start_ns(&self) -> i64 {
        self.start_ns.load(Relaxed)
    }

    pub fn set_start(&self, ns: i64) {
        self.before.get_or_init(|| self.names.iter().enumerate().flat_map(|(at, name)| name.before(at)).collect());
        let over_ns = self.plan.stop.duration_ns.map(|after_ns| ns.saturating_add(after_ns));
        // One that comes after its time takes none, and what follows it comes no earlier.
        self.ends_ns.store(self.close_at_ns().or(over_ns).unwrap_or(i64::MAX).max(ns), Relaxed);
        self.start_ns.store(ns, Relaxed);
    }

    /// When its time is to be over by the clock, if that was said.
    pub fn close_at_ns(&self) -> Option<i64> {
        Some(self.close_at_ns.load(Relaxed)).filter(|ns| *ns != i64::MAX)
    }

    /// Move the end. Workers look at it again and again, every `END_LOOK_NS`.
    pub fn move_end(&self, ns: i64) {
        self.close_at_ns.store(ns, Relaxed);
        if self.start_ns() != 0 {
            self.ends_ns.store(ns, Relaxed);
        }
    }

    /// Until when to wait for the end of its time, which may be moved meanwhile: then look again.
    pub fn next_end_look_ns(&self, end_ns: i64, now: i64) -> i64 {
        if self.plan.close_at_ns.is_some() { end_ns.min(now + END_LOOK_NS) } else { end_ns }
    }

    /// When its time is over, if it has one and has begun.
    pub fn ends_ns(&self) -> Option<i64> {
        Some(self.ends_ns.load(Relaxed)).filter(|ns| *ns != i64::MAX)
    }

    /// Before when an arrival has to be due. The level's duration says so, that all hosts of one load may send the same ones.
    /// The end may come a little earlier, where clocks run at different speeds; one that comes earlier still cuts them off.
    pub fn due_until_ns(&self) -> i64 {
        let Some(duration_ns) = self.plan.stop.duration_ns else { return i64::MAX };
        let over_ns = self.start_ns().saturating_add(duration_ns);
        match self.close_at_ns() {
            Some(close_ns) if close_ns < over_ns - duration_ns / MOST_DRIFT => close_ns,
            _ => over_ns,
        }
    }

    /// May request `number` begin at `now`?
    #[inline]
    pub fn allows(&self, number: u64, now: i64) -> std::result::Result<(), Reason> {
        if !self.rules.counts(number) {
            Err(Reason::Count)
        } else if now >= self.ends_ns.load(Relaxed) {
            Err(Reason::Duration)
        } else {
            Ok(())
        }
    }

    pub fn close_ns(&self) -> i64 {
        self.close_ns.load(Relaxed)
    }

    pub fn reason(&self) -> Option<Reason> {
        Reason::from_u8(self.reason.load(Relaxed))
    }

    /// No new request from `ns` on; the gravest worker's reason and the latest one's time count.
    pub fn close(&self, reason: Reason, ns: i64) {
        self.reason.fetch_max(reason as u8, Relaxed);
        self.close_ns.fetch_max(ns, Relaxed);
    }

    pub fn cancel_ns(&self) -> i64 {
        self.cancel_ns.load(Relaxed)
    }

    /// Cancel what is in flight at once.
    pub fn cancel_now(&self) {
        self.cancel_by(0);
    }

    /// Cancel at `ns` what is in flight then, or earlier if that was asked for before.
    pub fn cancel_by(&self, ns: i64) {
        self.cancel_ns.fetch_min(ns, Relaxed);
    }

    /// Whether rows can no longer be kept on disk, or not fast enough.
    pub fn write_failed(&self) -> bool {
        self.write_failed.load(Relaxed)
    }

    /// Where workers tell their rows.
    pub fn teller(&self) -> Option<Teller> {
        lock(&self.counter).as_ref().map(Counter::teller)
    }

    /// Sum of one count over the workers.
    pub fn sum(&self, count: impl Fn(&Share) -> &AtomicU64) -> u64 {
        self.shares.iter().map(|s| count(s).load(Relaxed)).sum()
    }

    /// Finished requests but those that were shed, and how many of them failed.
    pub fn finished_and_failed(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for outcome in Outcome::ALL {
            let n = self.sum(|s| &s.outcomes[outcome as usize]);
            sums.0 += if outcome == Outcome::Shed { 0 } else { n };
            sums.1 += if outcome.is_failure() { n } else { 0 };
        }
        sums
    }

    /// Mean time from write to end of those that ended ok.
    pub fn residence_ns(&self) -> Option<i64> {
        let served = self.sum(|s| &s.served);
        (served > 0).then(|| (self.sum(|s| &s.service_sum_ns) / served) as i64)
    }

    /// How many connections each address of the target had; none for a level that never began.
    pub fn used(&self) -> Vec<AddressUse> {
        let of = |before| self.names.iter().enumerate().flat_map(|(at, name)| name.used(at, before)).collect();
        self.used.get_or_init(|| self.before.get().map(of).unwrap_or_default()).clone()
    }

    /// All requests have their record: end what keeps them and wake who waits.
    pub fn finish(&self) {
        self.used();
        let counter = lock(&self.counter).take();
        let mut written = counter.map(Counter::finish).unwrap_or_default();
        written.error = written.error.or_else(|| lock(&self.lost).take());
        *lock(&self.written) = Some(written);
        self.finished.notify_all();
    }

    /// Records are missing, for this reason.
    pub fn note_lost(&self, why: String) {
        lock(&self.lost).get_or_insert(why);
    }

    /// Its connections have been tried, or it has begun: wake who waits for that.
    pub fn set_prepared(&self) {
        // With the lock, or one who has just looked would sleep over it.
        let written = self.written();
        self.prepared.store(true, Relaxed);
        drop(written);
        self.finished.notify_all();
    }

    pub fn is_prepared(&self) -> bool {
        self.prepared.load(Relaxed)
    }

    /// Wait until its connections have been tried, or it is over; false when the time ran out.
    pub fn wait_prepared(&self, timeout: Duration) -> bool {
        let is_missing = |written: &mut Option<Written>| written.is_none() && !self.is_prepared();
        let waiting = self.finished.wait_timeout_while(self.written(), timeout, is_missing);
        !is_missing(&mut waiting.unwrap_or_else(PoisonError::into_inner).0)
    }

    pub fn is_finished(&self) -> bool {
        self.written().is_some()
    }

    /// What the writer left, once the level is over.
    pub fn written(&self) -> MutexGuard<'_, Option<Written>> {
        lock(&self.written)
    }

    /// Wait until the level is over; false when the time ran out.
    pub fn wait(&self, timeout: Duration) -> bool {
        let waiting = self.finished.wait_timeout_while(self.written(), timeout, |w| w.is_none());
        waiting.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Rates over about the last second, by what those who looked have seen.
    pub fn rates(&self, now: Seen) -> Rates {
        let mut recent = lock(&self.recent);
        // However often somebody looks, what is kept is bounded.
        if recent.back().is_none_or(|last| now.at_ns - last.at_ns >= 10_000_000) {
            recent.push_back(now);
        }
        while recent.len() > 2 && now.at_ns - recent[1].at_ns > 1_000_000_000 {
            recent.pop_front();
        }
        let then = recent[0];
        let seconds = (now.at_ns - then.at_ns) as f64 / 1e9;
        if seconds <= 0.0 {
            return Rates::default();
        }
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Rates { due: rate(now.due, then.due), sent: rate(now.sent, then.sent), done: rate(now.done, then.done) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_reason_of_all_workers_stays() {
        let plan = r#"{"visit":0,"load":{"closed":{"concurrency":1}},"stop":{"count":1}}"#;
        let level = LevelShared::new(serde_json::from_str(plan).expect("a plan"), 1, 3).expect("a level");
        level.close(Reason::Count, 5);
        level.close(Reason::Errors, 9);
        level.close(Reason::Duration, 7);
        assert_eq!((level.reason(), level.close_ns(), level.members), (Some(Reason::Errors), 9, 1));
    }

    #[test]
    fn rates_are_of_the_last_second_and_little_is_kept_for_them() {
        let plan = r#"{"visit":0,"load":{"closed":{"concurrency":1}},"stop":{"count":1}}"#;
        let level = LevelShared::new(serde_json::from_str(plan).expect("a plan"), 1, 1).expect("a level");
        let at = |ms: u64| Seen { at_ns: ms as i64 * 1_000_000, due: 4 * ms, sent: 2 * ms, done: ms };
        let mut rates = level.rates(at(0));
        assert!(rates.due + rates.sent + rates.done < 1e-9);
        for ms in 1..20_000 {
            rates = level.rates(at(ms));
        }
        assert!((rates.due - 4e3).abs() < 1e-6 && (rates.sent - 2e3).abs() < 1e-6 && (rates.done - 1e3).abs() < 1e-6);
        assert!(lock(&level.recent).len() < 110);
    }
}
