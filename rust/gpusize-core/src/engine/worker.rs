//! A worker: one OS thread with its own runtime, its slots, and its part of each level.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::context::Context;
use super::cores;
use super::job::{Job, Talk};
use super::level::{LevelShared, bump};
use super::links::Links;
use super::messages::{Command, DeathNote, Event};
use super::open;
use super::preparing::Preparing;
use super::ramp;
use super::slot::{Abort, CANCELLED, Slot, Work};
use super::sources::Sources;
use super::waiting::Waiting;
use super::worker_level::WorkerLevel;
use crate::clock::now_ns;
use crate::outcome::Outcome;
use crate::pace::alarms::Alarms;
use crate::record::Row;
use crate::spec::{Closed, LoadSpec};
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
    pub slots: RefCell<Vec<Rc<Slot>>>,
    idle: RefCell<Vec<usize>>,
    levels: RefCell<Vec<Rc<WorkerLevel>>>,
    current: RefCell<Option<Rc<WorkerLevel>>>,
    /// Levels that this worker was told to start, and the last of them that has begun.
    starts: Cell<u64>,
    taken_over: Cell<u64>,
    /// Slots of the current closed loop; 0 in an open one.
    closed_slots: Cell<usize>,
    waiting: RefCell<Waiting>,
    pacers: RefCell<Vec<(Rc<WorkerLevel>, JoinHandle<()>)>>,
    /// Levels whose connections are being opened.
    pub preparing: RefCell<Vec<Preparing>>,
    connections: Cell<u32>,
    /// Connections that are open now.
    pub open_connections: Rc<Cell<u64>>,
    /// Where they come from.
    pub sources: Sources,
    /// No wait can have run out before.
    sweep_ns: Cell<i64>,
    /// Connections of HTTP/2 that slots share.
    pub links: Links,
    quit: Cell<bool>,
}

