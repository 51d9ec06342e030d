//! Many waits on one timerfd: think times, staggered starts, and the ends of levels.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};

use tokio::sync::Notify;

use super::outside::Timer;
use super::outside::now_ns;
use gpusize_load::pace::after_the_others;

/// The alarms of one runtime thread; `drive` has to run beside the waits.
#[derive(Debug)]
pub struct Alarms {
    timer: Timer,
    pending: RefCell<BinaryHeap<Alarm>>,
    set: Cell<u64>,
    earlier: Notify,
}

#[derive(Debug)]
struct Alarm {
    due_ns: i64,
    /// Alarms of one instant ring in the order in which they were set.
    number: u64,
    waker: Waker,
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Alarm {}
impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Alarm {
    /// Reversed: the heap's largest is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due_ns, other.number).cmp(&(self.due_ns, self.number))
    }
}

impl Alarms {
    /// No alarm yet; needs a tokio runtime with IO enabled.
    pub fn new() -> io::Result<Self> {
        Ok(Self { timer: Timer::new()?, pending: RefCell::default(), set: Cell::new(0), earlier: Notify::new() })
    }

    /// Wait until the monotonic clock has reached `due_ns`. May be dropped at any time.
    pub async fn sleep_until(&self, due_ns: i64) {
        let mut set = false;
        poll_fn(|cx| {
            if now_ns() >= due_ns {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut set, true) {
                self.ring(due_ns, cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Wake `waker` once the monotonic clock has reached `due_ns`.
    pub fn ring(&self, due_ns: i64, waker: Waker) {
        let mut pending = self.pending.borrow_mut();
        if pending.peek().is_none_or(|w| due_ns < w.due_ns) {
            self.earlier.notify_one();
        }
        let number = self.set.get();
        self.set.set(number + 1);
        pending.push(Alarm { due_ns, number, waker });
    }

    /// Serve the alarms; ends only with an error of the timer.
    pub async fn drive(&self) -> io::Result<()> {
        loop {
            // Those that were woken go before the timer is seen to, and may set an earlier alarm.
            after_the_others().await;
            let next = self.pending.borrow().peek().map(|w| w.due_ns);
            match next {
                None => self.earlier.notified().await,
                Some(due_ns) => tokio::select! {
                    biased;
                    result = self.timer.wait_until(due_ns) => result?,
                    () = self.earlier.notified() => {}
                },
            }
            let now = now_ns();
            while self.pending.borrow().peek().is_some_and(|w| w.due_ns <= now) {
                if let Some(pending) = self.pending.borrow_mut().pop() {
                    pending.waker.wake();
                }
            }
        }
    }
}

#[cfg(test)]
mod realtime {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn alarms_ring_in_the_order_of_their_times() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let order = local.block_on(&runtime, async {
            let alarms = Rc::new(Alarms::new().unwrap());
            let driver = alarms.clone();
            tokio::task::spawn_local(async move { driver.drive().await });
            let order = Rc::new(RefCell::new(Vec::new()));
            // All are set by then, however long the thread is stopped meanwhile: who is late does not wait for an alarm.
            let base = now_ns() + 1_000_000_000;
            let tasks: Vec<_> = [5, 1, 3, 2, 4]
                .into_iter()
                .map(|k| {
                    let (alarms, order) = (alarms.clone(), order.clone());
                    tokio::task::spawn_local(async move {
                        alarms.sleep_until(base + k * 1_000_000).await;
                        assert!(now_ns() >= base + k * 1_000_000);
                        order.borrow_mut().push(k);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            Rc::into_inner(order).unwrap().into_inner()
        });
        assert_eq!(order, [1, 2, 3, 4, 5]);
    }
}
