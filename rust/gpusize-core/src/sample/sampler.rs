//! The sampler: one thread on an absolute schedule, whatever it reads.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use serde_json::{Map, Value, json};

use super::columns::{Reading, Table};
use super::files::Tier;
use super::plan::Plan;
use super::source::{End, Source};
use super::sys::{Waker, kernel_tick_ns, no_slack, online_cpus, page_bytes, wait_until, watch};
use crate::clock::{now_ns, thread_cpu_ns};
use crate::error::{Error, Result};

/// Pages that each CPU may have charged ahead of what is used: the kernel's `MEMCG_CHARGE_BATCH`.
const CHARGE_BATCH_PAGES: i64 = 64;

/// Samples from its making until it is stopped or dropped.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    plan: Plan,
    stop: AtomicBool,
    waker: Waker,
    state: Mutex<State>,
}

struct State {
    sources: Vec<Sampled>,
    clock: Clock,
    marks: Vec<Value>,
    started_ns: i64,
    stopped_ns: Option<i64>,
    own_cpu_ns: i64,
}

struct Sampled {
    name: String,
    source: Box<dyn Source>,
    reading: Reading,
    table: Table,
    readings: u64,
}

/// Which tick is next, and what the ones before were like.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// Number of the last tick.
    tick: i64,
    ticks: u64,
    missed: i64,
    late_sum_ns: i64,
    late_max_ns: i64,
}

impl Clock {
    /// The tick of this moment: those between it and the last one were missed. Says the tier that is due.
    fn advance(&mut self, since_start_ns: i64, plan: &Plan) -> Tier {
        let now = (since_start_ns / plan.interval_ns).max(self.tick + 1);
        let due = |every_ns: i64| {
            let every = (every_ns / plan.interval_ns).max(1);
            now / every != self.tick / every
        };
        let tier = match (due(plan.slow_ns), due(plan.medium_ns)) {
            (true, _) => Tier::Slow,
            (false, true) => Tier::Medium,
            (false, false) => Tier::Fast,
        };
        let late_ns = (since_start_ns - now * plan.interval_ns).max(0);
        self.missed += now - self.tick - 1;
        self.ticks += 1;
        self.late_sum_ns += late_ns;
        self.late_max_ns = self.late_max_ns.max(late_ns);
        self.tick = now;
        tier
    }
}

impl Sampled {
    fn read(&mut self, tier: Tier) {
        self.reading.clear();
        self.source.read(tier, &mut self.reading);
        if !self.reading.is_empty() {
            self.table.push(&self.reading);
            self.readings += 1;
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("plan", &self.plan).field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A reading that panicked has left counters behind, which are whole numbers at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        no_slack();
        let mut watched = Watched::new(&self.waker);
        let mut due_ns = {
            let state = self.state();
            watched.follow(&state.sources);
            state.started_ns + self.plan.interval_ns
        };
        loop {
            // An interrupted wait only comes early: whether the tick is due is asked of the clock.
            let _ = wait_until(&mut watched.entries, due_ns);
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            let mut state = self.state();
            let woken_ns = now_ns();
            for (entry, (at, end)) in watched.entries[1..].iter().zip(&watched.ends) {
                if entry.revents != 0 {
                    state.sources[*at].source.ended(*end, woken_ns);
                    state.sources[*at].read(Tier::Slow);
                }
            }
            if woken_ns >= due_ns {
                let since_start_ns = woken_ns - state.started_ns;
                let tier = state.clock.advance(since_start_ns, &self.plan);
                for sampled in &mut state.sources {
                    sampled.read(tier);
                }
                if tier > Tier::Fast {
                    state.own_cpu_ns = thread_cpu_ns();
                }
                due_ns = state.started_ns + (state.clock.tick + 1) * self.plan.interval_ns;
            }
            watched.follow(&state.sources);
        }
        self.state().own_cpu_ns = thread_cpu_ns();
    }
}

/// What the thread waits for, made anew only when a source has something else to wait for.
struct Watched {
    /// The waker, then the ends.
    entries: Vec<libc::pollfd>,
    /// Whose ends they are.
    ends: Vec<(usize, End)>,
    held: Vec<Arc<File>>,
    changes: Option<u64>,
}

impl Watched {
    fn new(waker: &Waker) -> Self {
        let entries = vec![watch(waker.as_raw_fd(), libc::POLLIN)];
        Self { entries, ends: Vec::new(), held: Vec::new(), changes: None }
    }

