//! Due requests that wait for a connection: the highest priority first, and in each the one that came first.

use std::collections::VecDeque;
use std::rc::Rc;

use super::job::Job;
use super::worker_level::WorkerLevel;

/// A request that waits, and its level.
pub type Entry = (Rc<WorkerLevel>, Job);

/// One list for each priority, the highest first: with a single priority all is done in a few steps.
#[derive(Debug, Default)]
pub struct Waiting {
    lists: Vec<(i32, VecDeque<Entry>)>,
}

impl Waiting {
    /// Add one behind those of its priority.
    pub fn push(&mut self, level: Rc<WorkerLevel>, job: Job) {
        let priority = job.priority();
        let place = self.lists.partition_point(|(other, _)| *other > priority);
        if self.lists.get(place).is_none_or(|(other, _)| *other != priority) {
            self.lists.insert(place, (priority, VecDeque::new()));
        }
        self.lists[place].1.push_back((level, job));
    }

    /// Take the first of a level that `fits`.
    pub fn pop(&mut self, fits: impl Fn(&WorkerLevel) -> bool) -> Option<Entry> {
        let (_, list) = self.lists.iter_mut().find(|(_, l)| l.front().is_some_and(|(level, _)| fits(level)))?;
        list.pop_front()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(|(_, list)| list.is_empty())
    }

    /// Take all of one level.
    pub fn withdraw(&mut self, level: &Rc<WorkerLevel>) -> Vec<Job> {
        let mut taken = Vec::new();
        for (_, list) in &mut self.lists {
            for (theirs, job) in std::mem::take(list) {
                if Rc::ptr_eq(&theirs, level) {
                    taken.push(job);
                } else {
                    list.push_back((theirs, job));
                }
            }
        }
        self.lists.retain(|(_, list)| !list.is_empty());
        taken
    }
}
