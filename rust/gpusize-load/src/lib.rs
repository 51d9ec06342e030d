//! A load: what is due when, in which order and until when, and waits that end on time.
//!
//! - [`spec`]: a load as plain data, the same as JSON.
//! - [`schedule`]: when each request is due (`arrivals`: processes in operational time; `rate`: ramps, bursts and their
//!   integral; `exact`: sums to 32 digits; `planned`: due times handed over), which row it sends (`rows`), conversations and
//!   pauses (`sessions`, `think`). Pure functions.
//! - [`stop`]: when a level ends. Pure functions too.
//! - [`pace`]: waits for due times by timerfd; tokio's timers round to the millisecond.

pub mod pace;
pub mod schedule;
pub mod spec;
pub mod stop;
