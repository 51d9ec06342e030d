//! The engine of gpusize: schedules, the wire, records, and the simulated cluster. No Python in it.

pub mod clock;
pub mod draw;
pub mod engine;
pub mod error;
pub mod kserve;
pub mod null_server;
pub mod outcome;
pub mod owner;
pub mod pace;
pub mod record;
pub mod sample;
pub mod schedule;
pub mod simulate;
pub mod spec;
pub mod stop;
#[cfg(test)]
mod test_folder;
pub mod wire;
