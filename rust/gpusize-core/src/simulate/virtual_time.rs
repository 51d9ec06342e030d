//! The cluster in virtual time: the load's arrivals and the cluster's events, in order, as fast as they can be worked off.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::connections::{Connections, Place};
use super::load::{Plan, Process, Start, Think};
use super::result::{Columns, Outcome, Totals};
use super::service::purpose;
use super::window::Window;
use super::{
    Arrivals, Cluster, ClusterConfig, Fault, Load, Observer, Payload, Refusal, Running, Sequence, ServiceDraws,
    SimError, Stalls, VirtualResult, ns,
};
use crate::draw::Draw;

/// How long an answer takes that needs no GPU. Without it a closed loop of failures would stand still.
const ERROR_NS: i64 = 1_000_000;

/// Answer what `config` would do under `load`. The same arguments give the same result.
pub fn run_virtual(config: &ClusterConfig, load: &Load) -> Result<VirtualResult, SimError> {
    if load.arrivals == Arrivals::Plan {
        return Err(SimError::value("load.arrivals", "needs due times beside the load for its plan"));
    }
    run(config, load, Plan::default())
}

/// The same with the requests that are handed over beside the load, whose arrivals must be [`Arrivals::Plan`].
pub fn run_plan(config: &ClusterConfig, load: &Load, plan: Plan<'_>) -> Result<VirtualResult, SimError> {
    if load.arrivals != Arrivals::Plan {
        return Err(SimError::value("load.arrivals", "must be a plan where due times are handed over beside the load"));
    }
    plan.validate()?;
    run(config, load, plan)
}

fn run(config: &ClusterConfig, load: &Load, plan: Plan<'_>) -> Result<VirtualResult, SimError> {
    config.validate()?;
    load.validate()?;
    let mut cluster = Cluster::new(config, true);
    let mut driver = Driver::new(config, load, plan);
    driver.start();
    while !driver.window.is_over() {
        let arrival_ns = driver.next_event_ns();
        // An iteration that ends as a request arrives has ended before: the request waits for the next one.
        match (cluster.next_event_ns(), arrival_ns) {
            (Some(event_ns), Some(arrival_ns)) if event_ns > arrival_ns => driver.act(&mut cluster),
            (Some(_), _) => cluster.step(&mut driver),
            (None, Some(_)) => driver.act(&mut cluster),
            (None, None) => break,
        }
    }
    Ok(driver.result(&cluster))
}

/// Row of a request in the columns.
#[derive(Debug)]
struct Row(usize);

impl Payload for Row {}

struct Driver<'a> {
    load: &'a Load,
    plan: Plan<'a>,
    connections: Connections,
    stalls: Stalls,
    services: ServiceDraws,
    prompts: Draw,
    gaps: Draw,
    thinks: Draw,
    /// (due, order, user), in the world's time.
    due: BinaryHeap<Reverse<(i64, u64, u32)>>,
    order: u64,
    /// Requests sent so far: the cluster's numbers for them.
    sent: u64,
    stagger_ns: i64,
    columns: Columns,
    window: Window,
    now_ns: i64,
    tokens: u64,
}

impl<'a> Driver<'a> {
    fn new(config: &ClusterConfig, load: &'a Load, plan: Plan<'a>) -> Self {
        let draw = |purpose| Draw::new(config.seed, 0, purpose);
        Self {
            load,
            plan,
            connections: Connections::new(load.connections, load.queue),
            stalls: Stalls::new(&config.faults),
            services: ServiceDraws::new(config, load.output_tokens),
            prompts: draw(purpose::PROMPT),
            gaps: draw(purpose::ARRIVAL),
            thinks: draw(purpose::THINK),
            due: BinaryHeap::new(),
            order: 0,
            sent: 0,
            stagger_ns: stagger_ns(config, load),
            columns: Columns::default(),
            window: Window::default(),
            now_ns: 0,
            tokens: 0,
        }
    }

    fn start(&mut self) {
        match self.load.arrivals {
            Arrivals::Open { .. } | Arrivals::Plan => self.next_of_open_loop(0),
            Arrivals::Closed { users, .. } => {
                for user in 0..users {
                    self.push(self.stagger_ns * i64::from(user) / i64::from(users), user);
                }
            }
        }
    }

    /// When a request is due or a connection is free next, in the cluster's time.
    fn next_event_ns(&self) -> Option<i64> {
        let due_ns = self.due.peek().map(|Reverse((due_ns, _, _))| *due_ns);
        due_ns.into_iter().chain(self.connections.next_end_ns()).min().map(|at_ns| self.stalls.to_model_ns(at_ns))
    }

    /// Let that happen; at the same moment, the connection is free first.
    fn act(&mut self, cluster: &mut Cluster<Row>) {
        let due_ns = self.due.peek().map(|Reverse((due_ns, _, _))| *due_ns);
        match self.connections.next_end_ns() {
            Some(end_ns) if due_ns.is_none_or(|due_ns| end_ns <= due_ns) => {
                if let Some(row) = self.connections.take_next() {
                    self.send(row, end_ns, cluster);
                }
            }
            _ => self.arrive(cluster),
        }
    }

    fn arrive(&mut self, cluster: &mut Cluster<Row>) {
        let Some(Reverse((due_ns, _, user))) = self.due.pop() else { return };
        self.now_ns = self.stalls.to_model_ns(due_ns);
        let row = self.columns.len();
        if !matches!(self.load.arrivals, Arrivals::Closed { .. }) {
            self.next_of_open_loop(due_ns);
        }
        let drawn = || self.load.prompt_tokens.draw(self.prompts, row as u64);
        let prompt_tokens = self.plan.prompt_tokens.map_or_else(drawn, |tokens| tokens[row]);
        let warmup = self.window.place(self.load, row, due_ns);
        self.columns.push(user, warmup, due_ns, prompt_tokens);
        match self.connections.place(row) {
            Place::Send => self.send(row, due_ns, cluster),
            Place::Wait => {}
            Place::Shed => self.end(row, due_ns),
        }
        if self.load.arrivals == Arrivals::Plan && self.due.is_empty() {
            self.window.close_behind(self.load, due_ns);
        }
    }

