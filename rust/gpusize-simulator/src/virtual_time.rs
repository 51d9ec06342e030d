//! The cluster in virtual time: the load's arrivals and the cluster's events, in order, as fast as they can be worked off.

use super::autoscale::front::Front;
use super::autoscale::meters::Meters;
use super::autoscale::{Autoscaler, AutoscalerConfig, Histogram};
use super::clients::Clients;
use super::gpu::Gpu;
use super::ledger::Ledger;
use super::load::Plan;
use super::mix::{Brought, Mix};
use super::replica::{Serve, Watch};
use super::service::purpose;
use super::summary::Totals;
use super::{
    Arrivals, Cluster, ClusterConfig, Fault, Judge, Load, Observer, Outcome, Payload, Refusal, ReplicaStep, Running,
    Sequence, ServiceDraws, SimError, Stalls, VirtualResult, replicas,
};
use gpusize_base::draw::Draw;

/// How long an answer takes that needs no GPU. Without it a closed loop of failures would stand still.
pub(super) const ERROR_NS: i64 = 1_000_000;

/// What is handed over beside the load, and what is wanted of the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The requests of [`Arrivals::Plan`], which no other load has.
    pub plan: Option<Plan<'a>>,
    /// Where lengths and costs are drawn from.
    pub mix: Option<Mix<'a>>,
    /// Bounds that requests are held against.
    pub judge: Option<&'a Judge>,
    /// What scales the cluster; its first replicas are those of the first of `replicas`.
    pub autoscaler: Option<&'a AutoscalerConfig>,
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
    let beside = Beside { autoscaler: beside.autoscaler.or(config.autoscaler.as_ref()), ..beside };
    beside.validate(load)?;
    let autoscaler = autoscaler(beside.autoscaler, config.gpus, &config.replicas, true)?;
    let mut cluster = Cluster::new(config, true);
    let mut driver = GpuDriver::new(config, load, beside, autoscaler);
    if beside.autoscaler.is_some_and(|autoscaler| autoscaler.begins_at_zero) {
        cluster.scale(0, 0, &mut driver);
    }
    run(&mut cluster, &mut driver);
    Ok(driver.result(&cluster))
}

/// The autoscaler of a cluster of so many GPUs, whose replicas nothing else changes.
pub(super) fn autoscaler(
    config: Option<&AutoscalerConfig>,
    gpus: u32,
    steps: &[ReplicaStep],
    has_cache: bool,
) -> Result<Option<Autoscaler>, SimError> {
    let Some(config) = config else { return Ok(None) };
    config.validate_on(gpus, steps, has_cache)?;
    Autoscaler::new(config).map(Some)
}

/// The other side of a cluster in virtual time.
pub(super) trait Driver<R>: Watch + Sized
where
    R: Serve<Self>,
{
    /// Whether nothing that happens counts any more.
    fn is_over(&self) -> bool;

    /// When it acts next, in the cluster's time.
    fn next_ns(&self) -> Option<i64>;

    /// Let it act.
    fn act(&mut self, cluster: &mut Cluster<R>);

    /// Whether requests are held until a replica takes them.
    fn holds(&self) -> bool;

    /// Hand them over at `now_ns`, as one is ready.
    fn release(&mut self, now_ns: i64, cluster: &mut Cluster<R>);
}

/// Let everything happen in order, until the driver has seen enough.
pub(super) fn run<R: Serve<D>, D: Driver<R>>(cluster: &mut Cluster<R>, driver: &mut D) {
    while !driver.is_over() {
        // What ends as a request arrives has ended before: the request waits for the next iteration.
        match (cluster.next_event_ns(), driver.next_ns()) {
            (Some(event_ns), Some(act_ns)) if event_ns > act_ns => driver.act(cluster),
            (Some(_), _) => cluster.step(driver),
            (None, Some(_)) => driver.act(cluster),
            (None, None) => break,
        }
        if driver.holds() && cluster.ready() > 0 {
            driver.release(cluster.now_ns(), cluster);
        }
    }
}

