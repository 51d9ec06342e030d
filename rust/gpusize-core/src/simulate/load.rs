//! The load on a cluster in virtual time.

use serde::{Deserialize, Serialize};

use super::config::in_range;
use super::{Length, SimError};

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
        }
    }

    /// Read and validate the JSON of a load.
    pub fn from_json(text: &str) -> Result<Self, SimError> {
        let load: Self = serde_json::from_str(text).map_err(|source| SimError::Json { what: "load", source })?;
        load.validate()?;
        Ok(load)
    }

    /// Refuse what cannot be driven, naming the field.
    pub fn validate(&self) -> Result<(), SimError> {
        match (self.requests, self.duration_s) {
            (None, None) => {
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
        match self.arrivals {
            Arrivals::Closed { users: 0, .. } => {
                Err(SimError::value("load.arrivals.closed.users", "must be at least 1"))
            }
            Arrivals::Closed { think_s, stagger_s, .. } => {
                in_range("load.arrivals.closed.think_s", think_s, 0.0, 1e9)?;
                in_range("load.arrivals.closed.stagger_s", stagger_s.unwrap_or(0.0), 0.0, 1e9)
            }
            Arrivals::Open { rate_per_s, .. } => in_range("load.arrivals.open.rate_per_s", rate_per_s, 1e-9, 1e8),
        }
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
    fn loads_that_cannot_be_driven_are_refused() {
        for (text, needle) in [
            (r#"{"arrivals": {"closed": {"users": 8}}}"#, "needs requests"),
            (r#"{"arrivals": {"closed": {"users": 0}}, "requests": 1}"#, "users"),
            (r#"{"arrivals": {"closed": {"users": 1}}, "requests": 0}"#, "load.requests"),
            (r#"{"arrivals": {"closed": {"users": 1}}, "duration_s": 0.0}"#, "load.duration_s"),
            (r#"{"arrivals": {"closed": {"users": 1, "think_s": -1.0}}, "requests": 1}"#, "think_s"),
            (r#"{"arrivals": {"open": {"rate_per_s": 0.0}}, "requests": 1}"#, "rate_per_s"),
            (r#"{"arrivals": {"open": {"rate": 1.0}}, "requests": 1}"#, "unknown field"),
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
