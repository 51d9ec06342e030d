//! The pacer of an open loop: lets each request go when it is due, whatever the target does.

use std::rc::Rc;

use super::worker::Worker;
use super::worker_level::WorkerLevel;
use crate::clock::now_ns;
use crate::pace::timer::Timer;
use crate::record::Due;
use crate::schedule::Schedule;
use crate::spec::LoadSpec;
use crate::stop::Reason;

/// After this many requests without a wait the connections get a turn.
const TURN: u32 = 32;

/// Run this worker's stride of the level's schedule to its end.
pub async fn pace(worker: Rc<Worker>, level: Rc<WorkerLevel>, slots: usize) {
    let LoadSpec::Open(open) = &level.shared.plan.load else { return };
    let Ok(timer) = Timer::new() else {
        level.close(Reason::Failed, now_ns());
        return;
    };
    let start_ns = level.shared.start_ns();
    let stride = level.shared.members as u64;
    let queue = open.most_waiting().div_ceil(stride as usize);
    let mut without_wait = 0;
    let mut now = now_ns();
    let plan = &level.shared.plan;
    let planned = level.shared.planned.clone();
    let Ok(schedule) = Schedule::new(open, plan.seed, plan.order, level.shared.dataset_rows, planned) else {
        level.close(Reason::Failed, now_ns());
        return;
    };
    for item in schedule {
        let (seq, offset_ns) = (item.index, item.offset_ns);
        let due_ns = start_ns.saturating_add(offset_ns);
        if let Err(reason) = level.shared.rules.allows(seq, offset_ns) {
            let end_ns = match (reason, level.shared.rules.end_after_ns()) {
                (Reason::Duration, Some(after)) => start_ns.saturating_add(after),
                _ => now,
            };
            match timer.wait_until(end_ns).await {
                Ok(()) => level.close(reason, end_ns),
                Err(_) => level.close(Reason::Failed, now_ns()),
            }
            return;
        }
        if seq % stride != worker.index as u64 {
            continue;
        }
        if level.is_closed() {
            return;
        }
        if due_ns > now {
            now = now_ns();
            if due_ns > now {
                if timer.wait_until(due_ns).await.is_err() {
                    level.close(Reason::Failed, now);
                    return;
                }
                without_wait = 0;
                now = now_ns();
            }
        }
        level.admit_item();
        let due = Due { seq: item.seq, row: item.row, stream: item.stream, due_ns, fired_ns: now };
        worker.dispatch(&level, due, slots, queue);
        without_wait += 1;
        if without_wait >= TURN {
            without_wait = 0;
            tokio::task::yield_now().await;
            now = now_ns();
        }
    }
    end(&level, &timer, start_ns).await;
}

/// All streams have ended: nothing more is due, however long the level has yet to go.
async fn end(level: &WorkerLevel, timer: &Timer, start_ns: i64) {
    let Some(after) = level.shared.rules.end_after_ns() else {
        level.close(Reason::Count, now_ns());
        return;
    };
    let end_ns = start_ns.saturating_add(after);
    match timer.wait_until(end_ns).await {
        Ok(()) => level.close(Reason::Duration, end_ns),
        Err(_) => level.close(Reason::Failed, now_ns()),
    }
}
