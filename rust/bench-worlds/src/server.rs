//! What a GPU (or a replica of several) is to the loop around it.

/// A request that a server works on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Its number, in order of due times.
    pub row: u32,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens to make; at least 1.
    pub output: u32,
    /// Factor on its cost, 1 on average.
    pub factor: f64,
    /// Work in units that no token count tells.
    pub work: f64,
}

/// What a server tells; times are its own, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Told {
    /// It was taken into a batch, perhaps not for the first time.
    Started {
        /// Which request.
        row: u32,
        /// When.
        at_s: f64,
    },
    /// The first token was made.
    First {
        /// Of this request.
        row: u32,
        /// When.
        at_s: f64,
    },
    /// A request is answered in full.
    Done {
        /// Of this request.
        row: u32,
        /// When; not before the event that tells it.
        at_s: f64,
    },
}

/// A state machine without a clock: a driver tells it the time.
pub trait Server {
    /// Take a job at `now_s`, up to which all events have happened.
    fn arrive(&mut self, now_s: f64, job: Job);
    /// When something happens next.
    fn next_s(&self) -> Option<f64>;
    /// Let that happen; what comes of it goes to `told`, at the time of the event at the latest.
    fn step(&mut self, told: &mut Vec<Told>);
}
