//! Simulated clusters whose mechanics are not those of gpusize's own model, written apart from it: what its estimates are judged against.

pub mod batching;
pub mod clock;
pub mod disaggregated;
pub mod draws;
pub mod driver;
pub mod engine;
pub mod fixed_batches;
pub mod lengths;
pub mod order;
pub mod server;
pub mod sharing;
pub mod spec;
