//! The servers in virtual time: the load's arrivals and the servers' events, in order.

use super::server::Waiting;
use super::servers::{Servers, Step};
use super::{FlowConfig, FlowResult};
use crate::clients::Clients;
use crate::load::Start;
use crate::mix::Lots;
use crate::summary::Totals;
use crate::{Arrivals, Beside, Judge, Load, Outcome, Plan, SimError, VirtualResult, ns};

/// What is handed over beside servers and load, and what is wanted of the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct FlowBeside<'a> {
    /// Sizes of requests, in units of work, drawn from with replacement by the number of the request. Where the curve is in requests per
    /// second, their mean is 1.
    pub sizes: &'a [f64],
    /// Due times of [`Arrivals::Plan`], in nanoseconds from the start, ascending.
    pub due_ns: Option<&'a [i64]>,
    /// Bounds that requests are held against.
    pub judge: Option<&'a Judge>,
    /// No rows, but the summary alone, with quantiles to a thousandth: memory does not grow with the requests.
    pub summary_only: bool,
}

/// Answer what `config` would do under `load`, whose lengths in tokens mean nothing here. The same arguments give the same result.
pub fn run_flow(config: &FlowConfig, load: &Load, beside: FlowBeside<'_>) -> Result<FlowResult, SimError> {
    config.validate()?;
    validate_sizes(beside.sizes)?;
    let plan = beside.due_ns.map(|due_ns| Plan { due_ns, ..Plan::default() });
    let shared = Beside { plan, mix: None, judge: beside.judge, summary_only: beside.summary_only };
    shared.validate(load)?;
    let stagger_ns = stagger_ns(config, load, beside.sizes);
    let clients = Clients::new(config.seed, load, beside.due_ns.unwrap_or_default(), stagger_ns, shared.ledger());
    let mut driver = Driver {
        servers: Servers::new(config),
        clients,
        sizes: beside.sizes,
        lots: Lots::new(config.seed, beside.sizes.len()),
        sent: 0,
        now_ns: 0,
    };
    driver.run();
    Ok(driver.result(config))
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

struct Driver<'a> {
    servers: Servers,
    clients: Clients<'a>,
    sizes: &'a [f64],
    lots: Lots,
    /// Requests sent so far: the router's numbers for them.
    sent: u64,
    now_ns: i64,
}

impl Driver<'_> {
    fn run(&mut self) {
        while !self.clients.is_over() {
            // Who is done as a request arrives has been done before.
            match (self.servers.next_ns(), self.clients.next_ns()) {
                (Some(event_ns), Some(arrival_ns)) if event_ns > arrival_ns => self.act(arrival_ns),
                (Some(event_ns), _) => self.step(event_ns),
                (None, Some(arrival_ns)) => self.act(arrival_ns),
                (None, None) => break,
            }
        }
    }

    fn act(&mut self, at_ns: i64) {
        self.now_ns = at_ns;
        let lots = self.lots;
        let Some((slot, sent_ns)) = self.clients.act(|row| lots.place(row) as u32) else { return };
        let index = self.sent;
        self.sent += 1;
        let request = self.clients.request(slot);
        let size = self.sizes[request.input as usize];
        let (gpu, active, at_once) = self.servers.arrive(index, sent_ns, Waiting { row: request.row, slot, size });
        request.gpu = gpu as u32;
        request.output = u32::try_from(active).unwrap_or(u32::MAX - 1);
        request.outcome = Outcome::Ok;
        if at_once {
            request.start_ns = sent_ns;
        }
    }

    fn step(&mut self, event_ns: i64) {
        self.now_ns = event_ns;
        if let Some(Step::Done(done, next)) = self.servers.step() {
            if let Some(next) = next {
                self.clients.request(next).start_ns = event_ns;
            }
            self.clients.end(done, event_ns);
        }
    }

    fn result(self, config: &FlowConfig) -> FlowResult {
        let (ledger, (open_ns, close_ns)) = self.clients.finish(self.now_ns);
        let busy_ns = self.servers.busy_ns();
        let totals = Totals {
            gpus: config.gpus,
            open_ns,
            close_ns,
            up_ns: self.servers.up_ns(self.now_ns),
            draining_ns: self.servers.draining_ns(self.now_ns),
            busy_ns,
            // Their quotient is the mean number of active requests.
            iterations: busy_ns as u64,
            tokens: self.servers.active_ns(),
        };
        VirtualResult::new(ledger, &totals).into()
    }
}

/// Over how long the first requests of a closed loop are spread: as asked, or one mean residence time with the users shared out over the
/// servers.
fn stagger_ns(config: &FlowConfig, load: &Load, sizes: &[f64]) -> i64 {
    let Arrivals::Closed { users, start, stagger_s, .. } = load.arrivals else { return 0 };
    if start == Start::Burst {
        return 0;
    }
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let gpus = config.replicas.first().map_or(config.gpus, |first| first.replicas);
    let each = users.div_ceil(gpus).min(config.max_active.unwrap_or(u32::MAX)).max(1);
    let rate = config.rates.get(each as usize - 1).or(config.rates.last()).copied().unwrap_or(1.0);
    ns(stagger_s.unwrap_or(mean * f64::from(each) / rate))
}
