//! The engine of gpusize: what is sent over the wire, and the records of it. No Python in it, nor what answers.

pub mod engine;
pub mod null_server;
pub mod outcome;
pub mod record;
pub mod spec;
#[cfg(test)]
#[path = "../../gpusize-base/src/test_folder.rs"]
mod test_folder;
pub mod wire;
