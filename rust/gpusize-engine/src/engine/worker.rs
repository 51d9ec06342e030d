//! A worker: one OS thread with its own runtime, its slots, and its part of each level.

mod ending;
mod handover;
mod preparing;
mod sharing;

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;

use self::preparing::Openings;
use super::alarms::Alarms;
use super::backlog::Backlog;
use super::connections::Connections;
use super::context::Context;
use super::cores;
use super::http1;
use super::job::Job;
use super::level::LevelShared;
use super::levels::Levels;
use super::mailbox::Assignment;
use super::messages::{Command, DeathNote, Event, spawn_noted};
use super::outside::{now_ns, spawn_local};
use super::peers::{Others, Peers};
use super::pool::Pool;
use super::slot::{Abort, Slot};
use super::slots::Slots;
use super::sources::Sources;
use super::stalls;
use super::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use crate::record::Row;

/// Timeouts are noticed this much late at most: one sweep over all slots instead of a timer for each request. Short ones are
/// noticed sooner, by this share of them, but not in less than the least.
const SWEEP_NS: i64 = 10_000_000;
const SWEEP_SHARE: i64 = 50;
const LEAST_SWEEP_NS: i64 = 100_000;
/// From one publication of counts to the next.
const TICK_NS: i64 = 100_000_000;

/// What the tasks of one thread share.
#[derive(Debug)]
pub struct Worker {
    pub(super) index: usize,
    pub(super) context: Arc<Context>,
    others: Others,
    pub(super) alarms: Alarms,
    events: Sender<Event>,
    slots: Slots,
    pub(super) levels: Levels,
    backlog: Backlog,
    /// Levels whose connections are being opened.
    openings: Openings,
    pub(super) connections: Connections,
    /// No wait can have run out before.
    sweep_ns: Cell<i64>,
    /// Where its connections of HTTP/1.1 read: one after the other, so one will do for all.
    read_buffer: RefCell<Vec<u8>>,
    quit: Cell<bool>,
}

/// The thread: serve commands until told to quit.
pub fn run(
    index: usize,
    context: Arc<Context>,
    peers: Arc<Peers>,
    events: Sender<Event>,
    commands: UnboundedReceiver<Command>,
) {
    let note = DeathNote::new(events.clone());
    if cores::pin(&context.target.pin, index).is_err() {
        return;
    }
    // Without tokio's timers, which cost every turn of the thread: its own wait on one descriptor.
    let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default());
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async move {
        let Ok(worker) = Worker::new(index, context, peers, events) else { return };
        worker.attend();
        worker.serve(commands).await;
        note.tear_up();
    });
}

impl Worker {
    /// A worker without tasks; needs a tokio runtime.
    pub fn new(index: usize, context: Arc<Context>, peers: Arc<Peers>, events: Sender<Event>) -> io::Result<Rc<Self>> {
        let sources = Sources::new(&context.sources, index);
        let pool = Pool::new(context.target.streams, context.endpoints.len());
        Ok(Rc::new(Self {
            index,
            slots: Slots::new(index, peers.clone()),
            others: Others::new(peers, index),
            alarms: Alarms::new()?,
            events,
            levels: Levels::default(),
            backlog: Backlog::default(),
            openings: Openings::default(),
            connections: Connections::new(sources, pool),
            sweep_ns: Cell::new(0),
            read_buffer: RefCell::new(http1::read_buffer(&context.target)),
            context,
            quit: Cell::new(false),
        }))
    }

    /// Begin the tasks that go on until the worker quits.
    pub fn attend(self: &Rc<Self>) {
        let driver = self.clone();
        spawn_local(async move {
            let _note = driver.death_note();
            driver.alarms.drive().await
        });
        let sweeper = self.clone();
        spawn_noted(self.death_note(), async move { sweeper.sweep_forever().await });
        let watcher = self.clone();
        spawn_noted(self.death_note(), async move { stalls::watch(&watcher).await });
    }

    /// To be held by a task that must not end by itself.
    pub fn death_note(&self) -> DeathNote {
        DeathNote::new(self.events.clone())
    }

    /// This worker's part of a level.
    pub fn part_of(&self, level: &Arc<LevelShared>) -> Rc<WorkerLevel> {
        Rc::new(WorkerLevel::new(level.clone(), self.index, self.events.clone()))
    }

    /// Say something to the coordinator, which outlives the workers.
    pub fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Do as told, until told to quit.
    pub async fn serve(self: &Rc<Self>, mut commands: UnboundedReceiver<Command>) {
        while let Some(command) = commands.recv().await {
            match command {
                Command::Prepare(level) => self.open_ahead(&level, 0, level.opened_of(self.index), true),
                Command::Start { level, start_ns, stagger_ns, running } => {
                    self.start(&level, start_ns, stagger_ns, running);
                }
                Command::Close { level, reason } => self.close(&level, reason),
                Command::CancelAt(level) => self.cancel_at(level),
                Command::Take(handed) => self.take(handed),
                Command::Taken { level, n } => self.taken(&level, n),
                Command::TakeBack { level, jobs } => self.take_back(&level, jobs),
                Command::Give { level, room, to } => self.give(&level, room, to),
                Command::Look(level) => self.levels.find(&level).into_iter().for_each(|mine| mine.check_drained()),
                Command::Quit => break,
            }
        }
        self.quit.set(true);
        self.slots.call_all(0);
    }

