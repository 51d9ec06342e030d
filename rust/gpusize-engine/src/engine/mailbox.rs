//! What a slot is to do next: one thing at most, and nothing that is put in is lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::job::Job;
use super::level::LevelShared;
use super::worker_level::WorkerLevel;

/// Something for a slot to do.
#[derive(Debug)]
pub enum Assignment {
    /// Have a connection ready for this level.
    Connect(Arc<LevelShared>),
    /// Send this request.
    Request(Rc<WorkerLevel>, Job),
}

/// What a slot holds until its task takes it up.
#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Connect(Arc<LevelShared>),
    Request(Rc<WorkerLevel>, Job),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Mailbox(RefCell<Held>);

impl Mailbox {
    /// Put a request in; says whose connect it displaced, as a request opens what it lacks. Where there is a request already,
    /// this one comes back.
    pub fn request(&self, level: &Rc<WorkerLevel>, job: Job) -> Result<Option<Arc<LevelShared>>, Job> {
        let mut held = self.0.borrow_mut();
        match &*held {
            Held::Request(..) => Err(job),
            Held::Nothing | Held::Connect(_) => {
                match std::mem::replace(&mut *held, Held::Request(level.clone(), job)) {
                    Held::Connect(other) => Ok(Some(other)),
                    Held::Nothing | Held::Request(..) => Ok(None),
                }
            }
        }
    }

    /// Put a connect in; says whose connect is not to be waited for, which is this one where there is a request, and else one
    /// that was there before.
    #[must_use = "who waits for it has to be told"]
    pub fn connect(&self, level: &Arc<LevelShared>) -> Option<Arc<LevelShared>> {
        let mut held = self.0.borrow_mut();
        match &*held {
            Held::Request(..) => Some(level.clone()),
            Held::Nothing | Held::Connect(_) => match std::mem::replace(&mut *held, Held::Connect(level.clone())) {
                Held::Connect(other) => Some(other),
                Held::Nothing | Held::Request(..) => None,
            },
        }
    }

    /// Take what it holds.
    pub fn take(&self) -> Option<Assignment> {
        match self.0.take() {
            Held::Nothing => None,
            Held::Connect(level) => Some(Assignment::Connect(level)),
            Held::Request(level, job) => Some(Assignment::Request(level, job)),
        }
    }

    /// Take a request of `level`, and nothing else.
    pub fn take_of(&self, level: &Rc<WorkerLevel>) -> Option<Job> {
        let mut held = self.0.borrow_mut();
        match std::mem::take(&mut *held) {
            Held::Request(theirs, job) if Rc::ptr_eq(&theirs, level) => Some(job),
            other => {
                *held = other;
                None
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(&*self.0.borrow(), Held::Nothing)
    }
}
