//! Which objects of a kind there are, as far as known, and in which version.

use std::collections::HashMap;

use foldhash::quality::RandomState;

/// The objects of one kind, by uid.
#[derive(Debug, Default)]
pub struct There {
    /// None for one that is gone: it does not come back, whatever is told late.
    versions: HashMap<String, Option<String>, RandomState>,
    count: usize,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<'a> {
    /// Nothing.
    Never,
    /// It is there, in this version.
    There(&'a str),
    /// It is no longer there.
    Gone,
}

impl There {
    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What is known of one.
    pub fn known(&self, uid: &str) -> Known<'_> {
        match self.versions.get(uid) {
            None => Known::Never,
            Some(Some(version)) => Known::There(version),
            Some(None) => Known::Gone,
        }
    }

    /// Take note of a version that was told; it may be told late, or twice.
    pub fn see(&mut self, uid: &str, version: &str) {
        match self.versions.get_mut(uid) {
            None => {
                self.versions.insert(uid.to_owned(), Some(version.to_owned()));
                self.count += 1;
            }
            Some(Some(known)) if !is_older(version, known) => version.clone_into(known),
            Some(_) => {}
        }
    }

    /// Take note of the version in a list, whatever had been told.
    pub fn set(&mut self, uid: &str, version: &str) {
        let before = self.versions.insert(uid.to_owned(), Some(version.to_owned()));
        self.count += usize::from(before.flatten().is_none());
    }

    /// Take note that one is gone.
    pub fn delete(&mut self, uid: &str) {
        match self.versions.get_mut(uid) {
            None => {
                self.versions.insert(uid.to_owned(), None);
            }
            Some(known) => self.count -= usize::from(known.take().is_some()),
        }
    }

    /// Those that there are.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().filter(|(_, version)| version.is_some()).map(|(uid, _)| &**uid)
    }
}

/// Whether a version is older: they are numbers without leading zeros.
fn is_older(version: &str, than: &str) -> bool {
    (version.len(), version) < (than.len(), than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_stays_gone_and_versions_only_grow() {
        let mut there = There::default();
        assert_eq!(there.known("a"), Known::Never);
        for (version, known) in [("9", "9"), ("10", "10"), ("9", "10"), ("11", "11")] {
            there.see("a", version);
            assert_eq!((there.known("a"), there.count()), (Known::There(known), 1));
        }
        there.delete("b");
        there.see("b", "12");
        assert_eq!((there.known("b"), there.count()), (Known::Gone, 1));
        assert_eq!(there.uids().collect::<Vec<_>>(), ["a"]);
        there.delete("a");
        there.delete("a");
        assert_eq!((there.known("a"), there.count()), (Known::Gone, 0));
    }
}
