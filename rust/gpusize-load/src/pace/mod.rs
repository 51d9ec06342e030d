//! Waiting for due times.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use gpusize_base::clock::now_ns;

pub mod timer;

/// Let the tasks that can run now do so first, without a look at the system.
pub async fn after_the_others() {
    let mut is_last = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_last, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Wait for a time of the monotonic clock in a runtime that has tokio's timers; workers have alarms instead.
pub async fn sleep_until(due_ns: i64) {
    let left_ns = u64::try_from(due_ns - now_ns()).unwrap_or(0);
    tokio::time::sleep(Duration::from_nanos(left_ns)).await;
}
