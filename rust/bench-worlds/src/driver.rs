//! The loop around the GPUs: who asks when, which GPU it goes to, and what comes of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::batching::BatchingServer;
use crate::clock::Clock;
use crate::disaggregated::DisaggregatedServer;
use crate::draws::{Draws, Purpose};
use crate::engine::EngineServer;
use crate::fixed_batches::FixedBatchesServer;
use crate::lengths::LengthDraws;
use crate::order::{Least, Ordered};
use crate::server::{Job, Server, Told};
use crate::sharing::SharingServer;
use crate::spec::{Mechanics, Process, Request, Router, Think};

/// One entry per request, in order of due times; times in ns from the start, -1 for never.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Rows {
    /// When it was due, and sent: there is nothing between the client and the router.
    pub due_ns: Vec<i64>,
    /// When it was first taken into a batch; never where the server does not tell.
    pub start_ns: Vec<i64>,
    /// End of the first token's iteration; never where there are no tokens.
    pub first_token_ns: Vec<i64>,
    /// When it was answered.
    pub end_ns: Vec<i64>,
    /// Tokens of the prompt.
    pub prompt_tokens: Vec<u32>,
    /// Tokens of the answer; 0 where tokens say nothing.
    pub tokens_out: Vec<u32>,
    /// Which GPU.
    pub gpu: Vec<u32>,
    /// Which user; in an open loop the row.
    pub user: Vec<u32>,
}

impl Rows {
    fn push(&mut self, due_ns: i64, lengths: (u32, u32), gpu: usize, user: u32) {
        self.due_ns.push(due_ns);
        self.start_ns.push(-1);
        self.first_token_ns.push(-1);
        self.end_ns.push(-1);
        self.prompt_tokens.push(lengths.0);
        self.tokens_out.push(lengths.1);
        self.gpu.push(gpu as u32);
        self.user.push(user);
    }

    fn truncate(&mut self, len: usize) {
        self.due_ns.truncate(len);
        self.start_ns.truncate(len);
        self.first_token_ns.truncate(len);
        self.end_ns.truncate(len);
        self.prompt_tokens.truncate(len);
        self.tokens_out.truncate(len);
        self.gpu.truncate(len);
        self.user.truncate(len);
    }
}

/// Run it until all counted requests are answered.
pub fn run(request: &Request) -> Result<Rows, String> {
    request.check()?;
    let gpus = request.gpus;
    Ok(match &request.world.mechanics {
        Mechanics::Batching(config) => Driver::run(request, (0..gpus).map(|_| BatchingServer::new(config)).collect()),
        Mechanics::FixedBatches(config) => {
            Driver::run(request, (0..gpus).map(|_| FixedBatchesServer::new(config)).collect())
        }
        Mechanics::Disaggregated(config) => {
            Driver::run(request, (0..gpus).map(|_| DisaggregatedServer::new(config)).collect())
        }
        Mechanics::Sharing(config) => Driver::run(request, (0..gpus).map(|_| SharingServer::new(config)).collect()),
        Mechanics::Engine(config) => {
            Driver::run(request, (0..gpus).map(|gpu| EngineServer::new(config, request.seed, gpu)).collect())
        }
    })
}

struct Driver<'a, S> {
    request: &'a Request,
    servers: Vec<S>,
    clocks: Vec<Clock>,
    /// (world's time, GPU, the GPU's generation); entries of an older generation are void.
    events: BinaryHeap<Reverse<(Ordered, u32, u32)>>,
    generations: Vec<u32>,
    nexts: Vec<f64>,
    /// (due, order, user).
    due: BinaryHeap<Reverse<(Ordered, u32, u32)>>,
    order: u32,
    least: Least,
    rows: Rows,
    lengths: LengthDraws<'a>,
    works: Draws,
    noise: Draws,
    gaps: Draws,
    thinks: Draws,
    routes: Draws,
    /// Counted or before them, and not answered yet.
    open: usize,
    told: Vec<Told>,
}

fn ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

impl<'a, S: Server> Driver<'a, S> {
    fn run(request: &'a Request, servers: Vec<S>) -> Rows {
        let (seed, gpus) = (request.seed, request.gpus);
        let slowness = request.world.contention.slowness(gpus);
        let wanted = request.load.warmup_requests as usize + request.load.requests as usize;
        let stream = |purpose| Draws::new(seed, purpose, 0);
        let mut driver = Self {
            request,
            servers,
            clocks: (0..gpus).map(|gpu| Clock::new(slowness, request.world.pauses, seed, gpu)).collect(),
            events: BinaryHeap::new(),
            generations: vec![0; gpus],
            nexts: vec![f64::INFINITY; gpus],
            due: BinaryHeap::new(),
            order: 0,
            least: Least::new(gpus),
            rows: Rows::default(),
            lengths: LengthDraws::new(&request.world.lengths, seed),
            works: stream(Purpose::Work),
            noise: stream(Purpose::Noise),
            gaps: stream(Purpose::Gap),
            thinks: stream(Purpose::Think),
            routes: stream(Purpose::Route),
            open: wanted,
            told: Vec::new(),
        };
        driver.start(slowness);
        while driver.open > 0 && driver.happen(wanted) {}
        driver.rows.truncate(wanted);
        driver.rows
    }

