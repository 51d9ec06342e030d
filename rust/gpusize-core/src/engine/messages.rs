//! What the session's threads say to each other.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::level::LevelShared;
use crate::stop::Reason;

/// What the coordinator hears.
#[derive(Debug)]
pub enum Event {
    /// Run this level after the others.
    Queue(Arc<LevelShared>),
    /// The user stops this level, or who watches it for the user; what is in flight at `cancel_ns` is cancelled.
    Stop { level: Arc<LevelShared>, reason: Reason, cancel_ns: i64 },
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
    /// End the thread.
    Quit,
}

/// Tells the coordinator when a thread or a slot's task ends without being told to: by a panic, or for want of
/// descriptors. Without it a level would wait for its requests for ever.
#[derive(Debug)]
pub struct DeathNote {
    events: Sender<Event>,
    expected: bool,
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