    fn follow(&mut self, sources: &[Sampled]) {
        let changes = Some(sources.iter().map(|sampled| sampled.source.ends().changes()).sum());
        if self.changes == changes {
            return;
        }
        self.changes = changes;
        self.entries.truncate(1);
        self.ends.clear();
        self.held.clear();
        for (at, sampled) in sources.iter().enumerate() {
            for (end, file, entry) in sampled.source.ends().watched() {
                self.entries.push(entry);
                self.ends.push((at, end));
                self.held.push(file);
            }
        }
    }
}

impl Sampler {
    /// Open every source and begin.
    ///
    /// # Errors
    /// A plan that cannot be meant; a source that cannot be read; no descriptor or thread to be had.
    pub fn start(plan: Plan) -> Result<Self> {
        plan.check()?;
        let mut sources = Vec::new();
        for source in &plan.sources {
            let opened = source.open(&plan.root, plan.pss_ns)?;
            let (reading, table) = (Reading::default(), Table::default());
            sources.push(Sampled { name: source.name.clone(), source: opened, reading, table, readings: 0 });
        }
        let lacks = |error: std::io::Error| Error::environment(error.to_string(), "the sampler", "raise ulimit -n");
        let waker = Waker::new().map_err(lacks)?;
        let mut state = State {
            sources,
            clock: Clock::default(),
            marks: Vec::new(),
            started_ns: now_ns(),
            stopped_ns: None,
            own_cpu_ns: 0,
        };
        for sampled in &mut state.sources {
            sampled.read(Tier::Slow);
        }
        let shared = Arc::new(Shared { plan, stop: AtomicBool::new(false), waker, state: Mutex::new(state) });
        let of_thread = shared.clone();
        let builder = std::thread::Builder::new().name("gpusize-sampler".to_owned()).stack_size(256 * 1024);
        let thread = builder.spawn(move || of_thread.run()).map_err(lacks)?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// What was sampled since the last call, by source.
    pub fn drain(&self) -> Vec<(String, RecordBatch)> {
        let tables: Vec<(String, Table)> = {
            let mut state = self.shared.state();
            state.sources.iter_mut().map(|s| (s.name.clone(), std::mem::take(&mut s.table))).collect()
        };
        tables.into_iter().map(|(name, table)| (name, table.into_batch())).collect()
    }

    /// A phase begins: everything is read now, and high-water marks begin anew where the kernel can do that per descriptor.
    pub fn mark(&self, name: &str) -> Value {
        let mut state = self.shared.state();
        let stopped = state.stopped_ns.is_some();
        let mut reset = Vec::new();
        for sampled in &mut state.sources {
            if !stopped {
                sampled.read(Tier::Slow);
                if sampled.source.reset_peak() {
                    reset.push(sampled.name.clone());
                }
            }
        }
        let mark = json!({"name": name, "t_ns": now_ns(), "peak_reset": reset});
        state.marks.push(mark.clone());
        mark
    }

    /// What is known about the sampler and each source.
    pub fn facts(&self) -> Value {
        self.shared.state().facts(&self.shared.plan)
    }

    /// End: the thread is gone when this returns, after a last reading of everything. Safe to call twice.
    pub fn stop(&self) -> Value {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.waker.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread has printed itself; what was read until then is kept.
            let _ = thread.join();
        }
        let mut state = self.shared.state();
        if state.stopped_ns.is_none() {
            for sampled in &mut state.sources {
                sampled.read(Tier::Slow);
            }
            state.stopped_ns = Some(now_ns());
        }
        state.facts(&self.shared.plan)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    fn facts(&mut self, plan: &Plan) -> Value {
        let sources: Map<String, Value> = self
            .sources
            .iter_mut()
            .map(|sampled| {
                let mut facts = sampled.source.facts();
                facts["readings"] = json!(sampled.readings);
                (sampled.name.clone(), facts)
            })
            .collect();
        let clock = self.clock;
        let late_mean_ns = clock.late_sum_ns / i64::try_from(clock.ticks.max(1)).unwrap_or(i64::MAX);
        json!({
            "interval_ns": plan.interval_ns, "medium_ns": plan.medium_ns, "slow_ns": plan.slow_ns, "pss_ns": plan.pss_ns,
            "started_ns": self.started_ns, "stopped_ns": self.stopped_ns, "ticks": clock.ticks,
            "missed_ticks": clock.missed, "late_mean_ns": late_mean_ns, "late_max_ns": clock.late_max_ns,
            "own_cpu_ns": self.own_cpu_ns, "kernel_tick_ns": kernel_tick_ns(), "page_bytes": page_bytes(),
            "cpus": online_cpus(), "mem_error_bytes": CHARGE_BATCH_PAGES * page_bytes() * online_cpus(),
            "marks": self.marks, "sources": sources,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(interval_ms: i64) -> Plan {
        let text =
            format!(r#"{{"interval_ns": {}, "sources": [{{"name": "a", "kind": "host"}}]}}"#, interval_ms * 1_000_000);
        serde_json::from_str(&text).expect("a plan")
    }

    #[test]
    fn ticks_that_were_missed_are_counted_and_tiers_are_not() {
        let plan = plan(20);
        let mut clock = Clock::default();
        let ms = 1_000_000;
        assert_eq!(clock.advance(20 * ms + 5, &plan), Tier::Fast);
        assert_eq!((clock.tick, clock.missed, clock.late_max_ns), (1, 0, 5));
        // Ticks 2 to 5 were missed; the fifth would have been a medium one.
        assert_eq!(clock.advance(121 * ms, &plan), Tier::Medium);
        assert_eq!((clock.tick, clock.missed), (6, 4));
        assert_eq!(clock.advance(501 * ms, &plan), Tier::Slow);
        assert_eq!((clock.tick, clock.missed, clock.ticks), (25, 22, 3));
    }

    #[test]
    fn tiers_faster_than_the_ticks_are_those_of_the_ticks() {
        let plan = plan(2_000);
        let mut clock = Clock::default();
        for k in 1..4 {
            assert_eq!(clock.advance(k * 2_000_000_000, &plan), Tier::Slow);
        }
    }

    #[test]
    fn a_sampler_ends_at_once_however_long_its_interval() {
        let sampler = Sampler::start(plan(3_600_000)).expect("a sampler");
        let before = now_ns();
        let facts = sampler.stop();
        assert!(now_ns() - before < 3_600_000_000_000);
        // The first reading and the last.
        assert_eq!(facts["sources"]["a"]["readings"], 2);
        assert_eq!(sampler.stop()["stopped_ns"], facts["stopped_ns"]);
        let rows: usize = sampler.drain().iter().map(|(_, batch)| batch.num_rows()).sum();
        assert_eq!(rows, 2);
        assert_eq!(sampler.drain()[0].1.num_rows(), 0);
    }
}
