//! The cluster in virtual time: the load's arrivals and the cluster's events, in order, as fast as they can be worked off.

use super::clients::Clients;
use super::ledger::Ledger;
use super::load::{Plan, Start};
use super::mix::{Brought, Mix};
use super::service::purpose;
use super::summary::Totals;
use super::{
    Arrivals, Cluster, ClusterConfig, Fault, Judge, Load, Observer, Outcome, Payload, Refusal, Running, Sequence,
    ServiceDraws, SimError, Stalls, VirtualResult, ns,
};
use gpusize_base::draw::Draw;

/// How long an answer takes that needs no GPU. Without it a closed loop of failures would stand still.
const ERROR_NS: i64 = 1_000_000;

/// What is handed over beside the load, and what is wanted of the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The requests of [`Arrivals::Plan`], which no other load has.
    pub plan: Option<Plan<'a>>,
    /// Where lengths and costs are drawn from.
    pub mix: Option<Mix<'a>>,
    /// Bounds that requests are held against.
    pub judge: Option<&'a Judge>,
    /// No rows, but the summary alone, with quantiles to a thousandth: memory does not grow with the requests.
    pub summary_only: bool,
}

/// Answer what `config` would do under `load`. The same arguments give the same result.
pub fn run_virtual(config: &ClusterConfig, load: &Load) -> Result<VirtualResult, SimError> {
    run_beside(config, load, Beside::default())
}

/// The same with the requests that are handed over beside the load, whose arrivals must be [`Arrivals::Plan`].
pub fn run_plan(config: &ClusterConfig, load: &Load, plan: Plan<'_>) -> Result<VirtualResult, SimError> {
    run_beside(config, load, Beside { plan: Some(plan), ..Beside::default() })
}

/// The same with whatever is handed over beside the load.
pub fn run_beside(config: &ClusterConfig, load: &Load, beside: Beside<'_>) -> Result<VirtualResult, SimError> {
    config.validate()?;
    beside.validate(load)?;
    let mut cluster = Cluster::new(config, true);
    let mut driver = Driver::new(config, load, beside);
    while !driver.clients.is_over() {
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

impl Beside<'_> {
    /// Refuse what does not go together, the load included.
    pub(super) fn validate(&self, load: &Load) -> Result<(), SimError> {
        load.validate()?;
        match &self.plan {
            Some(_) if load.arrivals != Arrivals::Plan => {
                let problem = "must be a plan where due times are handed over beside the load";
                return Err(SimError::value("load.arrivals", problem));
            }
            Some(plan) if self.mix.is_some() && (plan.prompt_tokens.is_some() || plan.output_tokens.is_some()) => {
                return Err(SimError::value("mix", "does not go with a plan that has lengths of its own"));
            }
            Some(plan) => plan.validate()?,
            None if load.arrivals == Arrivals::Plan => {
                return Err(SimError::value("load.arrivals", "needs due times beside the load for its plan"));
            }
            None => {}
        }
        self.mix.map_or(Ok(()), |mix| mix.validate())?;
        self.judge.map_or(Ok(()), Judge::validate)
    }

    /// The books for such a run.
    pub(super) fn ledger(&self) -> Ledger {
        Ledger::new(!self.summary_only, self.judge)
    }
}

/// Slot of a request in the books.
#[derive(Debug)]
struct Slot(usize);

impl Payload for Slot {}

struct Driver<'a> {
    load: &'a Load,
    brought: Brought<'a>,
    clients: Clients<'a>,
    stalls: Stalls,
    services: ServiceDraws,
    prompts: Draw,
    /// Requests sent so far: the cluster's numbers for them.
    sent: u64,
    now_ns: i64,
    tokens: u64,
}

impl<'a> Driver<'a> {
    fn new(config: &ClusterConfig, load: &'a Load, beside: Beside<'a>) -> Self {
        let plan = beside.plan.unwrap_or_default();
        let brought = Brought::new(config.seed, plan, beside.mix);
        let stagger_ns = stagger_ns(config, load, &brought);
        Self {
            load,
            brought,
            clients: Clients::new(config.seed, load, plan.due_ns, stagger_ns, beside.ledger()),
            stalls: Stalls::new(&config.faults),
            services: ServiceDraws::new(config, load.output_tokens),
            prompts: Draw::new(config.seed, 0, purpose::PROMPT),
            sent: 0,
            now_ns: 0,
            tokens: 0,
        }
    }

    /// When a request is due or a connection is free next, in the cluster's time.
    fn next_event_ns(&self) -> Option<i64> {
        self.clients.next_ns().map(|at_ns| self.stalls.to_model_ns(at_ns))
    }

