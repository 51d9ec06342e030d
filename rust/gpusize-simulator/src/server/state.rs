//! What the tasks of the server share.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::super::autoscale::Autoscaler;
use super::super::{
    Cluster, ClusterConfig, Fault, Gpu, Job, Refusal, Sequence, Service, ServiceDraws, Stalls, seconds,
};
use super::busy::BusyShares;
use super::drive::Delivery;
use super::kserve::{Code, Ready, Refused, TensorTicket, Tensors};
use super::metrics::Metrics;
use super::prefix::Prefixes;
use super::text::Extent;
use super::ticket::Ticket;
use gpusize_base::clock::now_ns;
use gpusize_load::pace::timer::Timer;

/// Everything but the connections.
pub(super) struct Shared {
    pub config: ClusterConfig,
    services: ServiceDraws,
    pub stalls: RefCell<Stalls>,
    /// The monotonic clock at the cluster's time 0.
    pub epoch_ns: i64,
    /// The wall clock at the same moment, in seconds since 1970.
    pub epoch_wall_s: f64,
    pub cluster: RefCell<Cluster<Gpu<Rc<Ticket>>>>,
    pub autoscaler: RefCell<Option<Autoscaler>>,
    /// Every change of the replicas so far, the first with those at the start.
    changes: RefCell<Vec<ReplicaChange>>,
    pub tensors: RefCell<Tensors>,
    pub prefixes: RefCell<Prefixes>,
    pub metrics: RefCell<Metrics>,
    busy: RefCell<BusyShares>,
    /// The next event is another one than the engine waits for.
    pub changed: Notify,
    /// A stall may have ended.
    pub thawed: Notify,
    requests: Cell<u64>,
}

/// From some time on, in the cluster's own time, so many replicas are asked for and so many take requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplicaChange {
    pub at_ns: i64,
    pub desired: usize,
    pub ready: usize,
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

impl Submitted {
    /// What the answer says of the request's times, once it has ended; None where it says nothing of them.
    pub(super) fn metrics(&self, config: &ClusterConfig) -> Option<impl Fn() -> Value + use<>> {
        let ticket = self.ticket.as_ref().ok().filter(|_| config.per_request_metrics).cloned()?;
        let arrived_ns = self.arrived_ns;
        Some(move || ticket.metrics(arrived_ns))
    }
}

impl Shared {
    pub(super) fn new(config: ClusterConfig) -> io::Result<Self> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let cluster = Cluster::new(&config, false);
        let autoscaler = config.autoscaler.as_ref().map(Autoscaler::new).transpose().map_err(io::Error::other)?;
        let at_first = ReplicaChange { at_ns: 0, desired: cluster.desired(), ready: cluster.ready() };
        let mut tensors = Tensors::new(&config.tensor_models, config.gpus);
        tensors.set_ready(0, cluster.ready());
        Ok(Self {
            services: ServiceDraws::new(&config, None),
            stalls: RefCell::new(Stalls::new(&config.faults)),
            epoch_ns: now_ns(),
            epoch_wall_s: wall.as_secs_f64(),
            cluster: RefCell::new(cluster),
            autoscaler: RefCell::new(autoscaler),
            changes: RefCell::new(vec![at_first]),
            prefixes: RefCell::new(Prefixes::default()),
            tensors: RefCell::new(tensors),
            metrics: RefCell::new(Metrics::new(&config)?),
            busy: RefCell::new(BusyShares::new(config.gpus)),
            changed: Notify::new(),
            thawed: Notify::new(),
            requests: Cell::new(0),
            config,
        })
    }

    /// Nanoseconds since the start, as the world sees it.
    pub(super) fn now_ns(&self) -> i64 {
        now_ns() - self.epoch_ns
    }

    /// The cluster's own time when the world's is `world_ns`.
    pub(super) fn model_ns(&self, world_ns: i64) -> i64 {
        self.stalls.borrow().to_model_ns(world_ns)
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
        let model_ns = self.model_ns(arrived_ns);
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
        self.advance(&mut cluster, model_ns, &mut delivery);
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
        if service.fault == Some(Fault::Fail) {
            self.tensors.borrow_mut().stats[model].note_failure("BACKEND");
            return Err(Refused::new(Code::Internal, "failed on request (fail_rate)"));
        }
        let (sender, replies) = unbounded_channel();
        let arrived_ns = self.model_ns(self.now_ns());
        let before = self.tensors.borrow().next_event_ns();
        // What is over by now ends first, and replicas change, even when the engine is late for it.
        self.catch_up(arrived_ns);
        let mut tensors = self.tensors.borrow_mut();
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

    /// Bytes of what was made at `made_ns` are about to be written.
    pub(super) fn note_write(&self, made_ns: i64) {
        let late_ns = self.now_ns() - made_ns;
        self.metrics.borrow_mut().note_lateness(late_ns);
    }

    /// Time that a GPU has worked on tokens and tensors so far, in the cluster's own time; both at once count twice.
    pub(super) fn busy_ns(&self, gpu: usize) -> i64 {
        let model_ns = self.model_ns(self.now_ns());
        let of_tensors: i64 = self.tensors.borrow().queues.iter().map(|queue| queue.busy_ns(gpu, model_ns)).sum();
        self.with_cluster(|cluster| cluster.busy_until_ns(gpu, model_ns)) + of_tensors
    }

    /// The share of the last second, or of the time since the last look when that is longer, that each GPU was busy.
    pub(super) fn busy_shares(&self) -> Vec<f64> {
        let busy_ns = (0..self.config.gpus as usize).map(|gpu| self.busy_ns(gpu)).collect();
        self.busy.borrow_mut().look(self.now_ns(), busy_ns)
    }

    /// Replicas that are asked for, and those that are ready.
    pub(super) fn replicas(&self) -> (usize, usize) {
        self.with_cluster(|cluster| (cluster.desired(), cluster.ready()))
    }

    /// Keep a change of the replicas; of several at one moment, the last.
    pub(super) fn note_replicas(&self, change: ReplicaChange) {
        let mut changes = self.changes.borrow_mut();
        let known = changes.last().copied();
        if known.is_some_and(|last| (last.desired, last.ready) == (change.desired, change.ready)) {
            return;
        }
        if known.is_some_and(|last| last.at_ns == change.at_ns) {
            changes.pop();
        }
        changes.push(change);
    }

    /// Every change of the replicas so far, the first with those at the start.
    pub(super) fn replica_changes(&self) -> Vec<ReplicaChange> {
        self.changes.borrow().clone()
    }

    /// Least and most replicas that the autoscaler may ask for; `None` without one.
    pub(super) fn autoscaler_bounds(&self) -> Option<(i32, i32)> {
        self.autoscaler.borrow().as_ref().map(Autoscaler::bounds)
    }

    /// GPUs that take requests, or were removed and finish what they have.
    pub(super) fn gpus_up(&self) -> Vec<usize> {
        self.with_cluster(|cluster| (0..cluster.gpus()).filter(|&gpu| cluster.is_up(gpu)).collect())
    }

    /// How long a GPU was not up so far, in the cluster's own time.
    pub(super) fn down_ns(&self, gpu: usize) -> i64 {
        let model_ns = self.model_ns(self.now_ns());
        self.with_cluster(|cluster| cluster.down_ns(gpu, model_ns))
    }

    /// Read the cluster's state.
    pub(super) fn with_cluster<T>(&self, read: impl FnOnce(&Cluster<Gpu<Rc<Ticket>>>) -> T) -> T {
        read(&self.cluster.borrow())
    }
}
