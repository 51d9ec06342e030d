//! A slot: one connection's task, which waits for work, does it and records it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::connection::Line;
use super::level::LevelShared;
use super::worker::Worker;
use super::worker_level::WorkerLevel;
use crate::clock::now_ns;
use crate::record::columns::NO_TIME;
use crate::record::{Due, Row};

/// Something for a slot to do.
#[derive(Debug)]
pub enum Work {
    /// Have a connection ready for this level.
    Connect(Arc<LevelShared>),
    /// Send this request.
    Request(Rc<WorkerLevel>, Due),
}

/// Why a wait for the peer is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// Its time is over.
    Timeout,
    /// The user stopped the level.
    Cancelled,
}

/// The message of a cancelled request.
pub const CANCELLED: &str = "the level was stopped";

/// What others see of a slot.
#[derive(Debug)]
pub struct Slot {
    pub index: usize,
    assigned: RefCell<Option<Work>>,
    /// Earliest due time of the next request of a closed loop.
    pub ready_ns: Cell<i64>,
    /// When the running wait is given up.
    pub deadline_ns: Cell<i64>,
    pub abort: Cell<Option<Abort>>,
    /// A connection is being opened ahead of its first request.
    pub connecting: Cell<bool>,
    /// The level of the running request.
    pub serving: RefCell<Option<Rc<WorkerLevel>>>,
    pub parked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    alarm_ns: Cell<i64>,
    last_now_ns: Cell<i64>,
}

impl Slot {
    pub fn new(index: usize) -> Self {
        Self {
            index,
            assigned: RefCell::default(),
            ready_ns: Cell::new(0),
            deadline_ns: Cell::new(i64::MAX),
            abort: Cell::new(None),
            connecting: Cell::new(false),
            serving: RefCell::default(),
            parked: Cell::new(false),
            waker: RefCell::default(),
            alarm_ns: Cell::new(0),
            last_now_ns: Cell::new(0),
        }
    }

    /// Give it something to do.
    pub fn assign(&self, work: Work) {
        self.parked.set(false);
        *self.assigned.borrow_mut() = Some(work);
        self.wake();
    }

    /// Whether something waits to be taken up.
    pub fn is_assigned(&self) -> bool {
        self.assigned.borrow().is_some()
    }

    /// Take back a request of `level` that the task has not begun.
    pub fn withdraw(&self, level: &Rc<WorkerLevel>) -> Option<Due> {
        let mut assigned = self.assigned.borrow_mut();
        match &*assigned {
            Some(Work::Request(theirs, due)) if Rc::ptr_eq(theirs, level) => {
                let due = *due;
                *assigned = None;
                Some(due)
            }
            _ => None,
        }
    }

    /// Let the task look again.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
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
        while let Some(work) = poll_fn(|cx| self.poll_work(&worker, &mut line, cx)).await {
            match work {
                Work::Connect(level) => {
                    if worker.wants_connection(&level) {
                        line.prepare(&worker, &self, &level).await;
                    }
                    worker.prepared(&level);
                }
                Work::Request(level, due) => {
                    let mut row = Row::due(due);
                    *self.serving.borrow_mut() = Some(level.clone());
                    let message = line.exchange(&worker, &self, &level, &mut row).await;
                    self.deadline_ns.set(i64::MAX);
                    self.abort.set(None);
                    self.serving.borrow_mut().take();
                    self.last_now_ns.set(row.end_ns);
                    self.ready_ns.set(row.end_ns + worker.think_ns());
                    let unsent = row.sent_ns == NO_TIME;
                    level.finish(&mut row, message);
                    if unsent {
                        // A connect may fail at once, again and again; the thread's other tasks must get their turn.
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        note.tear_up();
    }

    fn poll_work(&self, worker: &Worker, line: &mut Line, cx: &mut Context<'_>) -> Poll<Option<Work>> {
        // The waker of a task never changes, so it is stored once.
        if self.waker.borrow().is_none() {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
        }
        if worker.quits() {
            return Poll::Ready(None);
        }
        let assigned = self.assigned.borrow_mut().take();
        if let Some(work) = assigned.or_else(|| worker.queued(self.index)) {
            self.parked.set(false);
            return Poll::Ready(Some(work));
        }
        if let Some(level) = worker.closed_loop(self.index) {
            let due_ns = self.ready_ns.get().max(level.shared.start_ns());
            let mut fired_ns = due_ns;
            if due_ns > self.last_now_ns.get() {
                fired_ns = now_ns();
                if fired_ns < due_ns {
                    level.close_if_used_up();
                    self.alarm(worker, due_ns, cx);
                    line.attend();
                    return Poll::Pending;
                }
                self.last_now_ns.set(fired_ns);
            }
            if let Some((seq, row)) = level.allocate(fired_ns) {
                self.parked.set(false);
                return Poll::Ready(Some(Work::Request(level, Due { seq, row, due_ns, fired_ns, stream: 0 })));
            }
        }
        if !self.parked.replace(true) {
            worker.park(self.index);
        }
        line.attend();
        Poll::Pending
    }

    fn alarm(&self, worker: &Worker, due_ns: i64, cx: &Context<'_>) {
        if self.alarm_ns.replace(due_ns) != due_ns {
            worker.alarms.ring(due_ns, cx.waker().clone());
        }
    }
}
