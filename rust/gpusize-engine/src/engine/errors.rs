//! The distinct failures of a level; a record holds the number of its failure.

use std::collections::HashMap;

use serde::Serialize;

use crate::outcome::Outcome;

/// More distinct messages than this share the last entry of their outcome: messages may carry request ids.
const MAX_DISTINCT: usize = 256;

/// One kind of failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorKind {
    /// The number in `error_id`.
    pub id: u32,
    /// How the requests ended.
    pub outcome: Outcome,
    /// HTTP status, or 0.
    pub status: u16,
    /// What the server or the system said.
    pub message: String,
    /// How often.
    pub count: u64,
}

/// All failures of one level.
#[derive(Debug, Default)]
pub struct Errors {
    kinds: Vec<ErrorKind>,
    index: HashMap<(Outcome, u16, String), u32>,
}

impl Errors {
    /// Count one failure and give its number.
    pub fn add(&mut self, outcome: Outcome, status: u16, message: String) -> u32 {
        let room = MAX_DISTINCT.saturating_sub(self.kinds.len());
        let message = if room == 0 { "(other messages)".to_owned() } else { message };
        // A server may make up statuses as well.
        let status = if self.kinds.len() < 2 * MAX_DISTINCT { status } else { 0 };
        let next = self.kinds.len() as u32;
        let id = *self.index.entry((outcome, status, message.clone())).or_insert(next);
        if id == next {
            self.kinds.push(ErrorKind { id, outcome, status, message, count: 0 });
        }
        self.kinds[id as usize].count += 1;
        id
    }

    /// The failures, by number.
    pub fn kinds(&self) -> Vec<ErrorKind> {
        self.kinds.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_failures_share_a_number_and_the_table_is_bounded() {
        let mut errors = Errors::default();
        assert_eq!(errors.add(Outcome::Timeout, 0, "a".into()), 0);
        assert_eq!(errors.add(Outcome::Timeout, 0, "b".into()), 1);
        assert_eq!(errors.add(Outcome::Timeout, 0, "a".into()), 0);
        for i in 0..1000 {
            errors.add(Outcome::HttpError, 500, format!("request {i}"));
        }
        let kinds = errors.kinds();
        assert_eq!(kinds.len(), MAX_DISTINCT + 1);
        assert_eq!(kinds.iter().map(|k| k.count).sum::<u64>(), 1003);
        for status in 0..10_000 {
            errors.add(Outcome::HttpError, status, "odd".into());
        }
        assert!(errors.kinds().len() <= 2 * MAX_DISTINCT + Outcome::ALL.len());
    }
}
