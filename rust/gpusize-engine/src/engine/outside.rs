//! What the engine has of the world outside: the clock, a timer, the tasks of a thread, and (in `Stream`) connections.
//!
//! Nothing else in it waits for anything. So a test puts all four into its own hands (`orders`), and the rest of the engine
//! runs as it is, in an order of events that the test chooses.

#[cfg(not(test))]
pub use gpusize_base::clock::now_ns;
#[cfg(not(test))]
pub use gpusize_load::pace::timer::Timer;
#[cfg(not(test))]
pub use tokio::task::{JoinHandle as Task, spawn_local};

#[cfg(test)]
pub use super::orders::outside::{Task, Timer, now_ns, spawn_local};