/// The thread: serve commands until told to quit.
pub fn run(index: usize, context: Arc<Context>, events: Sender<Event>, commands: UnboundedReceiver<Command>) {
    let note = DeathNote::new(events.clone());
    if cores::pin(&context.target.pin, index).is_err() {
        return;
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    LocalSet::new().block_on(&runtime, async move {
        let Ok(alarms) = Alarms::new() else { return };
        let sources = Sources::new(&context.sources, index);
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
            starts: Cell::new(0),
            taken_over: Cell::new(0),
            closed_slots: Cell::new(0),
            waiting: RefCell::default(),
            pacers: RefCell::default(),
            preparing: RefCell::default(),
            connections: Cell::new(0),
            open_connections: Rc::default(),
            sources,
            sweep_ns: Cell::new(0),
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

    /// Say something to the coordinator, which outlives the workers.
    pub fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    async fn serve(self: &Rc<Self>, mut commands: UnboundedReceiver<Command>) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Prepare(level) => self.open_ahead(&level, 0, level.opened_of(self.index), true),
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

    /// The slot with this number, and all before it.
    pub fn slot(self: &Rc<Self>, index: usize) -> Rc<Slot> {
        let mut slots = self.slots.borrow_mut();
        while slots.len() <= index {
            let slot = Rc::new(Slot::new(slots.len()));
            spawn_local(slot.clone().run(self.clone()));
            slots.push(slot);
        }
        slots[index].clone()
    }

    /// Whether a connection for `level` is still of use.
    pub fn wants_connection(&self, level: &LevelShared) -> bool {
        !self.quit.get() && level.reason().is_none_or(|r| matches!(r, Reason::Count | Reason::Duration))
    }

    /// Begin a level at `start_ns`, until when the one before goes on.
    fn start(self: &Rc<Self>, level: &Arc<LevelShared>, start_ns: i64, stagger_ns: i64, running: u32) {
        let mine = (self.index < level.members)
            .then(|| Rc::new(WorkerLevel::new(level.clone(), self.index, self.events.clone())));
        let order = self.starts.get() + 1;
        self.starts.set(order);
        let is_busy = self.levels.borrow().iter().any(|level| !level.is_closed());
        if let Some(mine) = &mine {
            self.levels.borrow_mut().push(mine.clone());
            let (there, needed) = (self.slots.borrow().len(), level.opened_of(self.index));
            if there < needed && (stagger_ns > 0 || start_ns > now_ns()) {
                self.open_ahead(level, there, needed, false);
            }
        }
        match (&level.plan.load, mine) {
            (LoadSpec::Open(_), Some(mine)) => {
                let pacer = spawn_local(open::pace(self.clone(), mine.clone(), order));
                self.pacers.borrow_mut().push((mine, pacer));
            }
            (_, mine) => {
                if !is_busy {
                    return self.take_over(mine, order, stagger_ns, running);
                }
                let worker = self.clone();
                spawn_local(async move {
                    worker.alarms.sleep_until(start_ns).await;
                    worker.take_over(mine, order, stagger_ns, running);
                });
            }
        }
    }

    /// The level's time begins; with none, this worker's slots rest.
    pub fn take_over(self: &Rc<Self>, mine: Option<Rc<WorkerLevel>>, order: u64, stagger_ns: i64, running: u32) {
        if order < self.taken_over.replace(order.max(self.taken_over.get())) {
            return;
        }
        self.current.borrow_mut().clone_from(&mine);
        self.closed_slots.set(0);
        // What was left of conversations belongs to a level that is over.
        self.slots.borrow().iter().for_each(|slot| drop(slot.talk.take()));
        let Some(mine) = mine else { return self.wake_all() };
        mine.begin();
        match &mine.shared.plan.load {
            LoadSpec::Open(_) => self.free_all(),
            LoadSpec::Closed(closed) => {
                self.place_users(&mine, closed, stagger_ns, running);
                self.closed_slots.set(mine.shared.slots_of(self.index));
                self.wake_all();
                self.end_at_time(mine);
            }
        }
    }

    /// When each slot of a closed loop begins and leaves.
    fn place_users(self: &Rc<Self>, mine: &WorkerLevel, closed: &Closed, stagger_ns: i64, running: u32) {
        let (start_ns, workers) = (mine.shared.start_ns(), mine.shared.shares.len());
        let first = closed.from.unwrap_or(closed.concurrency);
        let fresh = i64::from(first.saturating_sub(running)).max(1);
        for index in 0..mine.shared.slots_of(self.index) {
            let slot = self.slot(index);
            let place = (index * workers + self.index) as u32;
            let leaves_ns = ramp::leaves_after_ns(closed, place).map(|after_ns| start_ns.saturating_add(after_ns));
            slot.leaves_ns.set(leaves_ns.unwrap_or(i64::MAX));
            if place >= first {
                slot.ready_ns.set(start_ns + ramp::begins_after_ns(closed, place));
            } else if place >= running {
                let turn = i128::from(place - running);
                slot.ready_ns.set(start_ns + (i128::from(stagger_ns) * turn / i128::from(fresh)) as i64);
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
        self.open_no_more(level);
        let Some(mine) = self.find(level) else { return };
        for (_, pacer) in self.pacers.borrow_mut().extract_if(.., |(theirs, _)| Rc::ptr_eq(theirs, &mine)) {
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
        let mut waiting: Vec<Job> = self.slots.borrow().iter().filter_map(|s| s.withdraw(level)).collect();
        waiting.append(&mut self.waiting.borrow_mut().withdraw(level));
        level.share().waiting.store(0, Relaxed);
        for job in waiting {
            let mut row = Row::due(job.due);
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
        let fits = |level: &WorkerLevel| index < level.shared.slots_of(self.index);
        let (level, job) = self.waiting.borrow_mut().pop(fits)?;
        let waiting = &level.share().waiting;
        waiting.store(waiting.load(Relaxed) - 1, Relaxed);
        Some(Work::Request(level, job))
    }

    /// Hand a due request to a free connection, or let it wait, or shed it.
    pub fn dispatch(self: &Rc<Self>, level: &Rc<WorkerLevel>, job: Job, slots: usize, room: u64) {
        if let Some(slot) = self.pop_idle(slots) {
            slot.assign(Work::Request(level.clone(), job));
            return;
        }
        let there = self.slots.borrow().len();
        if there < slots {
            self.slot(there).assign(Work::Request(level.clone(), job));
        } else if level.share().waiting.load(Relaxed) < room {
            bump(&level.share().waiting, 1);
            self.waiting.borrow_mut().push(level.clone(), job);
        } else {
            let mut row = Row::due(job.due);
            row.outcome = Outcome::Shed;
            row.end_ns = job.due.fired_ns;
            level.finish(&mut row, None);
            if job.talk.is_some() {
                level.following.end();
            }
        }
    }

    /// After a request: when its slot or its conversation goes on.
    pub fn go_on(&self, slot: &Slot, level: &WorkerLevel, talk: Option<Box<Talk>>, row: &Row) {
        let shared = &level.shared;
        let is_closed_loop = matches!(shared.plan.load, LoadSpec::Closed(_));
        let Some(talk) = talk else {
            if is_closed_loop {
                let due_ns = row.end_ns.saturating_add(shared.pause_ns(0, row.seq, row.row));
                slot.ready_ns.set(slot.ready_ns.get().max(due_ns));
            }
            return;
        };
        let next = next_turn(level, talk, row);
        match next {
            Some((talk, due_ns)) if is_closed_loop => {
                slot.ready_ns.set(slot.ready_ns.get().max(due_ns));
                *slot.talk.borrow_mut() = Some(talk);
            }
            Some((talk, due_ns)) => {
                let seq = talk.seq(&shared.sessions);
                level.following.push(due_ns, seq, talk);
            }
            None => {
                level.following.end();
                if is_closed_loop {
                    let pause_ns = shared.pause_between_ns(row.seq);
                    slot.ready_ns.set(slot.ready_ns.get().max(row.end_ns.saturating_add(pause_ns)));
                    level.close_if_used_up();
                }
            }
        }
    }

    fn pop_idle(&self, below: usize) -> Option<Rc<Slot>> {
        let mut idle = self.idle.borrow_mut();
        // Of a level that has more connections than this one.
        let mut others = Vec::new();
        let mut found = None;
        while found.is_none()
            && let Some(index) = idle.pop()
        {
            let slot = self.slots.borrow()[index].clone();
            // The list may name a slot that has been woken since.
            match slot.parked.get() {
                true if index < below => found = Some(slot),
                true => others.push(index),
                false => {}
            }
        }
        idle.extend(others.into_iter().rev());
        found
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

    /// Those that lie in a pause of a closed loop can take requests, the first ones first.
    fn free_all(&self) {
        let mut idle = self.idle.borrow_mut();
        idle.clear();
        for slot in self.slots.borrow().iter().rev() {
            let is_idle = slot.is_idle();
            slot.parked.set(is_idle);
            if is_idle {
                idle.push(slot.index);
            }
        }
    }

    async fn sweep_forever(&self) {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(SWEEP_MS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut sweeps = 0;
        while !self.quit.get() {
            ticks.tick().await;
            let now = now_ns();
            if now >= self.sweep_ns.get() {
                self.sweep(now);
            }
            sweeps += 1;
            if sweeps % TICK_SWEEPS == 0 {
                self.levels.borrow_mut().retain(|l| !l.is_drained());
                self.pacers.borrow_mut().retain(|(level, _)| !level.is_closed());
                for level in self.levels.borrow().iter() {
                    level.share().connections.store(self.open_connections.get(), Relaxed);
                    level.tick(now);
                }
            }
        }
    }

    /// Give up the waits that have run out. A wait that begins later cannot run out before the shortest timeout from now,
    /// so that there is nothing to look at until then, or until the first of those under way runs out.
    fn sweep(&self, now: i64) {
        let target = &self.context.target;
        let mut next = now.saturating_add(target.timeout_ns.min(target.connect_timeout_ns));
        for slot in self.slots.borrow().iter() {
            let deadline = slot.deadline_ns.get();
            if deadline <= now {
                slot.deadline_ns.set(i64::MAX);
                slot.abort(Abort::Timeout);
            } else {
                next = next.min(deadline);
            }
        }
        self.sweep_ns.set(next);
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

/// The next turn of a conversation and when it is due; none when that was the last, or failed, or the level ends before.
fn next_turn(level: &WorkerLevel, mut talk: Box<Talk>, row: &Row) -> Option<(Box<Talk>, i64)> {
    let shared = &level.shared;
    talk.go_on();
    let next = talk.next_row(&shared.sessions).filter(|_| row.outcome == Outcome::Ok && !level.is_closed())?;
    let pause_ns = shared.pause_ns(talk.stream(), talk.seq(&shared.sessions), next);
    let due_ns = row.end_ns.saturating_add(pause_ns);
    let end_ns = shared.rules.end_after_ns().map_or(i64::MAX, |after| shared.start_ns().saturating_add(after));
    (due_ns < end_ns).then_some((talk, due_ns))
}
