//! Requests of an open loop that wait on one worker go to connections that are free on another.
//!
//! Each worker has its stride of the schedule, and only its own thread touches its queue. One that has to let a request wait
//! hands it to a worker with a free slot; one whose slot finds nothing to do asks one whose requests wait. A request counts as
//! in flight where it came from until the other has taken it, so that no level ends without it.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use super::Worker;
use super::ending::end_unsent;
use crate::engine::job::Job;
use crate::engine::level::LevelShared;
use crate::engine::messages::{Command, Handed};
use crate::engine::outside::now_ns;
use crate::engine::slot::CANCELLED;
use crate::engine::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use gpusize_load::stop::Reason;

impl Worker {
    /// Hand a request that would have to wait to a worker with a free slot; it comes back where there is none.
    #[cold]
    pub fn pass_on(&self, level: &Rc<WorkerLevel>, job: Job) -> Option<Job> {
        // A conversation stays where its turns are counted.
        if job.is_turn() {
            return Some(job);
        }
        let Some(peer) = self.others.take_idle() else { return Some(job) };
        // The one that has waited longest goes, and this one takes its place.
        self.backlog.push(level, job);
        let jobs = self.backlog.pop_single(level).into_iter().collect();
        self.hand_over(peer, level, jobs);
        None
    }

    /// Let a request wait. A worker whose last slot became free meanwhile has seen no queue and asks for nothing: look again.
    #[cold]
    pub fn enqueue(&self, level: &Rc<WorkerLevel>, job: Job, is_first: bool) {
        joined_queue(level);
        if is_first {
            self.backlog.push_front(level, job);
        } else {
            self.backlog.push(level, job);
        }
        fence(SeqCst);
        if self.levels.is_current(level)
            && let Some(peer) = self.others.take_idle()
        {
            let job = self.backlog.pop_single(level);
            let n = u64::from(job.is_some());
            self.hand_over(peer, level, job.into_iter().collect());
            self.left_queue(level, n);
        }
    }

    /// What is on its way counts as waiting, so that nobody who may get it is done with the level before.
    fn hand_over(&self, peer: usize, level: &Rc<WorkerLevel>, jobs: Vec<Job>) {
        level.shared.queues.fetch_add(usize::from(!jobs.is_empty()), SeqCst);
        let handed = Handed { level: level.shared.clone(), jobs, from: self.index };
        self.others.tell(peer, Command::Take(handed));
    }

    /// Ask for work if there is a slot with nothing to do, and requests wait on another worker.
    #[inline]
    pub fn ask_if_idle(&self, level: &WorkerLevel) {
        if level.shared.queues.load(Relaxed) > 0 && self.slots.idle() > 0 {
            self.ask_for_work(level);
        }
    }

    /// A slot has nothing to do: ask the worker with the longest queue, unless an answer is under way.
    #[cold]
    fn ask_for_work(&self, level: &WorkerLevel) {
        let shares = level.shared.shares.iter().enumerate().filter(|(worker, _)| *worker != self.index);
        let longest = shares.map(|(worker, share)| (share.waiting.load(Relaxed), worker)).max();
        if let Some((waiting, worker)) = longest
            && waiting > 0
        {
            self.others.ask_once(worker, || {
                let (level, room) = (level.shared.clone(), self.slots.idle().max(1));
                Command::Give { level, room, to: self.index }
            });
        }
    }

    /// Another worker has room for requests of the level: give it up to half of those that wait.
    pub fn give(&self, level: &Arc<LevelShared>, room: usize, to: usize) {
        let Some(mine) = self.levels.find(level) else {
            self.others.tell(to, Command::Take(Handed { level: level.clone(), jobs: Vec::new(), from: self.index }));
            return;
        };
        let most = room.min((mine.share().waiting.load(Relaxed) as usize).div_ceil(2));
        let jobs: Vec<Job> = (0..most).map_while(|_| self.backlog.pop_single(&mine)).collect();
        let n = jobs.len() as u64;
        self.hand_over(to, &mine, jobs);
        self.left_queue(&mine, n);
    }

    /// Take what another worker hands over; what this one cannot take any more goes back.
    pub fn take(self: &Rc<Self>, handed: Handed) {
        self.others.answered();
        if handed.jobs.is_empty() {
            return;
        }
        let Some(mine) = self.levels.find(&handed.level).filter(|mine| !mine.is_drained()) else {
            let Handed { level, jobs, from } = handed;
            self.others.tell(from, Command::TakeBack { level, jobs });
            return;
        };
        let n = handed.jobs.len() as u64;
        mine.take_in(n);
        self.others.tell(handed.from, Command::Taken { level: handed.level, n });
        self.place(&mine, handed.jobs);
        if self.levels.is_current(&mine) {
            self.ask_if_idle(&mine);
        }
    }

    /// What was handed over comes back.
    pub fn take_back(self: &Rc<Self>, level: &Arc<LevelShared>, jobs: Vec<Job>) {
        if let Some(mine) = self.levels.find(level) {
            self.place(&mine, jobs);
            self.one_less_waits(&mine);
        }
    }

    /// What was handed over counts elsewhere now.
    pub fn taken(&self, level: &Arc<LevelShared>, n: u64) {
        if let Some(mine) = self.levels.find(level) {
            self.one_less_waits(&mine);
            mine.handed_off(n);
        }
    }

    /// Requests that count as in flight here go to slots, or wait; of a level that was ended meanwhile they are cancelled, as
    /// those in its queue have been.
    fn place(self: &Rc<Self>, mine: &Rc<WorkerLevel>, jobs: Vec<Job>) {
        let is_cut_off = mine.shared.reason().is_some_and(|r| !matches!(r, Reason::Count | Reason::Duration))
            || mine.shared.cancel_ns() <= now_ns();
        if is_cut_off {
            return end_unsent(mine, jobs, Outcome::Cancelled, CANCELLED);
        }
        let slots = mine.shared.slots_of(self.index);
        let left: Vec<Job> = jobs.into_iter().filter_map(|job| self.send_to_slot(mine, job, slots)).collect();
        // Each before those that wait, hence the one that has waited longest last.
        for job in left.into_iter().rev() {
            self.enqueue(mine, job, true);
        }
        self.give_up_waiting();
    }

    /// So many wait no longer. Workers that have nothing left may have waited for them to end the level.
    pub fn left_queue(&self, level: &WorkerLevel, n: u64) {
        let waiting = &level.share().waiting;
        let left = waiting.load(Relaxed) - n;
        waiting.store(left, Relaxed);
        if left == 0 && n > 0 {
            self.one_less_waits(level);
        }
    }

    /// A queue is empty, or what was on its way has come.
    fn one_less_waits(&self, level: &WorkerLevel) {
        if level.shared.queues.fetch_sub(1, SeqCst) > 1 {
            return;
        }
        // Either this thread sees that the level is closing, or those that close it see that nothing waits.
        fence(SeqCst);
        if level.shared.reason().is_some() {
            self.have_others_look(&level.shared);
        }
    }

    /// Other workers may have stayed for this one's requests only.
    pub fn have_others_look(&self, level: &Arc<LevelShared>) {
        for worker in (0..level.members).filter(|worker| *worker != self.index) {
            self.others.tell(worker, Command::Look(level.clone()));
        }
    }
}

/// One more waits.
fn joined_queue(level: &WorkerLevel) {
    let waiting = &level.share().waiting;
    let before = waiting.load(Relaxed);
    waiting.store(before + 1, Relaxed);
    if before == 0 {
        level.shared.queues.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
