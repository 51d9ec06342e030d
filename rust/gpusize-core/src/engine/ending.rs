//! How a worker's part of a level ends before its last answer: stopped, cancelled, or for want of a target.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::task::spawn_local;

use super::job::Job;
use super::level::LevelShared;
use super::slot::{Abort, CANCELLED};
use super::worker::Worker;
use super::worker_level::WorkerLevel;
use crate::clock::now_ns;
use crate::outcome::Outcome;
use crate::record::Row;
use crate::stop::Reason;

impl Worker {
    pub fn find(&self, level: &Arc<LevelShared>) -> Option<Rc<WorkerLevel>> {
        self.levels.borrow().iter().find(|l| Arc::ptr_eq(&l.shared, level)).cloned()
    }

    /// No new request of the level on this worker.
    pub fn close(&self, level: &Arc<LevelShared>, reason: Reason) {
        self.open_no_more(level);
        let Some(mine) = self.find(level) else { return };
        for (_, pacer) in self.pacers.borrow_mut().extract_if(.., |(theirs, _)| Rc::ptr_eq(theirs, &mine)) {
            pacer.abort();
        }
        mine.close(reason, now_ns());
        // What is due but not on its way would be a new request.
        self.withdraw(&mine);
    }

    /// Cancel what is left of the level at its `cancel_ns`.
    pub fn cancel_at(self: &Rc<Self>, level: Arc<LevelShared>) {
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
        end_unsent(level, waiting, Outcome::Cancelled, CANCELLED);
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

    /// A connect failed.
    pub fn note_lack(&self, outcome: Outcome, message: Option<&str>) {
        *self.lack.borrow_mut() = Some((outcome, message.unwrap_or_default().to_owned()));
    }

    /// A level that is over does not wait for a target that no slot can reach, as pauses between connects would make it
    /// wait for minutes: what still waits fails as the last connect did.
    pub fn give_up_waiting(&self) {
        let Some((outcome, message)) = self.lack.borrow().clone().filter(|_| !self.waiting.borrow().is_empty()) else {
            return;
        };
        let is_hopeless = |level: &WorkerLevel| {
            let slots = self.slots.borrow();
            level.is_closed() && slots.iter().take(level.shared.slots_of(self.index)).all(|s| s.lacks_target.get())
        };
        let over: Vec<_> = self.levels.borrow().iter().filter(|level| is_hopeless(level)).cloned().collect();
        for level in over {
            let waiting = self.waiting.borrow_mut().withdraw(&level);
            if !waiting.is_empty() {
                level.share().waiting.store(0, Relaxed);
                end_unsent(&level, waiting, outcome, &message);
            }
        }
    }
}

/// Record requests that were never sent.
fn end_unsent(level: &WorkerLevel, jobs: Vec<Job>, outcome: Outcome, message: &str) {
    for job in jobs {
        let mut row = Row::due(job.due);
        row.outcome = outcome;
        row.end_ns = now_ns();
        level.finish(&mut row, Some(message.to_owned()));
        if job.into_talk().is_some() {
            level.following.end();
        }
    }
}
