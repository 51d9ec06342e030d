//! The sampler: one thread on an absolute schedule, whatever it reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use serde_json::{Map, Value, json};

use super::columns::{Reading, Table};
use super::files::Tier;
use super::plan::Plan;
use super::source::{Ends, Source};
use super::sys::{Waker, charge_error_bytes, kernel_tick_ns, no_slack, online_cpus, page_bytes};
use super::ticks::Ticks;
use super::watched::Watched;
use gpusize_base::clock::{now_ns, thread_cpu_ns};
use gpusize_base::error::{Error, Result};
use gpusize_base::owner::Owner;

/// Samples from its making until it is stopped or dropped.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    owner: Owner,
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
    ticks: Ticks,
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

    fn run(&self, mut watched: Watched) {
        no_slack();
        let mut due_ns = {
            let state = self.state();
            watched.follow(state.ends());
            state.started_ns + self.plan.interval_ns
        };
        loop {
            // It may come early: whether the tick is due is asked of the clock.
            watched.wait_until(due_ns);
            if self.stop.load(Ordering::Acquire) {
                break;
            }
            let mut state = self.state();
            let woken_ns = now_ns();
            for (at, end) in watched.ready() {
                state.sources[at].source.ended(end, woken_ns);
                state.sources[at].read(Tier::Slow);
            }
            if woken_ns >= due_ns {
                let since_start_ns = woken_ns - state.started_ns;
                let tier = state.ticks.advance(since_start_ns, &self.plan);
                for sampled in &mut state.sources {
                    sampled.read(tier);
                }
                if tier > Tier::Fast {
                    state.own_cpu_ns = thread_cpu_ns();
                }
                due_ns = state.started_ns + (state.ticks.last + 1) * self.plan.interval_ns;
            }
            watched.follow(state.ends());
        }
        self.state().own_cpu_ns = thread_cpu_ns();
    }
}

impl Sampler {
    /// Open every source and begin.
    ///
    /// # Errors
    /// An invalid plan; a source that cannot be read; no descriptor or thread to be had.
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
        let watched = Watched::new(&waker).map_err(lacks)?;
        let mut state = State {
            sources,
            ticks: Ticks::default(),
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
        let thread = builder.spawn(move || of_thread.run(watched)).map_err(lacks)?;
        Ok(Self { shared, owner: Owner::here(), thread: Mutex::new(Some(thread)) })
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

    /// End: the thread is gone when this returns, after a last reading of everything. Safe to call twice. In a forked child,
    /// which has no such thread, nothing is done and nothing is known.
    pub fn stop(&self) -> Value {
        if !self.owner.is_here() {
            // Neither its waker, which is the parent's, nor locks that the thread may have held when the child was made.
            if let Ok(mut thread) = self.thread.try_lock() {
                std::mem::forget(thread.take());
            }
            return json!({});
        }
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
    fn ends(&self) -> impl Iterator<Item = &Ends> + Clone {
        self.sources.iter().map(|sampled| sampled.source.ends())
    }

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
        let ticks = self.ticks;
        json!({
            "interval_ns": plan.interval_ns, "medium_ns": plan.medium_ns, "slow_ns": plan.slow_ns, "pss_ns": plan.pss_ns,
            "started_ns": self.started_ns, "stopped_ns": self.stopped_ns, "ticks": ticks.kept,
            "missed_ticks": ticks.missed, "late_mean_ns": ticks.late_mean_ns(), "late_max_ns": ticks.late_max_ns,
            "own_cpu_ns": self.own_cpu_ns, "kernel_tick_ns": kernel_tick_ns(), "page_bytes": page_bytes(),
            "cpus": online_cpus(), "mem_error_bytes": charge_error_bytes(),
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
