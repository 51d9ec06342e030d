//! The thread that starts levels on all workers at one instant and notices when they have closed and drained.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tokio::sync::mpsc::UnboundedSender;

use super::level::LevelShared;
use super::messages::{Command, Event};
use crate::clock::now_ns;
use crate::spec::{LoadSpec, Start};
use crate::stop::Reason;

/// What requests in flight have when failures close their level.
const VOID_DRAIN_NS: i64 = 1_000_000_000;
/// From the barrier to the common start: longer than a wake-up of every worker.
const LEAD_NS: i64 = 2_000_000;

struct Active {
    level: Arc<LevelShared>,
    closed: usize,
    drained: usize,
    /// All workers have been told to close it.
    told: bool,
}

/// See the module.
pub struct Coordinator {
    workers: Vec<UnboundedSender<Command>>,
    waiting: VecDeque<Arc<LevelShared>>,
    preparing: Option<(Arc<LevelShared>, usize)>,
    active: Vec<Active>,
    open: bool,
    /// A worker died, so no level can be whole any more.
    dead: bool,
    running: u32,
    residence_ns: i64,
}

impl Coordinator {
    pub fn new(workers: Vec<UnboundedSender<Command>>) -> Self {
        Self {
            workers,
            waiting: VecDeque::new(),
            preparing: None,
            active: Vec::new(),
            open: false,
            dead: false,
            running: 0,
            residence_ns: 0,
        }
    }

    /// Serve until `Quit`, then stop what runs and end the workers.
    pub fn run(mut self, events: &Receiver<Event>) {
        let mut quits = false;
        while let Ok(event) = events.recv() {
            match event {
                Event::Queue(level) if self.dead => end_unstarted(level, Reason::Failed),
                Event::Queue(level) if quits => end_unstarted(level, Reason::Stopped),
                Event::Queue(level) => self.waiting.push_back(level),
                Event::Stop(level) => self.stop(&level),
                Event::Ready => self.ready(),
                Event::Closed { level, reason } => self.closed(&level, reason),
                Event::Drained { level } => self.drained(&level),
                Event::Died => self.fail(),
                Event::Quit => {
                    quits = true;
                    self.stop_everything();
                }
            }
            if quits && self.active.is_empty() && self.preparing.is_none() {
                break;
            }
            if !quits {
                self.advance();
            }
        }
        self.tell(|| Command::Quit);
    }

