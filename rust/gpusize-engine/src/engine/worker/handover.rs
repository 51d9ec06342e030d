//! From one level to the next: each begins on its nanosecond, whatever is left of the one before.

use std::rc::Rc;
use std::sync::Arc;

use super::Worker;
use crate::engine::level::LevelShared;
use crate::engine::messages::spawn_noted;
use crate::engine::outside::now_ns;
use crate::engine::worker_level::WorkerLevel;
use crate::engine::{pacer, ramp};
use crate::spec::{Closed, LoadSpec};
use gpusize_load::stop::Reason;

impl Worker {
    /// Begin a level at `start_ns`, until when the one before goes on.
    pub fn start(self: &Rc<Self>, level: &Arc<LevelShared>, start_ns: i64, stagger_ns: i64, running: u32) {
        let mine = (self.index < level.members).then(|| self.part_of(level));
        let is_busy = self.levels.all().iter().any(|level| !level.is_closed());
        let order = self.levels.begin(mine.as_ref());
        if mine.is_some() {
            let (there, needed) = (self.slots.len(), level.opened_of(self.index));
            if there < needed && (stagger_ns > 0 || start_ns > now_ns()) {
                self.open_ahead(level, there, needed, false);
            }
        }
        match (&level.plan.load, mine) {
            (LoadSpec::Open(_), Some(mine)) => {
                let pacer = spawn_noted(self.death_note(), pacer::pace(self.clone(), mine.clone(), order));
                self.levels.pace(mine, pacer);
            }
            (_, mine) => {
                if !is_busy {
                    return self.take_over(mine, order, stagger_ns, running);
                }
                let worker = self.clone();
                spawn_noted(self.death_note(), async move {
                    worker.alarms.sleep_until(start_ns).await;
                    worker.take_over(mine, order, stagger_ns, running);
                });
            }
        }
    }

    /// The level's time begins; with none, this worker's slots rest.
    pub fn take_over(self: &Rc<Self>, mine: Option<Rc<WorkerLevel>>, order: u64, stagger_ns: i64, running: u32) {
        if !self.levels.take_over(mine.as_ref(), order) {
            // The thread was stopped until the next one had begun: of this one only its end is left, which a pacer sees to itself.
            if let Some(mine) = mine.filter(|mine| matches!(mine.shared.plan.load, LoadSpec::Closed(_))) {
                self.end_at_time(mine);
            }
            return;
        }
        // What was left of conversations belongs to a level that is over.
        self.slots.forget_talks();
        let limit = mine.as_ref().map_or(0, |mine| mine.shared.slots_of(self.index));
        let Some(mine) = mine else { return self.slots.call_all(limit) };
        mine.begin();
        match &mine.shared.plan.load {
            LoadSpec::Open(_) => self.slots.free_all(limit),
            LoadSpec::Closed(closed) => {
                self.place_users(&mine, closed, stagger_ns, running);
                self.levels.go_round(limit);
                self.slots.call_all(limit);
                self.end_at_time(mine);
            }
        }
    }

    /// When each slot of a closed loop begins and leaves.
    fn place_users(self: &Rc<Self>, mine: &WorkerLevel, closed: &Closed, stagger_ns: i64, running: u32) {
        let start_ns = mine.shared.start_ns();
        let first = closed.from.unwrap_or(closed.concurrency);
        let fresh = i64::from(first.saturating_sub(running)).max(1);
        for index in 0..mine.shared.slots_of(self.index) {
            let slot = self.slot(index);
            let place = mine.shared.user_of(self.index, index);
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

    /// A closed loop whose slots are all busy must still close on time; so must one that has no user here, whose requests, if
    /// it goes by count, are all other hosts'.
    fn end_at_time(self: &Rc<Self>, level: Rc<WorkerLevel>) {
        if level.shared.plan.stop.count.is_some() && level.shared.slots_of(self.index) == 0 {
            level.close(Reason::Count, level.shared.start_ns().max(now_ns()));
            return;
        }
        if level.shared.ends_ns().is_some() {
            let worker = self.clone();
            spawn_noted(self.death_note(), async move {
                while let Some(end_ns) = level.shared.ends_ns().filter(|_| !level.is_closed()) {
                    let now = now_ns();
                    if now >= end_ns {
                        level.close(Reason::Duration, end_ns);
                    } else {
                        worker.alarms.sleep_until(level.shared.next_end_look_ns(end_ns, now)).await;
                    }
                }
            });
        }
    }
}
