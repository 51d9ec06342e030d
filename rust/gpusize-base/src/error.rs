//! What can go wrong before or beside the measuring; failures of single requests are outcomes, not errors.

/// An error with what was wrong, where, and what to do; the bindings map each variant to one Python exception.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A plan or specification that is invalid.
    #[error("{what}")]
    Usage {
        /// What was wrong.
        what: String,
        /// The field concerned.
        place: String,
        /// What to do about it.
        todo: String,
    },
    /// The target's name, address or certificate cannot be used.
    #[error("{what}")]
    Target {
        /// What was wrong.
        what: String,
        /// The address concerned.
        place: String,
        /// What to do about it.
        todo: String,
    },
    /// This machine lacks something.
    #[error("{what}")]
    Environment {
        /// What was wrong.
        what: String,
        /// The resource concerned.
        place: String,
        /// What to do about it.
        todo: String,
    },
}

impl Error {
    /// A plan that is invalid.
    pub fn usage(what: impl Into<String>, place: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), place: place.into(), todo: todo.into() }
    }

    /// A target that cannot be used.
    pub fn target(what: impl Into<String>, place: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::Target { what: what.into(), place: place.into(), todo: todo.into() }
    }

    /// Something that this machine lacks.
    pub fn environment(what: impl Into<String>, place: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::Environment { what: what.into(), place: place.into(), todo: todo.into() }
    }
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
