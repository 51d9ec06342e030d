//! Which of the cluster's GPUs take requests, and when that changes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::config::in_range;
use super::{SimError, ns};

/// From some time on, so many replicas are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaStep {
    /// When, from the start and in the cluster's own time.
    pub at_s: f64,
    /// How many, from 1 to the cluster's GPUs.
    pub replicas: u32,
}

/// Refuse steps that cannot be taken on so many GPUs.
pub(super) fn validate(steps: &[ReplicaStep], gpus: u32) -> Result<(), SimError> {
    let mut last_s = None;
    for (place, step) in steps.iter().enumerate() {
        let field = |name: &str| format!("replicas[{place}].{name}");
        in_range(&field("at_s"), step.at_s, 0.0, 1e9)?;
        if !(1..=gpus).contains(&step.replicas) {
            let problem = format!("must be between 1 and gpus ({gpus}), not {}", step.replicas);
            return Err(SimError::value(&field("replicas"), problem));
        }
        match last_s {
            None if step.at_s > 0.0 => {
                return Err(SimError::value(
                    &field("at_s"),
                    "must be 0: the first step says how many there are at first",
                ));
            }
            Some(last_s) if step.at_s <= last_s => {
                let problem = format!("must be later than the step before ({last_s}), not {}", step.at_s);
                return Err(SimError::value(&field("at_s"), problem));
            }
            _ => last_s = Some(step.at_s),
        }
    }
    Ok(())
}

/// How many of so many GPUs there are at first.
pub(super) fn at_first(steps: &[ReplicaStep], gpus: u32) -> u32 {
    steps.first().map_or(gpus, |first| first.replicas)
}

/// The replicas that are asked for, those that are ready, and the changes to come. Replicas are GPUs 0, 1, ... without a gap: the last
/// to come is the first to go. Hence those that start are the last ones, and they are ready in order.
#[derive(Debug)]
pub(super) struct Replicas {
    ready: usize,
    /// When each of the replicas that start will be ready.
    starting_ns: VecDeque<i64>,
    /// Steps to come.
    plan: VecDeque<(i64, usize)>,
    delay_ns: i64,
    uptime: Uptime,
    /// Replicas times nanoseconds that were ready until the last change, and when that was.
    ready_ns: i64,
    since_ns: i64,
}

impl Replicas {
    /// On so many GPUs; without steps all of them are ready for ever.
    pub(super) fn new(steps: &[ReplicaStep], gpus: u32, start_delay_s: f64) -> Self {
        let ready = at_first(steps, gpus) as usize;
        Self {
            ready,
            starting_ns: VecDeque::new(),
            plan: steps.iter().skip(1).map(|step| (ns(step.at_s), step.replicas as usize)).collect(),
            delay_ns: ns(start_delay_s),
            uptime: Uptime::new(ready, gpus as usize),
            ready_ns: 0,
            since_ns: 0,
        }
    }

    /// GPUs that take requests: the first so many.
    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    /// Replicas that were asked for last.
    pub(super) fn desired(&self) -> usize {
        self.ready + self.starting_ns.len()
    }

    /// When something changes next.
    pub(super) fn next_change_ns(&self) -> Option<i64> {
        let planned_ns = self.plan.front().map(|&(at_ns, _)| at_ns);
        self.starting_ns.front().copied().into_iter().chain(planned_ns).min()
    }

    /// Make the next change; `is_idle` tells of each GPU whether it has nothing left to finish.
    pub(super) fn change(&mut self, is_idle: impl Fn(usize) -> bool) {
        let Some(now_ns) = self.next_change_ns() else { return };
        if self.starting_ns.front() == Some(&now_ns) {
            self.starting_ns.pop_front();
            self.set_ready(now_ns, self.ready + 1, is_idle);
        } else if let Some((_, replicas)) = self.plan.pop_front() {
            self.scale(now_ns, replicas, is_idle);
        }
    }

    /// Ask for so many at `now_ns`.
    pub(super) fn scale(&mut self, now_ns: i64, replicas: usize, is_idle: impl Fn(usize) -> bool) {
        let ready = self.ready.min(replicas);
        let ready_ns = now_ns + self.delay_ns;
        self.starting_ns.resize(replicas - ready, ready_ns);
        let at_once = self.starting_ns.iter().take_while(|&&ready_ns| ready_ns <= now_ns).count();
        self.starting_ns.drain(..at_once);
        self.set_ready(now_ns, ready + at_once, is_idle);
    }

    fn set_ready(&mut self, now_ns: i64, ready: usize, is_idle: impl Fn(usize) -> bool) {
        for gpu in self.ready..ready {
            self.uptime.begin(gpu, now_ns);
        }
        for gpu in (ready..self.ready).filter(|&gpu| is_idle(gpu)) {
            self.uptime.end(gpu, now_ns);
        }
        self.ready_ns = self.ready_until_ns(now_ns);
        self.since_ns = now_ns;
        self.ready = ready;
    }

    /// A GPU has run out of work at `now_ns`: one that was removed is gone now.
    pub(super) fn note_idle(&mut self, gpu: usize, now_ns: i64) {
        if gpu >= self.ready {
            self.uptime.end(gpu, now_ns);
        }
    }

    /// Whether a GPU takes requests, or finishes what it has.
    pub(super) fn is_up(&self, gpu: usize) -> bool {
        self.uptime.down_since_ns[gpu].is_none()
    }

