//! How hard, how long and in which order a level loads its target: plain data, the same as JSON (docs/reference/engine.md).

use serde::{Deserialize, Serialize};

use gpusize_base::error::{Error, Result};

/// How hard a level loads its target.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadSpec {
    /// As many requests in flight as there are slots.
    Closed(Closed),
    /// Requests are due by a schedule, whatever the target does.
    Open(Open),
}

/// A closed loop: users that wait for their answers.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// Slots, at the end of the ramp where there is one.
    pub concurrency: u32,
    /// Slots at the start of the ramp; none: all at once.
    #[serde(default)]
    pub from: Option<u32>,
    /// How long the number of slots goes along a straight line from `from` to `concurrency`.
    #[serde(default)]
    pub ramp_ns: i64,
    /// Pause between a response and the next request of its slot.
    #[serde(default)]
    pub think: Think,
    /// How the slots begin.
    #[serde(default)]
    pub start: Start,
    /// Time over which new slots start; none: the residence time that the engine measured.
    #[serde(default)]
    pub stagger_ns: Option<i64>,
    /// What a slot sends, one after the other.
    #[serde(default)]
    pub unit: Unit,
}

/// An open loop: arrivals by schedule.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// What is added up to the schedule; at least one.
    pub streams: Vec<Stream>,
    /// Connections opened before the start; all there are, unless `overload` lets them grow.
    #[serde(default = "connections")]
    pub connections: u32,
    /// Where they grow: at most so many.
    #[serde(default)]
    pub max_connections: Option<u32>,
    /// At most this many due requests wait for a connection, over all workers; more are shed.
    #[serde(default = "queue")]
    pub queue: usize,
    /// What becomes of a due request that finds no free connection.
    #[serde(default)]
    pub overload: Overload,
    /// What an arrival is.
    #[serde(default)]
    pub unit: Unit,
    /// Pause between the turns of a conversation.
    #[serde(default)]
    pub think: Think,
}

/// One stream of arrivals.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Written into the records' `stream`, and a key of the draws.
    #[serde(default)]
    pub id: u16,
    /// When its requests are due.
    pub arrivals: Arrivals,
    /// Its first moment, after the level's start.
    #[serde(default)]
    pub start_ns: i64,
    /// Its part of the dataset, as first row and number of rows; none: all.
    #[serde(default)]
    pub rows: Option<(u32, u32)>,
    /// The higher goes first among due requests that wait for a connection.
    #[serde(default)]
    pub priority: i32,
    /// It ends after so many arrivals.
    #[serde(default)]
    pub count: Option<u64>,
}

/// When a stream's requests are due.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// By a process at a rate that may change with time.
    Rate(Rate),
    /// At times that are handed over beside the plan.
    Plan,
}

/// A process at a rate that may change with time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The rate, piece by piece.
    pub phases: Vec<Phase>,
    /// The phases begin again when they end.
    #[serde(default)]
    pub repeat: bool,
    /// The process.
    #[serde(default)]
    pub process: Process,
    /// Of the gamma process: 1 over the squared coefficient of variation of its gaps.
    #[serde(default = "unit_shape")]
    pub shape: f64,
    /// Of the constant process: expected arrivals before the first one, so that a grid goes on over a cut.
    #[serde(default)]
    pub lead: f64,
}

/// A piece of a rate: a straight line.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// How long; none, only in the last: for ever.
    #[serde(default)]
    pub duration_ns: Option<i64>,
    /// Requests per second at its beginning.
    pub from: f64,
    /// Requests per second at its end.
    pub to: f64,
}

/// The arrival process of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Process {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponential gaps.
    Poisson,
    /// Gamma gaps: in bursts below a shape of 1, more even than chance above it.
    Gamma,
}

/// What becomes of a due request that finds no free connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Overload {
    /// It waits; beyond the bound it is shed.
    #[default]
    Queue,
    /// It is shed.
    Shed,
    /// It gets a new connection up to `max_connections`, and then waits.
    Grow,
}

/// What an arrival, or the turn of a slot, is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A request.
    #[default]
    Request,
    /// A conversation: its turns one after the other.
    Session,
}

/// A pause before the next request of a slot or a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Think {
    /// Always the same, in nanoseconds.
    Fixed(i64),
    /// Memoryless, with this mean.
    Exponential(i64),
    /// Anything from the first to the second alike.
    Uniform(i64, i64),
    /// With this median, and this standard deviation of the logarithm.
    Lognormal(i64, f64),
    /// As the dataset says of the row that comes next.
    Recorded,
}

impl Default for Think {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

/// How the slots of a closed loop begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// All at one instant, after the level before has drained.
    #[default]
    Burst,
    /// The running slots go on; new ones start spread over one residence time.
    Staggered,
}

const MOST_RATE: f64 = 1e8;

/// In which order dataset rows are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// As in the file, again from the start when it ends.
    #[default]
    File,
    /// A new permutation for each round through the file.
    Shuffled,
}

/// When a level stops asking for more.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct StopSpec {
    /// After this many requests.
    pub count: Option<u64>,
    /// After this time.
    pub duration_ns: Option<i64>,
    /// When more than this share of the finished requests failed.
    pub max_error_share: Option<f64>,
    /// But not before this many failures.
    pub min_errors: u64,
}

impl LoadSpec {
    /// A closed loop of so many slots that all start at once.
    pub fn closed(concurrency: u32) -> Self {
        Self::Closed(Closed {
            concurrency,
            from: None,
            ramp_ns: 0,
            think: Think::default(),
            start: Start::Burst,
            stagger_ns: None,
            unit: Unit::Request,
        })
    }

