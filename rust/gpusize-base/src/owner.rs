//! Threads belong to the process that started them.

/// The process that started some threads. They do not survive a fork: a child that has a copy of what they share has none
/// to tell, to wake or to wait for, and what it would wake are its parent's.
#[derive(Clone, Copy, Debug)]
pub struct Owner(u32);

impl Owner {
    /// This process.
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is that process still, and not a child of it.
    pub fn is_here(self) -> bool {
        self.0 == std::process::id()
    }
}
