//! The thread that starts levels on all workers at one instant and notices when they have closed and drained.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::level::LevelShared;
use super::messages::{Command, Event};
use super::outside::now_ns;
use super::stages::{Active, Opening, Queued, end, end_unstarted, is_stuck, users_at};
use super::watchdog::{Awaited, Patience, Watch};
use crate::spec::{LoadSpec, Start};
use gpusize_load::stop::Reason;

/// What requests in flight have when failures close their level.
const VOID_DRAIN_NS: i64 = 1_000_000_000;
/// From the barrier to the common start: longer than a wake-up of every worker.
const LEAD_NS: i64 = 2_000_000;
/// So long before one level ends by time the workers are told of the next: its connections open and its pacer waits.
const AHEAD_NS: i64 = 100_000_000;

/// See the module.
pub struct Coordinator {
    workers: Vec<UnboundedSender<Command>>,
    queue: VecDeque<Queued>,
    preparing: Option<Opening>,
    active: Vec<Active>,
    /// The level that was started last.
    last: Option<Arc<LevelShared>>,
    /// A worker died, so no level can be whole any more.
    dead: bool,
    /// The session is to end.
    quits: bool,
    residence_ns: i64,
    patience: Patience,
}

impl Coordinator {
    pub fn new(workers: Vec<UnboundedSender<Command>>, patience: Patience) -> Self {
        Self {
            workers,
            patience,
            queue: VecDeque::new(),
            preparing: None,
            active: Vec::new(),
            last: None,
            dead: false,
            quits: false,
            residence_ns: 0,
        }
    }

    /// Serve until `Quit`, then stop what runs and end the workers.
    pub fn run(mut self, events: &Receiver<Event>) {
        while let Ok(heard) = self.next(events)
            && self.turn(heard)
        {}
        self.dismiss();
    }

