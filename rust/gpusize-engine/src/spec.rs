//! What the engine is told: target, response, body segments, level. Plain data, the same as JSON (docs/reference/engine.md).

mod mix;
mod response;
mod times;

use serde::{Deserialize, Serialize};

use crate::wire::trace;
use gpusize_base::error::{Error, Result};
pub use gpusize_load::spec::{
    Arrivals, Closed, LoadSpec, Open, Order, Overload, Phase, Process, Rate, Start, StopSpec, Stream, Think, Unit,
};
pub use mix::{Mix, RequestSpec};
pub use response::{
    CallsSpec, Condition, ConditionalPlace, ContentSign, End, Endings, Framing, JsonRule, Literal, Place, Places,
    ResponseSpec, Sign, Signs,
};
pub use times::{DocumentTime, FieldTime, TimePlace, Unit as TimeUnit};

/// Where requests go and how a response is read.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// Host name or address, without brackets for IPv6.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS settings, or none for plain text.
    #[serde(default)]
    pub tls: Option<TlsSpec>,
    /// HTTP method.
    #[serde(default = "post")]
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers besides `Host`, `Content-Length` and `Connection`.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Bound on connect and TLS handshake together.
    #[serde(default = "five_seconds")]
    pub connect_timeout_ns: i64,
    /// Bound from the first write to the last byte.
    #[serde(default = "five_minutes")]
    pub timeout_ns: i64,
    /// A longer response head is a protocol error.
    #[serde(default = "max_header")]
    pub max_header_bytes: usize,
    /// A longer response body is a protocol error.
    #[serde(default = "max_body")]
    pub max_body_bytes: u64,
    /// Answers that are held until they are read may take so much memory in all of the process; one for which there is no
    /// room is a protocol error.
    #[serde(default = "max_held")]
    pub max_held_bytes: u64,
    /// How to read an answer.
    #[serde(default)]
    pub response: ResponseSpec,
    /// Keep the time of every content event.
    #[serde(default)]
    pub record_events: bool,
    /// Further addresses of the same service.
    #[serde(default)]
    pub replicas: Vec<Replica>,
    /// Which address a request goes to.
    #[serde(default)]
    pub balance: Balance,
    /// What is spoken on a connection.
    #[serde(default)]
    pub transport: Transport,
    /// Concurrent streams of one HTTP/2 connection: so many slots share it.
    #[serde(default = "one")]
    pub streams: u32,
    /// Every request says which one it is, in a `traceparent` header.
    #[serde(default)]
    pub trace: bool,
    /// Cores of the workers: worker k runs on the k-th, and again from the first. None: wherever the system puts them.
    #[serde(default)]
    pub pin: Vec<usize>,
    /// From one resolving of the host names to the next; 0: only after connects that failed.
    #[serde(default = "half_a_minute")]
    pub resolve_every_ns: i64,
    /// Local addresses that connections come from, in turns. None: as the system chooses.
    #[serde(default)]
    pub source_addresses: Vec<String>,
}

/// One more address of the service.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Replica {
    /// Host name or address, without brackets for IPv6.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS settings, or none for plain text.
    #[serde(default)]
    pub tls: Option<TlsSpec>,
}

/// Which of several addresses a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// By the request's number, so that every address gets the same share.
    #[default]
    RoundRobin,
    /// The one with the fewest requests under way; among equals they take turns.
    LeastOutstanding,
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by prior knowledge over plain TCP, by ALPN over TLS.
    Http2,
    /// gRPC over HTTP/2: each body is one message.
    Grpc,
}

/// How the server's certificate is judged.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// Name that the certificate must carry.
    pub server_name: String,
    /// PEM file of the authorities to trust instead of the system's.
    #[serde(default)]
    pub ca_file: Option<String>,
    /// Accept any certificate; the caller records that.
    #[serde(default)]
    pub insecure: bool,
}

/// A piece of a request body.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Segment {
    /// The same bytes in every request.
    Static(String),
    /// The row's field with this number.
    Field(usize),
    /// `start + seq` in decimal.
    Counter {
        /// Value of the first request.
        start: u64,
    },
    /// A whole number drawn by (seed, stream, purpose, seq), in decimal.
    Random {
        /// Keeps independent draws apart.
        purpose: u64,
        /// Smallest value.
        low: u64,
        /// Largest value.
        high: u64,
    },
    /// What was answered before in the same conversation, as it stood in the answer's JSON.
    Capture {
        /// How many turns before.
        turns_back: usize,
    },
}

/// One visit of one setting of the load.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LevelPlan {
    /// Number of the visit, written into every record.
    pub visit: u32,
    /// Key of all draws.
    #[serde(default)]
    pub seed: u64,
    /// How hard.
    pub load: LoadSpec,
    /// How long.
    pub stop: StopSpec,
    /// In which order the rows go.
    #[serde(default)]
    pub order: Order,
    /// Folder of the Parquet parts, or none to keep the rows in memory only.
    #[serde(default)]
    pub dir: Option<String>,
    /// Rows stay in memory up to this many bytes; with no `dir` there is no bound.
    #[serde(default)]
    pub keep_bytes: u64,
    /// Of every so many requests of a stream one is kept as a row, by its number; all are counted. 0 counts as 1.
    #[serde(default)]
    pub sample: u64,
    /// Which of all workers this session's are, where several hosts send one load; none: it sends all of it.
    #[serde(default)]
    pub partition: Option<Partition>,
    /// It opens its connections and then waits until it is told when to start.
    #[serde(default)]
    pub held: bool,
    /// When it starts, on this host's monotonic clock; none: when the level before ends, or as soon as it can.
    #[serde(default)]
    pub start_ns: Option<i64>,
    /// When its time is over, on this host's monotonic clock; none: when it has gone on for its duration.
    #[serde(default)]
    pub close_at_ns: Option<i64>,
}

