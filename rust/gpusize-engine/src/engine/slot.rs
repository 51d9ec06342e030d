//! A slot: one connection's task, which waits for work, does it and records it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::backoff::Backoff;
use super::connection::Line;
use super::job::{Job, Talk};
use super::level::LevelShared;
use super::mailbox::{Assignment, Mailbox};
use super::outside::now_ns;
use super::turns;
use super::worker::Worker;
use super::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use crate::record::columns::NO_TIME;
use crate::record::{Due, Row};
use gpusize_load::stop::Reason;

/// Why a wait for the peer is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// Its time is over.
    Timeout,
    /// The user stopped the level.
    Cancelled,
}

/// What the task of a slot is at. It holds the levels itself: they are only to be compared here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It looks for something to do.
    Looks,
    /// It waits to be called, or for a time.
    Waits,
    /// It waits, and is on the list of those that have nothing to do.
    Parked,
    /// It opens a connection for this level, ahead of its first request.
    Connects(*const LevelShared),
    /// It sends a request of this level.
    Serves(*const WorkerLevel),
}

/// The message of a cancelled request.
pub const CANCELLED: &str = "the level was stopped";

/// What others see of a slot.
#[derive(Debug)]
pub struct Slot {
    pub index: usize,
    pub mailbox: Mailbox,
    /// Earliest due time of the next request of a closed loop.
    pub ready_ns: Cell<i64>,
    /// When its user leaves the closed loop.
    pub leaves_ns: Cell<i64>,
    /// The conversation of a closed loop whose next turn it sends.
    pub talk: RefCell<Option<Box<Talk>>>,
    /// No new connect before.
    rests_until_ns: Cell<i64>,
    /// Its last connect failed, or nothing was answered in time.
    pub lacks_target: Cell<bool>,
    /// When the running wait is given up.
    pub deadline_ns: Cell<i64>,
    pub abort: Cell<Option<Abort>>,
    state: Cell<State>,
    waker: RefCell<Option<Waker>>,
    alarm_ns: Cell<i64>,
    last_now_ns: Cell<i64>,
}

impl Slot {
    pub fn new(index: usize) -> Self {
        Self {
            index,
            mailbox: Mailbox::default(),
            ready_ns: Cell::new(0),
            leaves_ns: Cell::new(i64::MAX),
            talk: RefCell::default(),
            rests_until_ns: Cell::new(0),
            lacks_target: Cell::new(false),
            deadline_ns: Cell::new(i64::MAX),
            abort: Cell::new(None),
            state: Cell::new(State::Looks),
            waker: RefCell::default(),
            alarm_ns: Cell::new(0),
            last_now_ns: Cell::new(0),
        }
    }

    /// Give it a request to send; says whose connect that displaced. A slot that has one gives it back.
    pub fn send(&self, level: &Rc<WorkerLevel>, job: Job) -> Result<Option<Arc<LevelShared>>, Job> {
        let result = self.mailbox.request(level, job);
        self.called();
        result
    }

    /// Have it open a connection; says for whom none is to be waited for.
    #[must_use = "who waits for it has to be told"]
    pub fn open(&self, level: &Arc<LevelShared>) -> Option<Arc<LevelShared>> {
        let left = self.mailbox.connect(level);
        self.called();
        left
    }

    /// There is something for it to look at.
    pub fn called(&self) {
        if self.is_parked() {
            self.state.set(State::Waits);
        }
        self.wake();
    }

    /// Whether it is on the list of those that have nothing to do, and has not been called since.
    pub fn is_parked(&self) -> bool {
        self.state.get() == State::Parked
    }

    /// It has nothing to do; false when that was known.
    pub fn park(&self) -> bool {
        self.state.replace(State::Parked) != State::Parked
    }

