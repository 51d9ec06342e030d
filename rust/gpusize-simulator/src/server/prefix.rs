//! Which conversations were served before: their prefixes, message by message, as far as memory is set aside for them.

use std::collections::{HashSet, VecDeque};

/// Prefixes that are remembered; the oldest go first.
const REMEMBERED: usize = 1 << 16;

/// Digests of prefixes. One cache for all GPUs, as behind a router that sends a conversation where it was before.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    known: HashSet<u64>,
    by_age: VecDeque<u64>,
}

impl Prefixes {
    /// How many of the first prefixes, by their growing length, are known without a gap; all are from now on.
    pub(super) fn meet(&mut self, digests: &[u64]) -> usize {
        let known = digests.iter().take_while(|digest| self.known.contains(digest)).count();
        for &digest in &digests[known..] {
            if self.known.insert(digest) {
                self.by_age.push_back(digest);
            }
        }
        while self.by_age.len() > REMEMBERED {
            if let Some(oldest) = self.by_age.pop_front() {
                self.known.remove(&oldest);
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_known_until_too_many_came_after_them() {
        let mut prefixes = Prefixes::default();
        assert_eq!(prefixes.meet(&[1, 2]), 0);
        assert_eq!(prefixes.meet(&[1, 2, 3]), 2);
        assert_eq!(prefixes.meet(&[9, 2, 3]), 0);
        for digest in 0..REMEMBERED as u64 {
            prefixes.meet(&[1000 + digest]);
        }
        assert_eq!(prefixes.meet(&[1]), 0);
        assert_eq!((prefixes.known.len(), prefixes.by_age.len()), (REMEMBERED, REMEMBERED));
    }
}
