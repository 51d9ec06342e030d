//! Requests held against bounds as they end, so that no row has to be kept for it.

use serde::{Deserialize, Serialize};

use super::config::in_range;
use super::ledger::Request;
use super::{NS_PER_S, Outcome, SimError, ns, seconds};

/// What requests are held against.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Judge {
    /// One count each, and one for all of them together.
    pub bounds: Vec<Bound>,
    /// Count by time of this step as well, by when the requests were due; null: over the whole window alone.
    pub every_s: Option<f64>,
}

/// At most so long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Which of a request's times.
    pub metric: JudgedMetric,
    /// The longest that keeps it.
    pub bound_s: f64,
}

/// A time of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgedMetric {
    /// Due to end.
    Runtime,
    /// Sent to end.
    Service,
    /// Due to first token.
    Ttft,
    /// Mean gap between tokens.
    #[serde(alias = "tpot")]
    ItlMean,
}

/// How requests fared. Who ended otherwise than ok is over; who ended ok without having the metric is undetermined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Ended ok within the bound.
    pub within: u64,
    /// Ended later, or otherwise than ok.
    pub over: u64,
    /// Ended ok without the metric: no first token, or a single token.
    pub undetermined: u64,
}

/// What became of a [`Judge`]: counts over the counted requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// One per bound, in their order.
    pub bounds: Vec<Counts>,
    /// Within: all bounds kept; over: any missed.
    pub all: Counts,
    /// Seconds of each bound's metric, over the requests that are within it or over it and ended ok: a mean's bound is held against these.
    pub sums_s: Vec<f64>,
    /// Step by step where that was asked for.
    pub steps: Option<Steps>,
}

/// Counts by time. Step i goes from `i * every_s` to `(i + 1) * every_s`, from the start of the run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Steps {
    /// Length of a step.
    pub every_s: f64,
    /// Counted requests that were due in each step.
    pub requests: Vec<u64>,
    /// Of these, within each bound.
    pub within: Vec<Vec<u64>>,
    /// Of these, within all bounds.
    pub within_all: Vec<u64>,
    /// Seconds of each bound's metric, as in [`Judged::sums_s`].
    pub sums_s: Vec<Vec<f64>>,
}

impl Judge {
    /// Read and validate the JSON of a judge.
    pub fn from_json(text: &str) -> Result<Self, SimError> {
        let judge: Self = serde_json::from_str(text).map_err(|source| SimError::Json { what: "judge", source })?;
        judge.validate()?;
        Ok(judge)
    }

    /// Refuse bounds that nothing can be held against.
    pub fn validate(&self) -> Result<(), SimError> {
        for (place, bound) in self.bounds.iter().enumerate() {
            in_range(&format!("judge.bounds[{place}].bound_s"), bound.bound_s, 0.0, 1e9)?;
        }
        in_range("judge.every_s", self.every_s.unwrap_or(1.0), 1e-3, 1e9)
    }
}

impl JudgedMetric {
    /// In seconds, of a request that ended ok.
    fn of(self, request: &Request, end_ns: i64) -> Option<f64> {
        match self {
            Self::Runtime => Some(seconds(end_ns - request.due_ns)),
            Self::Service => Some(seconds(end_ns - request.sent_ns)),
            Self::Ttft => request.ttft_s(),
            Self::ItlMean => request.itl_mean_s(end_ns),
        }
    }
}

impl Counts {
    fn add(&mut self, within: Option<bool>) {
        match within {
            Some(true) => self.within += 1,
            Some(false) => self.over += 1,
            None => self.undetermined += 1,
        }
    }
}

/// The counts as they grow.
#[derive(Debug)]
pub(super) struct Verdicts {
    bounds: Vec<Bound>,
    step_ns: i64,
    judged: Judged,
}

impl Verdicts {
    pub(super) fn new(judge: &Judge) -> Self {
        let count = judge.bounds.len();
        let steps = |every_s| Steps {
            every_s,
            within: vec![Vec::new(); count],
            sums_s: vec![Vec::new(); count],
            ..Steps::default()
        };
        Self {
            bounds: judge.bounds.clone(),
            step_ns: judge.every_s.map_or(NS_PER_S as i64, ns),
            judged: Judged {
                bounds: vec![Counts::default(); count],
                all: Counts::default(),
                sums_s: vec![0.0; count],
                steps: judge.every_s.map(steps),
            },
        }
    }

