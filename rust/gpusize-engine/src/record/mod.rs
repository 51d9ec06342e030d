//! What is kept of every request: columns in memory, Parquet parts on disk, counts by the second.
//!
//! Rows as columns (`columns`, `row`, `schema`), digests of gaps, spans; the counter's thread (`counter`, `accounts`, `window`,
//! `row_times`, `tally`, `histogram`) with what it keeps for those who watch (`feed`, `kept`, `packed`); the writer's thread,
//! Parquet parts (`writer`, `parts`, `part_file`, `one_value`, `tables`).

pub mod accounts;
pub mod columns;
pub mod counter;
pub mod feed;
pub mod gaps;
pub mod histogram;
mod kept;
mod lists;
mod one_value;
mod packed;
mod part_file;
mod parts;
pub mod row;
mod row_times;
pub mod schema;
pub mod spans;
mod tables;
pub mod tally;
mod window;
pub mod writer;

pub use columns::{Chunk, Due, Row};
