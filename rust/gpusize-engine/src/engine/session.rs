//! The session: opened once for a target, then any number of levels, then closed.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc::unbounded_channel;

use super::context::Context;
use super::coordinator::Coordinator;
use super::cores;
use super::handle::Level;
use super::level::{LevelShared, lock};
use super::messages::Event;
use super::outside::now_ns;
use super::partition;
use super::peers::Peers;
use super::progress::LevelOutcome;
use super::watchdog::Patience;
use super::worker;
use crate::spec::{LevelPlan, LoadSpec, Mix, Order, Segment, StopSpec, TargetSpec, Think, Unit};
use gpusize_base::error::{Error, Result};
use gpusize_base::owner::Owner;
use gpusize_load::schedule::{Planned, Schedule};

/// Workers and connections to one target.
#[derive(Debug)]
pub struct Session {
    context: Arc<Context>,
    workers: usize,
    events: Sender<Event>,
    threads: Vec<JoinHandle<()>>,
    /// Hears nothing until all threads have let go of the other end.
    ended: Mutex<Receiver<Infallible>>,
    owner: Owner,
}

/// What one request before the levels brought.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// How it ended.
    pub outcome: &'static str,
    /// HTTP status of a failure, or 0 when there was none.
    pub status: Option<u16>,
    /// What went wrong, in the server's or the system's words.
    pub message: Option<String>,
    /// From the write to the last byte.
    pub service_ns: Option<i64>,
}

impl Session {
    /// Resolve the target, prepare the requests, start the workers. Nothing is sent yet.
    pub fn open(target: TargetSpec, segments: Vec<Segment>, rows: Vec<Vec<Vec<u8>>>, workers: usize) -> Result<Self> {
        Self::open_mix(target, segments, rows, None, workers)
    }

