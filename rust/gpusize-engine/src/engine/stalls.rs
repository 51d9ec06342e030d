//! What the generator loses by standing still: stopped, throttled by its cgroup, or without a core.
//!
//! In a closed loop nothing else shows it, for a request is due when its slot comes round to it. Each worker looks at the
//! clock a hundred times a second; a look that comes late, although the thread had no work of its own, was kept from
//! coming. No request pays for that.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use super::outside::now_ns;
use super::worker::Worker;
use gpusize_base::clock::thread_cpu_ns;

/// From one look to the next.
const LOOK_NS: i64 = 10_000_000;
/// A look that is less late than this says only that timers are coarse and cores are shared.
const NOISE_NS: i64 = 5_000_000;

/// Time that one worker stood still in a level. It has a single writer.
#[derive(Debug, Default)]
pub struct Stalls {
    sum_ns: AtomicI64,
    longest_ns: AtomicI64,
    /// The look has been charged in which the level drained: what comes later is not its own.
    over: AtomicBool,
}

impl Stalls {
    /// A stall of so long.
    fn add(&self, ns: i64) {
        self.sum_ns.store(self.sum_ns() + ns, Relaxed);
        self.longest_ns.fetch_max(ns, Relaxed);
    }

    /// All of them together.
    pub fn sum_ns(&self) -> i64 {
        self.sum_ns.load(Relaxed)
    }

    pub fn longest_ns(&self) -> i64 {
        self.longest_ns.load(Relaxed)
    }
}

/// Look until the worker quits, and charge what is found to the levels under way.
pub async fn watch(worker: &Worker) {
    while !worker.quits() {
        let (due_ns, cpu_ns) = (now_ns() + LOOK_NS, thread_cpu_ns());
        worker.alarms.sleep_until(due_ns).await;
        let (came_ns, used_ns) = (now_ns(), thread_cpu_ns() - cpu_ns);
        for level in worker.levels.all().iter() {
            let (begun_ns, stalls) = (level.shared.start_ns(), &level.share().stalls);
            if begun_ns > 0 && !stalls.over.load(Relaxed) {
                stalls.add(lost_ns(due_ns.max(begun_ns), came_ns, used_ns));
                stalls.over.store(level.is_drained(), Relaxed);
            }
        }
    }
}

/// How long a look that was due was kept from coming, by something else than the thread's own work.
fn lost_ns(due_ns: i64, came_ns: i64, used_ns: i64) -> i64 {
    let lost = came_ns - due_ns - used_ns;
    if lost < NOISE_NS { 0 } else { lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_look_that_comes_late_was_kept_from_coming_unless_the_thread_was_at_work() {
        assert_eq!(lost_ns(10 * MS, 5_010 * MS, MS), 4_999 * MS);
        assert_eq!(lost_ns(10 * MS, 14 * MS, 0), 0, "timers are coarse");
        assert_eq!(lost_ns(10 * MS, 40 * MS, 29 * MS), 0, "it was busy itself");
        assert_eq!(lost_ns(10 * MS, 2 * MS, 0), 0, "the level began later");
    }

    #[test]
    fn stalls_add_up_and_the_longest_stays() {
        let stalls = Stalls::default();
        for ns in [20 * MS, 90 * MS, 0, 30 * MS] {
            stalls.add(ns);
        }
        assert_eq!((stalls.sum_ns(), stalls.longest_ns()), (140 * MS, 90 * MS));
    }
}
