//! When a level stops asking for more: pure rules over counts and time.

use serde::Serialize;

use crate::spec::StopSpec;
use gpusize_base::error::{Error, Result};

/// Why no new request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Reason {
    /// All requests were sent.
    Count = 1,
    /// The time is over.
    Duration = 2,
    /// Objectives were not met for too long.
    Slo = 3,
    /// The target cannot keep up.
    Saturation = 4,
    /// Too many failed.
    Errors = 5,
    /// The user asked for it.
    Stopped = 6,
    /// A worker of ours died.
    Failed = 7,
}

impl Reason {
    /// Back from its number.
    pub fn from_u8(code: u8) -> Option<Self> {
        use Reason::{Count, Duration, Errors, Failed, Saturation, Slo, Stopped};
        [Count, Duration, Slo, Saturation, Errors, Stopped, Failed].into_iter().find(|r| *r as u8 == code)
    }

    /// What a caller says when it ends a level.
    pub fn of_caller(name: &str) -> Result<Self> {
        match name {
            "stopped" => Ok(Self::Stopped),
            "slo" => Ok(Self::Slo),
            "saturation" => Ok(Self::Saturation),
            "errors" => Ok(Self::Errors),
            _ => {
                let todo = "give stopped, slo, saturation or errors";
                Err(Error::usage(format!("{name:?} is not a reason to stop"), "reason", todo))
            }
        }
    }
}

/// The rules of one level.
#[derive(Clone, Debug)]
pub struct Rules {
    count: u64,
    end_after_ns: i64,
    max_error_share: f64,
    min_errors: u64,
}

impl Rules {
    /// From the plan.
    pub fn new(spec: &StopSpec) -> Self {
        Self {
            count: spec.count.unwrap_or(u64::MAX),
            end_after_ns: spec.duration_ns.unwrap_or(i64::MAX),
            max_error_share: spec.max_error_share.unwrap_or(f64::INFINITY),
            min_errors: spec.min_errors.max(1),
        }
    }

    /// May request `seq` be sent, `after_ns` after the start?
    pub fn allows(&self, seq: u64, after_ns: i64) -> std::result::Result<(), Reason> {
        if seq >= self.count {
            Err(Reason::Count)
        } else if after_ns >= self.end_after_ns {
            Err(Reason::Duration)
        } else {
            Ok(())
        }
    }

    /// Is request `seq` one of those that were asked for?
    #[inline]
    pub fn counts(&self, seq: u64) -> bool {
        seq < self.count
    }

    /// Do these many failures among so many finished requests end the level?
    pub fn too_many(&self, failed: u64, finished: u64) -> bool {
        failed >= self.min_errors && failed as f64 > self.max_error_share * finished as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Arrivals;
    use crate::spec::{Process, Rate};

    #[test]
    fn count_and_time_bound_a_level() {
        let rules = Rules::new(&StopSpec { count: Some(3), duration_ns: Some(100), ..StopSpec::default() });
        assert_eq!(rules.allows(2, 99), Ok(()));
        assert_eq!(rules.allows(3, 0), Err(Reason::Count));
        assert_eq!(rules.allows(0, 100), Err(Reason::Duration));
        assert!(!rules.too_many(1000, 1000), "no share was asked for");
    }

    const DAY_NS: i64 = 86_400_000_000_000;

    /// How many arrivals the rules let through, and the last one's due time.
    fn until_stopped(rules: &Rules, rate: &Rate) -> (u64, i64) {
        let arrivals = Arrivals::new(rate, 3, 0).take_while(|(seq, due)| rules.allows(*seq, *due).is_ok());
        arrivals.fold((0, 0), |(n, _), (_, due)| (n + 1, due))
    }

    #[test]
    fn a_day_of_schedule_ends_on_its_boundary_in_virtual_time() {
        let rules = Rules::new(&StopSpec { duration_ns: Some(DAY_NS), ..StopSpec::default() });
        for (process, low, high) in [
            (Process::Constant, 864_000, 864_000),
            (Process::Poisson, 860_000, 868_000),
            (Process::Gamma, 860_000, 868_000),
        ] {
            let (count, last) = until_stopped(&rules, &Rate { shape: 0.5, ..Rate::steady(10.0, process) });
            assert!((low..=high).contains(&count) && last < DAY_NS && last > DAY_NS - 10_000_000_000, "{count} {last}");
        }
    }

    #[test]
    fn a_day_of_stages_goes_over_at_each_boundary_in_virtual_time() {
        // Every hour another rate, as levels of their own: each begins where the one before has ended, in the grid's step.
        let rules = Rules::new(&StopSpec { duration_ns: Some(DAY_NS / 24), ..StopSpec::default() });
        let (mut due, mut lead) = (0, 0.0);
        for hour in 0..24_u32 {
            let per_s = 0.7 + 0.3 * f64::from(hour);
            let (count, last) = until_stopped(&rules, &Rate { lead, ..Rate::steady(per_s, Process::Constant) });
            lead = count as f64 + lead - 3600.0 * per_s;
            due += count;
            assert!((0.0..1.0 + 1e-9).contains(&lead) && last < DAY_NS / 24, "{hour}: {lead} {last}");
            assert!(last as f64 >= 3600e9 - 1e9 / per_s - 1.0, "{hour}: {last}");
        }
        // The sum of 3600 (0.7 + 0.3 h) over the day.
        assert_eq!(due, 358_560);
    }

    #[test]
    fn what_callers_say_is_known_or_refused() {
        for code in 0..=u8::MAX {
            assert!(Reason::from_u8(code).is_none_or(|reason| reason as u8 == code));
        }
        let known = ["stopped", "slo", "saturation", "errors"].map(|name| Reason::of_caller(name).ok());
        let wanted = [Reason::Stopped, Reason::Slo, Reason::Saturation, Reason::Errors].map(Some);
        assert_eq!(known, wanted);
        assert!(Reason::of_caller("failed").is_err() && Reason::of_caller("bored").is_err());
    }

    #[test]
    fn the_first_failure_or_a_share_ends_it() {
        let strict = Rules::new(&StopSpec { max_error_share: Some(0.0), ..StopSpec::default() });
        assert!(strict.too_many(1, 1) && strict.too_many(1, 1_000_000) && !strict.too_many(0, 5));
        let spec = StopSpec { max_error_share: Some(0.01), min_errors: 5, ..StopSpec::default() };
        let share = Rules::new(&spec);
        assert!(!share.too_many(4, 4) && share.too_many(5, 499) && !share.too_many(5, 500));
    }
}