    fn start(&mut self, slowness: f64) {
        match (self.request.load.users, self.request.load.rate) {
            (Some(users), _) => {
                let apart_s = self.request.load.think_s + slowness * self.typical_s(f64::from(users));
                let spread_s = if self.request.load.burst { 0.0 } else { apart_s };
                for user in 0..users {
                    self.push(spread_s * f64::from(user) / f64::from(users), user);
                }
            }
            (None, Some(rate)) => self.next_of_open_loop(0.0, rate),
            (None, None) => {
                let request = self.request;
                for (row, due_s) in request.load.due_s.iter().enumerate() {
                    self.push(*due_s, row as u32);
                }
            }
        }
    }

    /// About how long a request takes: over so long the users come in.
    fn typical_s(&self, users: f64) -> f64 {
        let each = (users / self.request.gpus as f64).max(1.0);
        let (prompt, output) = self.lengths.means();
        match &self.request.world.mechanics {
            Mechanics::Batching(config) => config.typical_s(each, prompt, output),
            Mechanics::FixedBatches(config) => config.typical_s(each, prompt, output),
            Mechanics::Disaggregated(config) => config.typical_s(each, prompt, output),
            Mechanics::Engine(config) => config.typical_s(each, prompt, output),
            Mechanics::Sharing(config) => {
                let sample = 0..512;
                let mean = sample.map(|index| config.work.draw(self.works, index)).sum::<f64>() / 512.0;
                config.typical_s(each, mean)
            }
        }
    }

    fn push(&mut self, due_s: f64, user: u32) {
        self.due.push(Reverse((Ordered(due_s), self.order, user)));
        self.order += 1;
    }

    fn next_of_open_loop(&mut self, last_s: f64, rate: f64) {
        let index = self.order;
        let gap = match self.request.load.process {
            Process::Poisson => self.gaps.exp(u64::from(index)),
            Process::Constant => 1.0,
        };
        self.push(last_s + gap / rate, index);
    }

    /// The next event of a GPU, or the next arrival; at the same moment, the GPU's comes first. False when nothing is left.
    fn happen(&mut self, wanted: usize) -> bool {
        let due_s = self.due.peek().map_or(f64::INFINITY, |Reverse((at, _, _))| at.0);
        while let Some(&Reverse((at, gpu, generation))) = self.events.peek() {
            if self.generations[gpu as usize] != generation {
                self.events.pop();
                continue;
            }
            if at.0 > due_s {
                break;
            }
            self.events.pop();
            self.step(gpu as usize, at.0, wanted);
            return true;
        }
        if due_s.is_infinite() {
            return false;
        }
        self.arrive();
        true
    }

    fn step(&mut self, gpu: usize, world_s: f64, wanted: usize) {
        let mut told = std::mem::take(&mut self.told);
        self.servers[gpu].step(&mut told);
        for each in told.drain(..) {
            match each {
                Told::Started { row, at_s } => {
                    let start_ns = &mut self.rows.start_ns[row as usize];
                    if *start_ns < 0 {
                        *start_ns = ns(self.clocks[gpu].to_world_s(at_s));
                    }
                }
                Told::First { row, at_s } => {
                    self.rows.first_token_ns[row as usize] = ns(self.clocks[gpu].to_world_s(at_s));
                }
                Told::Done { row, .. } => self.done(row as usize, gpu, world_s, wanted),
            }
        }
        self.told = told;
        // Its event is spent, whatever comes next.
        self.nexts[gpu] = f64::NAN;
        self.schedule(gpu);
    }

    fn done(&mut self, row: usize, gpu: usize, world_s: f64, wanted: usize) {
        self.rows.end_ns[row] = ns(world_s);
        self.least.add(gpu, -1);
        if row < wanted {
            self.open -= 1;
        }
        let load = &self.request.load;
        if load.users.is_some() {
            let pause_s = match load.think {
                Think::None => 0.0,
                Think::Fixed => load.think_s,
                Think::Exponential => load.think_s * self.thinks.exp(row as u64),
            };
            self.push(world_s + pause_s, self.rows.user[row]);
        }
    }

    fn arrive(&mut self) {
        let Some(Reverse((due, _, user))) = self.due.pop() else { return };
        if let Some(rate) = self.request.load.rate {
            self.next_of_open_loop(due.0, rate);
        }
        let row = self.rows.due_ns.len();
        let index = row as u64;
        let gpu = match self.request.load.router {
            Router::LeastLoaded => self.least.first(),
            Router::RoundRobin => row % self.servers.len(),
            Router::Random => (self.routes.unit(index) * self.servers.len() as f64) as usize,
        };
        let (prompt, output) = self.lengths.draw(index);
        let factor = self.noise.factor(index, self.request.world.noise_sigma);
        let (work, told_tokens) = match &self.request.world.mechanics {
            Mechanics::Sharing(config) => (config.work.draw(self.works, index), 0),
            _ => (0.0, output),
        };
        self.rows.push(ns(due.0), (prompt, told_tokens), gpu, user);
        self.least.add(gpu, 1);
        let own_s = self.clocks[gpu].to_own_s(due.0);
        self.servers[gpu].arrive(own_s, Job { row: row as u32, prompt, output, factor, work });
        self.schedule(gpu);
    }

    /// Note when something happens next on a GPU, if that has changed.
    fn schedule(&mut self, gpu: usize) {
        let next_s = self.servers[gpu].next_s().unwrap_or(f64::INFINITY);
        if next_s.to_bits() == self.nexts[gpu].to_bits() {
            return;
        }
        self.nexts[gpu] = next_s;
        self.generations[gpu] = self.generations[gpu].wrapping_add(1);
        if next_s.is_finite() {
            let world_s = self.clocks[gpu].to_world_s(next_s);
            self.events.push(Reverse((Ordered(world_s), gpu as u32, self.generations[gpu])));
        }
    }
}
