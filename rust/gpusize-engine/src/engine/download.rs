//! An answer of HTTP/2 on its way in: stamped, cut and interpreted where its frames are read, whoever reads them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use super::context::Context;
use super::failure::{Failure, Reach};
use super::outside::now_ns;
use super::response::Reader;
use super::rpc::Replies;
use super::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use crate::record::columns::NO_TIME;
use crate::record::{Due, Row};
use crate::wire::http2::{Code, End, Fields, Left, Sink};

/// A slot's request under way, as its connection sees it: what of it has left, and what has come.
#[derive(Debug)]
pub struct Download {
    parts: RefCell<Parts>,
    result: RefCell<Option<Result<(), Failure>>>,
    is_over: Cell<bool>,
    /// Who waits for the end, where that is not who reads.
    waker: RefCell<Option<Waker>>,
    level: RefCell<Option<Rc<WorkerLevel>>>,
    /// It was sent before.
    again: Cell<bool>,
    sent_ns: Cell<i64>,
    /// Bytes of its body that have left.
    body: Cell<u64>,
}

/// What the slot lends: its reader, its replies, its record.
#[derive(Debug)]
pub struct Parts {
    pub reader: Box<Reader>,
    pub replies: Option<Box<Replies>>,
    pub row: Box<Row>,
}

impl Default for Download {
    fn default() -> Self {
        let parts = Parts { reader: Box::default(), replies: None, row: Box::new(Row::due(Due::default())) };
        Self {
            parts: RefCell::new(parts),
            result: RefCell::default(),
            is_over: Cell::new(true),
            waker: RefCell::default(),
            level: RefCell::default(),
            again: Cell::new(false),
            sent_ns: Cell::new(NO_TIME),
            body: Cell::new(0),
        }
    }
}

impl Download {
    /// A request is about to be handed over: lend what its answer is read with.
    pub fn begin(
        &self,
        reader: &mut Box<Reader>,
        replies: &mut Option<Box<Replies>>,
        row: &mut Box<Row>,
        level: &Rc<WorkerLevel>,
        waker: impl FnOnce() -> Option<Waker>,
    ) {
        self.again.set(row.sent_ns != NO_TIME);
        self.sent_ns.set(NO_TIME);
        self.body.set(0);
        self.is_over.set(false);
        *self.result.borrow_mut() = None;
        // That of a task never changes.
        if self.waker.borrow().is_none() {
            *self.waker.borrow_mut() = waker();
        }
        *self.level.borrow_mut() = Some(level.clone());
        if let Some(replies) = replies {
            replies.reset();
        }
        self.exchange(reader, replies, row);
    }

    /// It is over: give back what was lent, with what has come.
    pub fn end(&self, reader: &mut Box<Reader>, replies: &mut Option<Box<Replies>>, row: &mut Box<Row>) {
        self.exchange(reader, replies, row);
        self.is_over.set(true);
        *self.level.borrow_mut() = None;
        if !self.is_held() {
            row.attempt = u16::from(self.again.get());
            row.sent_ns = self.sent_ns.get();
            row.bytes_out = self.body.get();
        }
    }

    fn exchange(&self, reader: &mut Box<Reader>, replies: &mut Option<Box<Replies>>, row: &mut Box<Row>) {
        let mut parts = self.parts.borrow_mut();
        std::mem::swap(&mut parts.reader, reader);
        std::mem::swap(&mut parts.replies, replies);
        std::mem::swap(&mut parts.row, row);
    }

    /// Whether its end is known.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// How it ended.
    pub fn take_result(&self) -> Option<Result<(), Failure>> {
        if self.is_over.get() { self.result.take() } else { None }
    }

    /// Say how it ended, once.
    pub fn finish(&self, result: Result<(), Failure>) {
        if self.is_over.replace(true) {
            return;
        }
        *self.result.borrow_mut() = Some(result);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Whether nothing of it has left.
    pub fn is_held(&self) -> bool {
        self.sent_ns.get() == NO_TIME
    }

    /// Bytes of its body that have left.
    pub fn body(&self) -> u64 {
        self.body.get()
    }

    /// Something of it has left, offered to the socket at `now`.
    pub fn left(&self, part: Left, now: i64) {
        match part {
            Left::Body(bytes) => self.body.set(self.body.get() + u64::from(bytes)),
            Left::Head => {
                self.sent_ns.set(now);
                if let Some(level) = &*self.level.borrow() {
                    if self.again.get() {
                        level.asked_again();
                    } else {
                        level.sent(now);
                    }
                }
            }
        }
    }
}

/// What one look at a connection brings has one time.
#[derive(Debug)]
pub struct Arrivals<'a> {
    context: &'a Context,
    now: i64,
}

