//! Conversations: which rows of a dataset follow one another.

use std::collections::HashMap;

use gpusize_base::error::{Error, Result};

/// The conversations of a dataset, numbered by first appearance.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    /// Rows, conversation after conversation, in the order of their turns.
    rows: Vec<u32>,
    /// Where each conversation begins in `rows`, and the end.
    starts: Vec<u32>,
    /// Conversation of each row.
    of_row: Vec<u32>,
    most_turns: usize,
}

impl Sessions {
    /// Rows of one session number are one conversation; without numbers, or with the number `u64::MAX`, a row is its own.
    /// Turns go by their numbers, and where those are missing or equal as in the file.
    pub fn new(rows: usize, sessions: Option<&[u64]>, turns: Option<&[u16]>) -> Result<Self> {
        for (place, length) in [("mix.sessions", sessions.map(<[u64]>::len)), ("mix.turns", turns.map(<[u16]>::len))] {
            if let Some(n) = length.filter(|n| *n != rows) {
                let todo = "give one for each row of the dataset";
                return Err(Error::usage(format!("{n} entries for {rows} rows"), place, todo));
            }
        }
        let mut numbers = HashMap::new();
        let mut groups: Vec<Vec<u32>> = Vec::new();
        let mut of_row = Vec::with_capacity(rows);
        for row in 0..rows {
            let fresh = groups.len() as u32;
            let group = match sessions.map(|s| s[row]).filter(|s| *s != u64::MAX) {
                Some(session) => *numbers.entry(session).or_insert(fresh),
                None => fresh,
            };
            if group == fresh {
                groups.push(Vec::new());
            }
            groups[group as usize].push(row as u32);
            of_row.push(group);
        }
        if let Some(turns) = turns {
            for group in &mut groups {
                group.sort_by_key(|row| turns[*row as usize]);
            }
        }
        let starts = std::iter::once(0).chain(groups.iter().scan(0, |end, group| {
            *end += group.len() as u32;
            Some(*end)
        }));
        Ok(Self {
            starts: starts.collect(),
            most_turns: groups.iter().map(Vec::len).max().unwrap_or(0),
            rows: groups.into_iter().flatten().collect(),
            of_row,
        })
    }

    /// How many conversations there are.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of a conversation, turn after turn.
    pub fn turns(&self, session: usize) -> &[u32] {
        &self.rows[self.starts[session] as usize..self.starts[session + 1] as usize]
    }

    /// The conversation that a row belongs to.
    pub fn of_row(&self, row: u32) -> usize {
        self.of_row[row as usize] as usize
    }

    /// The rows of the conversation of `row`, turn after turn: of an [`Item`](super::Item) all that it sends.
    pub fn with_row(&self, row: u32) -> &[u32] {
        self.turns(self.of_row(row))
    }

    /// Rows of the dataset.
    pub fn rows(&self) -> usize {
        self.of_row.len()
    }

    /// Whether a conversation begins with this row.
    pub fn begins(&self, row: u32) -> bool {
        self.first(self.of_row(row)) == row
    }

    /// The row that begins a conversation.
    pub fn first(&self, session: usize) -> u32 {
        self.rows[self.starts[session] as usize]
    }

    /// Turns of the longest one.
    pub fn most_turns(&self) -> usize {
        self.most_turns
    }

    /// Conversations whose first appearance is among `count` rows from `first` on, as first number and how many.
    pub(super) fn within(&self, first: u32, count: u32) -> (u64, u64) {
        let end = first as usize + count as usize;
        // Numbers are given by first appearance, so those before a row are one more than the largest before it.
        let before = |row: usize| self.of_row[..row].iter().max().map_or(0, |last| u64::from(*last) + 1);
        let low = before(first as usize);
        (low, before(end) - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_number_follow_by_their_turns() {
        let sessions = Sessions::new(6, Some(&[7, 7, 9, 7, u64::MAX, 9]), Some(&[0, 2, 1, 1, 0, 0])).unwrap();
        let turns: Vec<&[u32]> = (0..sessions.len()).map(|s| sessions.turns(s)).collect();
        assert_eq!(turns, [&[0, 3, 1][..], &[5, 2], &[4]]);
        assert_eq!((sessions.most_turns(), sessions.of_row(2), sessions.with_row(1)), (3, 1, &[0, 3, 1][..]));
        assert!(sessions.begins(5) && !sessions.begins(2));
        assert_eq!((sessions.within(0, 6), sessions.within(1, 2), sessions.within(2, 3)), ((0, 3), (1, 1), (1, 2)));
    }

    #[test]
    fn without_numbers_each_row_is_its_own() {
        let sessions = Sessions::new(3, None, None).unwrap();
        assert_eq!((sessions.len(), sessions.turns(2), sessions.most_turns()), (3, &[2][..], 1));
        assert!(Sessions::new(3, Some(&[1]), None).is_err() && Sessions::new(3, None, Some(&[1])).is_err());
        assert!(Sessions::new(0, None, None).unwrap().is_empty());
    }
}