    /// Act on what was heard, or on the time that it is; false when the session has ended.
    pub fn turn(&mut self, heard: Option<Event>) -> bool {
        if let Some(event) = heard {
            self.hear(event);
        }
        self.watch();
        if self.quits && self.is_idle() {
            return false;
        }
        while !self.quits && self.advance() {}
        true
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Queue(level) if self.dead => end_unstarted(level, Reason::Failed),
            Event::Queue(level) if self.quits => end_unstarted(level, Reason::Stopped),
            Event::Queue(level) => self.queue.push_back(Queued { level, since_ns: now_ns() }),
            Event::Stop { level, reason, cancel_ns } => self.stop(&level, reason, cancel_ns),
            Event::Ready { worker } => self.ready(worker),
            Event::Closed { level, reason } => self.closed(&level, reason),
            Event::Drained { level, worker } => self.drained(&level, worker),
            Event::Died => self.fail(),
            Event::Quit => {
                self.quits = true;
                self.stop_everything();
            }
        }
    }

    /// Whether no level has begun or opens its connections.
    fn is_idle(&self) -> bool {
        self.active.is_empty() && self.preparing.is_none()
    }

    /// Whether no level is on its hands.
    #[cfg(test)]
    pub fn is_at_rest(&self) -> bool {
        self.is_idle() && self.queue.is_empty()
    }

    /// Have the workers end.
    pub fn dismiss(&self) {
        self.tell(|| Command::Quit);
    }

    /// When it is time to hand a level over or to look at one, whatever is heard.
    pub fn wake_ns(&self) -> Option<i64> {
        let boundary_ns = self.boundary_ns().filter(|_| !self.quits && self.may_follow()).map(|ns| ns - AHEAD_NS);
        boundary_ns.into_iter().chain(self.next_look_ns()).min()
    }

    /// What is heard next, or none when it is time to act without.
    fn next(&self, events: &Receiver<Event>) -> Result<Option<Event>, RecvError> {
        let Some(wake_ns) = self.wake_ns() else { return events.recv().map(Some) };
        match events.recv_timeout(Duration::from_nanos((wake_ns - now_ns()).max(0) as u64)) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(RecvError),
        }
    }

    /// When a level is to be looked at that is waited for: while it opens connections, and when all workers have closed it.
    fn next_look_ns(&self) -> Option<i64> {
        let opening = self.preparing.iter().map(|o| o.watch.next_look_ns());
        self.active.iter().filter(|a| a.is_closed()).map(|a| a.watch.next_look_ns()).chain(opening).min()
    }

    /// End everything when a level has stood still for longer than any request may take: a request has been lost, and no
    /// worker can be relied upon.
    fn watch(&mut self) {
        let mut stuck = false;
        if let Some(Opening { level, missing, watch }) = &mut self.preparing {
            stuck |= is_stuck(watch, level, Awaited::Connections, missing);
        }
        for Active { level, missing, watch, .. } in self.active.iter_mut().filter(|a| a.is_closed()) {
            stuck |= is_stuck(watch, level, Awaited::Answers, missing);
        }
        if stuck {
            self.fail();
        }
    }

    /// Whether the first of those that wait takes the running load over.
    fn may_follow(&self) -> bool {
        let burst = |load: &LoadSpec| matches!(load, LoadSpec::Closed(closed) if closed.start == Start::Burst);
        self.queue.front().is_some_and(|first| !burst(&first.level.plan.load))
    }

    /// When the levels that are open will all have ended by time; none where one has no such end.
    fn boundary_ns(&self) -> Option<i64> {
        let ends = self.open().map(|level| Some(level.start_ns().saturating_add(level.rules.end_after_ns()?)));
        ends.max().flatten().filter(|_| self.open().all(|level| level.rules.end_after_ns().is_some()))
    }

    /// Levels that still take requests.
    fn open(&self) -> impl Iterator<Item = &Arc<LevelShared>> {
        self.active.iter().filter(|a| !a.is_closed()).map(|a| &a.level)
    }

    fn tell(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            // A worker that is gone cannot be told anything.
            let _ = worker.send(command());
        }
    }

    /// Bring the next level on its way, if it is time; whether it was.
    fn advance(&mut self) -> bool {
        if self.preparing.is_some() || self.queue.is_empty() {
            return false;
        }
        if self.active.is_empty() {
            let Some(Queued { level, .. }) = self.queue.pop_front() else { return false };
            self.last = None;
            let missing = (0..self.workers.len()).collect();
            self.preparing = Some(Opening { level: level.clone(), missing, watch: Watch::new(self.patience) });
            self.tell(|| Command::Prepare(level.clone()));
            return true;
        }
        if !self.may_follow() {
            return false;
        }
        let now = now_ns();
        let start_ns = match self.boundary_ns() {
            Some(boundary_ns) if now + AHEAD_NS >= boundary_ns => boundary_ns,
            None if self.open().next().is_none() => self.ended_ns().unwrap_or(now),
            _ => return false,
        };
        let Some(Queued { level, .. }) = self.queue.pop_front() else { return false };
        self.start(&level, start_ns);
        true
    }

    /// When the last level's time was over, if the next one was there by then: it belongs on the boundary, however late we
    /// have come to it.
    fn ended_ns(&self) -> Option<i64> {
        let last = self.last.as_ref().filter(|last| last.reason() == Some(Reason::Duration))?;
        self.queue.front().filter(|first| first.since_ns <= last.close_ns()).map(|_| last.close_ns())
    }

    fn ready(&mut self, worker: usize) {
        let Some(opening) = &mut self.preparing else { return };
        opening.missing.retain(|missing| *missing != worker);
        if !opening.missing.is_empty() {
            return;
        }
        let level = opening.level.clone();
        self.preparing = None;
        if level.reason().is_some() {
            end(level);
        } else {
            self.start(&level, now_ns() + LEAD_NS);
        }
    }

    fn start(&mut self, level: &Arc<LevelShared>, start_ns: i64) {
        let last = self.last.replace(level.clone());
        self.residence_ns = last.as_ref().and_then(|last| last.residence_ns()).unwrap_or(self.residence_ns);
        let stagger_ns = match &level.plan.load {
            LoadSpec::Closed(closed) if closed.start == Start::Staggered => {
                closed.stagger_ns.unwrap_or(self.residence_ns)
            }
            _ => 0,
        };
        let running = last.map_or(0, |last| users_at(&last, start_ns));
        level.set_start(start_ns);
        let (missing, watch) = ((0..level.members).collect(), Watch::new(self.patience));
        self.active.push(Active { level: level.clone(), closed: 0, missing, told: false, watch });
        self.tell(|| Command::Start { level: level.clone(), start_ns, stagger_ns, running });
    }

    fn closed(&mut self, level: &Arc<LevelShared>, reason: Reason) {
        let Some(active) = self.active.iter_mut().find(|a| Arc::ptr_eq(&a.level, level)) else { return };
        active.closed += 1;
        // Counts and times end each worker by its own part of the schedule, of which the last request may still be due.
        let early = !matches!(reason, Reason::Count | Reason::Duration);
        if early && !std::mem::replace(&mut active.told, true) {
            self.tell(|| Command::Close { level: level.clone(), reason });
            if reason != Reason::Stopped {
                // The level is void: its last requests need not run into their timeouts. A stop brings its own time.
                level.cancel_by(now_ns() + VOID_DRAIN_NS);
                self.tell(|| Command::CancelAt(level.clone()));
            }
        }
    }

    fn drained(&mut self, level: &Arc<LevelShared>, worker: usize) {
        let Some(at) = self.active.iter().position(|a| Arc::ptr_eq(&a.level, level)) else { return };
        self.active[at].missing.retain(|missing| *missing != worker);
        if self.active[at].missing.is_empty() {
            self.residence_ns = level.residence_ns().unwrap_or(self.residence_ns);
            end(self.active.remove(at).level);
        }
    }

    fn stop(&mut self, level: &Arc<LevelShared>, reason: Reason, cancel_ns: i64) {
        if let Some(at) = self.queue.iter().position(|w| Arc::ptr_eq(&w.level, level)) {
            self.queue.remove(at);
            end_unstarted(level.clone(), reason);
        } else if let Some(active) = self.active.iter_mut().find(|a| Arc::ptr_eq(&a.level, level)) {
            if active.closed == level.members && reason != Reason::Stopped {
                // It has ended for another reason, and its last requests have the time that this one leaves them.
                return;
            }
            // Before the workers hear of it: one that ends meanwhile must not tell another reason than that for which its
            // requests are withdrawn. Their own times count.
            if active.closed < level.members {
                level.close(reason, 0);
            }
            // It brings its own time to drain.
            active.told = true;
            level.cancel_by(cancel_ns);
            self.tell(|| Command::Close { level: level.clone(), reason });
            self.tell(|| Command::CancelAt(level.clone()));
        } else if self.preparing.as_ref().is_some_and(|o| Arc::ptr_eq(&o.level, level)) {
            self.stop_preparing(level, reason);
        }
    }

    /// Nothing has been sent yet: there is nothing to drain, only connects to give up.
    fn stop_preparing(&self, level: &Arc<LevelShared>, reason: Reason) {
        level.close(reason, now_ns());
        self.tell(|| Command::Close { level: level.clone(), reason });
    }

    /// Without one of its workers no level can be whole: end them all, with what the others have recorded.
    fn fail(&mut self) {
        self.dead = true;
        let active = std::mem::take(&mut self.active).into_iter().map(|a| a.level);
        let preparing = self.preparing.take().map(|o| o.level);
        let waiting = std::mem::take(&mut self.queue).into_iter().map(|w| w.level);
        for level in active.chain(preparing).chain(waiting) {
            level.close(Reason::Failed, now_ns());
            self.tell(|| Command::Close { level: level.clone(), reason: Reason::Failed });
            level.cancel_now();
            self.tell(|| Command::CancelAt(level.clone()));
            end(level);
        }
    }

    fn stop_everything(&mut self) {
        for Queued { level, .. } in std::mem::take(&mut self.queue) {
            end_unstarted(level, Reason::Stopped);
        }
        if let Some(Opening { level, .. }) = &self.preparing {
            self.stop_preparing(level, Reason::Stopped);
        }
        for active in &self.active {
            let level = &active.level;
            level.cancel_now();
            self.tell(|| Command::Close { level: level.clone(), reason: Reason::Stopped });
            self.tell(|| Command::CancelAt(level.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
