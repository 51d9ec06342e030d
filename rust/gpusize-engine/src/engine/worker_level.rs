//! One worker's part of a level: its stride of the sequence, its rows, its counts.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::mpsc::Sender;

use super::following::Following;
use super::level::{LevelShared, Share, bump, lock};
use super::messages::Event;
use super::outside::now_ns;
use super::seconds::Seconds;
use crate::outcome::Outcome;
use crate::record::columns::Common;
use crate::record::counter::Teller;
use crate::record::feed::{Begun, Report};
use crate::record::{Chunk, Row};
use crate::spec::LoadSpec;
use gpusize_load::pace::timer::busy_ns;
use gpusize_load::stop::Reason;

/// Rows of the first chunk; each next one has room for twice as many, up to the largest, so that a short level stays small.
const FIRST_ROWS: usize = 1_024;

/// See the module.
#[derive(Debug)]
pub struct WorkerLevel {
    pub shared: Arc<LevelShared>,
    worker: usize,
    events: Sender<Event>,
    teller: RefCell<Option<Teller>>,
    chunk: RefCell<Chunk>,
    pub following: Following,
    /// Buckets of the gaps between the events of the answer that is being finished.
    pub gaps: RefCell<Vec<u16>>,
    seconds: Seconds,
    next_seq: Cell<u64>,
    in_flight: Cell<u64>,
    closed: Cell<bool>,
    drained: Cell<bool>,
    cpu_start_ns: Cell<i64>,
}

impl WorkerLevel {
    pub fn new(shared: Arc<LevelShared>, worker: usize, events: Sender<Event>) -> Self {
        let teller = RefCell::new(shared.teller());
        let next_seq = Cell::new(shared.number_of(worker) as u64);
        Self {
            chunk: RefCell::new(Self::fresh_chunk(&shared, worker, FIRST_ROWS)),
            shared,
            worker,
            events,
            following: Following::default(),
            teller,
            gaps: RefCell::default(),
            seconds: Seconds::default(),
            next_seq,
            in_flight: Cell::new(0),
            closed: Cell::new(false),
            drained: Cell::new(false),
            cpu_start_ns: Cell::new(busy_ns()),
        }
    }

    fn fresh_chunk(shared: &LevelShared, worker: usize, rows: usize) -> Chunk {
        let (visit, host) = (shared.plan.visit, shared.plan.partition.map_or(0, |partition| partition.host));
        let chunk = Chunk::new(Common { visit, host, worker: shared.number_of(worker) as u16 }, rows);
        if shared.keeps_times { chunk.with_events() } else { chunk }
    }

    pub fn share(&self) -> &Share {
        &self.shared.shares[self.worker]
    }

    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    pub fn is_drained(&self) -> bool {
        self.drained.get()
    }

    /// The level's time begins.
    pub fn begin(&self) {
        self.cpu_start_ns.set(busy_ns());
    }

    /// The next request of a closed loop, or conversation: its number and row, or none when the level takes no more.
    #[inline]
    pub fn allocate(&self, due_ns: i64, now: i64) -> Option<(u64, u32)> {
        let number = self.next_number(now)?;
        self.admit_item(due_ns);
        Some((number, self.shared.rows.at(number)))
    }

    #[inline]
    fn next_number(&self, now: i64) -> Option<u64> {
        if self.closed.get() {
            return None;
        }
        if let Some(next_of_all) = &self.shared.next_number {
            return self.next_of_all(next_of_all, now);
        }
        let number = self.next_seq.get();
        if !self.takes(number, now) {
            return None;
        }
        self.next_seq.set(number + self.shared.workers.stride);
        Some(number)
    }

    /// The next number where the workers share them.
    #[cold]
    fn next_of_all(&self, next: &AtomicU64, now: i64) -> Option<u64> {
        let mut number = next.load(Relaxed);
        while self.takes(number, now) {
            match next.compare_exchange(number, number + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(number),
                // Another worker was quicker.
                Err(newer) => number = newer,
            }
        }
        None
    }

    /// Whether the level takes a request with this number now; where it does not, it closes, unless it waits for conversations.
    #[inline]
    fn takes(&self, number: u64, now: i64) -> bool {
        let allowed = self.shared.allows(number, now);
        allowed.map_err(|reason| self.refuse(reason, now)).is_ok()
    }

    /// The rules let no further request begin.
    #[cold]
    fn refuse(&self, reason: Reason, now: i64) {
        // Conversations that have begun are sent to their ends.
        if reason == Reason::Count && !self.following.is_idle() {
            return;
        }
        let end_ns = self.shared.ends_ns().filter(|_| reason == Reason::Duration);
        self.close(reason, end_ns.unwrap_or(now));
    }

    /// The number that a request would have now.
    fn peek_number(&self) -> u64 {
        self.shared.next_number.as_ref().map_or(self.next_seq.get(), |next| next.load(Relaxed))
    }

    /// Close a closed loop that has given out its last request, without waiting until somebody asks for another.
    pub fn close_if_used_up(&self) {
        if !self.shared.rules.counts(self.peek_number()) && self.following.is_idle() {
            self.close(Reason::Count, now_ns());
        }
    }

