//! The pacer of an open loop: lets each request go when it is due, whatever the target does.

use std::rc::Rc;

use super::worker::Worker;
use super::worker_level::WorkerLevel;
use crate::clock::now_ns;
use crate::pace::timer::Timer;
use crate::record::Due;
use crate::schedule::Arrivals;
use crate::spec::LoadSpec;
use crate::stop::Reason;

/// After this many requests without a wait the connections get a turn.
const TURN: u32 = 32;

/// Run this worker's stride of the level's schedule to its end.
pub async fn pace(worker: Rc<Worker>, level: Rc<WorkerLevel>, slots: usize) {
    let LoadSpec::Open { rate, process, queue, .. } = level.shared.plan.load else { return };
    let Ok(timer) = Timer::new() else {
        level.close(Reason::Failed, now_ns());
        return;
    };
    let start_ns = level.shared.start_ns();
    let stride = level.shared.members as u64;
    let queue = queue.div_ceil(stride as usize);
    let mut without_wait = 0;
    let mut now = now_ns();
    for (seq, offset_ns) in Arrivals::new(rate, process, level.shared.plan.seed, 0) {
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
        let (seq, row) = level.admit(seq);
        worker.dispatch(&level, Due { seq, row, due_ns, fired_ns: now, stream: 0 }, slots, queue);
        without_wait += 1;
        if without_wait >= TURN {
            without_wait = 0;
            tokio::task::yield_now().await;
            now = now_ns();
        }
    }
}
