//! What all sources have in common: how they are read, what wakes the sampler for them, and what is known about them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::columns::Reading;
use super::files::Tier;
use super::sys::{as_file, pidfd, watch};

/// Something that is sampled.
pub trait Source: Send {
    /// Read everything of this tier and of the faster ones; a reading without values is no row.
    fn read(&mut self, tier: Tier, reading: &mut Reading);

    /// Descriptors whose readiness means that something has ended.
    fn ends(&self) -> &Ends;

    /// One of them is ready. A reading of everything follows.
    fn ended(&mut self, ready: &Ready);

    /// Begin a new high-water mark, where the kernel can; says whether it could.
    fn reset_peak(&mut self) -> bool {
        false
    }

    /// What is known about it.
    fn facts(&mut self) -> Value;
}

/// Where an end shows.
#[derive(Debug, Default)]
pub struct Ends {
    /// The process that the source was asked for.
    pub process: Option<Arc<File>>,
    /// `cgroup.events` of v2: whether the group has processes.
    pub events: Option<Arc<File>>,
}

/// What of [`Ends`] is ready.
#[derive(Clone, Debug)]
pub struct Ready {
    /// When the sampler woke.
    pub t_ns: i64,
    /// Whether it is the process.
    pub process: bool,
    /// Whether it is the group's events.
    pub events: bool,
}

impl Ends {
    /// Watch a process of the machine's own `/proc`.
    pub fn of_process(pid: u32) -> Self {
        let process = pidfd(pid).ok().map(|fd| Arc::new(as_file(fd)));
        Self { process, events: None }
    }

    /// Append what is to be waited for, and what keeps it open meanwhile: another thread may drop it from the source.
    pub fn push(&self, watched: &mut Vec<libc::pollfd>, held: &mut Vec<Arc<File>>) {
        for (file, events) in [(&self.process, libc::POLLIN), (&self.events, libc::POLLPRI)] {
            watched.push(watch(file.as_ref().map_or(-1, AsRawFd::as_raw_fd), events));
            held.extend(file.clone());
        }
    }

    /// Whether one of the two entries that [`Ends::push`] appended is ready.
    pub fn ready(watched: &[libc::pollfd], t_ns: i64) -> Option<Ready> {
        let (process, events) = (watched[0].revents != 0, watched[1].revents != 0);
        (process || events).then_some(Ready { t_ns, process, events })
    }
}

/// A reading's values by the names of their columns.
pub fn values(reading: &Reading) -> Value {
    let values: Map<String, Value> =
        reading.values().map(|(column, value)| (column.name().to_owned(), json!(value))).collect();
    Value::Object(values)
}