    /// Refuse what is invalid.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Closed(closed) => closed.check(),
            Self::Open(open) => open.check(),
        }
    }
}

fn bad(what: &str, place: &str, todo: &str) -> Result<()> {
    Err(Error::usage(what, place, todo))
}

impl Closed {
    /// Most slots that run at once.
    pub fn most(&self) -> u32 {
        self.concurrency.max(self.from.unwrap_or(0))
    }

    fn check(&self) -> Result<()> {
        if self.most() == 0 {
            return bad("a concurrency of 0 sends nothing", "load.closed.concurrency", "give 1 or more");
        }
        if self.ramp_ns < 0 || self.stagger_ns.is_some_and(|s| s < 0) {
            return bad("a time is negative", "load.closed", "give 0 or more");
        }
        self.think.check("load.closed.think")
    }
}

impl Open {
    /// Most connections there may be.
    pub fn most_connections(&self) -> u32 {
        match self.overload {
            Overload::Grow => self.max_connections.unwrap_or(self.connections).max(self.connections),
            Overload::Queue | Overload::Shed => self.connections,
        }
    }

    /// Most due requests that wait for a connection.
    pub fn most_waiting(&self) -> usize {
        if self.overload == Overload::Shed { 0 } else { self.queue }
    }

    /// Whether due times are handed over beside the plan.
    pub fn by_plan(&self) -> bool {
        self.streams.iter().any(|s| matches!(s.arrivals, Arrivals::Plan))
    }

    fn check(&self) -> Result<()> {
        if self.streams.is_empty() {
            return bad("no stream of arrivals", "load.open.streams", "give at least one");
        }
        if self.connections == 0 {
            return bad("no connection is allowed", "load.open.connections", "give 1 or more");
        }
        if self.by_plan() && !self.streams.iter().all(|s| matches!(s.arrivals, Arrivals::Plan)) {
            return bad("some streams have a plan and others a rate", "load.open.streams", "give all or none a plan");
        }
        for (place, stream) in self.streams.iter().enumerate() {
            if self.streams[..place].iter().any(|other| other.id == stream.id) {
                return bad("two streams have the same id", "load.open.streams.id", "number them");
            }
            if matches!(stream.arrivals, Arrivals::Plan) && stream.start_ns != 0 {
                let todo = "leave start_ns out: due times count from the level's start";
                return bad("a stream by plan is shifted", "load.open.streams.start_ns", todo);
            }
            if stream.start_ns < 0 {
                return bad("a stream starts before its level", "load.open.streams.start_ns", "give 0 or more");
            }
            if stream.rows.is_some_and(|(_, count)| count == 0) {
                return bad("a stream has no rows", "load.open.streams.rows", "give it at least one");
            }
            if let Arrivals::Rate(rate) = &stream.arrivals {
                rate.check()?;
            }
        }
        self.think.check("load.open.think")
    }
}

impl Rate {
    /// The same rate for ever.
    pub fn steady(per_s: f64, process: Process) -> Self {
        let phases = vec![Phase { duration_ns: None, from: per_s, to: per_s }];
        Self { phases, repeat: false, process, shape: unit_shape(), lead: 0.0 }
    }

    fn check(&self) -> Result<()> {
        let place = "load.open.streams.arrivals.rate";
        let Some((last, before)) = self.phases.split_last() else {
            return bad("the rate has no phase", place, "give at least one");
        };
        for rate in self.phases.iter().flat_map(|p| [p.from, p.to]) {
            if !(0.0..=MOST_RATE).contains(&rate) {
                return bad("a rate is not between 0 and 1e8 per second", place, "give a rate in that range");
            }
        }
        if self.phases.iter().any(|p| p.duration_ns.is_some_and(|d| d <= 0)) {
            return bad("a phase takes no time", place, "give a positive duration_ns");
        }
        if before.iter().any(|p| p.duration_ns.is_none()) || (self.repeat && last.duration_ns.is_none()) {
            return bad("a phase that never ends is followed by another", place, "give it a duration_ns");
        }
        if last.duration_ns.is_none() && last.from.to_bits() != last.to.to_bits() {
            return bad("a ramp never ends", place, "give it a duration_ns, or the same rate at both ends");
        }
        let idle = !self.phases.iter().any(|p| p.from > 0.0 || p.to > 0.0);
        if idle && (self.repeat || last.duration_ns.is_none()) {
            return bad("the rate is 0 for ever, so nothing would be sent", place, "give a positive rate, or an end");
        }
        if !(self.shape.is_finite() && self.shape > 0.0) {
            return bad("the shape of a gamma process must be positive", place, "give a number such as 0.5");
        }
        if !(0.0..=1.0).contains(&self.lead) {
            return bad("lead is not between 0 and 1", place, "give the part of a gap that is left");
        }
        Ok(())
    }
}

impl Think {
    fn check(self, place: &str) -> Result<()> {
        let fine = match self {
            Self::Fixed(ns) => ns >= 0,
            Self::Exponential(mean_ns) => mean_ns >= 0,
            Self::Uniform(low_ns, high_ns) => 0 <= low_ns && low_ns <= high_ns,
            Self::Lognormal(median_ns, sigma) => median_ns >= 0 && (0.0..=10.0).contains(&sigma),
            Self::Recorded => true,
        };
        if fine { Ok(()) } else { bad("a think time is out of range", place, "give times of 0 or more") }
    }
}

fn unit_shape() -> f64 {
    1.0
}
fn connections() -> u32 {
    64
}
fn queue() -> usize {
    10_000
}
