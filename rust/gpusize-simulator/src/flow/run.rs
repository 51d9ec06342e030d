//! The servers in virtual time: the load's arrivals and the servers' events, in order.

use super::server::{Customer, Server, Service, Speeds};
use super::tasks::{Course, Step, Tasks, Took};
use super::{FlowConfig, FlowResult};
use crate::autoscale::{AutoscalerConfig, Histogram};
use crate::clients::Clients;
use crate::cluster::Shape;
use crate::mix::Lots;
use crate::replica::Watch;
use crate::result::NEVER;
use crate::summary::Totals;
use crate::virtual_time::{Around, Driver, ERROR_NS, Turn, autoscaler, run};
use crate::{Beside, Cluster, Judge, Load, Outcome, Plan, SimError, VirtualResult, earliest, replicas};

/// What is handed over beside servers and load, and what is wanted of the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct FlowBeside<'a> {
    /// Sizes of requests, in units of work, drawn from with replacement by the number of the request. Where the curve is in requests per
    /// second, their mean is 1.
    pub sizes: &'a [f64],
    /// Tasks that the sizes are those of, drawn whole in their place.
    pub tasks: Option<Tasks<'a>>,
    /// Due times of [`Arrivals::Plan`], in nanoseconds from the start, ascending.
    pub due_ns: Option<&'a [i64]>,
    /// Bounds that requests are held against.
    pub judge: Option<&'a Judge>,
    /// What scales the servers; the first ones are those of the first of `replicas`.
    pub autoscaler: Option<&'a AutoscalerConfig>,
    /// No rows, but the summary alone, with quantiles to a thousandth: memory does not grow with the requests.
    pub summary_only: bool,
}

/// Answer what `config` would do under `load`, whose lengths in tokens mean nothing here. The same arguments give the same result.
pub fn run_flow(config: &FlowConfig, load: &Load, beside: FlowBeside<'_>) -> Result<FlowResult, SimError> {
    config.validate()?;
    validate_sizes(beside.sizes)?;
    if let Some(tasks) = beside.tasks {
        tasks.validate(beside.sizes.len())?;
    }
    let plan = beside.due_ns.map(|due_ns| Plan { due_ns, ..Plan::default() });
    let shared = Beside { plan, judge: beside.judge, summary_only: beside.summary_only, ..Beside::default() };
    shared.validate(load)?;
    let gpus = replicas::at_first(&config.replicas, config.gpus);
    let stagger_ns = load.stagger_ns(gpus, |users| residence_s(config, beside.sizes, users));
    let autoscaler = autoscaler(beside.autoscaler, config.gpus, &config.replicas, false)?;
    let course = Course::new(beside.tasks);
    let mut driver = FlowDriver {
        clients: Clients::new(config.seed, load, beside.due_ns.unwrap_or_default(), stagger_ns, shared.ledger()),
        around: Around::new(beside.autoscaler, autoscaler, config.gpus),
        sizes: beside.sizes,
        lots: Lots::new(config.seed, course.len(beside.sizes.len())),
        took: (beside.tasks.is_some() && !beside.summary_only).then(Took::default),
        course,
        sent: 0,
        now_ns: 0,
    };
    let mut cluster = servers(config);
    if beside.autoscaler.is_some_and(|autoscaler| autoscaler.begins_at_zero) {
        cluster.scale(0, 0, &mut driver);
    }
    run(&mut cluster, &mut driver);
    Ok(driver.result(&cluster))
}

fn servers(config: &FlowConfig) -> Cluster<Server> {
    let shape = Shape {
        gpus: config.gpus,
        router: config.router,
        seed: config.seed,
        replicas: &config.replicas,
        start_delay_s: config.start_delay_s,
    };
    Cluster::of(shape, Speeds::new(config), Server::default)
}

fn validate_sizes(sizes: &[f64]) -> Result<(), SimError> {
    if sizes.is_empty() || u32::try_from(sizes.len()).is_err() {
        let problem = format!("must be between 1 and {}, not {}", u32::MAX, sizes.len());
        return Err(SimError::value("flow.sizes", problem));
    }
    match sizes.iter().find(|size| !(**size > 0.0 && **size <= 1e12)) {
        Some(bad) => Err(SimError::value("flow.sizes", format!("must be above 0 and at most 1e12, not {bad}"))),
        None => Ok(()),
    }
}

struct FlowDriver<'a> {
    clients: Clients<'a>,
    /// What is held is its number and the request.
    around: Around<(u64, Customer)>,
    sizes: &'a [f64],
    lots: Lots,
    course: Course<'a>,
    /// How long the requests of tasks took, where rows are wanted.
    took: Option<Took>,
    /// Requests sent so far: the router's numbers for them.
    sent: u64,
    now_ns: i64,
}