    /// Likewise, with requests of several kinds.
    pub fn open_mix(
        target: TargetSpec,
        segments: Vec<Segment>,
        rows: Vec<Vec<Vec<u8>>>,
        mix: Option<Mix>,
        workers: usize,
    ) -> Result<Self> {
        if workers == 0 || workers > 1024 {
            return Err(Error::usage(format!("{workers} workers"), "workers", "give 1 to 1024"));
        }
        cores::check(&target.pin)?;
        let context = Arc::new(Context::new(target, segments, rows, mix)?);
        let (events, inbox) = channel();
        let (commands, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| unbounded_channel()).unzip();
        let peers = Arc::new(Peers::new(&commands));
        let (alive, ended) = channel();
        let mut threads = Vec::new();
        let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name)
                .spawn(work)
                .map_err(|e| Error::environment(e.to_string(), "threads", "ask for fewer workers"))
        };
        for (index, receiver) in receivers.into_iter().enumerate() {
            let (context, peers, events, alive) = (context.clone(), peers.clone(), events.clone(), alive.clone());
            let work = Box::new(move || {
                worker::run(index, context, peers, events, receiver);
                drop(alive);
            });
            threads.push(spawn(format!("gpusize-worker-{index}"), work)?);
        }
        let coordinator = Coordinator::new(commands, Patience::of(&context.target));
        let work = Box::new(move || {
            coordinator.run(&inbox);
            drop(alive);
        });
        threads.push(spawn("gpusize-session".into(), work)?);
        Ok(Self { context, workers, events, threads, ended: Mutex::new(ended), owner: Owner::here() })
    }

    /// Queue a level; it starts when the one before has closed.
    pub fn level(&self, plan: LevelPlan) -> Result<Level> {
        self.level_by(plan, None)
    }

    /// Likewise; the due times of streams by plan are handed over beside it.
    pub fn level_by(&self, plan: LevelPlan, planned: Option<Planned>) -> Result<Level> {
        plan.check()?;
        let planned = planned.map(Arc::new);
        self.check(&plan)?;
        self.check_schedule(&plan, planned.as_ref())?;
        self.queue(plan, planned)
    }

    /// Refuse what does not fit the target, the dataset or the time that it is.
    fn check(&self, plan: &LevelPlan) -> Result<()> {
        let now = now_ns();
        for (place, ns) in [("start_ns", plan.start_ns), ("close_at_ns", plan.close_at_ns)] {
            if let Some(late_ns) = ns.map(|ns| now - ns).filter(|late_ns| *late_ns >= 0) {
                let what = format!("the time was over {} ms ago", late_ns as f64 / 1e6);
                return Err(Error::usage(what, place, "give one ahead of this host's monotonic clock"));
            }
        }
        let context = &self.context;
        let think = match &plan.load {
            LoadSpec::Closed(closed) => closed.think,
            LoadSpec::Open(open) => open.think,
        };
        let by_request = partition::unit(&plan.load) == Unit::Request;
        if context.requests.captures() && by_request {
            let todo = "make the load's unit sessions, or leave the captures out";
            return Err(Error::usage("requests repeat earlier answers, and nothing comes before them", "load", todo));
        }
        if think == Think::Recorded && (by_request || context.recorded_ns.is_none()) {
            let todo = "give mix.think_ns and make the load's unit sessions, or another think time";
            return Err(Error::usage("there are no recorded pauses between requests", "load.think", todo));
        }
        Ok(())
    }

    /// Refuse a load that has no schedule, before anything is sent.
    fn check_schedule(&self, plan: &LevelPlan, planned: Option<&Arc<Planned>>) -> Result<()> {
        let context = &self.context;
        match (&plan.load, planned) {
            (LoadSpec::Open(open), planned) => {
                if let Some(planned) = planned {
                    planned.check(open, context.requests.rows(), Some(context.endpoints.len()))?;
                }
                Schedule::by_unit(open, plan.seed, plan.order, &context.sessions, planned.cloned()).map(drop)
            }
            (LoadSpec::Closed(_), None) => Ok(()),
            (LoadSpec::Closed(_), Some(_)) => Err(Error::usage(
                "due times were given for a closed loop",
                "due",
                "leave them out, or ask for an open loop",
            )),
        }
    }

    fn queue(&self, plan: LevelPlan, planned: Option<Arc<Planned>>) -> Result<Level> {
        let shared = LevelShared::new(plan, self.context.requests.rows(), self.workers)?.with_planned(planned);
        let shared = Arc::new(shared.with(&self.context));
        self.events.send(Event::Queue(shared.clone())).map_err(|_| closed())?;
        Ok(Level { shared, events: self.events.clone() })
    }

    /// Send one request outside every level, so that a target that refuses is known before the sweep.
    pub fn probe(&self) -> Result<ProbeRun> {
        let plan = LevelPlan {
            visit: u32::MAX,
            seed: 0,
            load: LoadSpec::closed(1),
            stop: StopSpec { count: Some(1), ..StopSpec::default() },
            order: Order::File,
            dir: None,
            keep_bytes: 0,
            sample: 1,
            partition: None,
            held: false,
            start_ns: None,
            close_at_ns: None,
        };
        Ok(ProbeRun(self.queue(plan, None)?))
    }

    /// Have all threads stop what runs, and end.
    pub fn quit(&self) {
        let _ = self.events.send(Event::Quit);
    }

    /// Wait until they have ended; false when the time ran out.
    pub fn wait_ended(&self, timeout: Duration) -> bool {
        lock(&self.ended).recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }

    /// Let go of threads that may take their time to end.
    pub fn abandon(mut self) {
        self.threads.clear();
    }

    /// Stop what runs and end all threads.
    pub fn close(&mut self) {
        if !self.owner.is_here() {
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.quit();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

/// A probe on its way.
#[derive(Debug)]
pub struct ProbeRun(Level);

impl ProbeRun {
    /// Wait a while for the answer; none when there is none yet.
    pub fn wait(&self, timeout: Duration) -> Option<Probe> {
        self.0.wait(timeout).then(|| self.0.outcome().map(|o| Probe::of(&o)))?
    }

    /// Give up.
    pub fn stop(&self) {
        self.0.stop(0);
    }
}

impl Probe {
    fn of(outcome: &LevelOutcome) -> Self {
        let error = outcome.errors.first();
        Self {
            outcome: outcome.outcomes.keys().next().copied().unwrap_or("cancelled"),
            status: error.map(|e| e.status),
            message: error.map(|e| e.message.clone()),
            service_ns: outcome.residence_ns,
        }
    }
}

fn closed() -> Error {
    Error::usage("the session is closed", "session", "open a new one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_closes_a_session_can_look_up_while_its_threads_end() {
        let target = serde_json::from_str(r#"{"host":"127.0.0.1","port":1,"method":"GET","path":"/"}"#);
        let session = Session::open(target.expect("a target"), vec![], vec![vec![]], 2).expect("a session");
        assert!(!session.wait_ended(Duration::from_millis(1)), "nobody has told it to end");
        session.quit();
        assert!(session.wait_ended(Duration::from_secs(60)));
        session.abandon();
    }
}
