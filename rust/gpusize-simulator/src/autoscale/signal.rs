//! Metrics as queries make them: a part of `PromQL` over what was scraped. A value that is not there is not 0.

use serde::{Deserialize, Serialize};

use super::meters::Histogram;
use super::scrapes::{Sample, Scrapes, Target};
use crate::config::in_range;
use crate::{SimError, seconds};

/// A metric, made from what was scraped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// A quantity over time and targets.
    Series(Series),
    /// A quantile of a histogram.
    Quantile(Quantile),
    /// A number.
    Number(f64),
    /// Two of them; absent where one of them is.
    Arithmetic {
        /// What is made of them.
        operator: Operator,
        /// The first.
        left: Box<Signal>,
        /// The second.
        right: Box<Signal>,
    },
    /// The first; where it is absent, the second (`or`).
    Or(Box<Signal>, Box<Signal>),
    /// Something of each replica by itself, and what is made of those values.
    Over {
        /// What is made of them.
        across: Across,
        /// What each has.
        each: Box<Signal>,
    },
}

/// What is made of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
}

/// A quantity over time and targets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// What is scraped of each replica, or of the gateway.
    pub quantity: Quantity,
    /// What is made of its samples.
    #[serde(default)]
    pub over_time: OverTime,
    /// How far back samples count; the last one counts for so long, too.
    #[serde(default = "lookback_s")]
    pub window_s: f64,
    /// What is made of the replicas' values; of no meaning where the policy wants one of each pod.
    #[serde(default)]
    pub across: Across,
}

/// A quantile of what a histogram has counted lately, by linear interpolation within a bucket as Prometheus does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantile {
    /// Which one, between 0 and 1.
    pub q: f64,
    /// Of what.
    pub histogram: Histogram,
    /// Over the last so many seconds.
    pub window_s: f64,
    /// What is made of the replicas' quantiles; null: one quantile of what all have counted.
    #[serde(default)]
    pub across: Option<Across>,
}

/// What is scraped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Requests at work.
    Running,
    /// Requests that wait.
    Waiting,
    /// Both.
    InFlight,
    /// Share of the KV cache that is held.
    CacheUsage,
    /// Requests that have come to a replica, since the start.
    Requests,
    /// Seconds at work, since the start: its rate is the utilization.
    Busy,
    /// Tokens of prompts that were worked off, since the start.
    PromptTokens,
    /// Tokens that were made, since the start.
    OutputTokens,
    /// Tokens of the prompts of the requests that a replica has.
    InFlightTokens,
    /// Requests that the gateway holds as no replica takes any.
    Held,
    /// Requests that have come to the gateway, since the start.
    Arrived,
    /// Requests that the gateway has given to a replica, since the start.
    Dispatched,
    /// Requests that replicas have, as the gateway sees them: none is 0.
    GatewayInFlight,
    /// Requests that have come and not been answered, those that are held too, as the gateway sees them.
    Unanswered,
    /// Replicas that take requests, as the gateway sees them.
    ReadyReplicas,
    /// Of a histogram the sum, since the start.
    Sum(Histogram),
    /// Of a histogram the count, since the start.
    Count(Histogram),
}

impl Quantity {
    fn is_counter(self) -> bool {
        matches!(
            self,
            Self::Requests
                | Self::Busy
                | Self::PromptTokens
                | Self::OutputTokens
                | Self::Arrived
                | Self::Dispatched
                | Self::Sum(_)
                | Self::Count(_)
        )
    }

    fn is_of_gateway(self) -> bool {
        match self {
            Self::Held
            | Self::Arrived
            | Self::Dispatched
            | Self::GatewayInFlight
            | Self::Unanswered
            | Self::ReadyReplicas => true,
            Self::Sum(histogram) | Self::Count(histogram) => histogram.is_of_gateway(),
            _ => false,
        }
    }

    fn needs_tokens(self) -> bool {
        match self {
            Self::CacheUsage | Self::PromptTokens | Self::OutputTokens | Self::InFlightTokens => true,
            Self::Sum(histogram) | Self::Count(histogram) => histogram.needs_tokens(),
            _ => false,
        }
    }

    fn needs_meters(self) -> bool {
        self != Self::CacheUsage && (self.needs_tokens() || matches!(self, Self::Sum(_) | Self::Count(_)))
    }
}

/// What is made of a replica's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverTime {
    /// The last one.
    #[default]
    Last,
    /// `avg_over_time`.
    Average,
    /// `max_over_time`.
    Max,
    /// `rate`: the increase from the first to the last, by the time between them.
    Rate,
}