/// What an autoscaler sees of a run beside the replicas, and what waits for it.
#[derive(Debug)]
pub(super) struct Around<T> {
    pub(super) autoscaler: Option<Autoscaler>,
    pub(super) front: Front<T>,
    pub(super) meters: Option<Box<Meters>>,
    until_ns: i64,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Autoscaler,
    /// Of a request that was held for too long.
    Expired,
    Clients,
}

impl<T> Around<T> {
    pub(super) fn new(config: Option<&AutoscalerConfig>, autoscaler: Option<Autoscaler>, gpus: u32) -> Self {
        let slowness = config.map_or(1.0, |config| config.slowness);
        let counts = config.is_some_and(|config| config.signals.iter().any(super::Signal::needs_meters));
        Self {
            autoscaler,
            front: Front::new(config.map(|config| config.front).unwrap_or_default(), slowness),
            meters: counts.then(|| Box::new(Meters::new(gpus, slowness))),
            until_ns: config.map_or(0, |config| super::ns(config.until_s / slowness)),
        }
    }

    /// Whether the autoscaler has been looked at for long enough.
    pub(super) fn is_over(&self, now_ns: i64) -> bool {
        now_ns >= self.until_ns
    }

    /// Whose turn it is next, and when; at the same moment in this order.
    pub(super) fn next(&self, clients_ns: Option<i64>) -> Option<(i64, Turn)> {
        if self.autoscaler.is_none() && self.front.is_empty() {
            return clients_ns.map(|at_ns| (at_ns, Turn::Clients));
        }
        let autoscaler_ns = self.autoscaler.as_ref().map(Autoscaler::next_ns);
        [(autoscaler_ns, Turn::Autoscaler), (self.front.next_ns(), Turn::Expired), (clients_ns, Turn::Clients)]
            .into_iter()
            .filter_map(|(at_ns, turn)| at_ns.map(|at_ns| (at_ns, turn)))
            .min_by_key(|(at_ns, _)| *at_ns)
    }

    /// Let the autoscaler act; the replicas that it asks for, where that changes them.
    pub(super) fn act<R: super::Replica>(&mut self, now_ns: i64, cluster: &Cluster<R>) -> Option<u32> {
        let waiting = self.front.waiting();
        self.autoscaler.as_mut()?.act(now_ns, cluster, self.meters.as_deref(), waiting)
    }

    /// What the autoscaler did.
    pub(super) fn finish(self) -> Option<super::Scaling> {
        let fronted = self.front.fronted();
        self.autoscaler.map(|autoscaler| autoscaler.finish(fronted))
    }
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

impl Payload for Slot {
    const CANCELS: bool = false;
}

struct GpuDriver<'a> {
    load: &'a Load,
    brought: Brought<'a>,
    clients: Clients<'a>,
    stalls: Stalls,
    around: Around<Sequence<Slot>>,
    services: ServiceDraws,
    prompts: Draw,
    /// Requests sent so far: the cluster's numbers for them.
    sent: u64,
    now_ns: i64,
    tokens: u64,
}

impl<'a> GpuDriver<'a> {
    fn new(config: &ClusterConfig, load: &'a Load, beside: Beside<'a>, autoscaler: Option<Autoscaler>) -> Self {
        let plan = beside.plan.unwrap_or_default();
        let brought = Brought::new(config.seed, plan, beside.mix);
        let gpus = replicas::at_first(&config.replicas, config.gpus);
        let stagger_ns = load.stagger_ns(gpus, |users| residence_s(config, load, &brought, users));
        Self {
            load,
            brought,
            clients: Clients::new(config.seed, load, plan.due_ns, stagger_ns, beside.ledger()),
            stalls: Stalls::new(&config.faults),
            around: Around::new(beside.autoscaler, autoscaler, config.gpus),
            services: ServiceDraws::new(config, load.output_tokens),
            prompts: Draw::new(config.seed, 0, purpose::PROMPT),
            sent: 0,
            now_ns: 0,
            tokens: 0,
        }
    }

