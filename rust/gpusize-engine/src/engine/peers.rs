//! How the workers reach each other: commands, and what each knows of the others' free slots.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};

use super::messages::Command;

/// All workers of a session.
#[derive(Debug)]
pub struct Peers(Vec<Peer>);

#[derive(Debug)]
#[repr(align(128))] // as for counts: each worker writes its own
struct Peer {
    /// Not kept open by the others: a worker whose coordinator is gone ends.
    commands: WeakUnboundedSender<Command>,
    /// Slots that have nothing to do, as far as is known.
    idle: AtomicI64,
}

impl Peers {
    pub fn new(workers: &[UnboundedSender<Command>]) -> Self {
        Self(workers.iter().map(|w| Peer { commands: w.downgrade(), idle: AtomicI64::new(0) }).collect())
    }

    /// This worker has so many slots with nothing to do.
    #[inline]
    pub fn set_idle(&self, worker: usize, slots: usize) {
        self.0[worker].idle.store(slots as i64, Relaxed);
    }
}

/// The other workers, as one of them sees them. It asks for requests one at a time: the next question waits until the one
/// before has been answered.
#[derive(Debug)]
pub struct Others {
    peers: Arc<Peers>,
    /// The worker that sees them.
    but: usize,
    asks: Cell<bool>,
}

impl Others {
    pub fn new(peers: Arc<Peers>, but: usize) -> Self {
        Self { peers, but, asks: Cell::new(false) }
    }

    /// One that has a slot for a request; the slot counts as taken.
    pub fn take_idle(&self) -> Option<usize> {
        let others = self.peers.0.iter().enumerate().filter(|(worker, _)| *worker != self.but);
        let (worker, peer) = others.max_by_key(|(_, peer)| peer.idle.load(Relaxed))?;
        (peer.idle.load(Relaxed) > 0).then(|| {
            peer.idle.fetch_sub(1, Relaxed);
            worker
        })
    }

    /// Tell one. A worker that is gone has said so, which ends the level.
    pub fn tell(&self, worker: usize, command: Command) {
        if let Some(commands) = self.peers.0[worker].commands.upgrade() {
            let _ = commands.send(command);
        }
    }

    /// Ask one for requests, unless an answer is under way.
    pub fn ask_once(&self, worker: usize, command: impl FnOnce() -> Command) {
        if !self.asks.replace(true) {
            self.tell(worker, command());
        }
    }

    /// The answer has come.
    pub fn answered(&self) {
        self.asks.set(false);
    }
}
