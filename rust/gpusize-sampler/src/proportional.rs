//! When to work out proportional memory of a process tree, which takes a millisecond and more.

use super::sys::page_bytes;

/// It is worked out anew whenever one part of so many of the resident memory is.
const NEW: i64 = 16;
/// After a look there is none for so many times as long as it took, so that looks take a tenth of the time at most.
const RESTS: i64 = 9;

/// The looks at it.
#[derive(Debug)]
pub struct Looks {
    every_ns: i64,
    due_ns: i64,
    rests_until_ns: i64,
    /// The most that was resident at any look.
    most_bytes: i64,
    /// Page faults of all processes that are there, since the last look at the least.
    faults: i64,
}

impl Looks {
    /// Looks that are `every_ns` apart at most; the first one is due.
    pub fn every(every_ns: i64) -> Self {
        Self { every_ns, due_ns: i64::MIN, rests_until_ns: i64::MIN, most_bytes: 0, faults: 0 }
    }

    /// Whether to look now: the time has come, or more is resident than at any look, or so many pages were touched or
    /// copied that processes may share more of them, or fewer.
    pub fn wanted(&mut self, now_ns: i64, resident_bytes: i64, faults: i64) -> bool {
        // Those of a process that has ended are gone: what others do from now on is to be seen.
        self.faults = self.faults.min(faults);
        let touched = (faults - self.faults) * page_bytes();
        let anew = resident_bytes > self.most_bytes + self.most_bytes / NEW || touched > resident_bytes / NEW;
        now_ns >= self.due_ns || (anew && now_ns >= self.rests_until_ns)
    }

    /// A look was taken.
    pub fn taken(&mut self, began_ns: i64, ended_ns: i64, resident_bytes: i64, faults: i64) {
        self.due_ns = began_ns + self.every_ns;
        self.rests_until_ns = ended_ns + RESTS * (ended_ns - began_ns);
        self.most_bytes = self.most_bytes.max(resident_bytes);
        self.faults = faults;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    /// Looks whose first one took a millisecond, at 160 pages resident and 100 faults.
    fn looked() -> Looks {
        let mut looks = Looks::every(5 * S);
        assert!(looks.wanted(0, 0, 0), "the first one is due");
        looks.taken(0, 1_000_000, 160 * page_bytes(), 100);
        looks
    }

    #[test]
    fn nothing_new_waits_for_its_time() {
        let mut looks = looked();
        assert!(!looks.wanted(5 * S - 1, 160 * page_bytes(), 100));
        assert!(looks.wanted(5 * S, 160 * page_bytes(), 100));
    }

    #[test]
    fn more_that_is_resident_or_touched_is_looked_at() {
        let pages = page_bytes();
        for (resident, faults, wanted) in
            [(170 * pages, 100, false), (171 * pages, 100, true), (160 * pages, 110, false), (160 * pages, 111, true)]
        {
            assert_eq!(looked().wanted(S, resident, faults), wanted, "{resident} resident, {faults} faults");
        }
    }

    #[test]
    fn it_rests_after_a_look() {
        let mut looks = looked();
        assert!(!looks.wanted(9_999_999, 400 * page_bytes(), 100));
        assert!(looks.wanted(10_000_000, 400 * page_bytes(), 100));
    }

    #[test]
    fn faults_of_those_that_ended_hide_no_others() {
        let mut looks = looked();
        // One with 90 faults ends; the other touches 11 pages.
        assert!(!looks.wanted(S, 160 * page_bytes(), 10));
        assert!(looks.wanted(S, 160 * page_bytes(), 21));
    }
}
