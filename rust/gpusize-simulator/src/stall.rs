//! Stalls as a map between the cluster's own time, which stands still in a stall, and the time of the world.

use super::{Faults, ns};

/// Two clocks that run together but for the stalls; both start at 0. Stalls come as planned, and as they are asked for.
///
/// The planned ones are laid on a clock that leaves out those that were asked for; hence a stall that is asked for puts off the planned
/// ones behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stalls {
    planned: Planned,
    /// In order, and apart from each other.
    asked: Vec<Asked>,
}

/// Stalls at regular times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "units stand in names")]
struct Planned {
    length_ns: i64,
    first_ns: i64,
    /// Time from the beginning of one stall to that of the next; `i64::MAX` for a single stall.
    every_ns: i64,
}

/// One stall, in the world's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "units stand in names")]
struct Asked {
    begin_ns: i64,
    length_ns: i64,
    /// Length of all before it.
    before_ns: i64,
}

impl Asked {
    fn end_ns(self) -> i64 {
        self.begin_ns + self.length_ns
    }
}

impl Stalls {
    /// The stalls that `faults` ask for.
    pub fn new(faults: &Faults) -> Self {
        let planned = Planned {
            length_ns: ns(faults.stall_s),
            first_ns: ns(faults.stall_after_s),
            every_ns: faults.stall_every_s.map_or(i64::MAX, ns),
        };
        Self { planned, asked: Vec::new() }
    }

    /// Begin a stall at `world_ns`, which is later than every time asked about so far; its end. One that is on is made longer where it
    /// ends sooner.
    pub fn freeze(&mut self, world_ns: i64, length_ns: i64) -> i64 {
        if let Some(last) = self.asked.last_mut().filter(|last| world_ns <= last.end_ns()) {
            last.length_ns = last.length_ns.max(world_ns + length_ns - last.begin_ns);
            return last.end_ns();
        }
        let before_ns = self.asked.last().map_or(0, |last| last.before_ns + last.length_ns);
        self.asked.push(Asked { begin_ns: world_ns, length_ns, before_ns });
        world_ns + length_ns
    }

    /// When the world sees what the cluster does at `model_ns`. What happens as a stall begins still gets out before it.
    pub fn to_world_ns(&self, model_ns: i64) -> i64 {
        self.with_asked_ns(self.planned.to_world_ns(model_ns))
    }

    /// The cluster's time when the world's is `world_ns`: within a stall, that of its beginning.
    pub fn to_model_ns(&self, world_ns: i64) -> i64 {
        self.planned.to_model_ns(self.without_asked_ns(world_ns))
    }

    /// When something due at `world_ns` can be done: the end of the stall it falls into, else at once.
    pub fn thawed_ns(&self, world_ns: i64) -> i64 {
        let mut thawed_ns = world_ns;
        loop {
            if let Some(stall) = self.asked_before(thawed_ns) {
                thawed_ns = thawed_ns.max(stall.end_ns());
            }
            let planned_ns = self.without_asked_ns(thawed_ns);
            let after_ns = self.planned.thawed_ns(planned_ns);
            if after_ns == planned_ns {
                return thawed_ns;
            }
            // At that very moment, the next that was asked for may begin.
            thawed_ns = self.with_asked_ns(after_ns);
        }
    }

    /// The last stall that was asked for at `world_ns` or before.
    fn asked_before(&self, world_ns: i64) -> Option<Asked> {
        let begun = self.asked.partition_point(|stall| stall.begin_ns <= world_ns);
        self.asked[..begun].last().copied()
    }

    fn with_asked_ns(&self, planned_ns: i64) -> i64 {
        let begun = self.asked.partition_point(|stall| stall.begin_ns - stall.before_ns < planned_ns);
        self.asked[..begun].last().map_or(planned_ns, |last| planned_ns + last.before_ns + last.length_ns)
    }

    fn without_asked_ns(&self, world_ns: i64) -> i64 {
        let Some(last) = self.asked_before(world_ns) else { return world_ns };
        world_ns - last.before_ns - (world_ns - last.begin_ns).min(last.length_ns)
    }
}

impl Planned {
    fn to_world_ns(self, model_ns: i64) -> i64 {
        if self.length_ns == 0 || model_ns <= self.first_ns {
            return model_ns;
        }
        // In the cluster's time stalls begin `every - length` apart.
        let begun = (model_ns - self.first_ns - 1) / self.every_ns.saturating_sub(self.length_ns) + 1;
        model_ns + begun * self.length_ns
    }

    fn to_model_ns(self, world_ns: i64) -> i64 {
        if self.length_ns == 0 || world_ns <= self.first_ns {
            return world_ns;
        }
        let since_first = world_ns - self.first_ns;
        let (past, into) = (since_first / self.every_ns, since_first % self.every_ns);
        world_ns - past * self.length_ns - into.min(self.length_ns)
    }

