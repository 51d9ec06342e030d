//! A worker: one OS thread with its own runtime, its slots, and its part of each level.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::context::Context;
use super::level::LevelShared;
use super::links::Links;
use super::messages::{Command, DeathNote, Event};
use super::open;
use super::slot::{Abort, CANCELLED, Slot, Work};
use super::worker_level::WorkerLevel;
use crate::clock::now_ns;
use crate::outcome::Outcome;
use crate::pace::alarms::Alarms;
use crate::record::{Due, Row};
use crate::spec::{LoadSpec, Think};
use crate::stop::Reason;

/// Timeouts are noticed this much late at most: one sweep over all slots instead of a timer for each request.
const SWEEP_MS: u64 = 10;
/// Sweeps from one publication of counts to the next.
const TICK_SWEEPS: u32 = 10;

/// What the tasks of one thread share.
#[derive(Debug)]
pub struct Worker {
    pub index: usize,
    pub context: Arc<Context>,
    pub alarms: Alarms,
    events: Sender<Event>,
    slots: RefCell<Vec<Rc<Slot>>>,
    idle: RefCell<Vec<usize>>,
    levels: RefCell<Vec<Rc<WorkerLevel>>>,
    current: RefCell<Option<Rc<WorkerLevel>>>,
    /// Slots of the current closed loop; 0 in an open one.
    closed_slots: Cell<usize>,
    think_ns: Cell<i64>,
    queue: RefCell<VecDeque<(Rc<WorkerLevel>, Due)>>,
    pacer: RefCell<Option<JoinHandle<()>>>,
    /// The level whose connections are being opened, and how many are to come.
    preparing: RefCell<Option<(Arc<LevelShared>, usize)>>,
    connections: Cell<u32>,
    /// Connections of HTTP/2 that slots share.
    pub links: Links,
    quit: Cell<bool>,
}

/// The thread: serve commands until told to quit.
pub fn run(index: usize, context: Arc<Context>, events: Sender<Event>, commands: UnboundedReceiver<Command>) {
    let note = DeathNote::new(events.clone());
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    LocalSet::new().block_on(&runtime, async move {
        let Ok(alarms) = Alarms::new() else { return };
        let links = Links::new(context.target.streams, context.endpoints.len());
        let worker = Rc::new(Worker {
            index,
            context,
            alarms,
            events,
            slots: RefCell::default(),
            idle: RefCell::default(),
            levels: RefCell::default(),
            current: RefCell::default(),
            closed_slots: Cell::new(0),
            think_ns: Cell::new(0),
            queue: RefCell::default(),
            pacer: RefCell::default(),
            preparing: RefCell::default(),
            connections: Cell::new(0),
            links,
            quit: Cell::new(false),
        });
        let driver = worker.clone();
        spawn_local(async move {
            let _note = driver.death_note();
            driver.alarms.drive().await
        });
        let sweeper = worker.clone();
        spawn_local(async move { sweeper.sweep_forever().await });
        worker.serve(commands).await;
        note.tear_up();
    });
}

impl Worker {
    /// To be held by a task that must not end by itself.
    pub fn death_note(&self) -> DeathNote {
        DeathNote::new(self.events.clone())
    }

