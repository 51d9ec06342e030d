//! Due requests that wait for a connection: the highest priority first, and in each the one that came first.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::job::Job;
use super::worker_level::WorkerLevel;

/// Requests of one level and one priority, in the order in which they came.
#[derive(Debug)]
struct List {
    priority: i32,
    level: Rc<WorkerLevel>,
    jobs: VecDeque<Job>,
}

/// See the module. One list for each priority and level: the highest priority first, and in each the level that began first.
#[derive(Debug, Default)]
pub struct Backlog(RefCell<Vec<List>>);

impl Backlog {
    /// Add one behind those of its priority.
    pub fn push(&self, level: &Rc<WorkerLevel>, job: Job) {
        list(&mut self.0.borrow_mut(), level, job.priority()).push_back(job);
    }

    /// Add one that has waited elsewhere, before those of its priority.
    pub fn push_front(&self, level: &Rc<WorkerLevel>, job: Job) {
        list(&mut self.0.borrow_mut(), level, job.priority()).push_front(job);
    }

    /// Take the first of a level that `fits`; one of another level does not stand in its way.
    pub fn pop(&self, fits: impl Fn(&WorkerLevel) -> bool) -> Option<(Rc<WorkerLevel>, Job)> {
        let mut lists = self.0.borrow_mut();
        let list = lists.iter_mut().find(|list| !list.jobs.is_empty() && fits(&list.level))?;
        list.jobs.pop_front().map(|job| (list.level.clone(), job))
    }

    /// Take the first request of the level that is no turn of a conversation.
    pub fn pop_single(&self, level: &Rc<WorkerLevel>) -> Option<Job> {
        let mut lists = self.0.borrow_mut();
        let mut ours = lists.iter_mut().filter(|list| Rc::ptr_eq(&list.level, level));
        ours.find(|list| list.jobs.front().is_some_and(|job| !job.is_turn()))?.jobs.pop_front()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().iter().all(|list| list.jobs.is_empty())
    }

    /// Take all of one level.
    pub fn withdraw(&self, level: &Rc<WorkerLevel>) -> Vec<Job> {
        let mut lists = self.0.borrow_mut();
        let ours = lists.extract_if(.., |list| Rc::ptr_eq(&list.level, level));
        ours.flat_map(|list| list.jobs).collect()
    }

    /// Let go of levels that are over.
    pub fn forget_drained(&self) {
        self.0.borrow_mut().retain(|list| !list.level.is_drained());
    }
}

/// The level's list of this priority.
fn list<'a>(lists: &'a mut Vec<List>, level: &Rc<WorkerLevel>, priority: i32) -> &'a mut VecDeque<Job> {
    let is_it = |list: &List| list.priority == priority && Rc::ptr_eq(&list.level, level);
    let place = lists.iter().position(is_it).unwrap_or_else(|| {
        let place = lists.partition_point(|list| list.priority >= priority);
        lists.insert(place, List { priority, level: level.clone(), jobs: VecDeque::new() });
        place
    });
    &mut lists[place].jobs
}

#[cfg(test)]
mod tests;