    /// Let that happen.
    fn act(&mut self, cluster: &mut Cluster<Slot>) {
        if let Some(at_ns) = self.next_event_ns() {
            self.now_ns = at_ns;
        }
        let (load, brought, prompts) = (self.load, self.brought, self.prompts);
        let drawn = |row| load.prompt_tokens.draw(prompts, row as u64);
        if let Some((slot, sent_ns)) = self.clients.act(|row| brought.prompt_tokens(row).unwrap_or_else(|| drawn(row)))
        {
            self.send(slot, sent_ns, cluster);
        }
    }

    /// Send a request at `sent_ns`, in the world's time.
    fn send(&mut self, slot: usize, sent_ns: i64, cluster: &mut Cluster<Slot>) {
        let index = self.sent;
        self.sent += 1;
        let request = self.clients.request(slot);
        let row = request.row;
        let service = self.services.draw(index, self.brought.output_tokens(row), true);
        request.outcome = Outcome::from(service.fault);
        if service.fault == Some(Fault::Fail) {
            return self.end_with_error(slot, sent_ns);
        }
        let sequence = Sequence {
            index,
            arrived_ns: self.now_ns,
            prompt_tokens: request.input,
            cached_tokens: 0,
            output_tokens: service.output_tokens,
            cost_factor: service.cost_factor * self.brought.cost_factor(row),
            payload: Slot(slot),
        };
        match cluster.arrive(sequence, self) {
            Ok(gpu) => self.clients.request(slot).gpu = gpu as u32,
            Err(Refusal::TooLong { .. } | Refusal::QueueFull) => {
                self.clients.request(slot).outcome = Outcome::HttpError;
                self.end_with_error(slot, sent_ns);
            }
        }
    }

    fn end_with_error(&mut self, slot: usize, sent_ns: i64) {
        self.clients.end(slot, self.stalls.thawed_ns(sent_ns) + ERROR_NS);
    }

    fn result(self, cluster: &Cluster<Slot>) -> VirtualResult {
        let (ledger, (open_ns, close_ns)) = self.clients.finish(self.now_ns);
        let gpus = 0..cluster.gpus();
        let totals = Totals {
            gpus: cluster.gpus() as u32,
            open_ns,
            close_ns,
            up_ns: gpus.clone().map(|gpu| self.now_ns - cluster.down_ns(gpu, self.now_ns)).sum(),
            draining_ns: cluster.draining_ns(self.now_ns),
            busy_ns: gpus.clone().map(|gpu| cluster.busy_ns(gpu)).sum(),
            iterations: gpus.map(|gpu| cluster.iterations(gpu)).sum(),
            tokens: self.tokens,
        };
        VirtualResult::new(ledger, &totals)
    }
}

impl Observer<Slot> for Driver<'_> {
    fn iterations(
        &mut self,
        _gpu: usize,
        end_ns: i64,
        _iteration_ns: i64,
        count: u64,
        batch: &[Running<Slot>],
        fresh: usize,
    ) {
        self.now_ns = end_ns;
        self.tokens += count * batch.len() as u64;
        for running in &batch[fresh..] {
            let request = self.clients.request(running.sequence.payload.0);
            request.start_ns = self.stalls.to_world_ns(running.admitted_ns).max(request.sent_ns);
            request.first_token_ns = self.stalls.to_world_ns(end_ns);
        }
    }

    fn finished(&mut self, _gpu: usize, end_ns: i64, running: Running<Slot>, tokens: u32) {
        let slot = running.sequence.payload.0;
        self.clients.request(slot).output = tokens;
        self.clients.end(slot, self.stalls.to_world_ns(end_ns));
    }

    fn abandoned(&mut self, _sequence: Sequence<Slot>) {}
}

/// Over how long the first requests of a closed loop are spread: as asked, or one residence time as the closed form has it, with the
/// users shared out over the GPUs and at most a full batch on each.
fn stagger_ns(config: &ClusterConfig, load: &Load, brought: &Brought<'_>) -> i64 {
    let Arrivals::Closed { users, start, stagger_s, .. } = load.arrivals else { return 0 };
    if start == Start::Burst {
        return 0;
    }
    let drawn = || load.output_tokens.unwrap_or(config.output_tokens).mean_tokens();
    let output = brought.mean_output_tokens().unwrap_or_else(drawn);
    let prompt = brought.mean_prompt_tokens().unwrap_or_else(|| load.prompt_tokens.mean_tokens());
    let gpus = config.replicas.first().map_or(config.gpus, |first| first.replicas);
    let per_gpu = f64::from(users.div_ceil(gpus).min(config.max_batch));
    let own_s = output * config.iteration_per_sequence_s + prompt * config.prefill_per_token_s;
    ns(stagger_s.unwrap_or((output + 1.0) * config.iteration_base_s + per_gpu * own_s))
}