    /// A counted request has ended.
    pub(super) fn add(&mut self, request: &Request, end_ns: i64) {
        let step = (request.due_ns / self.step_ns) as usize;
        let mut steps = self.judged.steps.as_mut();
        if let Some(steps) = steps.as_deref_mut() {
            steps.reach(step);
            steps.requests[step] += 1;
        }
        let ok = request.outcome == Outcome::Ok;
        let mut all = Some(ok);
        for (place, bound) in self.bounds.iter().enumerate() {
            let value_s = if ok { bound.metric.of(request, end_ns) } else { None };
            let within = if ok { value_s.map(|value_s| value_s <= bound.bound_s) } else { Some(false) };
            self.judged.bounds[place].add(within);
            self.judged.sums_s[place] += value_s.unwrap_or(0.0);
            if within == Some(false) || (within.is_none() && all == Some(true)) {
                all = within;
            }
            if let Some(steps) = steps.as_deref_mut() {
                steps.within[place][step] += u64::from(within == Some(true));
                steps.sums_s[place][step] += value_s.unwrap_or(0.0);
            }
        }
        self.judged.all.add(all);
        if let Some(steps) = steps
            && all == Some(true)
        {
            steps.within_all[step] += 1;
        }
    }

    pub(super) fn finish(self) -> Judged {
        self.judged
    }
}

impl Steps {
    fn reach(&mut self, step: usize) {
        if self.requests.len() <= step {
            self.requests.resize(step + 1, 0);
            self.within_all.resize(step + 1, 0);
            for within in &mut self.within {
                within.resize(step + 1, 0);
            }
            for sums_s in &mut self.sums_s {
                sums_s.resize(step + 1, 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(due_ns: i64, first_token_ns: i64, output: u32, outcome: Outcome) -> Request {
        Request { due_ns, sent_ns: due_ns, first_token_ns, output, outcome, ..Request::default() }
    }

    #[test]
    fn requests_are_counted_by_bound_and_by_step() {
        let text = r#"{"bounds": [{"metric": "runtime", "bound_s": 2.0}, {"metric": "tpot", "bound_s": 0.5}], "every_s": 10.0}"#;
        let mut verdicts = Verdicts::new(&Judge::from_json(text).unwrap());
        let second = 1_000_000_000;
        verdicts.add(&request(0, second, 3, Outcome::Ok), 2 * second);
        verdicts.add(&request(0, second, 2, Outcome::Ok), 2 * second);
        verdicts.add(&request(25 * second, 26 * second, 1, Outcome::Ok), 26 * second);
        verdicts.add(&request(25 * second, -1, 0, Outcome::Shed), 25 * second);
        let judged = verdicts.finish();
        let counts = |within, over, undetermined| Counts { within, over, undetermined };
        assert_eq!(judged.bounds, [counts(3, 1, 0), counts(1, 2, 1)]);
        assert_eq!(judged.all, counts(1, 2, 1));
        let steps = judged.steps.unwrap();
        assert_eq!((steps.requests, steps.within_all), (vec![2, 0, 2], vec![1, 0, 0]));
        assert_eq!(steps.within, [[2, 0, 1], [1, 0, 0]]);
        // Of the times of those that ended ok: 2, 2 and 1 s; gaps of 0.5 and 1 s, and none of a single token.
        assert_eq!((judged.sums_s, steps.sums_s), (vec![5.0, 1.5], vec![vec![4.0, 0.0, 1.0], vec![1.5, 0.0, 0.0]]));
    }

    #[test]
    fn judges_that_mean_nothing_are_refused() {
        for (text, needle) in [
            (r#"{"bounds": [{"metric": "speed", "bound_s": 1.0}]}"#, "unknown variant"),
            (r#"{"bounds": [{"metric": "ttft", "bound_s": -1.0}]}"#, "judge.bounds[0].bound_s"),
            (r#"{"every_s": 0.0}"#, "judge.every_s"),
        ] {
            let error = Judge::from_json(text).expect_err(text).to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
