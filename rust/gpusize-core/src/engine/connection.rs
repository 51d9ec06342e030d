//! One connection's exchanges: write a request, read and stamp its answer, say how it ended.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use super::answer::{self, Reader};
use super::level::{Live, Share, bump};
use super::slot::{Abort, CANCELLED, Slot};
use super::stream::Stream;
use super::worker::Worker;
use super::worker_level::WorkerLevel;
use crate::clock::now_ns;
use crate::outcome::Outcome;
use crate::record::{Due, Row};
use crate::wire::WireError;
use crate::wire::http1::Response;
use crate::wire::request::{Buffers, Message};

/// Room for one read; larger answers take several.
const READ_BYTES: usize = 16_384;
/// Room for one read of an answer that is known to be large.
const LARGE_READ_BYTES: usize = 1 << 20;
/// An answer of which this much is still to come is large.
const LARGE: u64 = 128 << 10;

/// A connection that lay idle this long is looked at before it is used. A server's close that comes sooner, or that only
/// shows when we write, is met by asking once more.
const IDLE_NS: i64 = 10_000_000;

/// Longest time for a close to cross our request on its way.
const CROSSING_NS: i64 = 500_000_000;

/// A slot's connection, when it has one, and its buffers.
#[derive(Debug)]
pub struct Line {
    conn: Option<Conn>,
    /// A further connection stands for one that was closed.
    had_one: bool,
    buffer: Vec<u8>,
    request: Buffers,
    response: Response,
    reader: Reader,
    head_request: bool,
}

#[derive(Debug)]
struct Conn {
    stream: Stream,
    number: u32,
    /// It has carried an answer before.
    used: bool,
    /// It may carry another request after the present one.
    reusable: bool,
    /// Its reader wakes for large pieces only.
    waits_for_more: bool,
    last_end_ns: i64,
}

/// Why an exchange failed.
#[derive(Debug)]
struct Failure {
    outcome: Outcome,
    message: String,
}

impl Failure {
    fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into() }
    }
}

impl From<WireError> for Failure {
    fn from(e: WireError) -> Self {
        let outcome = if matches!(e, WireError::Truncated(_)) { Outcome::Truncated } else { Outcome::ProtocolError };
        Self::new(outcome, e.to_string())
    }
}

impl Line {
    pub fn new(worker: &Worker) -> Self {
        let target = &worker.context.target;
        let head_request = target.method == "HEAD";
        Self {
            conn: None,
            had_one: false,
            buffer: vec![0; READ_BYTES],
            request: Buffers::default(),
            response: Response::new(head_request, target.max_header_bytes, target.max_body_bytes),
            reader: Reader::default(),
            head_request,
        }
    }

    /// Open the connection ahead of the first request; a failure shows when the request tries again.
    pub async fn prepare(&mut self, worker: &Worker, slot: &Slot, share: &Share) {
        if self.conn.as_ref().is_none_or(|c| c.stream.is_stale()) {
            let mut row = Row::due(Due::default());
            slot.connecting.set(true);
            let _ = self.connect(worker, slot, share, &mut row).await;
            slot.connecting.set(false);
        }
        slot.deadline_ns.set(i64::MAX);
        slot.abort.set(None);
    }

    /// One request from connect to last byte; fills `row` and returns the message of a failure.
    pub async fn exchange(
        &mut self,
        worker: &Worker,
        slot: &Slot,
        level: &WorkerLevel,
        row: &mut Row,
    ) -> Option<String> {
        let result = loop {
            let result = self.attempt(worker, slot, level, row).await;
            match result {
                Err(f) if f.outcome == Outcome::Truncated && row.attempt == 0 && self.crossed(row) => {
                    self.conn = None;
                    row.attempt = 1;
                    row.bytes_out = 0;
                }
                other => break other,
            }
        };
        match result {
            Ok(()) => {
                let verdict =
                    answer::verdict(&worker.context.reading, &mut self.reader, &level.live, !self.head_request, row);
                if let Some(conn) = &mut self.conn {
                    conn.used = true;
                    conn.last_end_ns = row.end_ns;
                    if !conn.reusable {
                        self.conn = None;
                    }
                }
                row.outcome = verdict.0;
                verdict.1
            }
            Err(failure) => {
                self.conn = None;
                answer::counts(&worker.context.reading, &mut self.reader, row);
                row.end_ns = now_ns();
                row.outcome = failure.outcome;
                Some(failure.message)
            }
        }
    }

    /// Whether the server closed a connection that lay idle at the moment we used it: nothing was answered, so it may be
    /// asked once more. A close that comes later than that is the server's answer to the request.
    fn crossed(&self, row: &Row) -> bool {
        let reused = self.conn.as_ref().is_some_and(|c| c.used);
        reused && row.bytes_in == 0 && now_ns() - row.sent_ns < CROSSING_NS
    }

