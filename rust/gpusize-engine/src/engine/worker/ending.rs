//! How a worker's part of a level ends before its last answer: stopped, cancelled, or for want of a target.

use std::rc::Rc;
use std::sync::Arc;

use super::Worker;
use crate::engine::job::Job;
use crate::engine::level::LevelShared;
use crate::engine::messages::spawn_noted;
use crate::engine::outside::now_ns;
use crate::engine::slot::{Abort, CANCELLED};
use crate::engine::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use crate::record::Row;
use gpusize_load::stop::Reason;

impl Worker {
    /// No new request of the level on this worker.
    pub fn close(&self, level: &Arc<LevelShared>, reason: Reason) {
        self.open_no_more(level);
        let Some(mine) = self.levels.find(level) else { return };
        self.levels.stop_pacer(&mine);
        mine.close(reason, now_ns());
        // What is due but not on its way would be a new request.
        self.withdraw(&mine);
        self.have_others_look(level);
    }

    /// Cancel what is left of the level at its `cancel_ns`.
    pub fn cancel_at(self: &Rc<Self>, level: Arc<LevelShared>) {
        let worker = self.clone();
        spawn_noted(self.death_note(), async move {
            worker.alarms.sleep_until(level.cancel_ns()).await;
            if let Some(mine) = worker.levels.find(&level) {
                worker.cancel(&mine);
            }
        });
    }

    /// Record the level's requests that no slot has begun as cancelled.
    fn withdraw(&self, level: &Rc<WorkerLevel>) {
        let held: Vec<Job> = self.slots.all().iter().filter_map(|s| s.withdraw(level)).collect();
        end_unsent(level, held, Outcome::Cancelled, CANCELLED);
        self.end_waiting(level, Outcome::Cancelled, CANCELLED);
    }

    /// Record the level's requests that wait for a connection.
    fn end_waiting(&self, level: &Rc<WorkerLevel>, outcome: Outcome, message: &str) {
        let waiting = self.backlog.withdraw(level);
        self.left_queue(level, waiting.len() as u64);
        end_unsent(level, waiting, outcome, message);
    }

    fn cancel(&self, level: &Rc<WorkerLevel>) {
        self.withdraw(level);
        for slot in self.slots.all().iter() {
            if slot.serves(level) {
                slot.abort(Abort::Cancelled);
            }
        }
    }

    /// A level that is over does not wait for a target that no slot can reach, or that answers none: pauses between connects,
    /// or one timeout after the other, would make it wait for minutes or hours. What still waits fails as the last one did.
    pub fn give_up_waiting(&self) {
        if self.backlog.is_empty() {
            return;
        }
        let Some((outcome, message)) = self.connections.last_failure() else { return };
        let is_hopeless =
            |level: &WorkerLevel| level.is_closed() && self.all_slots_of(level, |slot| slot.lacks_target.get());
        let over: Vec<_> = self.levels.all().iter().filter(|level| is_hopeless(level)).cloned().collect();
        for level in over {
            self.end_waiting(&level, outcome, &message);
        }
    }
}

/// Record requests that were never sent.
pub fn end_unsent(level: &WorkerLevel, jobs: Vec<Job>, outcome: Outcome, message: &str) {
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