    /// Count it as parked if it can take a request at once; says whether it can.
    pub fn is_freed(&self) -> bool {
        let is_waiting = matches!(self.state.get(), State::Waits | State::Parked);
        let is_free = is_waiting && self.rests_until_ns.get() == 0 && self.mailbox.is_empty();
        if is_waiting {
            self.state.set(if is_free { State::Parked } else { State::Waits });
        }
        is_free
    }

    /// Take back a request of `level` that the task has not begun.
    pub fn withdraw(&self, level: &Rc<WorkerLevel>) -> Option<Job> {
        self.mailbox.take_of(level)
    }

    /// Whether the request that it sends is of `level`.
    pub fn serves(&self, level: &Rc<WorkerLevel>) -> bool {
        self.state.get() == State::Serves(Rc::as_ptr(level))
    }

    /// Whether it opens a connection for `level`.
    pub fn connects_for(&self, level: &Arc<LevelShared>) -> bool {
        self.state.get() == State::Connects(Arc::as_ptr(level))
    }

    /// Let the task look again.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Who has the task look again.
    pub fn waker(&self) -> Option<Waker> {
        self.waker.borrow().clone()
    }

    /// Give up the running wait.
    pub fn abort(&self, why: Abort) {
        self.abort.set(Some(why));
        self.wake();
    }