    async fn attempt(
        &mut self,
        worker: &Worker,
        slot: &Slot,
        level: &WorkerLevel,
        row: &mut Row,
    ) -> Result<(), Failure> {
        self.response.reset();
        self.reader.reset();
        if self.conn.as_ref().is_some_and(|c| row.fired_ns - c.last_end_ns > IDLE_NS && c.stream.is_stale()) {
            self.conn = None;
        }
        if self.conn.is_none() {
            self.connect(worker, slot, level.share(), row).await?;
        }
        let Self { conn: Some(conn), buffer, request, response, reader, .. } = self else {
            return Err(Failure::new(Outcome::ConnectError, "no connection"));
        };
        row.conn = conn.number;
        let seed = level.shared.plan.seed;
        let message = worker.context.requests.message(row.row as usize, row.seq, seed, request);
        let sent_ns = now_ns();
        row.sent_ns = sent_ns;
        row.bytes_out = message.len() as u64;
        slot.deadline_ns.set(sent_ns.saturating_add(worker.context.target.timeout_ns));
        let timeout_s = worker.context.target.timeout_ns as f64 / 1e9;
        let late = || format!("no complete response within {timeout_s} s");
        bump(&level.share().sent, u64::from(row.attempt == 0));
        // Nearly every request fits the socket's buffer: the slow path is for the others.
        let mut unsent = Unsent::begin(&conn.stream, message);
        let live = &level.live;
        let read = if unsent.flushes {
            let read =
                read_response::<true>(conn, slot, buffer, response, reader, worker, live, row, &mut unsent).await;
            let left = unsent.left();
            row.bytes_out -= left as u64;
            conn.reusable &= left == 0 && unsent.error.is_none();
            read
        } else {
            read_response::<false>(conn, slot, buffer, response, reader, worker, live, row, &mut unsent).await
        };
        // A server may answer and close before it has read everything: what it said is worth more than the broken pipe.
        match (read, unsent.error) {
            (Ok(()), _) => Ok(()),
            (Err(Broken::Aborted(a)), _) => Err(given_up(a, &late)),
            (Err(_), Some(e)) => {
                Err(Failure::new(Outcome::Truncated, format!("the connection broke while sending: {e}")))
            }
            (Err(Broken::Io(e)), None) => Err(Failure::new(Outcome::Truncated, format!("the connection broke: {e}"))),
            (Err(Broken::Wire(e)), None) => Err(e.into()),
        }
    }

    async fn connect(&mut self, worker: &Worker, slot: &Slot, share: &Share, row: &mut Row) -> Result<(), Failure> {
        let context = &worker.context;
        slot.deadline_ns.set(now_ns().saturating_add(context.target.connect_timeout_ns));
        let opening = guard(slot, Stream::connect(&context.addresses, context.tls.as_ref()));
        let late = || format!("no connection within {} s", context.target.connect_timeout_ns as f64 / 1e9);
        let (stream, took) = match opening.await {
            Ok(Ok(connected)) => connected,
            Ok(Err(refused)) => return Err(Failure::new(refused.outcome, refused.message)),
            Err(abort) => return Err(given_up(abort, &late)),
        };
        bump(&share.connects, 1);
        bump(&share.reconnects, u64::from(std::mem::replace(&mut self.had_one, true)));
        row.connect_ns = took.connect_ns;
        if let Some(tls_ns) = took.tls_ns {
            row.tls_ns = tls_ns;
        }
        self.conn = Some(Conn {
            stream,
            number: worker.next_connection(),
            used: false,
            reusable: false,
            waits_for_more: false,
            last_end_ns: 0,
        });
        Ok(())
    }
}

/// Why reading stopped.
enum Broken {
    Aborted(Abort),
    Io(io::Error),
    Wire(WireError),
}

/// What the socket did not take at once. It is sent while the answer is awaited: a server may answer before it has read
/// everything, and then read no more.
struct Unsent<'a> {
    bytes: &'a [u8],
    /// Pieces of a large body, after `bytes`.
    rest: Vec<IoSlice<'a>>,
    /// How many of them are done.
    done: usize,
    flushes: bool,
    error: Option<io::Error>,
}

impl<'a> Unsent<'a> {
    /// Write what the socket takes at once.
    fn begin(stream: &Stream, message: Message<'a>) -> Self {
        let Message { bytes, rest } = message;
        let mut unsent = Self { bytes, rest, done: 0, flushes: false, error: None };
        let first = if unsent.rest.is_empty() {
            stream.try_write(bytes)
        } else {
            // The head goes with the pieces, or the system would send it alone.
            unsent.rest.insert(0, IoSlice::new(std::mem::take(&mut unsent.bytes)));
            stream.try_write_vectored(&unsent.rest)
        };
        match first {
            Ok(n) if n == bytes.len() && unsent.rest.is_empty() => unsent.bytes = &[],
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => unsent.error = Some(e),
            first => {
                unsent.flushes = true;
                unsent.advance(first.unwrap_or(0));
            }
        }
        unsent
    }

    /// `n` more bytes are on their way.
    fn advance(&mut self, n: usize) {
        if self.rest.is_empty() {
            self.bytes = &self.bytes[n..];
            return;
        }
        let mut pieces = &mut self.rest[self.done..];
        let before = pieces.len();
        IoSlice::advance_slices(&mut pieces, n);
        self.done += before - pieces.len();
    }