    /// Send request `row` at `sent_ns`, in the world's time.
    fn send(&mut self, row: usize, sent_ns: i64, cluster: &mut Cluster<Row>) {
        self.now_ns = self.stalls.to_model_ns(sent_ns);
        let index = self.sent;
        self.sent += 1;
        let output_tokens = self.plan.output_tokens.map(|tokens| tokens[row]);
        let service = self.services.draw(index, output_tokens, true);
        self.columns.sent_ns[row] = sent_ns;
        self.columns.outcome[row] = Outcome::from(service.fault);
        if service.fault == Some(Fault::Fail) {
            return self.end_with_error(row);
        }
        let sequence = Sequence {
            index,
            arrived_ns: self.now_ns,
            prompt_tokens: self.columns.prompt_tokens[row],
            cached_tokens: 0,
            output_tokens: service.output_tokens,
            cost_factor: service.cost_factor,
            payload: Row(row),
        };
        match cluster.arrive(sequence, self) {
            Ok(gpu) => self.columns.gpu[row] = gpu as u32,
            Err(Refusal::TooLong { .. } | Refusal::QueueFull) => {
                self.columns.outcome[row] = Outcome::HttpError;
                self.end_with_error(row);
            }
        }
    }

    fn end_with_error(&mut self, row: usize) {
        self.end(row, self.stalls.thawed_ns(self.columns.sent_ns[row]) + ERROR_NS);
    }

    fn end(&mut self, row: usize, end_ns: i64) {
        self.columns.end_ns[row] = end_ns;
        self.window.end(row);
        if self.columns.is_sent(row) {
            self.connections.ends(end_ns);
        }
        if let Arrivals::Closed { think_s, think, .. } = self.load.arrivals {
            let factor = if think == Think::Exponential { self.thinks.exp(row as u64) } else { 1.0 };
            self.push(end_ns + ns(think_s * factor), self.columns.user[row]);
        }
    }

    fn next_of_open_loop(&mut self, last_ns: i64) {
        let next_ns = match self.load.arrivals {
            Arrivals::Open { rate_per_s, process } => {
                let factor = if process == Process::Poisson { self.gaps.exp(self.order) } else { 1.0 };
                Some(last_ns + ns(factor / rate_per_s))
            }
            Arrivals::Plan => self.plan.due_ns.get(self.order as usize).copied(),
            Arrivals::Closed { .. } => None,
        };
        if let Some(next_ns) = next_ns {
            self.push(next_ns, self.order as u32);
        }
    }

    fn push(&mut self, due_ns: i64, user: u32) {
        self.due.push(Reverse((due_ns, self.order, user)));
        self.order += 1;
    }

    fn result(self, cluster: &Cluster<Row>) -> VirtualResult {
        let mut columns = self.columns;
        columns.truncate(self.window.recorded());
        let (open_ns, close_ns) = self.window.bounds_ns(self.now_ns);
        let gpus = 0..cluster.gpus();
        let totals = Totals {
            gpus: cluster.gpus() as u32,
            open_ns,
            close_ns,
            up_ns: gpus.clone().map(|gpu| self.now_ns - cluster.down_ns(gpu, self.now_ns)).sum(),
            busy_ns: gpus.clone().map(|gpu| cluster.busy_ns(gpu)).sum(),
            iterations: gpus.map(|gpu| cluster.iterations(gpu)).sum(),
            tokens: self.tokens,
        };
        VirtualResult::new(columns, &totals)
    }
}

impl Observer<Row> for Driver<'_> {
    fn iterations(
        &mut self,
        _gpu: usize,
        end_ns: i64,
        _iteration_ns: i64,
        count: u64,
        batch: &[Running<Row>],
        fresh: usize,
    ) {
        self.now_ns = end_ns;
        self.tokens += count * batch.len() as u64;
        for running in &batch[fresh..] {
            let row = running.sequence.payload.0;
            self.columns.start_ns[row] = self.stalls.to_world_ns(running.admitted_ns).max(self.columns.sent_ns[row]);
            self.columns.first_token_ns[row] = self.stalls.to_world_ns(end_ns);
        }
    }

    fn finished(&mut self, _gpu: usize, end_ns: i64, running: Running<Row>, tokens: u32) {
        let row = running.sequence.payload.0;
        self.columns.tokens_out[row] = tokens;
        self.end(row, self.stalls.to_world_ns(end_ns));
    }

    fn abandoned(&mut self, _sequence: Sequence<Row>) {}
}

/// Over how long the first requests of a closed loop are spread: as asked, or one residence time as the closed form has it, with the
/// users shared out over the GPUs and at most a full batch on each.
fn stagger_ns(config: &ClusterConfig, load: &Load) -> i64 {
    let Arrivals::Closed { users, start, stagger_s, .. } = load.arrivals else { return 0 };
    if start == Start::Burst {
        return 0;
    }
    let output = load.output_tokens.unwrap_or(config.output_tokens).mean_tokens();
    let gpus = config.replicas.first().map_or(config.gpus, |first| first.replicas);
    let per_gpu = f64::from(users.div_ceil(gpus).min(config.max_batch));
    let own_s =
        output * config.iteration_per_sequence_s + load.prompt_tokens.mean_tokens() * config.prefill_per_token_s;
    ns(stagger_s.unwrap_or((output + 1.0) * config.iteration_base_s + per_gpu * own_s))
}