    /// A request was due at `due_ns`.
    #[inline]
    pub fn admit_item(&self, due_ns: i64) {
        self.in_flight.set(self.in_flight.get() + 1);
        bump(&self.share().due, 1);
        self.seconds.due(due_ns, self.shared.start_ns());
    }

    /// A request's first byte is written at `sent_ns`, for the first time.
    pub fn sent(&self, sent_ns: i64) {
        bump(&self.share().sent, 1);
        self.seconds.sent(sent_ns, self.shared.start_ns());
    }

    /// A request's first byte is written again, on another stream or connection.
    pub fn asked_again(&self) {
        bump(&self.share().asked_again, 1);
    }

    /// No new request on this worker.
    pub fn close(&self, reason: Reason, ns: i64) {
        if !self.closed.replace(true) {
            self.shared.close(reason, ns);
            self.shared.closed.fetch_add(1, Relaxed);
            // The coordinator outlives the workers.
            let _ = self.events.send(Event::Closed { level: self.shared.clone(), reason });
            self.check_drained();
        }
    }

    /// A request has its outcome; `row` becomes a record.
    pub fn finish(&self, row: &mut Row, message: Option<String>) {
        if let Some(message) = message {
            row.error_id = Some(lock(&self.shared.errors).add(row.outcome, row.status, message));
        }
        if let Some(tags) = &self.shared.tags {
            tags.mark(row);
        }
        self.count(row);
        let mut chunk = self.chunk.borrow_mut();
        chunk.push(row);
        let mut gaps = self.gaps.borrow_mut();
        if !gaps.is_empty() {
            chunk.push_gaps(&gaps);
            gaps.clear();
        }
        drop(gaps);
        if chunk.is_full() {
            self.send(&mut chunk);
        }
        drop(chunk);
        self.in_flight.set(self.in_flight.get() - 1);
        if row.outcome.is_failure() {
            let (finished, failed) = self.shared.finished_and_failed();
            if self.shared.rules.too_many(failed, finished) {
                self.close(Reason::Errors, now_ns());
            }
        }
        self.check_drained();
    }

    fn count(&self, row: &Row) {
        let share = self.share();
        bump(&share.outcomes[row.outcome as usize], 1);
        if row.end_ns > share.last_end_ns.load(Relaxed) {
            share.last_end_ns.store(row.end_ns, Relaxed);
        }
        if row.outcome == Outcome::Ok {
            bump(&share.served, 1);
            bump(&share.service_sum_ns, (row.end_ns - row.sent_ns).max(0) as u64);
        }
    }

    fn send(&self, chunk: &mut Chunk) {
        let rows =
            if chunk.is_full() { (chunk.len() * 2).min(Chunk::LARGEST_ROWS) } else { FIRST_ROWS.max(chunk.len()) };
        let full = std::mem::replace(chunk, Self::fresh_chunk(&self.shared, self.worker, rows));
        if let Some(teller) = &*self.teller.borrow() {
            teller.rows(Box::new(full), self.shared.start_ns());
        }
    }

    /// Make counts visible and rows durable in time; called about ten times a second.
    pub fn tick(&self, now: i64) {
        if self.shared.write_failed() {
            // Load whose records are lost is load for nothing.
            self.close(Reason::Failed, now);
        }
        self.publish(now);
        self.check_drained();
    }

    /// So many requests count here that were due on another worker.
    pub fn take_in(&self, n: u64) {
        self.in_flight.set(self.in_flight.get() + n);
    }

    /// So many that were due here count on another worker.
    pub fn handed_off(&self, n: u64) {
        self.in_flight.set(self.in_flight.get() - n);
        self.check_drained();
    }

    fn publish(&self, now: i64) {
        self.share().cpu_ns.store(busy_ns() - self.cpu_start_ns.get(), Relaxed);
        if let Some((through, events)) = self.seconds.complete(now, self.shared.start_ns()) {
            self.report(through, events);
        }
    }

    /// Everything that ended in the seconds before `through` has been recorded.
    fn report(&self, through: u32, events: Begun) {
        let mut chunk = self.chunk.borrow_mut();
        if !chunk.is_empty() {
            self.send(&mut chunk);
        }
        drop(chunk);
        let share = self.share();
        if let Some(teller) = &*self.teller.borrow() {
            teller.report(Report {
                worker: self.worker,
                members: self.shared.members,
                through,
                events,
                cpu_ns: share.cpu_ns.load(Relaxed),
                waiting: share.waiting.load(Relaxed),
            });
        }
    }

    /// It is over when it has closed and all its requests have records. In an open loop it stays to help as long as requests
    /// wait on another worker, or may yet be due there.
    pub fn check_drained(&self) {
        if !self.closed.get() || self.in_flight.get() > 0 {
            return;
        }
        fence(SeqCst);
        let helps = matches!(self.shared.plan.load, LoadSpec::Open(_))
            && (self.shared.queues.load(Relaxed) > 0 || self.shared.closed.load(Relaxed) < self.shared.members);
        if !helps && !self.drained.replace(true) {
            self.publish(now_ns());
            self.report(u32::MAX, self.seconds.rest(self.shared.start_ns()));
            self.teller.borrow_mut().take();
            let _ = self.events.send(Event::Drained { level: self.shared.clone(), worker: self.worker });
        }
    }
}
