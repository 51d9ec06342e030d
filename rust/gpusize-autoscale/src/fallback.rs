//! What stands for a trigger that fails, and how often in a row it has.

use crate::formula::go_int;
use crate::keda::{Standing, approximate};
use crate::policy::Target;
use crate::scaled_object::{Fallback, FallbackBehavior, ScaledObject};

/// Who has seen a trigger fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// A poll, which reads the object anew each time.
    Poll,
    /// A question of the HPA, for which an object is kept together with its scalers.
    Question,
}

/// `status.health`: failures in a row of each trigger.
///
/// Both sides count in the object's status, but each in its own copy of it. That of the questions is read when scalers are built, which
/// is after each failure that reaches the HPA, and brought up to date whenever it changes something itself. Scalers that a poll has built
/// come with the poll's own copy.
#[derive(Debug)]
pub(crate) struct Health {
    stored: Vec<i32>,
    scalers: Scalers,
}

#[derive(Debug)]
enum Scalers {
    /// To be built by who needs them next.
    None,
    OfPoll,
    OfQuestion(Vec<i32>),
}

impl Health {
    pub(crate) fn new(triggers: usize) -> Self {
        Self { stored: vec![0; triggers], scalers: Scalers::None }
    }

    pub(crate) fn poll_begins(&mut self) {
        if matches!(self.scalers, Scalers::None) {
            self.scalers = Scalers::OfPoll;
        }
    }

    pub(crate) fn question_begins(&mut self) {
        if matches!(self.scalers, Scalers::None) {
            self.scalers = Scalers::OfQuestion(self.stored.clone());
        }
    }

    pub(crate) fn forget(&mut self) {
        self.scalers = Scalers::None;
    }

    /// Of a trigger, in the copy that is looked at.
    pub(crate) fn failures(&self, side: Side, place: usize) -> i32 {
        match (&self.scalers, side) {
            (Scalers::OfQuestion(own), Side::Question) => own[place],
            _ => self.stored[place],
        }
    }

    pub(crate) fn happy(&mut self, side: Side, place: usize) {
        self.set(side, place, 0);
    }

    /// One more; how many that makes.
    pub(crate) fn fails(&mut self, side: Side, place: usize) -> i32 {
        let count = self.failures(side, place).saturating_add(1);
        self.set(side, place, count);
        count
    }

    fn set(&mut self, side: Side, place: usize, count: i32) {
        if self.failures(side, place) == count {
            return;
        }
        self.stored[place] = count;
        if let (Scalers::OfQuestion(own), Side::Question) = (&mut self.scalers, side) {
            own.clone_from(&self.stored);
        }
    }
}

/// `doFallback`: a value that asks the HPA for the fallback's replicas, in thousandths, and whether it counts as one.
pub(crate) fn stand_in(
    object: &ScaledObject,
    fallback: Fallback,
    place: usize,
    standing: Standing,
) -> Result<(i64, bool), ()> {
    let current = standing.replicas;
    let replicas = match fallback.behavior {
        FallbackBehavior::Static => fallback.replicas,
        FallbackBehavior::CurrentReplicas => current,
        FallbackBehavior::CurrentReplicasIfHigher => current.max(fallback.replicas),
        FallbackBehavior::CurrentReplicasIfLower => current.min(fallback.replicas),
        // A mark for the formula, which sees nil in its place; without a formula it is a value like others.
        FallbackBehavior::ScalingModifiers => return Ok((-1000, false)),
    };
    let (target, is_value) = match (&object.modifiers, object.triggers[place].target) {
        (Some(modifiers), _) => (modifiers.target().ok_or(())?, modifiers.is_value),
        (None, Target::Value(milli)) => (approximate(milli), true),
        (None, Target::AverageValue(milli)) => (approximate(milli), false),
        (None, Target::Utilization(_)) => return Err(()),
    };
    let mut replicas = f64::from(replicas);
    if is_value {
        if standing.ready == 0 {
            return Err(());
        }
        replicas /= f64::from(standing.ready);
    }
    Ok((go_int(target * 1000.0 * replicas), true))
}
