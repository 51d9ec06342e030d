//! The cluster in virtual time: the load's arrivals and the cluster's events, in order, as fast as they can be worked off.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::load::{Process, Start, Think};
use super::result::{Columns, Outcome, Totals};
use super::service::purpose;
use super::{
    Arrivals, Cluster, ClusterConfig, Fault, Load, Observer, Payload, Refusal, Running, Sequence, ServiceDraws,
    SimError, Stalls, VirtualResult, ns,
};
use crate::draw::Draw;

/// How long an answer takes that needs no GPU. Without it a closed loop of failures would stand still.
const ERROR_NS: i64 = 1_000_000;

/// Answer what `config` would do under `load`. The same arguments give the same result.
pub fn run_virtual(config: &ClusterConfig, load: &Load) -> Result<VirtualResult, SimError> {
    config.validate()?;
    load.validate()?;
    let mut cluster = Cluster::new(config, true);
    let mut driver = Driver::new(config, load);
    driver.start();
    while !driver.is_over() {
        let arrival_ns = driver.next_arrival_ns();
        // An iteration that ends as a request arrives has ended before: the request waits for the next one.
        match (cluster.next_event_ns(), arrival_ns) {
            (Some(event_ns), Some(arrival_ns)) if event_ns > arrival_ns => driver.arrive(&mut cluster),
            (Some(_), _) => cluster.step(&mut driver),
            (None, Some(_)) => driver.arrive(&mut cluster),
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
    stalls: Stalls,
    services: ServiceDraws,
    prompts: Draw,
    gaps: Draw,
    thinks: Draw,
    /// (due, order, user), in the world's time.
    due: BinaryHeap<Reverse<(i64, u64, u32)>>,
    order: u64,
    stagger_ns: i64,
    columns: Columns,
    open_ns: Option<i64>,
    close_ns: Option<i64>,
    counted: u64,
    /// Requests that were due before the window closed, counted and warm-up: the first rows.
    recorded: usize,
    /// Those of them that have not ended.
    pending: usize,
    now_ns: i64,
    tokens: u64,
}

impl<'a> Driver<'a> {
    fn new(config: &ClusterConfig, load: &'a Load) -> Self {
        let draw = |purpose| Draw::new(config.seed, 0, purpose);
        Self {
            load,
            stalls: Stalls::new(&config.faults),
            services: ServiceDraws::new(config, load.output_tokens),
            prompts: draw(purpose::PROMPT),
            gaps: draw(purpose::ARRIVAL),
            thinks: draw(purpose::THINK),
            due: BinaryHeap::new(),
            order: 0,
            stagger_ns: stagger_ns(config, load),
            columns: Columns::default(),
            open_ns: None,
            close_ns: None,
            counted: 0,
            recorded: 0,
            pending: 0,
            now_ns: 0,
            tokens: 0,
        }
    }

    fn start(&mut self) {
        match self.load.arrivals {
            Arrivals::Open { .. } => self.next_of_open_loop(0),
            Arrivals::Closed { users, .. } => {
                for user in 0..users {
                    self.push(self.stagger_ns * i64::from(user) / i64::from(users), user);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.close_ns.is_some() && self.pending == 0
    }

    fn next_arrival_ns(&self) -> Option<i64> {
        self.due.peek().map(|Reverse((due_ns, _, _))| self.stalls.to_model_ns(*due_ns))
    }

    fn arrive(&mut self, cluster: &mut Cluster<Row>) {
        let Some(Reverse((due_ns, _, user))) = self.due.pop() else { return };
        self.now_ns = self.stalls.to_model_ns(due_ns);
        if matches!(self.load.arrivals, Arrivals::Open { .. }) {
            self.next_of_open_loop(due_ns);
        }
        let row = self.columns.len();
        let service = self.services.draw(row as u64, None, false);
        let prompt_tokens = self.load.prompt_tokens.draw(self.prompts, row as u64);
        let warmup = self.place_in_window(row, due_ns);
        self.columns.push(user, warmup, due_ns, prompt_tokens, Outcome::from(service.fault));
        if service.fault == Some(Fault::Fail) {
            return self.end_with_error(row);
        }
        let sequence = Sequence {
            index: row as u64,
            arrived_ns: self.now_ns,
            prompt_tokens,
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

    /// Open and close the window; whether request `row`, due at `due_ns`, is warm-up.
    fn place_in_window(&mut self, row: usize, due_ns: i64) -> bool {
        if self.close_ns.is_some() {
            return false;
        }
        let load = self.load;
        if self.open_ns.is_none() && row as u64 >= load.warmup_requests && due_ns >= ns(load.warmup_s) {
            self.open_ns = Some(due_ns);
        }
        let Some(open_ns) = self.open_ns else {
            self.pending += 1;
            self.recorded += 1;
            return true;
        };
        let last_ns = load.duration_s.map_or(i64::MAX, |duration_s| open_ns + ns(duration_s));
        if due_ns >= last_ns || load.requests.is_some_and(|requests| self.counted >= requests) {
            self.close_ns = Some(due_ns.min(last_ns));
        } else {
            self.counted += 1;
            self.pending += 1;
            self.recorded += 1;
        }
        false
    }

    fn end_with_error(&mut self, row: usize) {
        self.end(row, self.stalls.thawed_ns(self.columns.due_ns[row]) + ERROR_NS);
    }

    fn end(&mut self, row: usize, end_ns: i64) {
        self.columns.end_ns[row] = end_ns;
        if row < self.recorded {
            self.pending -= 1;
        }
        if let Arrivals::Closed { think_s, think, .. } = self.load.arrivals {
            let factor = if think == Think::Exponential { self.thinks.exp(row as u64) } else { 1.0 };
            self.push(end_ns + ns(think_s * factor), self.columns.user[row]);
        }
    }

    fn next_of_open_loop(&mut self, last_ns: i64) {
        if let Arrivals::Open { rate_per_s, process } = self.load.arrivals {
            let factor = if process == Process::Poisson { self.gaps.exp(self.order) } else { 1.0 };
            self.push(last_ns + ns(factor / rate_per_s), self.order as u32);
        }
    }

    fn push(&mut self, due_ns: i64, user: u32) {
        self.due.push(Reverse((due_ns, self.order, user)));
        self.order += 1;
    }

    fn result(self, cluster: &Cluster<Row>) -> VirtualResult {
        let mut columns = self.columns;
        columns.truncate(self.recorded);
        let gpus = 0..cluster.gpus();
        let totals = Totals {
            gpus: cluster.gpus() as u32,
            open_ns: self.open_ns.unwrap_or(0),
            close_ns: self.close_ns.unwrap_or(self.now_ns),
            end_ns: self.now_ns,
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
            self.columns.start_ns[row] = self.stalls.to_world_ns(running.admitted_ns).max(self.columns.due_ns[row]);
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
    let per_gpu = f64::from(users.div_ceil(config.gpus).min(config.max_batch));
    let own_s =
        output * config.iteration_per_sequence_s + load.prompt_tokens.mean_tokens() * config.prefill_per_token_s;
    ns(stagger_s.unwrap_or((output + 1.0) * config.iteration_base_s + per_gpu * own_s))
}