impl<'a> Arrivals<'a> {
    /// Bytes have been read just now.
    pub fn new(context: &'a Context) -> Self {
        Self { context, now: now_ns() }
    }

    fn read_head(&self, parts: &mut Parts, fields: &Fields) -> Result<(), Failure> {
        let Parts { reader, replies, row } = parts;
        let format = &self.context.format;
        row.first_byte_ns = self.now;
        row.end_ns = self.now;
        row.status = fields.head.status;
        let mut head = fields.head;
        if !format.head_times.is_empty() {
            head.times = format.head_times.of_fields(&fields.fields);
        }
        reader.begin(format, &head);
        match replies.as_mut().filter(|_| format.interpreter.success(row.status)) {
            Some(replies) => replies.head(&fields.fields),
            None => Ok(()),
        }
    }

    fn read_data(&self, parts: &mut Parts, bytes: &[u8]) -> Result<(), Failure> {
        let Parts { reader, replies, row } = parts;
        let Self { context, now } = *self;
        row.end_ns = now;
        row.bytes_in += bytes.len() as u64;
        match replies.as_mut().filter(|_| context.format.interpreter.success(row.status)) {
            // A message has the limit, not the sum of a stream's.
            Some(replies) => {
                replies.feed(bytes, &mut || reader.reply(now, &context.format, row))?;
                reader.hold(replies.held(), &context.format);
            }
            None if row.bytes_in > context.target.max_body_bytes => {
                let limit = context.target.max_body_bytes;
                return Err(Failure::new(Outcome::ProtocolError, format!("body longer than {limit} bytes")));
            }
            None => reader.body(bytes, now, &context.format, row),
        }
        if reader.is_full() { Err(context.format.no_room().into()) } else { Ok(()) }
    }
}

impl Sink<Rc<Download>> for Arrivals<'_> {
    fn head(&mut self, request: &Rc<Download>, fields: &Fields) -> bool {
        let read = self.read_head(&mut request.parts.borrow_mut(), fields);
        go_on(request, read)
    }

    fn data(&mut self, request: &Rc<Download>, bytes: &[u8]) -> bool {
        let read = self.read_data(&mut request.parts.borrow_mut(), bytes);
        go_on(request, read)
    }

    fn trailers(&mut self, request: &Rc<Download>, fields: &Fields) {
        let mut parts = request.parts.borrow_mut();
        parts.row.end_ns = self.now;
        if let Some(replies) = &mut parts.replies {
            replies.trailers(&fields.fields);
        }
    }

    fn end(&mut self, request: Rc<Download>, end: End) {
        request.finish(result_of(&end, self.context));
    }
}

/// Whether more is wanted; what is wrong with one answer leaves the others of its connection alone.
fn go_on(request: &Download, read: Result<(), Failure>) -> bool {
    match read {
        Ok(()) => true,
        Err(failure) => {
            request.finish(Err(Failure { keeps_connection: true, ..failure }));
            false
        }
    }
}

/// The end of one request, as an outcome.
fn result_of(end: &End, context: &Context) -> Result<(), Failure> {
    let of =
        |outcome, message: String, reach, keeps_connection| Err(Failure { outcome, message, reach, keeps_connection });
    match end {
        End::Complete => Ok(()),
        // Why has been said.
        End::Stopped => of(Outcome::Cancelled, String::new(), Reach::Taken, true),
        End::Reset(code) => {
            let reach = if *code == Code::REFUSED_STREAM { Reach::Refused } else { Reach::Taken };
            of(Outcome::Truncated, format!("the server reset the stream: {code}"), reach, true)
        }
        End::Malformed(why) => {
            of(Outcome::ProtocolError, format!("the answer breaks HTTP/2: {why}"), Reach::Taken, true)
        }
        End::TooLong => {
            let limit = context.target.max_header_bytes;
            of(Outcome::ProtocolError, format!("the answer's head is longer than {limit} bytes"), Reach::Taken, true)
        }
        // Only streams that the server has not looked at end by its GOAWAY.
        End::Refused(code) => {
            of(Outcome::Truncated, format!("the server closed the connection: {code}"), Reach::Refused, false)
        }
        End::Unsent => of(Outcome::Truncated, "the server takes no more requests".to_owned(), Reach::Unsent, false),
    }
}
