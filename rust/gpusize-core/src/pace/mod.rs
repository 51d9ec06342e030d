//! Waiting for due times.

pub mod alarms;
pub mod timer;
