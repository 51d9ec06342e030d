//! A slot's connections, one for each address that it has used, and what all transports share: opening them, asking once
//! more where nothing was lost, saying how an exchange ended.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::download::Download;
use super::failure::{Failure, Reach, apart, ended, guard};
use super::http1;
use super::job::Job;
use super::level::{LevelShared, Share, bump};
use super::outside::now_ns;
use super::place::{Carrier, Conn, Place, open};
use super::response::{self, Reader};
use super::rpc::Replies;
use super::slot::Slot;
use super::unsent::Unsent;
use super::worker::Worker;
use super::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use crate::record::columns::NO_TIME;
use crate::record::{Due, Row};
use crate::wire::http2::Request;
use crate::wire::request::Buffers;
use crate::wire::trace;

/// A connection that lay idle this long is looked at before it is used. A server's close that comes sooner, or that only
/// shows when we write, is met by asking once more.
const IDLE_NS: i64 = 10_000_000;

/// Longest time for a close to cross our request on its way.
const CROSSING_NS: i64 = 500_000_000;

/// A slot's connections and buffers.
#[derive(Debug)]
pub struct Line {
    places: Vec<Place>,
    request: Buffers,
    http1: http1::Exchange,
    reader: Box<Reader>,
    /// The replies of a gRPC call.
    replies: Option<Box<Replies>>,
    /// What a connection of HTTP/2 sees of the request under way.
    download: Rc<Download>,
    head_request: bool,
    /// The last connect failed.
    lacks_target: bool,
    /// Answers' contents are kept for the requests that follow in their conversation.
    keeps_answers: bool,
}

impl Line {
    pub fn new(worker: &Worker) -> Self {
        let context = &worker.context;
        Self {
            places: context.endpoints.iter().map(|_| Place { conn: None, had_one: false }).collect(),
            request: Buffers::default(),
            http1: http1::Exchange::new(worker),
            reader: Box::default(),
            replies: Replies::new(&context.target).map(Box::new),
            download: Rc::default(),
            head_request: context.target.method == "HEAD",
            lacks_target: false,
            keeps_answers: context.requests.captures(),
        }
    }

    /// Whether the last attempt at a connection failed.
    pub fn lacks_target(&self) -> bool {
        self.lacks_target
    }

    /// Open a connection ahead of the level's first request of this slot; false when there is none. The failure shows when
    /// the request tries again.
    pub async fn prepare(&mut self, worker: &Rc<Worker>, slot: &Slot, level: &Arc<LevelShared>) -> bool {
        // Slots take their first requests in order.
        let first = level.first_of(worker.index, slot.index);
        let endpoint = first % self.places.len();
        if self.places[endpoint].conn.as_mut().is_none_or(|conn| conn.is_stale(worker)) {
            let mut row = Row::due(Due::default());
            let _ = self.connect(endpoint, worker, slot, &level.shares[worker.index], &mut row).await;
        }
        slot.deadline_ns.set(i64::MAX);
        slot.abort.set(None);
        self.places[endpoint].conn.is_some()
    }

    /// Answer what a server asks on a connection that nobody else looks at, while there is no request.
    pub fn attend(&mut self, worker: &Worker) {
        for place in &mut self.places {
            if let Some(Conn { carrier: Carrier::Http2(channel), .. }) = &mut place.conn
                && channel.is_own()
                && channel.is_stale(worker)
            {
                place.conn = None;
            }
        }
    }

