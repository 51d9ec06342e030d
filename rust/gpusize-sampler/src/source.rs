//! What all sources have in common: how they are read, what wakes the sampler for them, and what is known about them.

use std::fs::File;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::columns::Reading;
use super::files::Tier;
use super::sys::{as_file, pidfd};

/// Something that is sampled.
pub trait Source: Send {
    /// Read everything of this tier and of the faster ones; a reading without values is no row.
    fn read(&mut self, tier: Tier, reading: &mut Reading);

    /// Descriptors whose readiness means that something has ended.
    fn ends(&self) -> &Ends;

    /// One of them is ready. A reading of everything follows.
    fn ended(&mut self, end: End, t_ns: i64);

    /// Begin a new high-water mark, where the kernel can; says whether it could.
    fn reset_peak(&mut self) -> bool {
        false
    }

    /// What is known about it.
    fn facts(&mut self) -> Value;
}

/// Where an end shows: what the sampler waits for besides the next tick.
#[derive(Debug, Default)]
pub struct Ends {
    /// The process that the source was asked for.
    process: Option<Arc<File>>,
    /// `cgroup.events` of v2: whether the group has processes.
    events: Option<Arc<File>>,
    /// How often one of them was replaced.
    changes: u64,
}

/// Which of [`Ends`] is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process has ended.
    Process,
    /// Something about the group's processes has changed.
    Events,
}

impl Ends {
    /// Watch a process of the machine's own `/proc`.
    pub fn of_process(pid: u32) -> Self {
        Self { process: pidfd(pid).ok().map(|fd| Arc::new(as_file(fd))), ..Self::default() }
    }

    /// Watch a group's events, or no longer.
    pub fn set_events(&mut self, file: Option<File>) {
        self.events = file.map(Arc::new);
        self.changes += 1;
    }

    /// The process has ended.
    pub fn drop_process(&mut self) {
        self.process = None;
        self.changes += 1;
    }

    /// The group's events.
    pub fn events(&self) -> Option<Arc<File>> {
        self.events.clone()
    }

    /// Rises whenever what is to be waited for changes.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What is to be waited for, and which events of it. Whoever waits keeps it open: another thread may drop it from the source
    /// meanwhile.
    pub fn watched(&self) -> impl Iterator<Item = (End, Arc<File>, i32)> {
        let both = [(End::Process, &self.process, libc::EPOLLIN), (End::Events, &self.events, libc::EPOLLPRI)];
        both.into_iter().filter_map(|(end, file, events)| Some((end, file.clone()?, events)))
    }
}

/// A reading's values by the names of their columns.
pub fn values(reading: &Reading) -> Value {
    let values: Map<String, Value> =
        reading.values().map(|(column, value)| (column.name().to_owned(), json!(value))).collect();
    Value::Object(values)
}