    /// The task: until the worker quits.
    pub async fn run(self: Rc<Self>, worker: Rc<Worker>) {
        let note = worker.death_note();
        let mut line = Line::new(&worker);
        let mut backoff = Backoff::new(self.index);
        let mut row = Box::new(Row::due(Due::default()));
        while let Some(work) = poll_fn(|cx| self.poll_work(&worker, &mut line, cx)).await {
            match work {
                Assignment::Connect(level) => {
                    let mut fails = false;
                    if worker.wants_connection(&level) {
                        self.state.set(State::Connects(Arc::as_ptr(&level)));
                        fails = !line.prepare(&worker, &self, &level).await;
                        self.state.set(State::Looks);
                        self.lacks_target.set(fails);
                        if !fails {
                            backoff.succeeded();
                            self.rests_until_ns.set(0);
                        }
                    }
                    worker.prepared(&level, fails);
                }
                Assignment::Request(level, mut job) => {
                    *row = Row::due(job.due);
                    self.state.set(State::Serves(Rc::as_ptr(&level)));
                    let message = line.exchange(&worker, &self, &level, &mut job, &mut row).await;
                    self.deadline_ns.set(i64::MAX);
                    self.abort.set(None);
                    self.state.set(State::Looks);
                    self.last_now_ns.set(row.end_ns);
                    self.ready_ns.set(row.end_ns);
                    // However it was asked, the target did not say a word.
                    let is_silent = row.outcome == Outcome::Timeout && row.first_byte_ns == NO_TIME;
                    self.lacks_target.set(line.lacks_target() || is_silent);
                    if self.lacks_target.get() {
                        worker.connections.failed_with(row.outcome, message.as_deref());
                    }
                    if line.lacks_target() {
                        self.rest(row.end_ns, backoff.failed(level.shared.number_of(worker.index)));
                    } else {
                        backoff.succeeded();
                    }
                    let lacked = self.lacks_target.get() || row.sent_ns == NO_TIME;
                    level.finish(&mut row, message);
                    match level.shared.plain_pause_ns {
                        Some(pause_ns) if job.is_plain() => {
                            self.ready_ns.set(self.ready_ns.get().saturating_add(pause_ns));
                        }
                        _ => turns::go_on(&self, &level, job.into_talk(), &row),
                    }
                    if lacked {
                        worker.give_up_waiting();
                        // A connect may fail at once, again and again; the thread's other tasks must get their turn.
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        note.tear_up();
    }

    fn poll_work(&self, worker: &Worker, line: &mut Line, cx: &mut Context<'_>) -> Poll<Option<Assignment>> {
        // The waker of a task never changes, so it is stored once.
        if self.waker.borrow().is_none() {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
        }
        if worker.quits() {
            return Poll::Ready(None);
        }
        let work = self.mailbox.take().or_else(|| self.look_for_work(worker, cx));
        if work.is_some() {
            self.state.set(State::Looks);
            return Poll::Ready(work);
        }
        if !self.is_parked() {
            self.state.set(State::Waits);
        }
        line.attend(worker);
        Poll::Pending
    }

    fn look_for_work(&self, worker: &Worker, cx: &Context<'_>) -> Option<Assignment> {
        if self.rests_until_ns.get() > 0 && self.rests(worker, cx) {
            return None;
        }
        if let Some(work) = worker.queued(self.index) {
            return Some(work);
        }
        if let Some(level) = worker.levels.closed_loop(self.index) {
            let due_ns = self.ready_ns.get().max(level.shared.start_ns());
            if due_ns < self.leaves_ns.get() {
                let mut fired_ns = due_ns;
                if due_ns > self.last_now_ns.get() {
                    fired_ns = now_ns();
                    if fired_ns < due_ns {
                        level.close_if_used_up();
                        self.alarm(worker, due_ns, cx);
                        return None;
                    }
                    self.last_now_ns.set(fired_ns);
                }
                if let Some(job) = self.next_job(&level, due_ns, fired_ns) {
                    return Some(Assignment::Request(level, job));
                }
            } else {
                self.leave(worker, &level);
            }
        }
        worker.park(self);
        None
    }

    /// Its user leaves, perhaps in the middle of a conversation.
    #[cold]
    fn leave(&self, worker: &Worker, level: &WorkerLevel) {
        if self.talk.take().is_some() {
            level.following.end();
            level.close_if_used_up();
        }
        // The users of other workers send what is left of a count. A time ends by itself.
        let has_left = |slot: &Self| slot.ready_ns.get() >= slot.leaves_ns.get();
        if level.shared.next_number.is_some() && worker.all_slots_of(level, has_left) {
            level.close(Reason::Count, now_ns());
        }
    }

    /// The next request of a closed loop.
    #[inline]
    fn next_job(&self, level: &WorkerLevel, due_ns: i64, fired_ns: i64) -> Option<Job> {
        if level.shared.by_session {
            return self.next_turn(level, due_ns, fired_ns);
        }
        level.allocate(due_ns, fired_ns).map(|(seq, row)| Job::of_loop(seq, row, due_ns, fired_ns))
    }

    /// The next turn of this user's conversation, or the first of another.
    #[cold]
    fn next_turn(&self, level: &WorkerLevel, due_ns: i64, fired_ns: i64) -> Option<Job> {
        let sessions = &level.shared.sessions;
        let talk = self.talk.take();
        if talk.is_some() {
            level.admit_item(due_ns);
        }
        let talk = talk.or_else(|| {
            let (number, session) = level.allocate(due_ns, fired_ns)?;
            level.following.begin();
            Some(Box::new(Talk::of_loop(number, sessions.first(session as usize))))
        })?;
        Job::of_talk(talk, sessions, due_ns, fired_ns)
    }

    /// A connect failed: none for a while.
    #[cold]
    fn rest(&self, now: i64, pause_ns: i64) {
        let until_ns = now + pause_ns;
        self.rests_until_ns.set(until_ns);
        self.ready_ns.set(until_ns);
    }

    /// Whether it rests still.
    #[cold]
    fn rests(&self, worker: &Worker, cx: &Context<'_>) -> bool {
        let until_ns = self.rests_until_ns.get();
        if now_ns() >= until_ns {
            self.rests_until_ns.set(0);
            return false;
        }
        if let Some(level) = worker.levels.closed_loop(self.index) {
            level.close_if_used_up();
        }
        self.alarm(worker, until_ns, cx);
        true
    }

    fn alarm(&self, worker: &Worker, due_ns: i64, cx: &Context<'_>) {
        if self.alarm_ns.replace(due_ns) != due_ns {
            worker.alarms.ring(due_ns, cx.waker().clone());
        }
    }
}
