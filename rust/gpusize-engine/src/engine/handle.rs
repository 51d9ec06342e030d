//! What a caller holds of a level.

use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::time::Duration;

use arrow_array::RecordBatch;

use super::level::LevelShared;
use super::messages::Event;
use super::outside::now_ns;
use super::progress::{self, LevelOutcome, Progress};
use crate::record::feed::Second;
use gpusize_base::error::{Error, Result};
use gpusize_load::stop::Reason;

/// A caller's handle of one queued, running or finished visit.
#[derive(Clone, Debug)]
pub struct Level {
    pub(super) shared: Arc<LevelShared>,
    pub(super) events: Sender<Event>,
}

impl Level {
    /// Where the level stands; cheap.
    pub fn poll(&self) -> Progress {
        progress::progress(&self.shared)
    }

    /// No new request from now on; those in flight have `drain_ns` and are then cancelled and recorded.
    pub fn stop(&self, drain_ns: i64) {
        self.stop_for(drain_ns, Reason::Stopped);
    }

    /// Likewise, for a reason that the outcome tells; one that comes after the level has ended by itself changes nothing.
    pub fn stop_for(&self, drain_ns: i64, reason: Reason) {
        let cancel_ns = now_ns().saturating_add(drain_ns.max(0));
        // A session that is gone has no level running.
        let _ = self.events.send(Event::Stop { level: self.shared.clone(), reason, cancel_ns });
    }

    /// Wait until a level's connections have been tried, or it has begun or is over; false when the time ran out.
    pub fn prepared(&self, timeout: Duration) -> bool {
        self.shared.wait_prepared(timeout)
    }

    /// Start a level that is held, at this time of this host's monotonic clock; refused where that is too soon.
    pub fn start_at(&self, start_ns: i64) -> Result<()> {
        self.ask("Level.start_at", |level, answer| Event::StartAt { level, start_ns, answer })
    }

    /// Move the end of a level that ends by the clock; refused where it is near, or over.
    pub fn set_close_at(&self, close_at_ns: i64) -> Result<()> {
        self.ask("Level.set_close_at", |level, answer| Event::CloseAt { level, close_at_ns, answer })
    }

    fn ask(&self, place: &str, event: impl FnOnce(Arc<LevelShared>, SyncSender<Result<()>>) -> Event) -> Result<()> {
        let (answer, answered) = sync_channel(1);
        let closed = || Error::usage("the session is closed", place, "open a new one");
        self.events.send(event(self.shared.clone(), answer)).map_err(|_| closed())?;
        answered.recv().map_err(|_| closed())?
    }

    /// Complete seconds of the level from number `after` on, as far as they are kept.
    pub fn seconds(&self, after: u32) -> Vec<Second> {
        self.shared.feed.seconds(after)
    }

    /// Wait until every request has its record and every part is on disk; false when the time ran out.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.shared.wait(timeout)
    }

    /// What came out; none before `wait` has returned true.
    pub fn outcome(&self) -> Option<LevelOutcome> {
        self.shared.written().as_ref().map(|w| progress::outcome(&self.shared, w))
    }

    /// The records, while they are in memory.
    pub fn rows(&self) -> Option<Vec<RecordBatch>> {
        self.shared.written().as_ref().and_then(|w| w.kept.clone())
    }

    /// The calls inside the requests, while they are in memory.
    pub fn spans(&self) -> Option<Vec<RecordBatch>> {
        self.shared.written().as_ref().and_then(|w| w.kept.as_ref().map(|_| w.kept_spans.clone()))
    }
}