    /// How long a GPU was not up, until `now_ns`.
    pub(super) fn down_ns(&self, gpu: usize, now_ns: i64) -> i64 {
        let this_time_ns = self.uptime.down_since_ns[gpu].map_or(0, |since_ns| (now_ns - since_ns).max(0));
        self.uptime.down_ns[gpu] + this_time_ns
    }

    fn ready_until_ns(&self, now_ns: i64) -> i64 {
        self.ready_ns + self.ready as i64 * (now_ns - self.since_ns).max(0)
    }

    /// How long removed GPUs were busy with what they had, all together, until `now_ns`, not before the last change.
    pub(super) fn draining_ns(&self, now_ns: i64) -> i64 {
        let up_ns: i64 = (0..self.uptime.down_ns.len()).map(|gpu| now_ns - self.down_ns(gpu, now_ns)).sum();
        up_ns - self.ready_until_ns(now_ns)
    }
}

/// When each GPU was neither ready nor busy.
#[derive(Debug)]
struct Uptime {
    down_since_ns: Vec<Option<i64>>,
    down_ns: Vec<i64>,
}

impl Uptime {
    fn new(ready: usize, gpus: usize) -> Self {
        Self { down_since_ns: (0..gpus).map(|gpu| (gpu >= ready).then_some(0)).collect(), down_ns: vec![0; gpus] }
    }

    fn begin(&mut self, gpu: usize, now_ns: i64) {
        if let Some(since_ns) = self.down_since_ns[gpu].take() {
            self.down_ns[gpu] += now_ns - since_ns;
        }
    }

    fn end(&mut self, gpu: usize, now_ns: i64) {
        self.down_since_ns[gpu].get_or_insert(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(steps: &[(f64, u32)], start_delay_s: f64) -> Replicas {
        let steps: Vec<ReplicaStep> = steps.iter().map(|&(at_s, replicas)| ReplicaStep { at_s, replicas }).collect();
        Replicas::new(&steps, 4, start_delay_s)
    }

    /// (time, asked for, ready) after each change.
    fn changes(mut replicas: Replicas) -> Vec<(i64, usize, usize)> {
        let mut seen = vec![(0, replicas.desired(), replicas.ready())];
        while let Some(now_ns) = replicas.next_change_ns() {
            replicas.change(|_| true);
            seen.push((now_ns / 1_000_000_000, replicas.desired(), replicas.ready()));
        }
        seen
    }

    #[test]
    fn without_steps_all_gpus_are_ready_for_ever() {
        assert_eq!(changes(replicas(&[], 5.0)), [(0, 4, 4)]);
    }

    #[test]
    fn a_new_replica_is_ready_after_its_delay() {
        let steps = [(0.0, 1), (10.0, 3), (20.0, 2)];
        assert_eq!(changes(replicas(&steps, 0.0)), [(0, 1, 1), (10, 3, 3), (20, 2, 2)]);
        assert_eq!(changes(replicas(&steps, 5.0)), [(0, 1, 1), (10, 3, 1), (15, 3, 2), (15, 3, 3), (20, 2, 2)]);
    }

    #[test]
    fn what_is_taken_back_before_it_is_ready_starts_anew() {
        let steps = [(0.0, 1), (10.0, 3), (12.0, 2), (13.0, 3)];
        let expected = [(0, 1, 1), (10, 3, 1), (12, 2, 1), (13, 3, 1), (15, 3, 2), (18, 3, 3)];
        assert_eq!(changes(replicas(&steps, 5.0)), expected);
        assert_eq!(changes(replicas(&[(0.0, 3), (10.0, 1)], 5.0)), [(0, 3, 3), (10, 1, 1)]);
    }

    #[test]
    fn a_removed_gpu_is_up_until_it_has_nothing_left() {
        let mut replicas = replicas(&[(0.0, 2)], 3e-9);
        replicas.scale(100, 1, |_| false);
        assert!(replicas.is_up(1) && !replicas.is_up(2));
        assert_eq!(replicas.draining_ns(110), 10);
        replicas.note_idle(1, 130);
        assert!(!replicas.is_up(1));
        replicas.note_idle(0, 140);
        assert!(replicas.is_up(0));
        replicas.scale(200, 2, |_| true);
        assert_eq!((replicas.next_change_ns(), replicas.is_up(1)), (Some(203), false));
        replicas.change(|_| true);
        assert!(replicas.is_up(1));
        assert_eq!([0, 1, 2].map(|gpu| replicas.down_ns(gpu, 300)), [0, 73, 300]);
        // GPU 1 had something left from 100 to 130.
        assert_eq!(replicas.draining_ns(300), 30);
    }

    #[test]
    fn steps_that_cannot_be_taken_name_the_field() {
        let step = |at_s, replicas| ReplicaStep { at_s, replicas };
        for (steps, needle) in [
            (vec![step(1.0, 1)], "replicas[0].at_s of the simulated cluster must be 0"),
            (vec![step(0.0, 0)], "replicas[0].replicas of the simulated cluster must be between 1 and gpus (4), not 0"),
            (vec![step(0.0, 1), step(5.0, 5)], "replicas[1].replicas"),
            (vec![step(0.0, 1), step(5.0, 2), step(5.0, 3)], "replicas[2].at_s of the simulated cluster must be later"),
            (vec![step(0.0, 1), step(f64::NAN, 2)], "replicas[1].at_s"),
        ] {
            let error = validate(&steps, 4).expect_err(needle).to_string();
            assert!(error.contains(needle), "{error}");
        }
        assert!(validate(&[step(0.0, 1), step(0.5, 4)], 4).is_ok());
    }
}