    /// Bytes that are not.
    fn left(&self) -> usize {
        self.bytes.len() + self.rest[self.done..].iter().map(|piece| piece.len()).sum::<usize>()
    }
}

#[allow(clippy::too_many_arguments)] // the parts of a Line, borrowed apart, and what the stamps need
async fn read_response<const SENDS: bool>(
    conn: &mut Conn,
    slot: &Slot,
    buffer: &mut Vec<u8>,
    response: &mut Response,
    reader: &mut Reader,
    worker: &Worker,
    live: &RefCell<Live>,
    row: &mut Row,
    unsent: &mut Unsent<'_>,
) -> Result<(), Broken> {
    let reading = &worker.context.reading;
    let mut filled = 0;
    loop {
        let room = &mut buffer[filled..];
        let n = if SENDS {
            guard(slot, send_and_read(&mut conn.stream, unsent, room)).await
        } else {
            guard(slot, read(&mut conn.stream, room)).await
        };
        let n = n.map_err(Broken::Aborted)?;
        let n = n.map_err(Broken::Io)?;
        let now = now_ns();
        row.end_ns = now;
        if n == 0 {
            response.eof().map_err(Broken::Wire)?;
            return Ok(());
        }
        if row.bytes_in == 0 {
            row.first_byte_ns = now;
        }
        row.bytes_in += n as u64;
        filled += n;
        let mut at = 0;
        while at < filled && !response.done() {
            let taken = response
                .feed(&buffer[at..filled], &mut |bytes| reader.body(bytes, now, reading, live, row))
                .map_err(Broken::Wire)?;
            if taken == 0 {
                break;
            }
            at += taken;
            if !reader.has_begun()
                && let Some(head) = response.head()
            {
                row.status = head.status;
                conn.reusable = head.keep_alive;
                reader.begin(reading, head);
            }
        }
        if response.done() {
            // Bytes after the answer were not asked for: nothing that follows on this connection can be trusted.
            conn.reusable &= at == filled;
            if std::mem::take(&mut conn.waits_for_more) {
                conn.stream.set_low_water(1);
            }
            return Ok(());
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
        if response.length_left() >= LARGE || conn.waits_for_more {
            expect(conn, buffer, response.length_left());
        }
        if filled == buffer.len() {
            buffer.resize(filled * 2, 0);
        }
    }
}

/// A known length is still to come: read it in few large pieces. The last piece has no more than what is left, so that
/// the reader wakes as its last byte arrives.
fn expect(conn: &mut Conn, buffer: &mut Vec<u8>, left: u64) {
    if left >= LARGE && buffer.len() < LARGE_READ_BYTES {
        buffer.resize(LARGE_READ_BYTES, 0);
    }
    let piece = usize::try_from(left).unwrap_or(usize::MAX).clamp(1, buffer.len());
    conn.stream.set_low_water(piece);
    conn.waits_for_more = piece > 1;
}

fn given_up(abort: Abort, late: &dyn Fn() -> String) -> Failure {
    match abort {
        Abort::Timeout => Failure::new(Outcome::Timeout, late()),
        Abort::Cancelled => Failure::new(Outcome::Cancelled, CANCELLED),
    }
}

/// Await, unless the slot is told to give up.
async fn guard<F: Future>(slot: &Slot, future: F) -> Result<F::Output, Abort> {
    let mut future = pin!(future);
    poll_fn(|cx| match slot.abort.get() {
        Some(abort) => Poll::Ready(Err(abort)),
        None => future.as_mut().poll(cx).map(Ok),
    })
    .await
}

async fn send_and_read(stream: &mut Stream, unsent: &mut Unsent<'_>, room: &mut [u8]) -> io::Result<usize> {
    let mut buf = ReadBuf::new(room);
    poll_fn(|cx| {
        // A write that fails is remembered; what the server has said by then may still be read.
        if let Poll::Ready(Err(e)) = poll_send(stream, unsent, cx) {
            unsent.error = Some(e);
            unsent.flushes = false;
        }
        stream.poll_read(cx, &mut buf)
    })
    .await?;
    Ok(buf.filled().len())
}

fn poll_send(stream: &mut Stream, unsent: &mut Unsent<'_>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while unsent.flushes && unsent.left() > 0 {
        let n = if unsent.rest.is_empty() {
            ready!(stream.poll_write(cx, unsent.bytes))?
        } else {
            ready!(stream.poll_write_vectored(cx, &unsent.rest[unsent.done..]))?
        };
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        unsent.advance(n);
    }
    if unsent.flushes {
        ready!(stream.poll_flush(cx))?;
        unsent.flushes = false;
    }
    Poll::Ready(Ok(()))
}

async fn read(stream: &mut Stream, room: &mut [u8]) -> io::Result<usize> {
    let mut buf = ReadBuf::new(room);
    poll_fn(|cx| stream.poll_read(cx, &mut buf)).await?;
    Ok(buf.filled().len())
}
