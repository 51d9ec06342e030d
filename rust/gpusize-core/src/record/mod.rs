//! What is kept of every request: columns in memory, Parquet parts on disk, histograms.

pub mod columns;
pub mod gaps;
pub mod histogram;
mod lists;
mod parts;
pub mod row;
pub mod schema;
pub mod spans;
pub mod writer;

pub use columns::{Chunk, Due, Row};