    fn thawed_ns(self, world_ns: i64) -> i64 {
        if self.length_ns == 0 || world_ns < self.first_ns {
            return world_ns;
        }
        let into = (world_ns - self.first_ns) % self.every_ns;
        world_ns + (self.length_ns - into).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(every: Option<f64>) -> Stalls {
        Stalls::new(&Faults { stall_s: 1.0, stall_after_s: 2.0, stall_every_s: every, ..Faults::default() })
    }

    #[test]
    fn time_stands_still_in_a_single_stall() {
        let stalls = stalls(None);
        let s = |x: f64| ns(x);
        assert_eq!(
            [1.0, 2.0, 2.5, 3.0, 3.5, 9.0].map(|t| stalls.to_model_ns(s(t))),
            [1.0, 2.0, 2.0, 2.0, 2.5, 8.0].map(s)
        );
        assert_eq!([1.9, 2.0, 2.5, 3.0].map(|t| stalls.thawed_ns(s(t))), [1.9, 3.0, 3.0, 3.0].map(s));
        assert_eq!([1.0, 2.0, 2.5, 8.0].map(|t| stalls.to_world_ns(s(t))), [1.0, 2.0, 3.5, 9.0].map(s));
    }

    #[test]
    fn a_stall_begins_when_it_is_asked_for() {
        let mut stalls = Stalls::new(&Faults::default());
        assert_eq!(stalls.freeze(100, 50), 150);
        assert_eq!([99, 100, 120, 150, 160].map(|t| stalls.to_model_ns(t)), [99, 100, 100, 100, 110]);
        assert_eq!([99, 100, 101, 110].map(|t| stalls.to_world_ns(t)), [99, 100, 151, 160]);
        assert_eq!([99, 100, 149, 150].map(|t| stalls.thawed_ns(t)), [99, 150, 150, 150]);
        // One within it changes only its end, and that only to later.
        assert_eq!((stalls.freeze(110, 20), stalls.freeze(120, 60)), (150, 180));
        assert_eq!((stalls.to_model_ns(190), stalls.thawed_ns(150)), (110, 180));
        assert_eq!(stalls.freeze(200, 1000), 1200);
        assert_eq!((stalls.to_model_ns(1210), stalls.to_world_ns(120), stalls.to_world_ns(121)), (130, 200, 1201));
    }

    #[test]
    fn one_that_is_asked_for_in_a_planned_one_goes_before_what_is_left_of_it() {
        let mut stalls = stalls(None);
        let s = |x: f64| ns(x);
        assert_eq!(stalls.freeze(s(2.5), s(4.0)), s(6.5));
        assert_eq!([2.0, 2.5, 6.5, 6.9].map(|t| stalls.thawed_ns(s(t))), [7.0; 4].map(s));
        assert_eq!([2.0, 7.0, 8.0].map(|t| stalls.to_model_ns(s(t))), [2.0, 2.0, 3.0].map(s));
    }

    #[test]
    fn the_maps_are_inverse_and_never_run_back() {
        let asked = |mut stalls: Stalls| {
            for (at_s, length_s) in [(1.5, 0.3), (4.0, 2.0), (5.0, 3.0), (20.0, 0.001)] {
                stalls.freeze(ns(at_s), ns(length_s));
            }
            stalls
        };
        for stalls in [None, Some(4.0), Some(1.5)].map(stalls).into_iter().flat_map(|s| [s.clone(), asked(s)]) {
            let mut last = i64::MIN;
            for model_ns in (0..30_000_000_000).step_by(7_777_777) {
                let world_ns = stalls.to_world_ns(model_ns);
                assert!(world_ns > last);
                assert_eq!(stalls.to_model_ns(world_ns), model_ns);
                last = world_ns;
            }
            for world_ns in (0..30_000_000_000).step_by(7_777_777) {
                let thawed_ns = stalls.thawed_ns(world_ns);
                assert_eq!(stalls.to_model_ns(thawed_ns), stalls.to_model_ns(world_ns));
                assert_eq!(stalls.thawed_ns(thawed_ns), thawed_ns);
                // No stall is on: the cluster's time goes on.
                assert_eq!(stalls.to_model_ns(thawed_ns + 1), stalls.to_model_ns(world_ns) + 1);
            }
        }
    }

    #[test]
    fn without_a_length_there_is_no_stall() {
        let stalls = Stalls::new(&Faults::default());
        assert_eq!((stalls.to_model_ns(77), stalls.to_world_ns(i64::MAX / 2)), (77, i64::MAX / 2));
    }
}
