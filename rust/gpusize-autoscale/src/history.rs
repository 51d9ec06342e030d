//! What the controller remembers: its recommendations, for stabilization windows, and its changes, for scaling policies.

use crate::NS_PER_S;
use crate::policy::{Behavior, HpaPolicy, Limit, LimitKind, Rules, Select};

/// A change of the replicas.
#[derive(Debug, Clone, Copy)]
struct Change {
    replicas: i32,
    at_ns: i64,
    /// To be overwritten by the next one. Until then it counts as before.
    is_outdated: bool,
}

/// Earlier decisions.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// (when, replicas), as the metrics asked for them.
    recommendations: Vec<(i64, i32)>,
    ups: Vec<Change>,
    downs: Vec<Change>,
}

impl History {
    /// At the first sync the replicas that are there count as recommended.
    pub(crate) fn begin(&mut self, now_ns: i64, replicas: i32) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now_ns, replicas));
        }
    }

    /// What of the recommendation `asked` is left by the windows; it is remembered as it was.
    pub(crate) fn stabilize(&mut self, policy: &HpaPolicy, now_ns: i64, current: i32, asked: i32) -> i32 {
        match &policy.behavior {
            None => {
                let cutoff_ns = now_ns - i64::from(policy.downscale_stabilization_s) * NS_PER_S;
                let stabilized = self.within(|at_ns| at_ns >= cutoff_ns).fold(asked, i32::max);
                self.remember(now_ns, asked, |at_ns| at_ns < cutoff_ns);
                stabilized
            }
            Some(Behavior { up, down }) => {
                let cutoff_ns = |rules: &Rules| {
                    let window_s = rules.stabilization_s.unwrap_or(policy.downscale_stabilization_s);
                    now_ns - i64::from(window_s) * NS_PER_S
                };
                let (up_ns, down_ns) = (cutoff_ns(up), cutoff_ns(down));
                let lowest = self.within(|at_ns| at_ns > up_ns).fold(asked, i32::min);
                let highest = self.within(|at_ns| at_ns > down_ns).fold(asked, i32::max);
                self.remember(now_ns, asked, |at_ns| at_ns < up_ns && at_ns < down_ns);
                // Up first, so that the highest wins where the two windows contradict each other.
                current.max(lowest).min(highest)
            }
        }
    }

    fn within(&self, counts: impl Fn(i64) -> bool) -> impl Iterator<Item = i32> {
        self.recommendations.iter().filter(move |(at_ns, _)| counts(*at_ns)).map(|&(_, replicas)| replicas)
    }

    fn remember(&mut self, now_ns: i64, replicas: i32, is_old: impl Fn(i64) -> bool) {
        self.recommendations.retain(|&(at_ns, _)| !is_old(at_ns));
        self.recommendations.push((now_ns, replicas));
    }

    /// How far from `current` the rules of its direction let `asked` go.
    pub(crate) fn limit(&self, behavior: &Behavior, now_ns: i64, current: i32, asked: i32) -> i32 {
        if asked > current {
            let most = self.most(&behavior.up, now_ns, current).max(current);
            return asked.min(most);
        }
        if asked < current {
            let least = self.least(&behavior.down, now_ns, current).min(current);
            return asked.max(least);
        }
        asked
    }

    fn most(&self, rules: &Rules, now_ns: i64, current: i32) -> i32 {
        let limits = rules.policies.iter().map(|limit| {
            let start = self.start_of(limit, now_ns, current);
            match limit.kind {
                LimitKind::Pods => start.saturating_add(limit.value),
                LimitKind::Percent => (f64::from(start) * (1.0 + f64::from(limit.value) / 100.0)).ceil() as i32,
            }
        });
        match rules.select {
            Select::Disabled => current,
            Select::Min => limits.fold(i32::MAX, i32::min),
            Select::Max => limits.fold(i32::MIN, i32::max),
        }
    }

    fn least(&self, rules: &Rules, now_ns: i64, current: i32) -> i32 {
        let limits = rules.policies.iter().map(|limit| {
            let start = self.start_of(limit, now_ns, current);
            match limit.kind {
                LimitKind::Pods => start.saturating_sub(limit.value),
                LimitKind::Percent => (f64::from(start) * (1.0 - f64::from(limit.value) / 100.0)) as i32,
            }
        });
        match rules.select {
            Select::Disabled => current,
            Select::Min => limits.fold(i32::MIN, i32::max),
            Select::Max => limits.fold(i32::MAX, i32::min),
        }
    }

    /// Replicas at the start of a limit's period.
    fn start_of(&self, limit: &Limit, now_ns: i64, current: i32) -> i32 {
        let cutoff_ns = now_ns - i64::from(limit.period_s) * NS_PER_S;
        let changed = |changes: &[Change]| -> i32 {
            changes.iter().filter(|change| change.at_ns > cutoff_ns).map(|change| change.replicas).sum()
        };
        current - changed(&self.ups) + changed(&self.downs)
    }

    /// The replicas were changed.
    pub(crate) fn note(&mut self, behavior: &Behavior, now_ns: i64, before: i32, after: i32) {
        let (changes, rules) =
            if after > before { (&mut self.ups, &behavior.up) } else { (&mut self.downs, &behavior.down) };
        let longest_s = rules.policies.iter().map(|limit| limit.period_s).max().unwrap_or(0);
        let cutoff_ns = now_ns - i64::from(longest_s) * NS_PER_S;
        for change in &mut *changes {
            change.is_outdated |= change.at_ns < cutoff_ns;
        }
        let change = Change { replicas: (after - before).abs(), at_ns: now_ns, is_outdated: false };
        // The last one only: the others stay, and count where the other direction looks further back.
        match changes.iter_mut().rev().find(|change| change.is_outdated) {
            Some(old) => *old = change,
            None => changes.push(change),
        }
    }
}
