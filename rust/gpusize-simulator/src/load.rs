//! The load on a cluster in virtual time.

use gpusize_load::spec;
use serde::{Deserialize, Serialize};

use super::config::in_range;
use super::{Length, SimError, ns};

/// Who asks, how often and for how long. Requests that are due within the window are counted; the load goes on until all of
/// them have ended, so that none of them sees the cluster drain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Closed or open loop.
    pub arrivals: Arrivals,
    /// The window closes when so many requests are counted.
    #[serde(default)]
    pub requests: Option<u64>,
    /// The window closes so long after it opened.
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// Requests before the window opens.
    #[serde(default)]
    pub warmup_requests: u64,
    /// Time before the window opens.
    #[serde(default)]
    pub warmup_s: f64,
    /// Length of prompts.
    #[serde(default = "default_prompt")]
    pub prompt_tokens: Length,
    /// Length of answers; null: as the cluster is configured.
    #[serde(default)]
    pub output_tokens: Option<Length>,
    /// Open loops: the client's connections, of which each carries one request at a time; null: as many as it takes.
    #[serde(default)]
    pub connections: Option<u32>,
    /// With `connections`: how many due requests may wait for one, in order; those beyond are shed. Null: any number.
    #[serde(default)]
    pub queue: Option<u64>,
}

/// Requests that are handed over beside the load, for [`Arrivals::Plan`]; one entry each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Plan<'a> {
    /// When each is due, in nanoseconds from the start; ascending.
    pub due_ns: &'a [i64],
    /// Tokens of the prompts; none: as the load draws them.
    pub prompt_tokens: Option<&'a [u32]>,
    /// Tokens of the answers; none: as the load or the cluster draws them.
    pub output_tokens: Option<&'a [u32]>,
}

impl Plan<'_> {
    pub(super) fn validate(&self) -> Result<(), SimError> {
        if self.due_ns.first().is_some_and(|&first_ns| first_ns < 0) || !self.due_ns.is_sorted() {
            return Err(SimError::value("plan.due_ns", "must be ascending, from 0"));
        }
        for (field, tokens) in [("plan.prompt_tokens", self.prompt_tokens), ("plan.output_tokens", self.output_tokens)]
        {
            let Some(tokens) = tokens else { continue };
            if tokens.len() != self.due_ns.len() {
                let problem = format!("must be one per due time ({}), not {}", self.due_ns.len(), tokens.len());
                return Err(SimError::value(field, problem));
            }
            if tokens.contains(&0) {
                return Err(SimError::value(field, "must be at least 1 each"));
            }
        }
        Ok(())
    }
}

/// When requests are due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// Each of so many users asks again when the answer is complete and thought about.
    Closed {
        /// Users.
        users: u32,
        /// Mean time from an answer to the next question.
        #[serde(default)]
        think_s: f64,
        /// How think times spread.
        #[serde(default)]
        think: Think,
        /// How users begin.
        #[serde(default)]
        start: Start,
        /// Over how long the users' first requests are spread; null: over an estimate of one residence time.
        #[serde(default)]
        stagger_s: Option<f64>,
    },
    /// Requests come whether or not earlier ones are answered.
    Open {
        /// Mean rate.
        rate_per_s: f64,
        /// How the gaps spread.
        #[serde(default)]
        process: Process,
    },
    /// Requests come when a [`Plan`] says, whether or not earlier ones are answered. Without `requests` and `duration_s` the window closes
    /// behind the last.
    Plan,
}

/// Spread of think times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Think {
    /// Always the mean.
    #[default]
    Constant,
    /// Memoryless.
    Exponential,
}

/// How the users of a closed loop begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// One after the other.
    #[default]
    Staggered,
    /// All at once.
    Burst,
}

/// Spread of the gaps of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// Memoryless.
    #[default]
    Poisson,
    /// All gaps equal.
    Constant,
}

fn default_prompt() -> Length {
    Length::Fixed { tokens: 100 }
}

impl Load {
    /// A closed loop of `users` without think time, staggered, with `requests` counted after as many as two per user.
    pub fn closed(users: u32, requests: u64) -> Self {
        Self {
            arrivals: Arrivals::Closed {
                users,
                think_s: 0.0,
                think: Think::default(),
                start: Start::default(),
                stagger_s: None,
            },
            requests: Some(requests),
            duration_s: None,
            warmup_requests: 2 * u64::from(users),
            warmup_s: 0.0,
            prompt_tokens: default_prompt(),
            output_tokens: None,
            connections: None,
            queue: None,
        }
    }

    /// Read and validate the JSON of a load.
    pub fn from_json(text: &str) -> Result<Self, SimError> {
        let load: Self = serde_json::from_str(text).map_err(|source| SimError::Json { what: "load", source })?;
        load.validate()?;
        Ok(load)
    }

    /// The rate of an open loop, as the engine takes it.
    pub(super) fn rate(&self) -> Option<spec::Rate> {
        let Arrivals::Open { rate_per_s, process } = self.arrivals else { return None };
        Some(spec::Rate {
            phases: vec![spec::Phase { duration_ns: None, from: rate_per_s, to: rate_per_s }],
            repeat: false,
            process: match process {
                Process::Poisson => spec::Process::Poisson,
                Process::Constant => spec::Process::Constant,
            },
            shape: 1.0,
            lead: 0.0,
        })
    }

    /// The pauses of users, as the engine takes them.
    pub(super) fn think(&self) -> spec::Think {
        match self.arrivals {
            Arrivals::Closed { think_s, think: Think::Constant, .. } => spec::Think::Fixed(ns(think_s)),
            Arrivals::Closed { think_s, think: Think::Exponential, .. } => spec::Think::Exponential(ns(think_s)),
            Arrivals::Open { .. } | Arrivals::Plan => spec::Think::default(),
        }
    }

