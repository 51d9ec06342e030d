//! The schedule: which tick is due, which tier with it, and which ticks were missed.

use super::files::Tier;
use super::plan::Plan;

/// Which tick is next, and what the ones before were like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticks {
    /// Number of the last tick.
    pub last: i64,
    /// Number of those that were kept.
    pub kept: u64,
    /// Number of those that were not.
    pub missed: i64,
    late_sum_ns: i64,
    /// The latest.
    pub late_max_ns: i64,
}

impl Ticks {
    /// The tick of this moment: those between it and the last one were missed. Says the tier that is due.
    pub fn advance(&mut self, since_start_ns: i64, plan: &Plan) -> Tier {
        let now = (since_start_ns / plan.interval_ns).max(self.last + 1);
        let due = |every_ns: i64| {
            let every = (every_ns / plan.interval_ns).max(1);
            now / every != self.last / every
        };
        let tier = match (due(plan.slow_ns), due(plan.medium_ns)) {
            (true, _) => Tier::Slow,
            (false, true) => Tier::Medium,
            (false, false) => Tier::Fast,
        };
        // Of the tick that was waited for, however many were missed after it.
        let late_ns = (since_start_ns - (self.last + 1) * plan.interval_ns).max(0);
        self.missed += now - self.last - 1;
        self.kept += 1;
        self.late_sum_ns += late_ns;
        self.late_max_ns = self.late_max_ns.max(late_ns);
        self.last = now;
        tier
    }

    /// How late they were on average.
    pub fn late_mean_ns(&self) -> i64 {
        self.late_sum_ns / i64::try_from(self.kept.max(1)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(interval_ms: i64) -> Plan {
        let text =
            format!(r#"{{"interval_ns": {}, "sources": [{{"name": "a", "kind": "host"}}]}}"#, interval_ms * 1_000_000);
        serde_json::from_str(&text).expect("a plan")
    }

    #[test]
    fn ticks_that_were_missed_are_counted_and_tiers_are_not() {
        let plan = plan(20);
        let mut clock = Ticks::default();
        let ms = 1_000_000;
        assert_eq!(clock.advance(20 * ms + 5, &plan), Tier::Fast);
        assert_eq!((clock.last, clock.missed, clock.late_max_ns), (1, 0, 5));
        // Ticks 2 to 5 were missed; the fifth would have been a medium one.
        assert_eq!(clock.advance(121 * ms, &plan), Tier::Medium);
        assert_eq!((clock.last, clock.missed, clock.late_max_ns), (6, 4, 81 * ms));
        assert_eq!(clock.advance(501 * ms, &plan), Tier::Slow);
        assert_eq!((clock.last, clock.missed, clock.kept), (25, 22, 3));
    }

    #[test]
    fn tiers_faster_than_the_ticks_are_those_of_the_ticks() {
        let plan = plan(2_000);
        let mut clock = Ticks::default();
        for k in 1..4 {
            assert_eq!(clock.advance(k * 2_000_000_000, &plan), Tier::Slow);
        }
    }
}
