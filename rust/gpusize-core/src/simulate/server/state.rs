//! What the tasks of the server share, and the task that lets the cluster's iterations end on time.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::{
    Cluster, ClusterConfig, Fault, Job, Observer, Refusal, Running, Sequence, Service, ServiceDraws, Stalls, seconds,
};
use super::busy::BusyShares;
use super::kserve::{Code, Ready, Refused, TensorTicket, Tensors};
use super::metrics::Metrics;
use super::prefix::Prefixes;
use super::text::Extent;
use super::ticket::Ticket;
use crate::clock::now_ns;
use crate::pace::timer::Timer;

/// Everything but the connections.
pub(super) struct Shared {
    pub config: ClusterConfig,
    services: ServiceDraws,
    stalls: Stalls,
    /// The monotonic clock at the cluster's time 0.
    epoch_ns: i64,
    /// The wall clock at the same moment, in seconds since 1970.
    epoch_wall_s: f64,
    cluster: RefCell<Cluster<Rc<Ticket>>>,
    pub tensors: RefCell<Tensors>,
    pub prefixes: RefCell<Prefixes>,
    pub metrics: RefCell<Metrics>,
    busy: RefCell<BusyShares>,
    /// The next event is another one than the engine waits for.
    changed: Notify,
    requests: Cell<u64>,
}

/// What a request asks of the cluster.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wish {
    pub prompt_tokens: u32,
    /// Of these, tokens that a cache has.
    pub cached_tokens: u32,
    pub max_tokens: Option<u32>,
    pub ignore_eos: bool,
    /// Whether every token is written as it is made.
    pub streams: bool,
}

/// A request that was taken, or not.
pub(super) struct Submitted {
    pub index: u64,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub arrived_ns: i64,
    pub service: Service,
    pub ticket: Result<Rc<Ticket>, Refusal>,
}

