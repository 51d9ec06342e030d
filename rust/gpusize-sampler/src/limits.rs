//! The limits of a group: its own and those of every group above it, of which the smallest counts.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use super::bytes::{number, value};
use super::layout::Group;
use super::sys::page_bytes;

/// The smallest limit of a kind, and the group that has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// In the unit of its name; CPUs may be a fraction.
    pub value: f64,
    /// The group's path in its hierarchy.
    pub group: String,
}

/// The limits of one group on the way up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Level {
    /// The controller of v1, or `unified`.
    pub controller: &'static str,
    /// The group's path in its hierarchy.
    pub group: String,
    /// Above the group that is watched, hence shared with whatever else is in it.
    pub above: bool,
    #[serde(skip)]
    dir: PathBuf,
    /// `memory.max`.
    pub memory_bytes: Option<i64>,
    /// `memory.high`: above it, the group is slowed and reclaimed from.
    pub memory_high_bytes: Option<i64>,
    /// What the group used of its memory limit when this was read; with its neighbours below the same limit.
    pub memory_current_bytes: Option<i64>,
    /// How often that limit was met: of this group alone, not of those below.
    pub memory_max_events: Option<i64>,
    /// How often `memory.high` was, likewise.
    pub memory_high_events: Option<i64>,
    /// `memory.swap.max` of v2.
    pub swap_bytes: Option<i64>,
    /// Memory and swap together, v1.
    pub memory_and_swap_bytes: Option<i64>,
    /// Quota over period.
    pub cpu_cores: Option<f64>,
    /// Periods in which that quota was used up.
    pub cpu_throttled_periods: Option<i64>,
    /// CPUs that it may run on.
    pub cpuset_cpus: Option<i64>,
    /// `pids.max`.
    pub pids: Option<i64>,
}

/// All limits of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Smallest of memory.
    pub memory_bytes: Option<Limit>,
    /// Smallest of `memory.high`.
    pub memory_high_bytes: Option<Limit>,
    /// Smallest of swap.
    pub swap_bytes: Option<Limit>,
    /// Smallest of memory and swap together.
    pub memory_and_swap_bytes: Option<Limit>,
    /// Smallest quota.
    pub cpu_cores: Option<Limit>,
    /// Smallest set of CPUs.
    pub cpuset_cpus: Option<Limit>,
    /// Smallest number of threads.
    pub pids: Option<Limit>,
    /// From the group upwards, those that limit anything.
    pub ancestors: Vec<Level>,
}

