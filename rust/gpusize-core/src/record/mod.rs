//! What is kept of every request: columns in memory, Parquet parts on disk, counts by the second.

pub mod accounts;
mod arrays;
pub mod columns;
pub mod counter;
pub mod feed;
pub mod gaps;
pub mod histogram;
mod lists;
mod packed;
mod parts;
pub mod row;
pub mod schema;
pub mod spans;
mod sparse;
mod tables;
pub mod tally;
pub mod writer;

pub use columns::{Chunk, Due, Row};