    /// One request from connect to last byte; fills `row` and returns the message of a failure.
    pub async fn exchange(
        &mut self,
        worker: &Rc<Worker>,
        slot: &Slot,
        level: &Rc<WorkerLevel>,
        job: &mut Job,
        row: &mut Box<Row>,
    ) -> Option<String> {
        let balancer = &worker.context.balancer;
        let endpoint = match job.target() {
            None => balancer.choose(job.number()),
            Some(target) => balancer.take(target),
        };
        row.target = endpoint as u16;
        self.begin(job, row);
        let (mut asked_again, mut opened_again) = (false, false);
        let result = loop {
            self.reader.reset();
            let opened = if self.lacks_connection(endpoint, worker, row) {
                apart(self.connect(endpoint, worker, slot, level.share(), row)).await
            } else {
                Ok(())
            };
            let result = match (opened, &mut self.places[endpoint].conn) {
                (Err(failure), _) => Err(failure),
                (Ok(()), Some(Conn { carrier: Carrier::Http1(stream), number, reusable, .. })) => {
                    let (requests, plan) = (&worker.context.requests, &level.shared.plan);
                    let message = requests.message(endpoint, row.row as usize, row.seq, plan, &mut self.request);
                    row.conn = *number;
                    let sent_ns = begins(worker, slot);
                    let mut unsent = Unsent::begin(stream, message);
                    if let Some(e) = &unsent.error {
                        Err(never_left(e))
                    } else {
                        note_sent(level, row, sent_ns);
                        self.http1.run(stream, reusable, &mut unsent, slot, &mut self.reader, worker, row).await
                    }
                }
                (Ok(()), _) => apart(self.over_http2(endpoint, worker, slot, level, row)).await,
            };
            match result {
                // Nothing of it was sent: another connection takes it, and nobody was asked twice.
                Err(f) if f.reach == Reach::Unsent && !std::mem::replace(&mut opened_again, true) => {
                    self.places[endpoint].hang_up();
                }
                Err(f) if self.may_ask_again(&f, row) && !std::mem::replace(&mut asked_again, true) => {
                    if !f.keeps_connection {
                        self.places[endpoint].hang_up();
                    }
                    (row.bytes_out, row.connect_ns, row.tls_ns) = (0, NO_TIME, NO_TIME);
                }
                other => break other,
            }
        };
        balancer.done(endpoint);
        let place = &mut self.places[endpoint];
        let message = match result {
            Ok(()) => {
                if let Some(conn) = &mut place.conn {
                    conn.used = true;
                    conn.last_end_ns = row.end_ns;
                    if !conn.reusable {
                        place.hang_up();
                    }
                }
                let (outcome, message) = self.verdict(worker, level, row);
                row.outcome = outcome;
                message
            }
            Err(failure) => {
                if !failure.keeps_connection {
                    place.hang_up();
                }
                response::counts(&worker.context.format, &mut self.reader, row);
                row.end_ns = now_ns();
                row.outcome = failure.outcome;
                Some(failure.message)
            }
        };
        if !job.is_plain() {
            self.remember(job, row);
        }
        self.forget();
        message
    }

    fn begin(&mut self, job: &mut Job, row: &Row) {
        self.lacks_target = false;
        self.request.stream = row.stream;
        if self.keeps_answers {
            self.lend(job);
        }
    }

    /// Give back what the answer took; an idle connection holds nothing of it.
    fn forget(&mut self) {
        self.reader.reset();
        if let Some(replies) = &mut self.replies {
            replies.release();
        }
    }

    /// What the next turn of the conversation has to know.
    #[cold]
    fn remember(&mut self, job: &mut Job, row: &Row) {
        let Some(talk) = job.talk() else { return };
        talk.target = Some(row.target);
        if self.keeps_answers {
            talk.answers = self.request.give_back();
            talk.answers.push(self.reader.take_text());
        }
    }

    /// Let the request repeat what was answered before in its conversation.
    #[cold]
    fn lend(&mut self, job: &mut Job) {
        let answers = job.talk().map(|talk| std::mem::take(&mut talk.answers));
        self.request.lend(answers.unwrap_or_default());
    }

    fn verdict(&mut self, worker: &Worker, level: &WorkerLevel, row: &mut Row) -> (Outcome, Option<String>) {
        let format = &worker.context.format;
        let verdict = match &mut self.replies {
            Some(replies) if format.interpreter.success(row.status) => {
                response::counts(format, &mut self.reader, row);
                match replies.verdict() {
                    (Outcome::Ok, _) => response::verdict_of_call(format, &self.reader),
                    failed => failed,
                }
            }
            _ => response::verdict(format, &mut self.reader, !self.head_request, row),
        };
        if verdict.0 == Outcome::Ok && row.events > 1 {
            level.gaps.borrow_mut().extend(self.reader.gaps());
        }
        verdict
    }

    /// Whether the server did nothing about a request: it said so, or a connection that had lain idle ended by itself at
    /// the moment we used it. An end that comes later than that is the server's answer to the request, and so is a reset of
    /// its stream for any other reason.
    fn may_ask_again(&self, failure: &Failure, row: &Row) -> bool {
        // An answer that has begun is one, whatever ends it.
        if row.sent_ns == NO_TIME || row.first_byte_ns != NO_TIME || row.bytes_in > 0 {
            return false;
        }
        let reused = self.places[usize::from(row.target)].conn.as_ref().is_some_and(|c| c.used);
        let crossed = || reused && now_ns() - row.sent_ns < CROSSING_NS;
        failure.reach == Reach::Refused || failure.reach == Reach::Cut && crossed()
    }

