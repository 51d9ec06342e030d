//! Sessions: workers and connections to one target that live across levels.
//!
//! One OS thread a worker, each with its own runtime; a connection lives and dies on one thread. A coordinator thread starts
//! levels on all workers at one instant and notices when they have drained.

mod answer;
mod connection;
mod context;
mod coordinator;
mod errors;
mod handle;
mod level;
mod messages;
mod open;
mod progress;
mod session;
mod slot;
mod stream;
mod tags;
mod worker;
mod worker_level;

pub use handle::Level;
pub use progress::{LevelOutcome, Progress};
pub use session::{Probe, ProbeRun, Session};
