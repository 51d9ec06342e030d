//! What a mix says about each dataset row, for the records.

use crate::record::Row;
use crate::spec::Mix;

/// Model, conversation and turn of each row.
#[derive(Debug)]
pub struct Tags {
    models: Vec<u16>,
    sessions: Option<Vec<u64>>,
    turns: Option<Vec<u16>>,
}

impl Tags {
    /// Of a mix that fits its dataset.
    pub fn new(mix: Mix) -> Self {
        let models = mix.of_row.iter().map(|kind| mix.requests[*kind as usize].model).collect();
        Self { models, sessions: mix.sessions, turns: mix.turns }
    }

    /// Write them into a record.
    pub fn mark(&self, row: &mut Row) {
        let at = row.row as usize;
        row.model = self.models[at];
        row.session = self.sessions.as_ref().map(|s| s[at]).filter(|session| *session != u64::MAX);
        row.turn = self.turns.as_ref().map(|t| t[at]).filter(|turn| *turn != u16::MAX);
    }
}
