//! Small tools that the benchmarks put beside the engine. They share no code with it, so that a fault of the engine cannot hide in its yardstick.

pub mod args;
pub mod connections;
pub mod heads;
pub mod lines;
pub mod requests;
pub mod sse;
pub mod sys;