    /// Whether a connection has to be opened first; one that cannot carry the request is given up.
    fn lacks_connection(&mut self, endpoint: usize, worker: &Worker, row: &Row) -> bool {
        let conn = &mut self.places[endpoint].conn;
        let idle = |c: &Conn| row.fired_ns - c.last_end_ns > IDLE_NS;
        if conn.as_mut().is_some_and(|c| c.is_spent() || idle(c) && c.is_stale(worker)) {
            *conn = None;
        }
        conn.is_none()
    }

    async fn over_http2(
        &mut self,
        endpoint: usize,
        worker: &Worker,
        slot: &Slot,
        level: &Rc<WorkerLevel>,
        row: &mut Box<Row>,
    ) -> Result<(), Failure> {
        let (context, plan) = (&worker.context, &level.shared.plan);
        let body = context.requests.body(row.row as usize, row.seq, plan.seed, &mut self.request);
        let kind = context.requests.kind_of(row.row as usize);
        let Self { places, reader, replies, download, .. } = self;
        let Place { conn: Some(Conn { carrier: Carrier::Http2(channel), number, .. }), .. } = &places[endpoint] else {
            return Err(Failure::new(Outcome::ConnectError, "no connection"));
        };
        let trace = context.target.trace.then(|| trace::value(plan.visit, row.stream, row.seq));
        let length = body.len();
        row.conn = *number;
        download.begin(reader, replies, row, level, || if channel.is_own() { None } else { slot.waker() });
        let head = &context.endpoints[endpoint].heads[kind];
        let request = Request { head, body, trace: trace.as_ref(), to: download.clone() };
        let result = match channel.begin(request, || begins(worker, slot)) {
            Ok(()) => channel.finish(download, length, slot, worker).await,
            Err(failure) => Err(failure),
        };
        download.end(reader, replies, row);
        result
    }

    async fn connect(
        &mut self,
        endpoint: usize,
        worker: &Rc<Worker>,
        slot: &Slot,
        share: &Share,
        row: &mut Row,
    ) -> Result<(), Failure> {
        let target = &worker.context.target;
        let place = &mut self.places[endpoint];
        slot.deadline_ns.set(now_ns().saturating_add(target.connect_timeout_ns));
        let mut took = None;
        let opened = guard(slot, open(worker, endpoint, &mut took)).await;
        let late = || format!("no connection within {} s", target.connect_timeout_ns as f64 / 1e9);
        let opened = opened.unwrap_or_else(|abort| Err(Failure::given_up(abort, &late)));
        self.lacks_target = opened.as_ref().is_err_and(|failure| failure.outcome != Outcome::Cancelled);
        let (carrier, number) = opened?;
        if let Some(took) = &took {
            bump(&share.connects, 1);
            bump(&share.reconnects, u64::from(std::mem::replace(&mut place.had_one, true)));
            row.connect_ns = took.connect_ns;
            row.tls_ns = took.tls_ns.unwrap_or(row.tls_ns);
        }
        let is_own = !matches!(&carrier, Carrier::Http2(channel) if !channel.is_own());
        let counted = took.filter(|_| is_own).map(|took| worker.connections.count(took.address));
        place.conn = Some(Conn { carrier, number, used: false, reusable: true, last_end_ns: 0, _counted: counted });
        Ok(())
    }
}

/// A request is handed to its connection now, which is the time that this says.
fn begins(worker: &Worker, slot: &Slot) -> i64 {
    let now = now_ns();
    slot.deadline_ns.set(now.saturating_add(worker.context.target.timeout_ns));
    now
}

/// A request's first byte has left. It counts as sent once; the second time it was asked again.
fn note_sent(level: &WorkerLevel, row: &mut Row, sent_ns: i64) {
    if row.sent_ns == NO_TIME {
        level.sent(sent_ns);
    } else {
        level.asked_again();
        row.attempt = 1;
    }
    row.sent_ns = sent_ns;
}

fn never_left(e: &io::Error) -> Failure {
    Failure { reach: Reach::Unsent, ..ended(format!("the connection broke before anything was sent: {e}")) }
}
