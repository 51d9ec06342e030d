//! The thread that starts levels on all workers at one instant and notices when they have closed and drained.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::level::{LevelShared, MOST_DRIFT};
use super::messages::{Command, Event};
use super::outside::now_ns;
use super::stages::{Active, Opening, Queued, end, end_unstarted, is_stuck, users_at};
use super::watchdog::{Awaited, Patience, Watch};
use crate::spec::{LoadSpec, Start};
use gpusize_base::error::Error;
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
            Event::StartAt { level, start_ns, answer } => {
                // Who has gone away does not wait for an answer.
                let _ = answer.try_send(self.start_held(&level, start_ns));
            }
            Event::CloseAt { level, close_at_ns, answer } => {
                let _ = answer.try_send(self.move_end(&level, close_at_ns));
            }
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
        let told_ns = self.next_start_ns().filter(|_| !self.quits).map(|ns| ns.saturating_sub(AHEAD_NS));
        told_ns.into_iter().chain(self.next_look_ns()).min()
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
        let opening = self.preparing.iter().filter(|o| !o.is_held()).map(|o| o.watch.next_look_ns());
        self.active.iter().filter(|a| a.is_closed()).map(|a| a.watch.next_look_ns()).chain(opening).min()
    }

    /// End everything when a level has stood still for longer than any request may take: a request has been lost, and no
    /// worker can be relied upon.
    fn watch(&mut self) {
        let mut stuck = false;
        if let Some(Opening { level, missing, watch }) = self.preparing.as_mut().filter(|o| !o.is_held()) {
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
        self.queue.front().is_some_and(|first| !burst(&first.level.plan.load) && !first.level.plan.held)
    }

    /// When the first of those that wait takes the running load over, as far as that is known.
    fn next_start_ns(&self) -> Option<i64> {
        if self.active.is_empty() || !self.may_follow() {
            return None;
        }
        let asked_ns = self.queue.front()?.level.plan.start_ns;
        match (self.boundary_ns(), asked_ns) {
            (Some(boundary_ns), asked_ns) => Some(asked_ns.map_or(boundary_ns, |ns| ns.max(boundary_ns))),
            (None, _) if self.open().next().is_some() => None,
            (None, None) => Some(self.ended_ns().unwrap_or_else(now_ns)),
            // However late we have come to it, unless the one before has gone on for longer.
            (None, Some(ns)) => Some(if self.last.as_ref().is_some_and(|l| l.close_ns() > ns) { now_ns() } else { ns }),
        }
    }

    /// When the levels that are open will all have ended by time; none where one has no such end.
    fn boundary_ns(&self) -> Option<i64> {
        let ends = self.open().map(|level| level.ends_ns());
        ends.max().flatten().filter(|_| self.open().all(|level| level.ends_ns().is_some()))
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
        let Some(start_ns) = self.next_start_ns().filter(|ns| now_ns().saturating_add(AHEAD_NS) >= *ns) else {
            return false;
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
        if level.plan.held && level.reason().is_none() {
            level.set_prepared();
            return;
        }
        self.preparing = None;
        if level.reason().is_some() {
            end(level);
        } else {
            let soonest_ns = now_ns() + LEAD_NS;
            self.start(&level, level.plan.start_ns.map_or(soonest_ns, |ns| ns.max(soonest_ns)));
        }
    }

    /// Start a level that is held; where that cannot be, it stays as it is.
    fn start_held(&mut self, level: &Arc<LevelShared>, start_ns: i64) -> gpusize_base::error::Result<()> {
        let refused = |what: String, todo: &str| Err(Error::usage(what, "Level.start_at", todo));
        if !self.preparing.as_ref().is_some_and(|o| o.is_held() && Arc::ptr_eq(&o.level, level)) {
            let what = match (level.plan.held, level.reason(), level.start_ns()) {
                (false, ..) => "the level is not held",
                (_, Some(_), _) => "the level is over",
                (_, None, 0) => "the level's connections are not open yet",
                _ => "the level has been told its start",
            };
            return refused(
                what.into(),
                "plan it with held, and tell it its start once, after prepared() has said true",
            );
        }
        let late_ns = now_ns() + LEAD_NS - start_ns;
        if late_ns > 0 {
            let what = format!(
                "the start is {} ms too late: workers have to hear of it {} ms ahead",
                late_ns as f64 / 1e6,
                LEAD_NS as f64 / 1e6
            );
            return refused(what, "choose a later one; the level is still held");
        }
        self.preparing = None;
        self.start(level, start_ns);
        Ok(())
    }

    /// Move the end of a level by the clock, as long as nobody has been told of it.
    fn move_end(&self, level: &Arc<LevelShared>, close_at_ns: i64) -> gpusize_base::error::Result<()> {
        let refused = |what: String, todo: &str| Err(Error::usage(what, "Level.set_close_at", todo));
        if level.plan.close_at_ns.is_none() {
            return refused("the level does not end by the clock".into(), "give its plan a close_at_ns");
        }
        let late_ns = now_ns() + AHEAD_NS - close_at_ns;
        if late_ns > 0 {
            let (late_ms, ahead_ms) = (late_ns as f64 / 1e6, AHEAD_NS as f64 / 1e6);
            let what = format!("the end is moved {late_ms} ms too late: that has to be {ahead_ms} ms ahead");
            return refused(what, "leave it where it is");
        }
        let is_followed = level.start_ns() != 0 && !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, level));
        if is_followed || level.reason().is_some() {
            let what = "the level is over, or its end has been told";
            return refused(what.into(), "move it earlier than 0.1 s before its end");
        }
        // What is still to be sent has been settled at its start.
        let by_ns = level.ends_ns().filter(|_| now_ns() >= level.start_ns()).map_or(0, |ns| ns.abs_diff(close_at_ns));
        let most_ns = level.plan.stop.duration_ns.map_or(0, |ns| ns / MOST_DRIFT);
        if by_ns > most_ns.unsigned_abs() {
            let what = format!("the end moves by {} ms, and the level has begun", by_ns as f64 / 1e6);
            return refused(what, "move it by a thousandth of the duration at most, or before the start");
        }
        level.move_end(close_at_ns);
        Ok(())
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
        level.set_prepared();
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
    fn stop_preparing(&mut self, level: &Arc<LevelShared>, reason: Reason) {
        level.close(reason, now_ns());
        self.tell(|| Command::Close { level: level.clone(), reason });
        if self.preparing.take_if(|opening| opening.is_held()).is_some() {
            // All workers have said that they are ready, and will not say it again.
            end(level.clone());
        }
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
        if let Some(level) = self.preparing.as_ref().map(|opening| opening.level.clone()) {
            self.stop_preparing(&level, Reason::Stopped);
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