/// Read the limits of all groups of a layout.
pub fn read(groups: &[Group]) -> Limits {
    let mut limits = Limits::default();
    for group in groups {
        let mut dir = group.dir.as_path();
        let mut path = group.path.as_str();
        loop {
            let name = if path.is_empty() { "/" } else { path };
            let mut level = Level {
                controller: group.controller,
                group: name.to_owned(),
                above: dir != group.dir,
                dir: dir.to_owned(),
                ..Level::default()
            };
            level.read();
            limits.take(&level);
            if level.limits_anything() {
                limits.ancestors.push(level);
            }
            let (Some(above), true) = (dir.parent(), dir != group.top) else { break };
            dir = above;
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    limits
}

/// Whether v1 means a limit: for none it says the largest counter of pages, which is another number for larger pages.
fn is_limit(bytes: i64, page_bytes: i64) -> bool {
    bytes < i64::MAX / page_bytes * page_bytes
}

/// `cpu.max`: `150000 100000`, or `max 100000` for none.
fn cores(text: &[u8]) -> Option<f64> {
    let quota = number(text)?;
    let period = number(&text[memchr::memchr(b' ', text)?..]).filter(|period| *period > 0)?;
    Some(quota as f64 / period as f64)
}

/// How many CPUs a list such as `0-3,8` names; none for an empty one.
fn cpus(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let mut count = 0;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        count += last.parse::<i64>().ok()? - first.parse::<i64>().ok()? + 1;
    }
    (count > 0).then_some(count)
}

impl Level {
    fn read(&mut self) {
        match self.controller {
            "memory" => {
                self.memory_bytes = self.amount("memory.limit_in_bytes");
                self.memory_and_swap_bytes = self.amount("memory.memsw.limit_in_bytes");
            }
            "cpu" => {
                let period = self.amount("cpu.cfs_period_us").filter(|period| *period > 0);
                let quota = self.amount("cpu.cfs_quota_us");
                self.cpu_cores = quota.zip(period).map(|(quota, period)| quota as f64 / period as f64);
            }
            "pids" => self.pids = self.amount("pids.max"),
            "cpuset" => self.cpuset_cpus = self.text("cpuset.effective_cpus").and_then(|text| cpus(&text)),
            "unified" => {
                self.memory_bytes = self.amount("memory.max");
                self.memory_high_bytes = self.amount("memory.high");
                self.swap_bytes = self.amount("memory.swap.max");
                self.cpu_cores = self.text("cpu.max").and_then(|text| cores(&text));
                self.cpuset_cpus = self.text("cpuset.cpus.effective").and_then(|text| cpus(&text));
                self.pids = self.amount("pids.max");
            }
            _ => {}
        }
        self.count();
    }

    /// Read how often the limits were met, which takes a file or two. The CPU counters of v2 are summed for whoever reads them,
    /// over all groups below: they are left alone where there is no quota.
    pub fn count(&mut self) {
        let quota = self.cpu_cores.is_some();
        match self.controller {
            "memory" if self.memory_bytes.is_some() => {
                self.memory_current_bytes = self.amount("memory.usage_in_bytes");
                self.memory_max_events = self.amount("memory.failcnt");
            }
            "unified" if self.memory_bytes.is_some() || self.memory_high_bytes.is_some() => {
                self.memory_current_bytes = self.amount("memory.current");
                // Of this group only (5.2); the other file also counts the limits of neighbours below it.
                let events = self.text("memory.events.local").or_else(|| self.text("memory.events"));
                self.memory_max_events = events.as_deref().and_then(|text| value(text, b"max"));
                self.memory_high_events = events.as_deref().and_then(|text| value(text, b"high"));
            }
            _ => {}
        }
        if quota {
            self.cpu_throttled_periods = self.text("cpu.stat").and_then(|text| value(&text, b"nr_throttled"));
        }
    }

    /// Whether it is the level that another was read of before.
    pub fn is_same(&self, other: &Self) -> bool {
        self.controller == other.controller && self.dir == other.dir
    }

    fn text(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.dir.join(name)).ok()
    }

    fn amount(&self, name: &str) -> Option<i64> {
        self.text(name).and_then(|text| number(&text)).filter(|amount| is_limit(*amount, page_bytes()))
    }

    fn limits_anything(&self) -> bool {
        let amounts =
            [self.memory_bytes, self.memory_high_bytes, self.swap_bytes, self.memory_and_swap_bytes, self.pids];
        self.cpu_cores.is_some() || amounts.iter().any(Option::is_some)
    }
}

impl Limits {
    fn take(&mut self, level: &Level) {
        let whole = |amount: Option<i64>| amount.map(|amount| amount as f64);
        for (kept, value) in [
            (&mut self.memory_bytes, whole(level.memory_bytes)),
            (&mut self.memory_high_bytes, whole(level.memory_high_bytes)),
            (&mut self.swap_bytes, whole(level.swap_bytes)),
            (&mut self.memory_and_swap_bytes, whole(level.memory_and_swap_bytes)),
            (&mut self.cpu_cores, level.cpu_cores),
            (&mut self.cpuset_cpus, whole(level.cpuset_cpus)),
            (&mut self.pids, whole(level.pids)),
        ] {
            if let Some(value) = value
                && kept.as_ref().is_none_or(|kept| value < kept.value)
            {
                *kept = Some(Limit { value, group: level.group.clone() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_cores_and_max_is_none() {
        assert_eq!(cores(b"150000 100000\n"), Some(1.5));
        assert_eq!(cores(b"max 100000\n"), None);
        assert_eq!(cpus(b"0-3,8\n"), Some(5));
        assert_eq!(cpus(b"\n"), None);
    }

    #[test]
    fn no_limit_is_the_largest_multiple_of_a_page() {
        for (none, page_bytes) in [(9_223_372_036_854_771_712, 4 << 10), (9_223_372_036_854_710_272, 64 << 10)] {
            assert!(!is_limit(none, page_bytes), "{page_bytes}");
            assert!(is_limit(none - page_bytes, page_bytes), "{page_bytes}");
        }
        assert!(!is_limit(i64::MAX, 4 << 10));
    }
}
