//! When a level stops asking for more: pure rules over counts and time.

use std::str::FromStr;

use serde::Serialize;

use crate::error::Error;
use crate::spec::StopSpec;

/// Why no new request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Reason {
    /// All requests were sent.
    Count = 1,
    /// The time is over.
    Duration = 2,
    /// Too many failed.
    Errors = 3,
    /// The user asked for it.
    Stopped = 4,
    /// A worker of ours died.
    Failed = 5,
}

impl Reason {
    /// Back from its number.
    pub fn from_u8(code: u8) -> Option<Self> {
        [Self::Count, Self::Duration, Self::Errors, Self::Stopped, Self::Failed].into_iter().find(|r| *r as u8 == code)
    }
}

/// What a caller says when it ends a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Asked {
    /// The user has enough.
    #[default]
    Stopped = 1,
    /// Objectives were violated for too long.
    Slo = 2,
    /// The target cannot keep up.
    Saturation = 3,
    /// Too many failed, by a rule of the caller's own.
    Errors = 4,
}

impl Asked {
    /// Back from its number.
    pub fn from_u8(code: u8) -> Option<Self> {
        [Self::Stopped, Self::Slo, Self::Saturation, Self::Errors].into_iter().find(|a| *a as u8 == code)
    }

    /// The name in plans and outcomes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Slo => "slo",
            Self::Saturation => "saturation",
            Self::Errors => "errors",
        }
    }
}

impl FromStr for Asked {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Self::Stopped, Self::Slo, Self::Saturation, Self::Errors];
        all.into_iter().find(|asked| asked.name() == text).ok_or_else(|| {
            Error::usage(format!("{text:?} is no reason to stop"), "reason", "give stopped, slo, saturation or errors")
        })
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
    pub fn allows(&self, seq: u64, after_ns: i64) -> Result<(), Reason> {
        if seq >= self.count {
            Err(Reason::Count)
        } else if after_ns >= self.end_after_ns {
            Err(Reason::Duration)
        } else {
            Ok(())
        }
    }

    /// When the time is over, after the start.
    pub fn end_after_ns(&self) -> Option<i64> {
        (self.end_after_ns != i64::MAX).then_some(self.end_after_ns)
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
    fn what_callers_say_has_names() {
        for asked in [Asked::Stopped, Asked::Slo, Asked::Saturation, Asked::Errors] {
            assert_eq!((asked.name().parse().ok(), Asked::from_u8(asked as u8)), (Some(asked), Some(asked)));
        }
        assert!("bored".parse::<Asked>().is_err() && Asked::from_u8(0).is_none());
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
