//! When limits held a group back of which its own counters say nothing: those of the groups above, which it shares with all that
//! is in them, and `memory.high`.

use serde::Serialize;

use super::layout::Group;
use super::limits::{self, Level, Limits};
use super::sys::charge_error_bytes;

/// Limits are read again after this time, then after twice that, and so on: a runtime sets them after it has made the group,
/// and later they hardly ever change.
const FIRST_GAP_NS: i64 = 500_000_000;
const MOST_GAP_NS: i64 = 8_000_000_000;

/// Which limit was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `memory.max`.
    Memory,
    /// `memory.high`.
    MemoryHigh,
    /// A CPU quota.
    Cpu,
}

/// A limit that was met between two readings of its counters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// The group that has the limit.
    pub group: String,
    /// Whether that is above the one that is watched.
    pub above: bool,
    /// Which.
    pub kind: Kind,
    /// Bytes or cores.
    pub limit: f64,
    /// The reading before it was met first.
    pub from_ns: i64,
    /// The reading after it was met last.
    pub until_ns: i64,
    /// How often: charges that did not fit, throttled periods. 0 where memory was at the limit and the kernel counts nothing.
    pub times: i64,
}

/// The limits of a group and of those above it, which are read rarely, and their counters, which are read with the slow files.
#[derive(Debug, Default)]
pub struct WatchedLimits {
    groups: Vec<Group>,
    /// What is watched is but a part of its group.
    part: bool,
    limits: Limits,
    held: Vec<Held>,
    counted_ns: i64,
    due_ns: i64,
    gap_ns: i64,
    /// A phase has begun: what comes is told apart from what was.
    apart: bool,
}

impl WatchedLimits {
    /// Of something that shares its group with others, as processes may: all limits are above it.
    pub fn of_a_part() -> Self {
        Self { part: true, ..Self::default() }
    }

    fn read(&self) -> Limits {
        let mut limits = limits::read(&self.groups);
        limits.ancestors.iter_mut().for_each(|level| level.above |= self.part);
        limits
    }

    /// Watch these groups from now on; what was met before stays known.
    pub fn begin(&mut self, groups: &[Group], t_ns: i64) {
        self.groups = groups.to_vec();
        self.limits = self.read();
        (self.counted_ns, self.gap_ns, self.due_ns) = (t_ns, FIRST_GAP_NS, t_ns + FIRST_GAP_NS);
        self.apart = true;
    }

    /// Read the counters of the limits, and the limits too when that is due.
    pub fn look(&mut self, t_ns: i64) {
        let before = self.limits.ancestors.clone();
        if t_ns >= self.due_ns {
            let limits = self.read();
            // A group that was removed meanwhile has none; those that it had are kept.
            if self.groups.iter().all(|group| group.dir.is_dir()) {
                self.limits = limits;
            }
            self.gap_ns = MOST_GAP_NS.min(2 * self.gap_ns);
            self.due_ns = t_ns + self.gap_ns;
        } else {
            self.limits.ancestors.iter_mut().for_each(Level::count);
        }
        self.compare(&before, t_ns);
    }

    /// The group itself is gone, those above are not: what is known of its own limits is kept.
    pub fn end(&mut self, t_ns: i64) {
        let before = self.limits.ancestors.clone();
        self.limits.ancestors.iter_mut().filter(|level| level.above).for_each(Level::count);
        self.compare(&before, t_ns);
    }

    fn compare(&mut self, before: &[Level], t_ns: i64) {
        for level in &self.limits.ancestors {
            let Some(old) = before.iter().find(|old| old.is_same(level)) else { continue };
            for met in met(old, level, self.counted_ns, t_ns).into_iter().flatten() {
                let going_on = self.held.iter_mut().find(|held| {
                    !self.apart && held.until_ns == met.from_ns && (held.kind, &held.group) == (met.kind, &met.group)
                });
                match going_on {
                    Some(held) => (held.until_ns, held.limit, held.times) = (t_ns, met.limit, held.times + met.times),
                    None => self.held.push(met),
                }
            }
        }
        (self.counted_ns, self.apart) = (t_ns, false);
    }

    /// A phase begins.
    pub fn phase(&mut self) {
        self.apart = true;
        self.due_ns = i64::MIN;
    }

    /// What they are.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was met of them, in the order of time: limits of groups above, and `memory.high` of all.
    pub fn held(&self) -> &[Held] {
        &self.held
    }
}

/// What of a level was met between two readings.
fn met(old: &Level, new: &Level, from_ns: i64, until_ns: i64) -> [Option<Held>; 3] {
    let grown = |old: Option<i64>, new: Option<i64>| old.zip(new).map_or(0, |(old, new)| (new - old).max(0));
    let whole = |bytes: Option<i64>| bytes.map(|bytes| bytes as f64);
    // Where the kernel counts, a limit that held anything back was counted: use beside it is no sign.
    let is_full = |limit: Option<i64>, counted: Option<i64>| {
        let used = new.memory_current_bytes.filter(|_| counted.is_none());
        used.zip(limit).is_some_and(|(used, limit)| used >= limit - charge_error_bytes())
    };
    [
        (
            Kind::Memory,
            whole(new.memory_bytes),
            grown(old.memory_max_events, new.memory_max_events),
            is_full(new.memory_bytes, new.memory_max_events),
        ),
        (
            Kind::MemoryHigh,
            whole(new.memory_high_bytes),
            grown(old.memory_high_events, new.memory_high_events),
            is_full(new.memory_high_bytes, new.memory_high_events),
        ),
        (Kind::Cpu, new.cpu_cores, grown(old.cpu_throttled_periods, new.cpu_throttled_periods), false),
    ]
    .map(|(kind, limit, times, full)| {
        let told = new.above || kind == Kind::MemoryHigh;
        let limit = limit.filter(|_| told && (times > 0 || full))?;
        Some(Held { group: new.group.clone(), above: new.above, kind, limit, from_ns, until_ns, times })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn limits_are_read_again_when_that_is_due_or_a_phase_has_begun() {
        let dir = crate::test_folder::fresh("held");
        let write = |quota: u32| fs::write(dir.join("cpu.max"), format!("{quota} 100000\n")).expect("a file");
        let group =
            Group { controller: "unified", version: 2, path: "/job".to_owned(), dir: dir.clone(), top: dir.clone() };
        let mut watched = WatchedLimits::default();
        let cores = |watched: &WatchedLimits| watched.limits().cpu_cores.as_ref().map(|limit| limit.value);
        write(150_000);
        watched.begin(&[group], 7);
        write(50_000);
        watched.look(7 + FIRST_GAP_NS - 1);
        assert_eq!(cores(&watched), Some(1.5));
        watched.phase();
        assert_eq!(cores(&watched), Some(1.5), "read at the next look");
        watched.look(7 + FIRST_GAP_NS - 1);
        assert_eq!(cores(&watched), Some(0.5));
        // From there on after a gap, twice as long each time.
        write(250_000);
        watched.look(6 + 3 * FIRST_GAP_NS - 1);
        assert_eq!(cores(&watched), Some(0.5));
        watched.look(6 + 3 * FIRST_GAP_NS);
        assert_eq!(cores(&watched), Some(2.5));
        fs::remove_dir_all(dir).expect("removed");
    }
}
