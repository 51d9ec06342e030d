//! What the crates of gpusize share. It knows neither loads nor servers.
//!
//! - [`clock`]: the monotonic clock in nanoseconds, its pairing with wall time, CPU time of threads.
//! - [`draw`]: random draws as pure functions of (seed, stream, purpose, seq), so that they do not depend on the number of
//!   workers.
//! - [`error`]: what can go wrong beside the measuring, with what to do about it.
//! - [`arrays`], [`sparse`]: vectors as Arrow columns without a copy, columns that are mostly empty.
//! - [`owner`]: threads belong to the process that started them, not to one forked from it.

pub mod arrays;
pub mod clock;
pub mod draw;
pub mod error;
pub mod owner;
pub mod sparse;
#[cfg(test)]
mod test_folder;