impl FlowDriver<'_> {
    fn hand_over(&mut self, index: u64, now_ns: i64, customer: Customer, cluster: &mut Cluster<Server>) {
        let slot = customer.slot;
        self.clients.request(slot).given_ns = now_ns;
        let Ok(server) = cluster.take(index, now_ns, customer, self);
        // In a queue that all share, each of them has its part; all are full.
        let shared = || cluster.load(0) + cluster.queued().div_ceil(cluster.ready());
        let ahead = server.map_or_else(shared, |server| cluster.load(server));
        let request = self.clients.request(slot);
        request.gpu = server.map_or(request.gpu, |server| server as u32);
        request.output = u32::try_from(ahead).unwrap_or(u32::MAX - 1);
    }

    /// When a client acts next, or a task of one goes on.
    fn next_due_ns(&self) -> Option<i64> {
        earliest(self.clients.next_ns(), self.course.next_ns())
    }

    fn go(&mut self, slot: usize, step: Step, now_ns: i64, cluster: &mut Cluster<Server>) {
        let Step::Request(place) = step else { return self.clients.end(slot, now_ns) };
        let index = self.sent;
        self.sent += 1;
        self.around.front.arrives();
        let customer = Customer { row: self.clients.request(slot).row, slot, size: self.sizes[place] };
        if cluster.ready() > 0 {
            self.hand_over(index, now_ns, customer, cluster);
        } else if self.around.front.hold(now_ns, (index, customer)).is_err() {
            self.refuse(slot, now_ns);
        }
    }

    fn refuse(&mut self, slot: usize, at_ns: i64) {
        self.clients.request(slot).outcome = Outcome::HttpError;
        self.clients.end(slot, at_ns + ERROR_NS);
    }

    fn result(self, cluster: &Cluster<Server>) -> FlowResult {
        let cut_ns = self.clients.cut_ns();
        let (ledger, window) = self.clients.finish(self.now_ns);
        let totals = cluster.totals(window, self.now_ns);
        let active_ns = (0..cluster.gpus()).map(|gpu| cluster.replica(gpu).active_ns()).fold(0, u64::saturating_add);
        // Their quotient is the mean number of active requests.
        let totals = Totals { iterations: totals.busy_ns as u64, tokens: active_ns, cut_ns, ..totals };
        let mut result = VirtualResult::new(ledger, &totals);
        result.summary.scaling = self.around.finish();
        let mut found = FlowResult::from(result);
        if let Some(took) = self.took {
            (found.columns.calls_ns, found.columns.calls) = took.by_row(found.columns.len());
        }
        found
    }
}

impl Driver<Server> for FlowDriver<'_> {
    fn is_over(&self) -> bool {
        self.clients.is_over() && self.around.is_over(self.now_ns)
    }

    fn next_ns(&self) -> Option<i64> {
        self.around.next(self.next_due_ns()).map(|(at_ns, _)| at_ns)
    }

    fn holds(&self) -> bool {
        !self.around.front.is_empty()
    }

    fn release(&mut self, now_ns: i64, cluster: &mut Cluster<Server>) {
        while let Some((index, customer)) = self.around.front.release(now_ns) {
            self.hand_over(index, now_ns, customer, cluster);
        }
    }

    fn act(&mut self, cluster: &mut Cluster<Server>) {
        let Some((at_ns, turn)) = self.around.next(self.next_due_ns()) else { return };
        self.now_ns = at_ns;
        match turn {
            Turn::Autoscaler => {
                if let Some(replicas) = self.around.act(at_ns, cluster) {
                    cluster.scale(at_ns, replicas, self);
                }
                return;
            }
            Turn::Expired => {
                if let Some((_, customer)) = self.around.front.expire() {
                    self.refuse(customer.slot, at_ns);
                }
                return;
            }
            Turn::Clients => {}
        }
        if let Some((slot, step)) = self.course.go_on(at_ns) {
            return self.go(slot, step, at_ns, cluster);
        }
        let lots = self.lots;
        let Some((slot, sent_ns)) = self.clients.act(|row| lots.place(row) as u32) else { return };
        let request = self.clients.request(slot);
        request.outcome = Outcome::Ok;
        let drawn = request.input as usize;
        if let Some(step) = self.course.begin(slot, drawn, sent_ns) {
            self.go(slot, step, sent_ns, cluster);
        }
    }
}

impl Watch for FlowDriver<'_> {
    fn replicas(&mut self, at_ns: i64, _desired: usize, _ready: usize) {
        self.now_ns = at_ns;
    }
}

impl Service for FlowDriver<'_> {
    fn begins(&mut self, server: usize, at_ns: i64, slot: usize) {
        let request = self.clients.request(slot);
        request.gpu = server as u32;
        // Of a task's requests the first one's.
        if request.start_ns == NEVER {
            request.start_ns = at_ns;
        }
    }

    fn done(&mut self, at_ns: i64, slot: usize) {
        self.now_ns = at_ns;
        if let Some(meters) = &mut self.around.meters {
            let request = self.clients.request(slot);
            // A gateway sees each of a task's requests come.
            let came_ns = self.course.came_ns(slot).unwrap_or(request.sent_ns);
            meters.took(request.gpu as usize, Histogram::Runtime, at_ns - request.given_ns, 1);
            meters.took(request.gpu as usize, Histogram::GatewayRuntime, at_ns - came_ns, 1);
        }
        if let (Some(took), Some(came_ns)) = (&mut self.took, self.course.came_ns(slot)) {
            took.push(self.clients.request(slot).row, at_ns - came_ns);
        }
        if self.course.ends(slot, at_ns) {
            self.clients.end(slot, at_ns);
        }
    }
}

/// One mean residence time with so many users on a server.
fn residence_s(config: &FlowConfig, sizes: &[f64], users: u32) -> f64 {
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let each = users.min(config.max_active.unwrap_or(u32::MAX)).max(1);
    let rate = config.rates.get(each as usize - 1).or(config.rates.last()).copied().unwrap_or(1.0);
    mean * f64::from(each) / rate
}
