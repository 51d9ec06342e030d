//! What a cluster is made of: replicas that take requests, and are done with them one event after the other.

use std::collections::VecDeque;

/// What a driver of any cluster gets to see. Times are the cluster's own.
pub trait Watch {
    /// From `at_ns` on, `desired` replicas are asked for, and the first `ready` take requests.
    fn replicas(&mut self, _at_ns: i64, _desired: usize, _ready: usize) {}
}

/// One replica, seen from the cluster around it. It has no clock: the cluster tells it the time, in order.
pub trait Replica {
    /// What all replicas of a cluster have in common: costs and limits.
    type Model;
    /// What it takes.
    type Request;
    /// Why it does not.
    type Refusal;

    /// Requests that it has, at work and waiting.
    fn load(&self) -> usize;

    /// Of these, those that wait.
    fn waiting(&self) -> usize;

    /// Share of the KV cache that is held; `None` where there is none.
    fn cache_usage(&self, _model: &Self::Model) -> Option<f64> {
        None
    }

    /// When something happens next, unless a request comes before.
    fn next_ns(&self, model: &Self::Model) -> Option<i64>;

    /// Time at work on what is over.
    fn busy_ns(&self) -> i64;

    /// Time at work until `now_ns`, with what is under way.
    fn busy_until_ns(&self, now_ns: i64) -> i64;

    /// Refuse a request that it cannot take now.
    fn admit(&self, request: &Self::Request, model: &Self::Model) -> Result<(), Self::Refusal>;

    /// Requests that have not begun, in order. Where replicas share a queue, it stands here for as long as an event of this one lasts.
    fn queue(&mut self) -> &mut VecDeque<Self::Request>;

    /// Where replicas share a queue: who goes first among those with a place for one more request, the least; `None` without a place.
    fn place(&self, model: &Self::Model) -> Option<usize>;

    /// Whether it waits for more before it begins with those in [`Replica::queue`]; they are its own then.
    fn gathers(&self) -> bool {
        false
    }
}

/// A replica whose events a driver of this kind is told of.
pub trait Serve<O: Watch>: Replica {
    /// Take a request at `now_ns`, which [`Replica::admit`] has let in; `number` is its own in the cluster.
    fn arrive(&mut self, number: usize, now_ns: i64, request: Self::Request, model: &Self::Model, observer: &mut O);

    /// Let happen at `now_ns` what [`Replica::next_ns`] said.
    fn step(&mut self, number: usize, now_ns: i64, model: &Self::Model, observer: &mut O);

    /// Begin with those in [`Replica::queue`], of an idle one that is new.
    fn wake(&mut self, number: usize, now_ns: i64, model: &Self::Model, observer: &mut O);
}
