//! What is kept of every request: columns in memory, Parquet parts on disk, histograms.

pub mod columns;
pub mod histogram;
pub mod schema;
pub mod writer;

pub use columns::{Chunk, Due, Row};