/// What is made of the replicas' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Across {
    /// `sum`.
    #[default]
    Sum,
    /// `avg`.
    Average,
    /// `max`.
    Max,
    /// `min`.
    Min,
    /// `count`.
    Count,
}

impl Across {
    /// Of the values that are there; absent without any.
    fn of(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        let mut values = values.peekable();
        values.peek()?;
        Some(match self {
            Self::Sum => values.sum(),
            Self::Average => {
                let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
                sum / count
            }
            Self::Max => values.fold(f64::NEG_INFINITY, f64::max),
            Self::Min => values.fold(f64::INFINITY, f64::min),
            Self::Count => values.count() as f64,
        })
    }
}

/// Prometheus takes the last sample of five minutes for that of now.
fn lookback_s() -> f64 {
    300.0
}

impl Signal {
    pub(super) fn validate(&self, field: &str, has_tokens: bool) -> Result<(), SimError> {
        let lacks = |field: &str| Err(SimError::value(field, "is not simulated: such replicas have no tokens"));
        match self {
            Self::Series(series) => {
                in_range(&format!("{field}.window_s"), series.window_s, 1e-3, 86_400.0)?;
                if series.quantity.needs_tokens() && !has_tokens {
                    return lacks(&format!("{field}.quantity"));
                }
                if series.quantity.is_counter() != (series.over_time == OverTime::Rate) {
                    let problem = "must be rate for counters, and only for them";
                    return Err(SimError::value(&format!("{field}.over_time"), problem));
                }
                Ok(())
            }
            Self::Quantile(quantile) => {
                in_range(&format!("{field}.window_s"), quantile.window_s, 1e-3, 86_400.0)?;
                in_range(&format!("{field}.q"), quantile.q, 0.0, 1.0)?;
                if quantile.histogram.needs_tokens() && !has_tokens {
                    return lacks(&format!("{field}.histogram"));
                }
                Ok(())
            }
            Self::Number(value) => in_range(field, *value, -1e12, 1e12),
            Self::Arithmetic { left, right, .. } | Self::Or(left, right) => {
                left.validate(field, has_tokens)?;
                right.validate(field, has_tokens)
            }
            Self::Over { each, .. } => {
                if !each.is_of_pods() {
                    let problem = "is one of each replica, and the gateway has none of them";
                    return Err(SimError::value(field, problem));
                }
                each.validate(field, has_tokens)
            }
        }
    }

    fn any(&self, is: &dyn Fn(&Self) -> bool) -> bool {
        match self {
            Self::Arithmetic { left, right, .. } | Self::Or(left, right) => left.any(is) || right.any(is),
            Self::Over { each, .. } => each.any(is),
            one => is(one),
        }
    }

    /// Whether it is made of what each replica tells of itself, and of nothing else.
    pub(super) fn is_of_pods(&self) -> bool {
        let of_gateway = |each: &Self| match each {
            Self::Series(series) => series.quantity.is_of_gateway(),
            Self::Quantile(quantile) => quantile.histogram.is_of_gateway(),
            _ => false,
        };
        !self.any(&of_gateway)
    }

    /// Whether servers have to count for it.
    pub(crate) fn needs_meters(&self) -> bool {
        self.any(&|each| match each {
            Self::Series(series) => series.quantity.needs_meters(),
            Self::Quantile(_) => true,
            _ => false,
        })
    }

    pub(super) fn needs(&self, histogram: Histogram) -> bool {
        self.any(&|each| match each {
            Self::Series(series) => {
                matches!(series.quantity, Quantity::Sum(found) | Quantity::Count(found) if found == histogram)
            }
            Self::Quantile(quantile) => quantile.histogram == histogram,
            _ => false,
        })
    }

    pub(super) fn longest_window_s(&self) -> f64 {
        match self {
            Self::Series(series) => series.window_s,
            Self::Quantile(quantile) => quantile.window_s,
            Self::Number(_) => 0.0,
            Self::Arithmetic { left, right, .. } | Self::Or(left, right) => {
                left.longest_window_s().max(right.longest_window_s())
            }
            Self::Over { each, .. } => each.longest_window_s(),
        }
    }

    /// What it comes to; `None` where it is absent.
    pub(super) fn value(&self, scrapes: &Scrapes, at_ns: i64) -> Option<f64> {
        self.within(scrapes, at_ns, None)
    }

    /// Of one replica alone.
    pub(super) fn of_pod(&self, scrapes: &Scrapes, gpu: usize, at_ns: i64) -> Option<f64> {
        self.within(scrapes, at_ns, Some(gpu))
    }