    /// The slot with this number, and all before it.
    pub fn slot(self: &Rc<Self>, index: usize) -> Rc<Slot> {
        self.slots.get(index, |slot| drop(spawn_local(slot.clone().run(self.clone()))))
    }

    /// Whether this holds of all slots of a level.
    pub fn all_slots_of(&self, level: &WorkerLevel, holds: impl Fn(&Slot) -> bool) -> bool {
        self.slots.all().iter().take(level.shared.slots_of(self.index)).all(|slot| holds(slot))
    }

    /// Where a connection of HTTP/1.1 reads, for as long as its task has its turn.
    #[inline]
    pub fn read_buffer(&self) -> RefMut<'_, Vec<u8>> {
        self.read_buffer.borrow_mut()
    }

    /// Whether a connection for `level` is still of use: not to one that is over on this worker, whatever its reason.
    pub fn wants_connection(&self, level: &Arc<LevelShared>) -> bool {
        !self.quit.get()
            && match self.levels.find(level) {
                Some(mine) => !mine.is_closed(),
                None => level.start_ns() == 0 && level.reason().is_none(),
            }
    }

    /// A due request that waits for a connection.
    pub fn queued(&self, index: usize) -> Option<Assignment> {
        let fits = |level: &WorkerLevel| index < level.shared.slots_of(self.index);
        let (level, job) = self.backlog.pop(fits)?;
        self.left_queue(&level, 1);
        Some(Assignment::Request(level, job))
    }

    /// Hand a due request to a free connection of this worker or of another, or let it wait, or shed it.
    pub fn dispatch(self: &Rc<Self>, level: &Rc<WorkerLevel>, job: Job, slots: usize, room: u64) {
        let Some(job) = self.send_to_slot(level, job, slots) else { return };
        let Some(job) = self.pass_on(level, job) else { return };
        if level.share().waiting.load(Relaxed) < room {
            self.enqueue(level, job, false);
        } else {
            let mut row = Row::due(job.due);
            row.outcome = Outcome::Shed;
            row.end_ns = job.due.fired_ns;
            level.finish(&mut row, None);
            if job.into_talk().is_some() {
                level.following.end();
            }
        }
    }

    /// Hand a request to a free connection; it comes back where there is none.
    #[inline]
    pub fn send_to_slot(self: &Rc<Self>, level: &Rc<WorkerLevel>, job: Job, slots: usize) -> Option<Job> {
        let there = self.slots.len();
        let free = self.slots.pop_idle(slots).or_else(|| (there < slots).then(|| self.slot(there)));
        let Some(slot) = free else { return Some(job) };
        match slot.send(level, job) {
            Ok(None) => None,
            // The request opens the connection that the slot was to open ahead.
            Ok(Some(other)) => {
                self.prepared(&other, false);
                None
            }
            Err(job) => Some(job),
        }
    }

    /// A slot has nothing to do.
    pub fn park(&self, slot: &Slot) {
        if self.slots.park(slot)
            && let Some(level) = &*self.levels.current()
        {
            self.ask_if_idle(level);
        }
    }

    async fn sweep_forever(&self) {
        let target = &self.context.target;
        let pause_ns = sweep_pause_ns(target.timeout_ns.min(target.connect_timeout_ns));
        let mut tick_ns = now_ns() + TICK_NS;
        while !self.quit.get() {
            // No wait can run out before the sweep that is due: until then there is no reason to wake.
            self.alarms.sleep_until(self.sweep_ns.get().min(tick_ns).max(now_ns() + pause_ns)).await;
            let now = now_ns();
            if now >= self.sweep_ns.get() {
                self.sweep(now);
            }
            if now >= tick_ns {
                tick_ns = now + TICK_NS;
                self.backlog.forget_drained();
                self.levels.forget_drained();
                if let Some(level) = &*self.levels.current() {
                    // What was missed in the blink of an eye.
                    self.ask_if_idle(level);
                }
                for level in self.levels.all().iter() {
                    level.share().connections.store(self.connections.open(), Relaxed);
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
        for slot in self.slots.all().iter() {
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

    pub fn quits(&self) -> bool {
        self.quit.get()
    }
}

/// From one sweep to the next, where nothing waits longer than this.
fn sweep_pause_ns(shortest_timeout_ns: i64) -> i64 {
    (shortest_timeout_ns / SWEEP_SHARE).clamp(LEAST_SWEEP_NS, SWEEP_NS)
}