    /// Send a request at `sent_ns`, in the world's time.
    fn send(&mut self, slot: usize, sent_ns: i64, cluster: &mut Cluster<Gpu<Slot>>) {
        let index = self.sent;
        self.sent += 1;
        self.around.front.arrives();
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
            cached_tokens: self.brought.cached_tokens(row),
            output_tokens: service.output_tokens,
            cost_factor: service.cost_factor * self.brought.cost_factor(row),
            payload: Slot(slot),
        };
        if cluster.ready() > 0 {
            self.hand_over(sequence, cluster);
        } else if self.around.front.hold(self.now_ns, sequence).is_err() {
            self.refuse(slot, sent_ns);
        }
    }

    /// Give a request to a replica, at its `arrived_ns`.
    fn hand_over(&mut self, sequence: Sequence<Slot>, cluster: &mut Cluster<Gpu<Slot>>) {
        let (slot, at_ns, prompt_tokens) = (sequence.payload.0, sequence.arrived_ns, sequence.prompt_tokens);
        self.clients.request(slot).given_ns = at_ns;
        match cluster.arrive(sequence, self) {
            Ok(Some(gpu)) => {
                self.clients.request(slot).gpu = gpu as u32;
                if let Some(meters) = &mut self.around.meters {
                    meters.given(gpu, prompt_tokens);
                }
            }
            Ok(None) => {}
            Err(Refusal::TooLong { .. } | Refusal::QueueFull) => self.refuse(slot, self.stalls.to_world_ns(at_ns)),
        }
    }

    fn refuse(&mut self, slot: usize, at_ns: i64) {
        self.clients.request(slot).outcome = Outcome::HttpError;
        self.end_with_error(slot, at_ns);
    }

    fn next_of_clients_ns(&self) -> Option<i64> {
        self.clients.next_ns().map(|at_ns| self.stalls.to_model_ns(at_ns))
    }

    fn end_with_error(&mut self, slot: usize, sent_ns: i64) {
        self.clients.end(slot, self.stalls.thawed_ns(sent_ns) + ERROR_NS);
    }

    fn result(self, cluster: &Cluster<Gpu<Slot>>) -> VirtualResult {
        let cut_ns = self.clients.cut_ns();
        let (ledger, window) = self.clients.finish(self.now_ns);
        let iterations = (0..cluster.gpus()).map(|gpu| cluster.iterations(gpu)).sum();
        let totals = Totals { iterations, tokens: self.tokens, cut_ns, ..cluster.totals(window, self.now_ns) };
        let mut result = VirtualResult::new(ledger, &totals);
        result.summary.scaling = self.around.finish();
        result
    }
}

impl Driver<Gpu<Slot>> for GpuDriver<'_> {
    fn is_over(&self) -> bool {
        self.clients.is_over() && self.around.is_over(self.now_ns)
    }

    /// When a request is due, a connection is free, a held request is refused or the autoscaler acts next.
    fn next_ns(&self) -> Option<i64> {
        self.around.next(self.next_of_clients_ns()).map(|(at_ns, _)| at_ns)
    }

    fn holds(&self) -> bool {
        !self.around.front.is_empty()
    }

    fn release(&mut self, now_ns: i64, cluster: &mut Cluster<Gpu<Slot>>) {
        self.now_ns = now_ns;
        while let Some(sequence) = self.around.front.release(now_ns) {
            self.hand_over(Sequence { arrived_ns: now_ns, ..sequence }, cluster);
        }
    }

    fn act(&mut self, cluster: &mut Cluster<Gpu<Slot>>) {
        let Some((at_ns, turn)) = self.around.next(self.next_of_clients_ns()) else { return };
        self.now_ns = at_ns;
        match turn {
            Turn::Autoscaler => {
                if let Some(replicas) = self.around.act(at_ns, cluster) {
                    cluster.scale(at_ns, replicas, self);
                }
                return;
            }
            Turn::Expired => {
                if let Some(sequence) = self.around.front.expire() {
                    self.refuse(sequence.payload.0, self.stalls.to_world_ns(at_ns));
                }
                return;
            }
            Turn::Clients => {}
        }
        let (load, brought, prompts) = (self.load, self.brought, self.prompts);
        let drawn = |row| load.prompt_tokens.draw(prompts, row as u64);
        if let Some((slot, sent_ns)) = self.clients.act(|row| brought.prompt_tokens(row).unwrap_or_else(|| drawn(row)))
        {
            self.send(slot, sent_ns, cluster);
        }
    }
}