/// A host's part of a load that several send: its workers count on after those of the hosts before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Number of this session's first worker among those of all hosts.
    pub first: u32,
    /// Workers of all hosts.
    pub stride: u32,
    /// Number of the host, written into every record.
    #[serde(default)]
    pub host: u16,
}

impl Partition {
    /// Refuse a part that is not inside the whole, for a session of so many workers.
    pub fn check(self, workers: usize) -> Result<()> {
        let Self { first, stride, .. } = self;
        if u64::from(first) + workers as u64 > u64::from(stride) {
            let what = format!("{workers} workers from number {first} on are more than the {stride} of all hosts");
            return Err(Error::usage(what, "partition", "make stride the sum of the workers of all hosts"));
        }
        if stride > MOST_WORKERS {
            let what = format!("{stride} workers are more than records can number");
            return Err(Error::usage(what, "partition.stride", format!("give at most {MOST_WORKERS} over all hosts")));
        }
        Ok(())
    }
}

/// What the records' `worker` can tell apart.
const MOST_WORKERS: u32 = 1 << 16;

impl TargetSpec {
    /// All addresses, as `(host, port, tls)`; the number of each is what records hold in `target`.
    pub fn endpoints(&self) -> impl Iterator<Item = (&str, u16, Option<&TlsSpec>)> {
        let more = self.replicas.iter().map(|r| (r.host.as_str(), r.port, r.tls.as_ref()));
        std::iter::once((self.host.as_str(), self.port, self.tls.as_ref())).chain(more)
    }

    /// Refuse what is invalid.
    pub fn check(&self) -> Result<()> {
        let messages = matches!(self.response.framing, Framing::Kserve | Framing::KserveStream);
        let texts = matches!(self.response.framing, Framing::Sse | Framing::Ndjson | Framing::Text);
        let (what, place, todo) = match self.transport {
            _ if self.replicas.len() >= usize::from(u16::MAX) => {
                ("more addresses than records can number", "replicas", "give fewer")
            }
            _ if self.streams == 0 => ("no stream is allowed", "streams", "give 1 or more"),
            _ if self.trace && self.headers.iter().any(|(name, _)| trace::is_named(name)) => {
                ("a traceparent of its own, and one for each request", "headers", "leave one of them out")
            }
            Transport::Http1 if self.streams > 1 => {
                ("HTTP/1.1 carries one request at a time", "streams", "give 1, or transport http2")
            }
            Transport::Grpc if texts => ("a gRPC answer has no text events", "response.framing", "give auto or kserve"),
            Transport::Http1 | Transport::Http2 if messages => {
                ("these messages come by gRPC only", "response.framing", "give transport grpc")
            }
            _ => return Ok(()),
        };
        Err(Error::usage(what, place, todo))
    }
}

impl LevelPlan {
    /// Refuse what is invalid.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str, place: &str, todo: &str| Err(Error::usage(what, place, todo));
        self.load.check()?;
        if self.stop.count.is_none() && self.stop.duration_ns.is_none() {
            return bad("the level would never stop", "stop", "give a count or a duration");
        }
        let all_leave = matches!(&self.load, LoadSpec::Closed(closed) if closed.concurrency == 0);
        if all_leave && self.stop.duration_ns.is_none() {
            return bad("nobody is left to send the rest of a count", "stop", "give a duration, or let one user stay");
        }
        if self.stop.count == Some(0) || self.stop.duration_ns.is_some_and(|d| d <= 0) {
            return bad("the level stops before it starts", "stop", "give a positive count or duration");
        }
        if self.held && self.start_ns.is_some() {
            return bad("a held level is told its start when it is ready", "start_ns", "leave held or start_ns out");
        }
        if self.close_at_ns.is_some() && self.stop.duration_ns.is_none() {
            let todo = "give the duration as well: it says which arrivals are the level's";
            return bad("a level is to close at a time and has no duration", "close_at_ns", todo);
        }
        if self.close_at_ns.zip(self.start_ns).is_some_and(|(close_ns, start_ns)| close_ns <= start_ns) {
            return bad("the level closes before it starts", "close_at_ns", "give a time after start_ns");
        }
        Ok(())
    }
}

fn post() -> String {
    "POST".to_owned()
}
fn half_a_minute() -> i64 {
    30_000_000_000
}
fn five_seconds() -> i64 {
    5_000_000_000
}
fn five_minutes() -> i64 {
    300_000_000_000
}
fn max_header() -> usize {
    65_536
}
fn max_body() -> u64 {
    1 << 30
}
fn max_held() -> u64 {
    2 << 30
}
fn one() -> u32 {
    1
}