    /// Over how long the first requests of a closed loop are spread: as asked, or over one residence time with the users shared out over
    /// so many replicas; `residence_s` takes how many each then has.
    pub(super) fn stagger_ns(&self, replicas: u32, residence_s: impl FnOnce(u32) -> f64) -> i64 {
        match self.arrivals {
            Arrivals::Closed { users, start: Start::Staggered, stagger_s, .. } => {
                ns(stagger_s.unwrap_or_else(|| residence_s(users.div_ceil(replicas))))
            }
            _ => 0,
        }
    }

    /// Refuse what cannot be driven, naming the field.
    pub fn validate(&self) -> Result<(), SimError> {
        match (self.requests, self.duration_s) {
            (None, None) if self.arrivals != Arrivals::Plan => {
                return Err(SimError::value("load", "needs requests, duration_s or both, to come to an end"));
            }
            (Some(0), _) => return Err(SimError::value("load.requests", "must be at least 1")),
            (_, Some(duration)) => in_range("load.duration_s", duration, 1e-6, 1e9)?,
            _ => {}
        }
        in_range("load.warmup_s", self.warmup_s, 0.0, 1e9)?;
        self.prompt_tokens.validate("load.prompt_tokens")?;
        if let Some(output_tokens) = &self.output_tokens {
            output_tokens.validate("load.output_tokens")?;
        }
        self.validate_connections()?;
        match self.arrivals {
            Arrivals::Closed { users: 0, .. } => {
                Err(SimError::value("load.arrivals.closed.users", "must be at least 1"))
            }
            Arrivals::Closed { think_s, stagger_s, .. } => {
                in_range("load.arrivals.closed.think_s", think_s, 0.0, 1e9)?;
                in_range("load.arrivals.closed.stagger_s", stagger_s.unwrap_or(0.0), 0.0, 1e9)
            }
            Arrivals::Open { rate_per_s, .. } => in_range("load.arrivals.open.rate_per_s", rate_per_s, 1e-9, 1e8),
            Arrivals::Plan => Ok(()),
        }
    }

    fn validate_connections(&self) -> Result<(), SimError> {
        if self.connections == Some(0) {
            return Err(SimError::value("load.connections", "must be at least 1"));
        }
        if self.connections.is_some() && matches!(self.arrivals, Arrivals::Closed { .. }) {
            return Err(SimError::value(
                "load.connections",
                "bounds open loops; a closed one has a connection per user",
            ));
        }
        if self.queue.is_some() && self.connections.is_none() {
            return Err(SimError::value("load.queue", "needs load.connections, for which its requests wait"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_json_is_enough_and_goes_round() {
        let load = Load::from_json(r#"{"arrivals": {"closed": {"users": 8}}, "requests": 100}"#).unwrap();
        assert_eq!(load, Load { warmup_requests: 0, ..Load::closed(8, 100) });
        assert_eq!(Load::from_json(&serde_json::to_string(&load).unwrap()).unwrap(), load);
        let open = r#"{"arrivals": {"open": {"rate_per_s": 5.0, "process": "constant"}}, "duration_s": 3.0}"#;
        assert!(Load::from_json(open).is_ok());
    }

    #[test]
    fn a_plan_needs_no_end_and_is_checked() {
        let load = Load::from_json(r#"{"arrivals": "plan", "connections": 4, "queue": 0}"#).unwrap();
        assert_eq!((load.arrivals, load.connections, load.queue), (Arrivals::Plan, Some(4), Some(0)));
        let plan = Plan { due_ns: &[0, 5, 5], ..Plan::default() };
        assert!(plan.validate().is_ok());
        for (bad, needle) in [
            (Plan { due_ns: &[5, 0], ..plan }, "plan.due_ns"),
            (Plan { due_ns: &[-1], ..plan }, "plan.due_ns"),
            (
                Plan { prompt_tokens: Some(&[1]), ..plan },
                "plan.prompt_tokens of the simulated cluster must be one per due",
            ),
            (Plan { output_tokens: Some(&[1, 0, 1]), ..plan }, "plan.output_tokens"),
        ] {
            let error = bad.validate().expect_err(needle).to_string();
            assert!(error.contains(needle), "{error}");
        }
    }

    #[test]
    fn loads_that_cannot_be_driven_are_refused() {
        for (text, needle) in [
            (r#"{"arrivals": {"closed": {"users": 8}}}"#, "needs requests"),
            (r#"{"arrivals": {"closed": {"users": 0}}, "requests": 1}"#, "users"),
            (r#"{"arrivals": {"closed": {"users": 1}}, "requests": 0}"#, "load.requests"),
            (r#"{"arrivals": {"closed": {"users": 1}}, "duration_s": 0.0}"#, "load.duration_s"),
            (r#"{"arrivals": {"closed": {"users": 1, "think_s": -1.0}}, "requests": 1}"#, "think_s"),
            (r#"{"arrivals": {"open": {"rate_per_s": 0.0}}, "requests": 1}"#, "rate_per_s"),
            (r#"{"arrivals": {"open": {"rate": 1.0}}, "requests": 1}"#, "unknown field"),
            (r#"{"arrivals": {"open": {"rate_per_s": 1.0}}, "requests": 1, "queue": 5}"#, "load.queue"),
            (r#"{"arrivals": "plan", "connections": 0}"#, "load.connections"),
            (r#"{"arrivals": {"closed": {"users": 1}}, "requests": 1, "connections": 1}"#, "load.connections"),
            (
                r#"{"arrivals": {"closed": {"users": 1}}, "requests": 1, "prompt_tokens": {"fixed": {"tokens": 0}}}"#,
                "load.prompt",
            ),
        ] {
            let error = Load::from_json(text).expect_err(text).to_string();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }
}