impl Watch for GpuDriver<'_> {}

impl Observer<Slot> for GpuDriver<'_> {
    fn iterations(
        &mut self,
        gpu: usize,
        end_ns: i64,
        iteration_ns: i64,
        count: u64,
        batch: &[Running<Slot>],
        fresh: usize,
    ) {
        self.now_ns = end_ns;
        self.tokens += count * batch.len() as u64;
        // What a request has met is written down when it ends: it would have to be fetched for it.
        let Some(meters) = &mut self.around.meters else { return };
        meters.made(gpu, count * batch.len() as u64);
        meters.took(gpu, Histogram::Itl, iteration_ns, count * fresh as u64);
        for running in &batch[fresh..] {
            let request = self.clients.request(running.sequence.payload.0);
            let (tokens, since_ns) = (running.sequence.prompt_tokens, running.sequence.arrived_ns);
            if request.gpu != gpu as u32 {
                // It waited in a queue that all share.
                (request.gpu != u32::MAX).then(|| meters.ended(request.gpu as usize, tokens));
                meters.given(gpu, tokens);
                request.gpu = gpu as u32;
            }
            meters.first_token(gpu, tokens);
            meters.took(gpu, Histogram::Ttft, end_ns - since_ns, 1);
            meters.took(gpu, Histogram::Queue, running.admitted_ns - since_ns, 1);
            meters.took(gpu, Histogram::GatewayTtft, self.stalls.to_world_ns(end_ns) - request.sent_ns, 1);
        }
    }

    fn finished(&mut self, gpu: usize, end_ns: i64, running: Running<Slot>, tokens: u32) {
        let slot = running.sequence.payload.0;
        let world_ns = self.stalls.to_world_ns(end_ns);
        let request = self.clients.request(slot);
        request.gpu = gpu as u32;
        request.start_ns = self.stalls.to_world_ns(running.admitted_ns).max(request.sent_ns);
        request.first_token_ns = self.stalls.to_world_ns(running.first_token_ns);
        request.output = tokens;
        if let Some(meters) = &mut self.around.meters {
            meters.ended(gpu, running.sequence.prompt_tokens);
            meters.took(gpu, Histogram::Runtime, end_ns - running.sequence.arrived_ns, 1);
            meters.took(gpu, Histogram::GatewayRuntime, world_ns - request.sent_ns, 1);
        }
        self.clients.end(slot, world_ns);
    }

    fn abandoned(&mut self, _sequence: Sequence<Slot>) {}
}

/// One residence time as the closed form has it, with so many users on a GPU and at most a full batch.
fn residence_s(config: &ClusterConfig, load: &Load, brought: &Brought<'_>, users: u32) -> f64 {
    let drawn = || load.output_tokens.unwrap_or(config.output_tokens).mean_tokens();
    let output = brought.mean_output_tokens().unwrap_or_else(drawn);
    let prompt = brought.mean_prompt_tokens().unwrap_or_else(|| load.prompt_tokens.mean_tokens());
    let own_s = output * config.iteration_per_sequence_s + prompt * config.prefill_per_token_s;
    (output + 1.0) * config.iteration_base_s + f64::from(users.min(config.max_batch)) * own_s
}
