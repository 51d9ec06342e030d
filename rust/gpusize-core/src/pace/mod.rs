//! Waiting for due times.

use std::future::poll_fn;
use std::task::Poll;

pub mod alarms;
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