    fn within(&self, scrapes: &Scrapes, at_ns: i64, pod: Option<usize>) -> Option<f64> {
        match self {
            Self::Series(series) => series.value(scrapes, at_ns, pod),
            Self::Quantile(quantile) => quantile.value(scrapes, at_ns, pod),
            Self::Number(value) => Some(*value),
            Self::Arithmetic { operator, left, right } => {
                let (left, right) = (left.within(scrapes, at_ns, pod)?, right.within(scrapes, at_ns, pod)?);
                Some(match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide => left / right,
                })
            }
            Self::Or(first, other) => first.within(scrapes, at_ns, pod).or_else(|| other.within(scrapes, at_ns, pod)),
            Self::Over { each, .. } if pod.is_some() => each.within(scrapes, at_ns, pod),
            Self::Over { across, each } => {
                across.of((0..scrapes.replicas()).filter_map(|gpu| each.within(scrapes, at_ns, Some(gpu))))
            }
        }
    }
}

/// The targets that something is scraped of: the gateway, one replica, or all of them.
fn targets(of_gateway: bool, pod: Option<usize>, scrapes: &Scrapes) -> impl Iterator<Item = Target> {
    let replicas = match (of_gateway, pod) {
        (true, _) => 0..0,
        (false, Some(gpu)) => gpu..gpu + 1,
        (false, None) => 0..scrapes.replicas(),
    };
    of_gateway.then_some(Target::Gateway).into_iter().chain(replicas.map(Target::Replica))
}

impl Series {
    fn value(&self, scrapes: &Scrapes, at_ns: i64, pod: Option<usize>) -> Option<f64> {
        let targets = targets(self.quantity.is_of_gateway(), pod, scrapes);
        self.across.of(targets.filter_map(|target| self.of_target(scrapes, target, at_ns)))
    }

    fn of_target(&self, scrapes: &Scrapes, target: Target, at_ns: i64) -> Option<f64> {
        let of = |(at_ns, sample): (i64, &Sample)| (at_ns, scrapes.quantity(self.quantity, sample));
        let mut recent = scrapes.recent(target, self.window_s, at_ns);
        let (last_ns, last) = recent.next().map(of)?;
        match self.over_time {
            OverTime::Last => Some(last),
            OverTime::Average => {
                let add = |(sum, count), (_, value)| (sum + value, count + 1.0);
                let (sum, count) = recent.map(of).fold((last, 1.0), add);
                Some(sum / count)
            }
            OverTime::Max => Some(recent.map(of).fold(last, |most, (_, value)| most.max(value))),
            OverTime::Rate => {
                let (first_ns, first) = recent.last().map(of)?;
                Some((last - first) / seconds(last_ns - first_ns))
            }
        }
    }
}

impl Quantile {
    fn value(&self, scrapes: &Scrapes, at_ns: i64, pod: Option<usize>) -> Option<f64> {
        let targets = targets(self.histogram.is_of_gateway(), pod, scrapes);
        let mut rates = targets.filter_map(|target| self.rates(scrapes, target, at_ns));
        if let Some(across) = self.across {
            return across.of(rates.map(|rates| self.of_rates(&rates)));
        }
        let first = rates.next()?;
        let add = |mut sum: Vec<f64>, other: Vec<f64>| {
            sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += other);
            sum
        };
        Some(self.of_rates(&rates.fold(first, add)))
    }

    /// What came into each bucket, per second.
    fn rates(&self, scrapes: &Scrapes, target: Target, at_ns: i64) -> Option<Vec<f64>> {
        let mut recent = scrapes.recent(target, self.window_s, at_ns);
        let (last_ns, last) = recent.next()?;
        let (first_ns, first) = recent.last()?;
        let (last, first) = (scrapes.histogram(self.histogram, last)?, scrapes.histogram(self.histogram, first)?);
        let between_s = seconds(last_ns - first_ns);
        Some(last.0.iter().zip(&first.0).map(|(last, first)| (last - first) as f64 / between_s).collect())
    }

    /// `histogram_quantile`: NaN where nothing came.
    fn of_rates(&self, rates: &[f64]) -> f64 {
        let total: f64 = rates.iter().sum();
        if total <= 0.0 {
            return f64::NAN;
        }
        let (rank, bounds_s) = (self.q * total, self.histogram.bounds_s());
        let mut below = 0.0;
        for (place, &rate) in rates.iter().enumerate() {
            if below + rate >= rank {
                let Some(&upper_s) = bounds_s.get(place) else { break };
                let lower_s = if place == 0 { 0.0 } else { bounds_s[place - 1] };
                return if rate > 0.0 { lower_s + (upper_s - lower_s) * (rank - below) / rate } else { lower_s };
            }
            below += rate;
        }
        // Above all bounds: the largest is all that is known.
        bounds_s.last().copied().unwrap_or(f64::NAN)
    }
}
