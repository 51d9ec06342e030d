//! The limits of a group: its own and those of every group above it, of which the smallest counts.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::bytes::{number, value};
use super::layout::Group;

/// What v1 says for "none": the largest counter of pages, in bytes.
const NO_LIMIT_BYTES: i64 = 0x7fff_ffff_ffff_f000;

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
    /// `memory.max`.
    pub memory_bytes: Option<i64>,
    /// `memory.high`: above it, the group is slowed and reclaimed from.
    pub memory_high_bytes: Option<i64>,
    /// What the group used of its memory limit when this was read; with its neighbours below the same limit.
    pub memory_current_bytes: Option<i64>,
    /// How often that limit was met.
    pub memory_max_events: Option<i64>,
    /// `memory.swap.max` of v2.
    pub swap_bytes: Option<i64>,
    /// Memory and swap together, v1.
    pub memory_and_swap_bytes: Option<i64>,
    /// Quota over period.
    pub cpu_cores: Option<f64>,
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
            let level = level(group.controller, path, dir);
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

fn level(controller: &'static str, path: &str, dir: &Path) -> Level {
    let text = |name: &str| fs::read(dir.join(name)).ok();
    let amount = |name: &str| text(name).and_then(|text| number(&text)).filter(|bytes| *bytes < NO_LIMIT_BYTES);
    let group = if path.is_empty() { "/" } else { path };
    let mut level = Level { controller, group: group.to_owned(), ..Level::default() };
    match controller {
        "memory" => {
            level.memory_bytes = amount("memory.limit_in_bytes");
            level.memory_and_swap_bytes = amount("memory.memsw.limit_in_bytes");
            level.memory_current_bytes = amount("memory.usage_in_bytes");
            level.memory_max_events = amount("memory.failcnt");
        }
        "cpu" => {
            let period = amount("cpu.cfs_period_us").filter(|period| *period > 0);
            level.cpu_cores =
                amount("cpu.cfs_quota_us").zip(period).map(|(quota, period)| quota as f64 / period as f64);
        }
        "pids" => level.pids = amount("pids.max"),
        "cpuset" => level.cpuset_cpus = text("cpuset.effective_cpus").and_then(|text| cpus(&text)),
        "unified" => {
            level.memory_bytes = amount("memory.max");
            level.memory_high_bytes = amount("memory.high");
            level.memory_current_bytes = amount("memory.current");
            level.memory_max_events = text("memory.events").and_then(|text| value(&text, b"max"));
            level.swap_bytes = amount("memory.swap.max");
            level.cpu_cores = text("cpu.max").and_then(|text| cores(&text));
            level.cpuset_cpus = text("cpuset.cpus.effective").and_then(|text| cpus(&text));
            level.pids = amount("pids.max");
        }
        _ => {}
    }
    level
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
}