impl Shared {
    pub(super) fn new(config: ClusterConfig) -> io::Result<Self> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            services: ServiceDraws::new(&config, None),
            stalls: Stalls::new(&config.faults),
            epoch_ns: now_ns(),
            epoch_wall_s: wall.as_secs_f64(),
            cluster: RefCell::new(Cluster::new(&config, false)),
            prefixes: RefCell::new(Prefixes::default()),
            tensors: RefCell::new(Tensors::new(&config.tensor_models, config.gpus)),
            metrics: RefCell::new(Metrics::new(&config)?),
            busy: RefCell::new(BusyShares::new(config.gpus)),
            changed: Notify::new(),
            requests: Cell::new(0),
            config,
        })
    }

    /// Nanoseconds since the start, as the world sees it.
    pub(super) fn now_ns(&self) -> i64 {
        now_ns() - self.epoch_ns
    }

    /// Wall time of `world_ns`, in seconds since 1970.
    pub(super) fn wall_s(&self, world_ns: i64) -> f64 {
        self.epoch_wall_s + seconds(world_ns)
    }

    /// Requests that have arrived so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.get()
    }

    /// Hand a request to the cluster, now. A request that is to fail gets no ticket and needs none.
    pub(super) fn submit(&self, wish: Wish) -> Submitted {
        let Wish { prompt_tokens, cached_tokens, max_tokens, ignore_eos, streams } = wish;
        let index = self.requests.replace(self.requests.get() + 1);
        let arrived_ns = self.now_ns();
        let service = self.services.draw(index, max_tokens, ignore_eos);
        let ticket = Ticket::new(streams, service.cut);
        let mut submitted =
            Submitted { index, prompt_tokens, cached_tokens, arrived_ns, service, ticket: Ok(Rc::clone(&ticket)) };
        if service.fault == Some(Fault::Fail) {
            return submitted;
        }
        let model_ns = self.stalls.to_model_ns(arrived_ns);
        let sequence = Sequence {
            index,
            arrived_ns: model_ns,
            prompt_tokens,
            cached_tokens,
            output_tokens: service.output_tokens,
            cost_factor: service.cost_factor,
            payload: ticket,
        };
        let mut cluster = self.cluster.borrow_mut();
        let before = cluster.next_event_ns();
        let mut delivery = Delivery { shared: self, metrics: &mut self.metrics.borrow_mut() };
        // Iterations that are over by now end first, even when the engine is late for them.
        cluster.advance(model_ns, &mut delivery);
        if let Err(refusal) = cluster.arrive(sequence, &mut delivery) {
            submitted.ticket = Err(refusal);
        }
        if cluster.next_event_ns() != before {
            self.changed.notify_one();
        }
        submitted
    }

    /// Hand a request to its tensor model, now: the fault that it is to meet, and its replies to come.
    pub(super) fn submit_tensor(
        &self,
        model: usize,
        items: u32,
        shape: Vec<i64>,
    ) -> Result<(Option<Fault>, UnboundedReceiver<Ready>), Refused> {
        let index = self.requests.replace(self.requests.get() + 1);
        let service = self.services.draw(index, None, false);
        let mut tensors = self.tensors.borrow_mut();
        if service.fault == Some(Fault::Fail) {
            tensors.stats[model].note_failure("BACKEND");
            return Err(Refused::new(Code::Internal, "failed on request (fail_rate)"));
        }
        let (sender, replies) = unbounded_channel();
        let arrived_ns = self.stalls.to_model_ns(self.now_ns());
        let before = tensors.next_event_ns();
        // What is over by now ends first, even when the engine is late for it.
        tensors.advance(arrived_ns, self.stalls, self.epoch_wall_s);
        let cost_factor = service.cost_factor;
        let job = Job { arrived_ns, items, shape, cost_factor, payload: TensorTicket(sender) };
        if tensors.queues[model].arrive(job).is_err() {
            tensors.stats[model].note_failure("REJECTED");
            return Err(Refused::new(Code::Unavailable, "Exceeds maximum queue size"));
        }
        if tensors.next_event_ns() != before {
            self.changed.notify_one();
        }
        Ok((service.fault, replies))
    }

    /// Let iterations and executions end when they are due, until the timer fails.
    pub(super) async fn run_cluster(&self) -> io::Error {
        let timer = match Timer::new() {
            Ok(timer) => timer,
            Err(error) => return error,
        };
        loop {
            let of_tensors_ns = self.tensors.borrow().next_event_ns();
            let of_cluster_ns = self.cluster.borrow_mut().next_event_ns();
            let Some(next_ns) = of_cluster_ns.into_iter().chain(of_tensors_ns).min() else {
                self.changed.notified().await;
                continue;
            };
            let due_ns = self.epoch_ns + self.stalls.to_world_ns(next_ns);
            let waited = tokio::select! {
                biased;
                waited = timer.wait_until(due_ns) => waited,
                () = self.changed.notified() => continue,
            };
            if let Err(error) = waited {
                return error;
            }
            let model_ns = self.stalls.to_model_ns(self.now_ns());
            let mut delivery = Delivery { shared: self, metrics: &mut self.metrics.borrow_mut() };
            self.cluster.borrow_mut().advance(model_ns, &mut delivery);
            self.tensors.borrow_mut().advance(model_ns, self.stalls, self.epoch_wall_s);
        }
    }

    /// Tokens of a prompt: those that were sent as such, or its characters by the cluster's rule.
    pub(super) fn prompt_tokens(&self, extent: Extent) -> u32 {
        if extent.tokens > 0 && extent.characters == 0 {
            return u32::try_from(extent.tokens).unwrap_or(u32::MAX);
        }
        self.config.count_prompt_tokens(extent.characters)
    }

    /// Wait until `world_ns`.
    pub(super) async fn wait_until(&self, world_ns: i64) -> io::Result<()> {
        Timer::new()?.wait_until(self.epoch_ns + world_ns).await
    }

    /// Wait while a stall is on.
    pub(super) async fn thaw(&self) -> io::Result<()> {
        let now_ns = self.now_ns();
        let thawed_ns = self.stalls.thawed_ns(now_ns);
        if thawed_ns > now_ns {
            self.wait_until(thawed_ns).await?;
        }
        Ok(())
    }

    /// Bytes of what was made at `made_ns` are about to be written.
    pub(super) fn note_write(&self, made_ns: i64) {
        let late_ns = self.now_ns() - made_ns;
        self.metrics.borrow_mut().note_lateness(late_ns);
    }

    /// Time that a GPU has worked on tokens and tensors so far, in the cluster's own time; both at once count twice.
    pub(super) fn busy_ns(&self, gpu: usize) -> i64 {
        let model_ns = self.stalls.to_model_ns(self.now_ns());
        let of_tensors: i64 = self.tensors.borrow().queues.iter().map(|queue| queue.busy_ns(gpu, model_ns)).sum();
        self.with_cluster(|cluster| cluster.busy_until_ns(gpu, model_ns)) + of_tensors
    }

    /// The share of the last second, or of the time since the last look when that is longer, that each GPU was busy.
    pub(super) fn busy_shares(&self) -> Vec<f64> {
        let busy_ns = (0..self.config.gpus as usize).map(|gpu| self.busy_ns(gpu)).collect();
        self.busy.borrow_mut().look(self.now_ns(), busy_ns)
    }

    /// Read the cluster's state.
    pub(super) fn with_cluster<T>(&self, read: impl FnOnce(&Cluster<Rc<Ticket>>) -> T) -> T {
        read(&self.cluster.borrow())
    }
}

/// Takes what the cluster makes to the tickets and the metrics.
struct Delivery<'a> {
    shared: &'a Shared,
    metrics: &'a mut Metrics,
}

impl Observer<Rc<Ticket>> for Delivery<'_> {
    fn iterations(
        &mut self,
        gpu: usize,
        end_ns: i64,
        iteration_ns: i64,
        count: u64,
        batch: &[Running<Rc<Ticket>>],
        fresh: usize,
    ) {
        let world_ns = self.shared.stalls.to_world_ns(end_ns);
        for running in batch {
            running.sequence.payload.deliver(count as u32, world_ns);
        }
        let counts = &mut self.metrics.gpus[gpu];
        counts.note_iteration(iteration_ns, batch.len(), fresh);
        for running in &batch[fresh..] {
            counts.note_first_token(running, end_ns);
        }
    }

    fn finished(&mut self, gpu: usize, end_ns: i64, running: Running<Rc<Ticket>>, tokens: u32) {
        self.metrics.gpus[gpu].note_end(&running, end_ns, tokens, running.sequence.payload.is_cut());
        running.sequence.payload.finish(self.shared.stalls.to_world_ns(end_ns));
    }

    fn abandoned(&mut self, _sequence: Sequence<Rc<Ticket>>) {
        self.metrics.abandoned += 1;
    }
}
