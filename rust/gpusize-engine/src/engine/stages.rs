//! The levels that a coordinator has on its hands: those that wait, the one that opens its connections, those that have begun.

use std::sync::Arc;

use super::level::LevelShared;
use super::outside::now_ns;
use super::ramp;
use super::watchdog::{Awaited, Watch};
use crate::spec::LoadSpec;
use gpusize_load::stop::Reason;

/// A level that has begun.
#[derive(Debug)]
pub struct Active {
    pub level: Arc<LevelShared>,
    pub closed: usize,
    /// Workers that have not drained it.
    pub missing: Vec<usize>,
    /// All workers have been told to close it.
    pub told: bool,
    pub watch: Watch,
}

/// A level whose connections are being opened.
#[derive(Debug)]
pub struct Opening {
    pub level: Arc<LevelShared>,
    /// Workers whose connections are not.
    pub missing: Vec<usize>,
    pub watch: Watch,
}

/// A level that has not been started, and since when.
#[derive(Debug)]
pub struct Queued {
    pub level: Arc<LevelShared>,
    pub since_ns: i64,
}

impl Opening {
    /// Whether all is ready for a start that is still to be told.
    pub fn is_held(&self) -> bool {
        self.missing.is_empty()
    }
}

impl Active {
    /// Whether all workers have closed it.
    pub fn is_closed(&self) -> bool {
        self.closed >= self.level.members
    }
}

/// Whether nothing moves any more in a level that is waited for; the level then says so.
pub fn is_stuck(watch: &mut Watch, level: &LevelShared, awaited: Awaited, missing: &[usize]) -> bool {
    let is_stuck = watch.is_stuck(level, awaited, missing.len());
    if is_stuck {
        level.note_lost(watch.says(level, awaited, missing));
    }
    is_stuck
}

/// Users of a closed loop at an instant.
pub fn users_at(level: &LevelShared, ns: i64) -> u32 {
    match &level.plan.load {
        LoadSpec::Closed(closed) => ramp::users_at(closed, ns - level.start_ns()),
        LoadSpec::Open(_) => 0,
    }
}

/// End a level that has not begun.
pub fn end_unstarted(level: Arc<LevelShared>, reason: Reason) {
    level.close(reason, now_ns());
    end(level);
}

/// End a level's writer beside the next level, which must not wait for a slow disk.
pub fn end(level: Arc<LevelShared>) {
    let here = level.clone();
    if std::thread::Builder::new().name("gpusize-finish".into()).spawn(move || level.finish()).is_err() {
        here.finish();
    }
}
