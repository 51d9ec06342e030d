//! What the crates of gpusize share: the clock, draws, errors, Arrow columns.

pub mod arrays;
pub mod clock;
pub mod draw;
pub mod error;
pub mod owner;
pub mod sparse;
#[cfg(test)]
mod test_folder;
