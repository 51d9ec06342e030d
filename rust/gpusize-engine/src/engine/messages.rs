//! What the session's threads say to each other.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};

use super::job::Job;
use super::level::LevelShared;
use super::outside::{Task, spawn_local};
use gpusize_base::error::Result;
use gpusize_load::stop::Reason;

/// What the coordinator hears.
#[derive(Debug)]
pub enum Event {
    /// Run this level after the others.
    Queue(Arc<LevelShared>),
    /// The user stops this level, or who watches it for the user; what is in flight at `cancel_ns` is cancelled.
    Stop { level: Arc<LevelShared>, reason: Reason, cancel_ns: i64 },
    /// A level that is held is to start; whether it will is answered.
    StartAt { level: Arc<LevelShared>, start_ns: i64, answer: SyncSender<Result<()>> },
    /// The end of a level by the clock is moved; whether it was is answered.
    CloseAt { level: Arc<LevelShared>, close_at_ns: i64, answer: SyncSender<Result<()>> },
    /// A worker's connections are open.
    Ready { worker: usize },
    /// A worker sends no new request of the level.
    Closed { level: Arc<LevelShared>, reason: Reason },
    /// A worker has recorded all its requests of the level.
    Drained { level: Arc<LevelShared>, worker: usize },
    /// A worker ended without being told to.
    Died,
    /// End the session.
    Quit,
}

/// What a worker is told.
#[derive(Debug)]
pub enum Command {
    /// Open the level's connections and say `Ready`.
    Prepare(Arc<LevelShared>),
    /// Begin; the first `running` slots go on from the level before, the others start spread over `stagger_ns`.
    Start { level: Arc<LevelShared>, start_ns: i64, stagger_ns: i64, running: u32 },
    /// Send no new request of the level.
    Close { level: Arc<LevelShared>, reason: Reason },
    /// Cancel what is left of the level at its `cancel_ns`.
    CancelAt(Arc<LevelShared>),
    /// Requests that waited on another worker.
    Take(Handed),
    /// So many that were handed over count elsewhere now.
    Taken { level: Arc<LevelShared>, n: u64 },
    /// What was handed over to a worker that had ended its part of the level.
    TakeBack { level: Arc<LevelShared>, jobs: Vec<Job> },
    /// Another worker has room for so many requests.
    Give { level: Arc<LevelShared>, room: usize, to: usize },
    /// Nothing waits any more for a connection on any worker.
    Look(Arc<LevelShared>),
    /// End the thread.
    Quit,
}

/// Requests on their way from one worker to another.
#[derive(Debug)]
pub struct Handed {
    pub level: Arc<LevelShared>,
    pub jobs: Vec<Job>,
    pub from: usize,
}

/// Tells the coordinator when a thread or a task ends without being told to: by a panic, or for want of descriptors. Without it
/// a level would wait for its requests for ever.
#[derive(Debug)]
pub struct DeathNote {
    events: Sender<Event>,
    expected: bool,
}

/// Spawn a task that must not end before it is done, or is aborted.
pub fn spawn_noted(mut note: DeathNote, task: impl Future<Output = ()> + 'static) -> Task<()> {
    // Dropped where it waits, or before it began, it was aborted; what unwinds it is a panic.
    note.expected = true;
    spawn_local(async move {
        // The whole note: its flag alone, a copy, would be taken otherwise, and nobody would hold the note.
        let mut note = note;
        let mut task = std::pin::pin!(task);
        poll_fn(|cx| {
            note.expected = false;
            let poll = task.as_mut().poll(cx);
            note.expected = true;
            poll
        })
        .await;
    })
}

impl DeathNote {
    /// To be held while the thread or task must not end by itself.
    pub fn new(events: Sender<Event>) -> Self {
        Self { events, expected: false }
    }

    /// The end was asked for.
    pub fn tear_up(mut self) {
        self.expected = true;
    }
}

impl Drop for DeathNote {
    fn drop(&mut self) {
        if !self.expected {
            let _ = self.events.send(Event::Died);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    #[test]
    fn a_task_that_dies_says_so_and_one_that_ends_or_is_aborted_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let (sender, events) = channel();
            let note = || DeathNote::new(sender.clone());
            let ended = spawn_noted(note(), yield_now());
            let aborted = spawn_noted(note(), std::future::pending());
            yield_now().await;
            aborted.abort();
            // Before it has begun.
            spawn_noted(note(), std::future::pending()).abort();
            assert!(ended.await.is_ok() && aborted.await.is_err());
            assert!(events.try_recv().is_err(), "nothing has died");
            let dies = spawn_noted(note(), async {
                yield_now().await;
                panic!("as a defect of ours would");
            });
            assert!(dies.await.is_err() && matches!(events.try_recv(), Ok(Event::Died)));
        });
    }
}
