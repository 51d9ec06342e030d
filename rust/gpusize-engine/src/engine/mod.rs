//! Sessions: workers and connections to one target that live across levels.
//!
//! One OS thread a worker, each with its own runtime; a connection lives and dies on one thread. A coordinator thread starts
//! levels on all workers at one instant and notices when they have drained.
//!
//! Session, coordinator, workers, slots and progress aside: connections per address (`place`, `pool`), exchanges
//! (`http1`, `http2`, `rpc`; `link`: a connection of HTTP/2, `download`: an answer on it), balance, and single
//! gRPC calls of the control plane (`call`); conversations (`following`), the addresses of a host name (`names`), what
//! a slot holds (`mailbox`), what stands still (`watchdog`), shares of connections and queue (`partition`, `backlog`,
//! `unsent`), ramps of users (`ramp`), turns of conversations (`turns`), time that a worker stood still (`stalls`),
//! back-off, cores and source addresses (`backoff`, `cores`, `sources`). A worker's parts are its slots (`slots`,
//! `idle`), its levels (`levels`), its connections (`connections`), what waits for one (`backlog`) and the other
//! workers (`peers`); what it does with them is in `worker`: connections that are opened ahead (`preparing`), from one
//! level to the next (`handover`), waiting requests for other workers (`sharing`), ends (`ending`). Clock, timer and
//! tasks come from `outside`, so that a test has them in its own hands and drives all of this in every order of events
//! (`orders`).

mod alarms;
mod backlog;
mod backoff;
mod balance;
mod call;
mod connection;
mod connections;
mod context;
mod coordinator;
mod cores;
mod download;
mod errors;
mod failure;
mod following;
mod handle;
mod held;
mod http1;
mod http2;
mod idle;
mod io;
mod job;
mod level;
mod levels;
mod link;
mod mailbox;
mod messages;
mod names;
#[cfg(test)]
mod orders;
mod outside;
mod pacer;
mod partition;
mod peers;
mod place;
mod pool;
mod progress;
mod ramp;
mod response;
mod rpc;
mod seconds;
mod session;
mod slot;
mod slots;
mod sources;
mod stages;
mod stalls;
mod stream;
mod tags;
mod turns;
mod unsent;
mod watchdog;
mod worker;
mod worker_level;

pub use call::{Reply, grpc_call};
pub use handle::Level;
pub use names::AddressUse;
pub use progress::{LevelOutcome, Progress};
pub use session::{Probe, ProbeRun, Session};