    async fn serve(self: &Rc<Self>, mut commands: UnboundedReceiver<Command>) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Prepare(level) => self.prepare(&level),
                Command::Start { level, start_ns, stagger_ns, running } => {
                    self.start(&level, start_ns, stagger_ns, running);
                }
                Command::Close { level, reason } => self.close(&level, reason),
                Command::CancelAt(level) => self.cancel_at(level),
                Command::Quit => break,
            }
        }
        self.quit.set(true);
        self.wake_all();
    }

    fn slot(self: &Rc<Self>, index: usize) -> Rc<Slot> {
        let mut slots = self.slots.borrow_mut();
        while slots.len() <= index {
            let slot = Rc::new(Slot::new(slots.len()));
            spawn_local(slot.clone().run(self.clone()));
            slots.push(slot);
        }
        slots[index].clone()
    }

    fn prepare(self: &Rc<Self>, level: &Arc<LevelShared>) {
        let count = level.slots_of(self.index);
        if count == 0 {
            let _ = self.events.send(Event::Ready);
        }
        *self.preparing.borrow_mut() = (count > 0).then(|| (level.clone(), count));
        for index in 0..count {
            self.slot(index).assign(Work::Connect(level.clone()));
        }
    }

    /// A slot has its connection, or knows that it gets none.
    pub fn prepared(&self, level: &Arc<LevelShared>) {
        let mut preparing = self.preparing.borrow_mut();
        if let Some((ours, left)) = &mut *preparing
            && Arc::ptr_eq(ours, level)
        {
            *left -= 1;
            if *left == 0 {
                *preparing = None;
                let _ = self.events.send(Event::Ready);
            }
        }
    }

    /// Whether a connection for `level` is still of use.
    pub fn wants_connection(&self, level: &LevelShared) -> bool {
        !self.quit.get() && level.reason().is_none_or(|r| matches!(r, Reason::Count | Reason::Duration))
    }

    fn start(self: &Rc<Self>, level: &Arc<LevelShared>, start_ns: i64, stagger_ns: i64, running: u32) {
        if self.index >= level.members {
            self.current.borrow_mut().take();
            self.closed_slots.set(0);
            return;
        }
        let mine = Rc::new(WorkerLevel::new(level.clone(), self.index, self.events.clone()));
        self.levels.borrow_mut().push(mine.clone());
        *self.current.borrow_mut() = Some(mine.clone());
        let count = level.slots_of(self.index);
        match &level.plan.load {
            LoadSpec::Closed(closed) => {
                self.think_ns.set(if let Think::Fixed(ns) = closed.think { ns } else { 0 });
                let fresh = i64::from(closed.most().saturating_sub(running)).max(1);
                for index in 0..count {
                    let slot = self.slot(index);
                    let place = (index * level.shares.len() + self.index) as i64 - i64::from(running);
                    if place >= 0 {
                        slot.ready_ns
                            .set(start_ns + (i128::from(stagger_ns) * i128::from(place) / i128::from(fresh)) as i64);
                        if stagger_ns > 0 && slot.serving.borrow().is_none() && !slot.is_assigned() {
                            slot.assign(Work::Connect(level.clone()));
                        }
                    }
                }
                self.closed_slots.set(count);
                self.wake_all();
                self.end_at_time(mine);
            }
            LoadSpec::Open(_) => {
                self.closed_slots.set(0);
                self.think_ns.set(0);
                // Slots of a closed loop may lie in a think time.
                self.wake_all();
                let pacer = spawn_local(open::pace(self.clone(), mine, count));
                if let Some(old) = self.pacer.borrow_mut().replace(pacer) {
                    old.abort();
                }
            }
        }
    }

    /// A closed loop whose slots are all busy must still close on time.
    fn end_at_time(self: &Rc<Self>, level: Rc<WorkerLevel>) {
        if let Some(after) = level.shared.rules.end_after_ns() {
            let worker = self.clone();
            spawn_local(async move {
                let end = level.shared.start_ns().saturating_add(after);
                worker.alarms.sleep_until(end).await;
                level.close(Reason::Duration, end);
            });
        }
    }

    fn find(&self, level: &Arc<LevelShared>) -> Option<Rc<WorkerLevel>> {
        self.levels.borrow().iter().find(|l| Arc::ptr_eq(&l.shared, level)).cloned()
    }

    fn close(&self, level: &Arc<LevelShared>, reason: Reason) {
        if self.preparing.borrow().as_ref().is_some_and(|(l, _)| Arc::ptr_eq(l, level)) {
            self.slots.borrow().iter().filter(|s| s.connecting.get()).for_each(|s| s.abort(Abort::Cancelled));
        }
        let Some(mine) = self.find(level) else { return };
        let is_current = self.current.borrow().as_ref().is_some_and(|c| Rc::ptr_eq(c, &mine));
        if is_current && let Some(pacer) = self.pacer.borrow_mut().take() {
            pacer.abort();
        }
        mine.close(reason, now_ns());
        // What is due but not on its way would be a new request.
        self.withdraw(&mine);
    }

    fn cancel_at(self: &Rc<Self>, level: Arc<LevelShared>) {
        let worker = self.clone();
        spawn_local(async move {
            worker.alarms.sleep_until(level.cancel_ns()).await;
            if let Some(mine) = worker.find(&level) {
                worker.cancel(&mine);
            }
        });
    }

    /// Record the level's requests that no slot has begun as cancelled.
    fn withdraw(&self, level: &Rc<WorkerLevel>) {
        let mut waiting: Vec<Due> = self.slots.borrow().iter().filter_map(|s| s.withdraw(level)).collect();
        self.queue.borrow_mut().retain(|(theirs, due)| {
            let kept = !Rc::ptr_eq(theirs, level);
            if !kept {
                waiting.push(*due);
            }
            kept
        });
        for due in waiting {
            let mut row = Row::due(due);
            row.outcome = Outcome::Cancelled;
            row.end_ns = now_ns();
            level.finish(&mut row, Some(CANCELLED.to_owned()));
        }
    }

    fn cancel(&self, level: &Rc<WorkerLevel>) {
        let ours = |other: &Rc<WorkerLevel>| Rc::ptr_eq(other, level);
        self.withdraw(level);
        for slot in self.slots.borrow().iter() {
            if slot.serving.borrow().as_ref().is_some_and(ours) {
                slot.abort(Abort::Cancelled);
            }
        }
    }

    /// The current closed loop, if slot `index` belongs to it and it takes requests.
    pub fn closed_loop(&self, index: usize) -> Option<Rc<WorkerLevel>> {
        if index >= self.closed_slots.get() {
            return None;
        }
        self.current.borrow().as_ref().filter(|l| !l.is_closed()).cloned()
    }

    /// A due request that waits for a connection.
    pub fn queued(&self, index: usize) -> Option<Work> {
        let mut queue = self.queue.borrow_mut();
        let (level, _) = queue.front()?;
        if index >= level.shared.slots_of(self.index) {
            return None;
        }
        queue.pop_front().map(|(level, due)| Work::Request(level, due))
    }

    /// Hand a due request to a free connection, or let it wait, or shed it.
    pub fn dispatch(self: &Rc<Self>, level: &Rc<WorkerLevel>, due: Due, slots: usize, queue_limit: usize) {
        if let Some(slot) = self.pop_idle(slots) {
            slot.assign(Work::Request(level.clone(), due));
        } else if self.slots.borrow().len() < slots {
            let index = self.slots.borrow().len();
            let slot = self.slot(index);
            slot.assign(Work::Request(level.clone(), due));
        } else if self.queue.borrow().len() < queue_limit {
            self.queue.borrow_mut().push_back((level.clone(), due));
        } else {
            let mut row = Row::due(due);
            row.outcome = Outcome::Shed;
            row.end_ns = due.fired_ns;
            level.finish(&mut row, None);
        }
    }

    fn pop_idle(&self, below: usize) -> Option<Rc<Slot>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(index) = idle.pop() {
            let slot = self.slots.borrow()[index].clone();
            // The list may name a slot that has been woken since.
            if slot.parked.get() && index < below {
                return Some(slot);
            }
        }
        None
    }

    /// A slot has nothing to do.
    pub fn park(&self, index: usize) {
        self.idle.borrow_mut().push(index);
    }

    fn wake_all(&self) {
        self.idle.borrow_mut().clear();
        for slot in self.slots.borrow().iter() {
            slot.parked.set(false);
            slot.wake();
        }
    }

    async fn sweep_forever(&self) {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(SWEEP_MS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut sweeps = 0;
        while !self.quit.get() {
            ticks.tick().await;
            let now = now_ns();
            for slot in self.slots.borrow().iter().filter(|s| s.deadline_ns.get() <= now) {
                slot.deadline_ns.set(i64::MAX);
                slot.abort(Abort::Timeout);
            }
            sweeps += 1;
            if sweeps % TICK_SWEEPS == 0 {
                self.levels.borrow_mut().retain(|l| !l.is_drained());
                self.levels.borrow().iter().for_each(|l| l.tick(now));
            }
        }
    }

    /// Pause between a response and the next request of its slot.
    pub fn think_ns(&self) -> i64 {
        self.think_ns.get()
    }

    /// A number for a new connection.
    pub fn next_connection(&self) -> u32 {
        let number = self.connections.get();
        self.connections.set(number + 1);
        number
    }

    pub fn quits(&self) -> bool {
        self.quit.get()
    }
}
