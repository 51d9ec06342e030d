//! A load: what is due when, in which order and until when, and waits that end on time.

pub mod pace;
pub mod schedule;
pub mod spec;
pub mod stop;
