//! The pacer of an open loop: lets each request go when it is due, whatever the target does.

use std::io;
use std::rc::Rc;

use super::job::{Job, Talk};
use super::outside::Timer;
use super::outside::now_ns;
use super::worker::Worker;
use super::worker_level::WorkerLevel;
use gpusize_load::pace::after_the_others;
use gpusize_load::schedule::{Item, Schedule};
use gpusize_load::stop::Reason;

/// After this many requests without a wait the connections get a turn.
const TURN: u32 = 32;

/// Run this worker's stride of the level's schedule to its end, and the conversations that begin in it.
pub async fn pace(worker: Rc<Worker>, level: Rc<WorkerLevel>, order: u64) {
    let shared = &level.shared;
    let (Ok(timer), Ok(schedule)) = (Timer::new(), shared.schedule()) else {
        level.close(Reason::Failed, now_ns());
        return;
    };
    let schedule = schedule.of_worker(shared.number_of(worker.index), shared.workers.all);
    let start_ns = shared.start_ns();
    let mut pacer = Pacer {
        slots: shared.slots_of(worker.index),
        room: shared.room_of(worker.index),
        worker: &worker,
        level: &level,
        timer,
        start_ns,
        order,
        now: now_ns(),
        without_wait: 0,
    };
    let (reason, end_ns) = match pacer.run(schedule).await {
        Ok(end) => end,
        Err(_) => (Reason::Failed, now_ns()),
    };
    level.close(reason, end_ns);
    worker.have_others_look(shared);
    worker.give_up_waiting();
}

struct Pacer<'a> {
    worker: &'a Rc<Worker>,
    level: &'a Rc<WorkerLevel>,
    timer: Timer,
    /// Connections that there may be, and requests that may wait for one.
    slots: usize,
    room: u64,
    start_ns: i64,
    /// Which of the levels that the worker was told to start.
    order: u64,
    now: i64,
    without_wait: u32,
}

impl Pacer<'_> {
    /// Until no further request becomes due; says why and when.
    async fn run(&mut self, schedule: Schedule) -> io::Result<(Reason, i64)> {
        let rules = &self.level.shared.rules;
        self.timer.wait_until(self.start_ns).await?;
        self.worker.take_over(Some(self.level.clone()), self.order, 0, 0);
        self.now = now_ns();
        let (mut ended, mut last_ns) = (None, self.start_ns);
        let until_ns = self.level.shared.due_until_ns();
        for item in schedule {
            let due_ns = self.start_ns.saturating_add(item.offset_ns);
            if !rules.counts(item.index) || due_ns >= until_ns {
                ended = Some(if rules.counts(item.index) { Reason::Duration } else { Reason::Count });
                break;
            }
            last_ns = due_ns;
            self.wait_until(due_ns).await?;
            if self.level.is_closed() {
                return Ok((Reason::Count, self.now));
            }
            self.begin(&item, due_ns);
            self.let_others().await;
        }
        match (ended, self.end_ns(last_ns)) {
            // A schedule that is over before the level's time leaves the rest of it quiet.
            (None | Some(Reason::Duration), Some(_)) => self.wait_until_end(last_ns).await,
            _ => self.see_off(last_ns).await,
        }
    }

    /// When the level's time is over, if it has one. What is due after an end that clocks have moved is not after it.
    fn end_ns(&self, last_ns: i64) -> Option<i64> {
        self.level.shared.ends_ns().map(|ns| ns.max(last_ns + 1))
    }

    /// Wait until the level's time is over, or until nothing is under way and nothing will be.
    async fn wait_until_end(&mut self, last_ns: i64) -> io::Result<(Reason, i64)> {
        loop {
            let end_ns = self.end_ns(last_ns).unwrap_or(i64::MAX);
            if self.now >= end_ns {
                return Ok((Reason::Duration, end_ns));
            }
            if self.level.is_closed() || self.level.following.is_over() {
                return Ok((Reason::Count, self.now));
            }
            self.wait_until(self.level.shared.next_end_look_ns(end_ns, self.now)).await?;
        }
    }

    /// All has begun: wait for the conversations under way.
    async fn see_off(&mut self, last_ns: i64) -> io::Result<(Reason, i64)> {
        // The connections get their turn before the level counts as closed.
        self.timer.wait_until(self.now).await?;
        self.level.following.is_last.set(true);
        if self.level.following.is_idle() {
            let end_ns = self.end_ns(last_ns).filter(|end_ns| self.now >= *end_ns);
            return Ok(end_ns.map_or((Reason::Count, self.now), |end_ns| (Reason::Duration, end_ns)));
        }
        self.wait_until_end(last_ns).await
    }

    /// Wait for an instant; turns of conversations that are due by then go meanwhile.
    async fn wait_until(&mut self, due_ns: i64) -> io::Result<()> {
        if !self.level.shared.by_session {
            if due_ns > self.now {
                self.let_slots_send().await;
                self.now = now_ns();
                if due_ns > self.now {
                    self.timer.wait_until(due_ns).await?;
                    self.now = now_ns();
                }
            }
            return Ok(());
        }
        let following = &self.level.following;
        loop {
            self.now = now_ns();
            let next_ns = following.next_ns().filter(|ns| *ns <= due_ns);
            if next_ns.is_some_and(|ns| ns <= self.now) {
                if let Some((turn_ns, talk)) = following.pop() {
                    self.follow(talk, turn_ns);
                    self.let_others().await;
                }
            } else if due_ns <= self.now || self.level.is_closed() || following.is_over() {
                return Ok(());
            } else {
                self.let_slots_send().await;
                tokio::select! {
                    biased;
                    waited = self.timer.wait_until(next_ns.unwrap_or(due_ns)) => waited?,
                    () = following.changed.notified() => {}
                }
            }
        }
    }

    /// An arrival is due.
    fn begin(&mut self, item: &Item, due_ns: i64) {
        if self.level.shared.by_session {
            self.level.following.begin();
            self.follow(Box::new(Talk::of_item(item)), due_ns);
        } else {
            self.level.admit_item(due_ns);
            self.send(Job::of_item(*item, due_ns, self.now));
        }
    }

    /// The next turn of a conversation is due.
    fn follow(&mut self, talk: Box<Talk>, due_ns: i64) {
        if let Some(job) = Job::of_talk(talk, &self.level.shared.sessions, due_ns, self.now) {
            self.level.admit_item(due_ns);
            self.send(job);
        }
    }

    fn send(&mut self, job: Job) {
        self.worker.dispatch(self.level, job, self.slots, self.room);
        self.without_wait += 1;
    }

    /// What is on its way to a slot goes before the pacer sees to its timer, which may cost more than sending.
    async fn let_slots_send(&mut self) {
        if std::mem::take(&mut self.without_wait) > 0 {
            after_the_others().await;
        }
    }

    async fn let_others(&mut self) {
        if self.without_wait >= TURN {
            self.without_wait = 0;
            tokio::task::yield_now().await;
            self.now = now_ns();
        }
    }
}
