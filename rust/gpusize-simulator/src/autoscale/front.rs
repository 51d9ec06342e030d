//! What stands in front of the replicas: a gateway that holds requests, or refuses them, while no replica takes any.

use std::collections::VecDeque;

use serde::Serialize;

use super::FrontConfig;
use crate::ns;

/// Requests that came while no replica took any.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Fronted {
    /// Those that were held until a replica took them.
    pub held: u64,
    /// Those that were refused, at once or after having been held for too long.
    pub refused: u64,
    /// The longest that one was held for which a replica came, in the autoscaler's time.
    pub longest_s: f64,
}

/// What the gateway tells of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waiting {
    /// Requests that have come, since the start.
    pub(crate) arrived: u64,
    /// Those that it holds.
    pub(crate) held: usize,
}

/// The gateway. What it holds is the driver's; times are the cluster's.
#[derive(Debug)]
pub(crate) struct Front<T> {
    holds: bool,
    timeout_ns: i64,
    slowness: f64,
    /// Since when, and what; all wait equally long at most, so that the first is the first to go.
    held: VecDeque<(i64, T)>,
    arrived: u64,
    fronted: Fronted,
}

impl<T> Front<T> {
    pub(crate) fn new(config: FrontConfig, slowness: f64) -> Self {
        Self {
            holds: config.holds,
            timeout_ns: ns(config.timeout_s / slowness),
            slowness,
            held: VecDeque::new(),
            arrived: 0,
            fronted: Fronted::default(),
        }
    }

    /// A request has come, whatever becomes of it.
    pub(crate) fn arrives(&mut self) {
        self.arrived += 1;
    }

    /// Hold it; given back where it is refused.
    pub(crate) fn hold(&mut self, now_ns: i64, request: T) -> Result<(), T> {
        if !self.holds {
            self.fronted.refused += 1;
            return Err(request);
        }
        self.held.push_back((now_ns, request));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The one that has waited longest, for a replica that is there now.
    pub(crate) fn release(&mut self, now_ns: i64) -> Option<T> {
        let (since_ns, request) = self.held.pop_front()?;
        self.fronted.held += 1;
        let waited_s = crate::seconds(now_ns - since_ns) * self.slowness;
        self.fronted.longest_s = self.fronted.longest_s.max(waited_s);
        Some(request)
    }

    /// When one has waited for too long.
    pub(crate) fn next_ns(&self) -> Option<i64> {
        self.held.front().map(|(since_ns, _)| since_ns.saturating_add(self.timeout_ns))
    }

    /// That one.
    pub(crate) fn expire(&mut self) -> Option<T> {
        let (_, request) = self.held.pop_front()?;
        self.fronted.refused += 1;
        Some(request)
    }

    pub(crate) fn waiting(&self) -> Waiting {
        Waiting { arrived: self.arrived, held: self.held.len() }
    }

    pub(crate) fn fronted(&self) -> Fronted {
        self.fronted
    }
}
