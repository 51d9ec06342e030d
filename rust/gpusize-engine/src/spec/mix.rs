//! Several kinds of request in one load.

use serde::{Deserialize, Serialize};

use super::{Segment, TargetSpec};
use gpusize_base::error::{Error, Result};

/// Which rows are sent as which request, and the conversations that they belong to.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// The kinds of request.
    pub requests: Vec<RequestSpec>,
    /// Kind of each dataset row.
    pub of_row: Vec<u32>,
    /// Conversation of each row; `u64::MAX` for none.
    #[serde(default)]
    pub sessions: Option<Vec<u64>>,
    /// Turn of each row within its conversation; `u16::MAX` for none.
    #[serde(default)]
    pub turns: Option<Vec<u16>>,
    /// Pause before each row.
    #[serde(default)]
    pub think_ns: Option<Vec<i64>>,
}

/// One kind of request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RequestSpec {
    /// Path and query instead of the target's.
    pub path: String,
    /// Body instead of the session's.
    pub segments: Vec<Segment>,
    /// Headers besides the target's.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Index of the model, written into the records.
    #[serde(default)]
    pub model: u16,
}

impl Mix {
    /// Refuse what does not fit a dataset of `rows` rows.
    pub fn check(&self, rows: usize) -> Result<()> {
        let bad = |what: String, place: &str, todo: &str| Err(Error::usage(what, place, todo));
        let lists = [
            ("mix.of_row", Some(self.of_row.len())),
            ("mix.sessions", self.sessions.as_ref().map(Vec::len)),
            ("mix.turns", self.turns.as_ref().map(Vec::len)),
            ("mix.think_ns", self.think_ns.as_ref().map(Vec::len)),
        ];
        for (place, length) in lists {
            if let Some(n) = length.filter(|n| *n != rows) {
                return bad(format!("{n} entries for {rows} rows"), place, "give one for each row of the dataset");
            }
        }
        if let Some(kind) = self.of_row.iter().find(|k| **k as usize >= self.requests.len()) {
            return bad(format!("there is no request {kind}"), "mix.of_row", "give numbers of mix.requests");
        }
        if self.think_ns.as_ref().is_some_and(|t| t.iter().any(|ns| *ns < 0)) {
            return bad("a negative pause".to_owned(), "mix.think_ns", "give 0 or more");
        }
        Ok(())
    }

    /// The target as one kind of request sees it.
    pub fn target_of(request: &RequestSpec, target: &TargetSpec) -> TargetSpec {
        let mut own = target.clone();
        own.path.clone_from(&request.path);
        own.headers.extend(request.headers.iter().cloned());
        own
    }
}
