//! CPU time of processes that come and go, summed so that nothing is lost and nothing counted twice.

/// A sum over a tree of processes.
///
/// A process that ends and is waited for is added by the kernel to its parent's counters of children. So the sum over all
/// processes of own time and time of children is exact as long as every one is waited for by a process of the tree. What goes
/// missing otherwise (waited for by somebody else, or by nobody: `SIGCHLD` ignored) is kept as it was last seen. Between a
/// process's disappearance and its appearance in its parent's counters there may be one reading; the sum waits for that.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Last seen of those that disappeared in the last reading and did not show in a parent yet.
    pending: i64,
    pending_count: i64,
    /// Last seen of those that will not show in any parent.
    kept: i64,
    total: i64,
}

/// What one reading of all processes found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Own time and that of children, over all processes that are there.
    pub there: i64,
    /// By how much the children's part of those has grown since the reading before.
    pub grown: i64,
    /// Both parts of the processes that are no longer there, as last seen.
    pub vanished: i64,
    /// Number of those.
    pub vanished_count: i64,
}

impl Account {
    /// The sum after a reading. `error` is how much too little a parent's counter may show of one child.
    pub fn add(&mut self, found: Found, error: i64) -> i64 {
        let old_rest = (self.pending - found.grown).max(0);
        let grown_rest = found.grown - (self.pending - old_rest);
        if old_rest > error * self.pending_count {
            self.kept += old_rest;
        }
        self.pending = (found.vanished - grown_rest).max(0);
        self.pending_count = found.vanished_count;
        self.total = self.total.max(found.there + self.pending + self.kept);
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: i64 = 20;

    fn found(there: i64, grown: i64, vanished: i64) -> Found {
        Found { there, grown, vanished, vanished_count: i64::from(vanished > 0) }
    }

    #[test]
    fn a_child_that_its_parent_waited_for_is_counted_once() {
        let mut sum = Account::default();
        assert_eq!(sum.add(found(100 + 900, 0, 0), ERROR), 1000);
        // The parent's counter has it in the same reading, short of its clock's step.
        assert_eq!(sum.add(found(110 + 890, 890, 900), ERROR), 1010);
        assert_eq!(sum.add(found(130 + 890, 0, 0), ERROR), 1020);
    }

    #[test]
    fn a_child_that_shows_in_its_parent_one_reading_later_is_counted_once() {
        let mut sum = Account::default();
        sum.add(found(1000, 0, 0), ERROR);
        assert_eq!(sum.add(found(110, 0, 900), ERROR), 1010);
        assert_eq!(sum.add(found(120 + 890, 890, 0), ERROR), 1010);
        assert_eq!(sum.add(found(150 + 890, 0, 0), ERROR), 1040);
    }

    #[test]
    fn a_child_that_nobody_of_the_tree_waited_for_stays() {
        let mut sum = Account::default();
        sum.add(found(1000, 0, 0), ERROR);
        assert_eq!(sum.add(found(100, 0, 900), ERROR), 1000);
        assert_eq!(sum.add(found(150, 0, 0), ERROR), 1050);
        assert_eq!(sum.add(found(200, 0, 0), ERROR), 1100);
    }

    #[test]
    fn a_child_that_was_never_seen_counts_by_its_parent() {
        let mut sum = Account::default();
        sum.add(found(100, 0, 0), ERROR);
        assert_eq!(sum.add(found(100 + 500, 500, 0), ERROR), 600);
    }

    #[test]
    fn the_whole_tree_at_its_end_stays_as_it_was() {
        let mut sum = Account::default();
        sum.add(found(700, 0, 0), ERROR);
        assert_eq!(sum.add(found(0, 0, 700), ERROR), 700);
        assert_eq!(sum.add(found(0, 0, 0), ERROR), 700);
        assert_eq!(sum.add(found(0, 0, 0), ERROR), 700);
    }
}
