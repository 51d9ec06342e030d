//! The schedule of open loops: its processes, its precision, and what holds of any load.

mod common;
mod precision;
mod processes;
mod properties;
