//! Stalls as a map between the cluster's own time, which stands still in a stall, and the time of the world.

use super::{Faults, ns};

/// Two clocks that run together but for the stalls; both start at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "units stand in names")]
pub struct Stalls {
    length_ns: i64,
    first_ns: i64,
    /// World time from the beginning of one stall to that of the next; `i64::MAX` for a single stall.
    every_ns: i64,
}

impl Stalls {
    /// The stalls that `faults` ask for.
    pub fn new(faults: &Faults) -> Self {
        Self {
            length_ns: ns(faults.stall_s),
            first_ns: ns(faults.stall_after_s),
            every_ns: faults.stall_every_s.map_or(i64::MAX, ns),
        }
    }

    /// When the world sees what the cluster does at `model_ns`. What happens as a stall begins still gets out before it.
    pub fn to_world_ns(self, model_ns: i64) -> i64 {
        if self.length_ns == 0 || model_ns <= self.first_ns {
            return model_ns;
        }
        // In the cluster's time stalls begin `every - length` apart.
        let begun = (model_ns - self.first_ns - 1) / self.every_ns.saturating_sub(self.length_ns) + 1;
        model_ns + begun * self.length_ns
    }

    /// The cluster's time when the world's is `world_ns`: within a stall, that of its beginning.
    pub fn to_model_ns(self, world_ns: i64) -> i64 {
        if self.length_ns == 0 || world_ns <= self.first_ns {
            return world_ns;
        }
        let since_first = world_ns - self.first_ns;
        let (past, into) = (since_first / self.every_ns, since_first % self.every_ns);
        world_ns - past * self.length_ns - into.min(self.length_ns)
    }

    /// When something due at `world_ns` can be done: the end of the stall it falls into, else at once.
    pub fn thawed_ns(self, world_ns: i64) -> i64 {
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
    fn the_maps_are_inverse_and_never_run_back() {
        for stalls in [stalls(None), stalls(Some(4.0)), stalls(Some(1.5))] {
            let mut last = i64::MIN;
            for model_ns in (0..30_000_000_000).step_by(7_777_777) {
                let world_ns = stalls.to_world_ns(model_ns);
                assert!(world_ns > last);
                assert_eq!(stalls.to_model_ns(world_ns), model_ns);
                last = world_ns;
            }
        }
    }

    #[test]
    fn without_a_length_there_is_no_stall() {
        let stalls = Stalls::new(&Faults::default());
        assert_eq!((stalls.to_model_ns(77), stalls.to_world_ns(i64::MAX / 2)), (77, i64::MAX / 2));
    }
}