    fn tell(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            // A worker that is gone cannot be told anything.
            let _ = worker.send(command());
        }
    }

    fn advance(&mut self) {
        if self.open || self.preparing.is_some() {
            return;
        }
        let Some(level) = self.waiting.front() else { return };
        let burst = matches!(&level.plan.load, LoadSpec::Closed(closed) if closed.start == Start::Burst);
        if burst && !self.active.is_empty() {
            return;
        }
        let Some(level) = self.waiting.pop_front() else { return };
        if self.active.is_empty() {
            self.running = 0;
            self.preparing = Some((level.clone(), 0));
            self.tell(|| Command::Prepare(level.clone()));
        } else {
            self.start(&level, now_ns());
        }
    }

    fn ready(&mut self) {
        let Some((level, ready)) = &mut self.preparing else { return };
        *ready += 1;
        if *ready < self.workers.len() {
            return;
        }
        let level = level.clone();
        self.preparing = None;
        if level.reason().is_some() {
            end(level);
        } else {
            self.start(&level, now_ns() + LEAD_NS);
        }
    }

    fn start(&mut self, level: &Arc<LevelShared>, start_ns: i64) {
        let stagger_ns = match &level.plan.load {
            LoadSpec::Closed(closed) if closed.start == Start::Staggered => {
                closed.stagger_ns.unwrap_or(self.residence_ns)
            }
            _ => 0,
        };
        let running = self.running;
        self.running = level.concurrency().unwrap_or(0);
        level.set_start(start_ns);
        self.open = true;
        self.active.push(Active { level: level.clone(), closed: 0, drained: 0, told: false });
        self.tell(|| Command::Start { level: level.clone(), start_ns, stagger_ns, running });
    }

    fn closed(&mut self, level: &Arc<LevelShared>, reason: Reason) {
        let Some(active) = self.active.iter_mut().find(|a| Arc::ptr_eq(&a.level, level)) else { return };
        active.closed += 1;
        if active.closed == level.members {
            self.open = false;
            self.residence_ns = level.residence_ns().unwrap_or(self.residence_ns);
        }
        // Counts and times end each worker by its own part of the schedule, of which the last request may still be due.
        let early = !matches!(reason, Reason::Count | Reason::Duration);
        if early && !std::mem::replace(&mut active.told, true) {
            self.tell(|| Command::Close { level: level.clone(), reason });
            if reason != Reason::Stopped {
                // The level is void: its last requests need not run into their timeouts. A stop brings its own time.
                level.cancel_by(now_ns() + VOID_DRAIN_NS);
                self.tell(|| Command::CancelAt(level.clone()));
            }
        }
    }

    fn drained(&mut self, level: &Arc<LevelShared>) {
        let Some(at) = self.active.iter().position(|a| Arc::ptr_eq(&a.level, level)) else { return };
        self.active[at].drained += 1;
        if self.active[at].drained == level.members {
            self.residence_ns = level.residence_ns().unwrap_or(self.residence_ns);
            end(self.active.remove(at).level);
        }
    }

    fn stop(&mut self, level: &Arc<LevelShared>) {
        if let Some(at) = self.waiting.iter().position(|w| Arc::ptr_eq(w, level)) {
            self.waiting.remove(at);
            end_unstarted(level.clone(), Reason::Stopped);
        } else if self.active.iter().any(|a| Arc::ptr_eq(&a.level, level)) {
            self.tell(|| Command::Close { level: level.clone(), reason: Reason::Stopped });
            self.tell(|| Command::CancelAt(level.clone()));
        } else if self.preparing.as_ref().is_some_and(|(l, _)| Arc::ptr_eq(l, level)) {
            self.stop_preparing(level);
        }
    }

    /// Nothing has been sent yet: there is nothing to drain, only connects to give up.
    fn stop_preparing(&self, level: &Arc<LevelShared>) {
        level.close(Reason::Stopped, now_ns());
        self.tell(|| Command::Close { level: level.clone(), reason: Reason::Stopped });
    }

    /// Without one of its workers no level can be whole: end them all, with what the others have recorded.
    fn fail(&mut self) {
        self.dead = true;
        let active = std::mem::take(&mut self.active).into_iter().map(|a| a.level);
        let preparing = self.preparing.take().map(|(level, _)| level);
        for level in active.chain(preparing).chain(std::mem::take(&mut self.waiting)) {
            level.close(Reason::Failed, now_ns());
            self.tell(|| Command::Close { level: level.clone(), reason: Reason::Failed });
            level.cancel_now();
            self.tell(|| Command::CancelAt(level.clone()));
            end(level);
        }
    }

    fn stop_everything(&mut self) {
        for level in std::mem::take(&mut self.waiting) {
            end_unstarted(level, Reason::Stopped);
        }
        if let Some((level, _)) = &self.preparing {
            self.stop_preparing(level);
        }
        for active in &self.active {
            let level = &active.level;
            level.cancel_now();
            self.tell(|| Command::Close { level: level.clone(), reason: Reason::Stopped });
            self.tell(|| Command::CancelAt(level.clone()));
        }
    }
}

fn end_unstarted(level: Arc<LevelShared>, reason: Reason) {
    level.close(reason, now_ns());
    end(level);
}

/// End a level's writer beside the next level, which must not wait for a slow disk.
fn end(level: Arc<LevelShared>) {
    let here = level.clone();
    if std::thread::Builder::new().name("gpusize-finish".into()).spawn(move || level.finish()).is_err() {
        here.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn without_a_worker_no_level_is_waited_for() {
        let plan = serde_json::from_str(r#"{"visit":0,"load":{"closed":{"concurrency":1}},"stop":{"count":1}}"#);
        let level = Arc::new(LevelShared::new(plan.expect("a plan"), 1, 1).expect("a level"));
        let (worker, _commands) = tokio::sync::mpsc::unbounded_channel();
        let (events, inbox) = channel();
        for event in [Event::Died, Event::Queue(level.clone()), Event::Quit] {
            events.send(event).expect("the inbox is open");
        }
        Coordinator::new(vec![worker]).run(&inbox);
        assert_eq!(level.reason(), Some(Reason::Failed));
    }
}
