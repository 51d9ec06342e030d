//! Seconds of a level on the clock of its records.

/// A second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// The second after `start_ns` in which `ns` lies.
pub fn second_of(ns: i64, start_ns: i64) -> u32 {
    (ns.saturating_sub(start_ns).max(0) as u64 / SECOND_NS).min(u64::from(u32::MAX - 1)) as u32
}

/// A second on the clock of the records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// Counted from the level's start.
    pub number: u32,
    begins_ns: i64,
    ends_ns: i64,
}

impl Window {
    /// The second in which `ns` lies.
    pub fn of(ns: i64, start_ns: i64) -> Self {
        let number = second_of(ns, start_ns);
        let begins_ns = start_ns + i64::from(number) * SECOND_NS as i64;
        // Whatever lies before the start counts in the first second.
        let earliest = if number == 0 { i64::MIN } else { begins_ns };
        Self { number, begins_ns: earliest, ends_ns: begins_ns.saturating_add(SECOND_NS as i64) }
    }

    /// Whether `ns` lies in it.
    pub fn holds(&self, ns: i64) -> bool {
        ns >= self.begins_ns && ns < self.ends_ns
    }
}
