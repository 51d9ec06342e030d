//! One connection's state: settings, windows, and the requests under way (RFC 9113).

mod inbound;
mod streams;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use self::inbound::Inbound;
use self::streams::{Stream, Streams};
use super::frame::{self, Frame, setting};
use super::head::Head;
use super::hpack::{Decoder, Encoder, Fields};
use super::output::Output;
use crate::wire::trace;

pub use super::frame::Code;
pub use super::output::Left;

/// What a server may send on one stream, and on all of one connection, before we have read it.
const STREAM_WINDOW: u32 = 1 << 24;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Largest frame that we take.
const FRAME_BYTES: usize = 1 << 20;
/// Read bytes are given back to a stream's window in portions of this size: doing it for each frame costs more than the frame.
const RELEASE_BYTES: u32 = 1 << 20;
/// Bodies are cut into frames while less than this waits to be sent.
const AHEAD: usize = 256 << 10;
/// Nothing more is read while the peer does not take so much.
const MOST_UNSENT: usize = 1 << 20;

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer is complete.
    Complete,
    /// Whoever takes the answer wants no more of it.
    Stopped,
    /// The server ended its stream.
    Reset(Code),
    /// The answer breaks the rules, so we ended its stream.
    Malformed(&'static str),
    /// The answer's head is longer than is allowed.
    TooLong,
    /// The server said that it did nothing about it, and takes no more (GOAWAY).
    Refused(Code),
    /// It was not begun, and the server takes no more.
    Unsent,
}

/// The connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// What the peer is told.
    pub code: Code,
    /// Which rule it broke.
    pub what: &'static str,
}

impl Fatal {
    fn new(code: Code, what: &'static str) -> Self {
        Self { code, what }
    }
}

type Result<T> = std::result::Result<T, Fatal>;

/// Who takes the answers; `T` stands for a request. Those that return a bool say whether they want more.
pub trait Sink<T> {
    /// The final head has come.
    fn head(&mut self, request: &T, fields: &Fields) -> bool;
    /// Bytes of the body have.
    fn data(&mut self, request: &T, bytes: &[u8]) -> bool;
    /// What follows the body has.
    fn trailers(&mut self, request: &T, fields: &Fields);
    /// Nothing more comes.
    fn end(&mut self, request: T, end: End);
}

/// What became of a request that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Nothing of it was, or will be, sent.
    Whole,
    /// It will yet be sent: it waits for room in the socket only.
    Later,
    /// It was sent, and the server is told to stop.
    Told,
}

/// One to be sent.
#[derive(Debug)]
pub struct Request<'a, T> {
    /// Its head.
    pub head: &'a Arc<Head>,
    /// Its body, which may be empty.
    pub body: Bytes,
    /// Which one it is, for those behind the server.
    pub trace: Option<&'a trace::Value>,
    /// Who it is for.
    pub to: T,
}

/// One that waits.
#[derive(Debug)]
struct Waiting<T> {
    head: Arc<Head>,
    body: Bytes,
    trace: Option<trace::Value>,
    to: T,
}

/// What the peer allows.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// None: it has not said so.
    max_streams: Option<u32>,
    window: i64,
    frame_bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Client<T> {
    inbound: Inbound,
    output: Output,
    decoder: Decoder,
    encoder: Encoder,
    peer: Peer,
    /// As many as are begun before the peer has said how many may be.
    streams_at_first: u32,
    /// Bytes of bodies that the peer takes.
    send_window: i64,
    /// Bytes that it may send, and those read of which it does not know yet.
    receive_window: i64,
    unreleased: u32,
    next_stream: u32,
    streams: Streams<T>,
    waiting: VecDeque<Waiting<T>>,
    /// Streams of which some of the body can be sent, as far as their windows go.
    uploads: VecDeque<u32>,
    /// The peer takes no more requests.
    leaving: bool,
    /// The socket took nothing when it was last offered something.
    pub blocked: bool,
}

impl<T> Client<T> {
    /// One that says hello; the fields of an answer take at most `header_bytes`.
    pub fn new(header_bytes: usize, streams_at_first: u32) -> Self {
        let mut client = Self {
            inbound: Inbound::default(),
            output: Output::default(),
            decoder: Decoder::new(header_bytes),
            encoder: Encoder::default(),
            peer: Peer { max_streams: None, window: frame::FIRST_WINDOW, frame_bytes: frame::FIRST_FRAME_BYTES },
            streams_at_first,
            send_window: frame::FIRST_WINDOW,
            receive_window: i64::from(CONNECTION_WINDOW),
            unreleased: 0,
            next_stream: 1,
            streams: Streams::default(),
            waiting: VecDeque::new(),
            uploads: VecDeque::new(),
            leaving: false,
            blocked: false,
        };
        client.greet(u32::try_from(header_bytes).unwrap_or(u32::MAX));
        client
    }

    fn greet(&mut self, header_bytes: u32) {
        let settings = [
            (setting::ENABLE_PUSH, 0),
            (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (setting::MAX_FRAME_SIZE, FRAME_BYTES as u32),
            (setting::MAX_HEADER_LIST_SIZE, header_bytes),
        ];
        self.output.small(|out| out.extend_from_slice(frame::PREFACE));
        let payload: Vec<u8> =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        self.say(frame::SETTINGS, 0, 0, &payload);
        self.raise(0, CONNECTION_WINDOW - frame::FIRST_WINDOW as u32);
    }

    /// How many requests may be under way, as far as the peer has said so.
    pub fn limit(&self) -> usize {
        self.peer.max_streams.unwrap_or(self.streams_at_first) as usize
    }

    /// Whether the peer takes no more requests.
    pub fn is_leaving(&self) -> bool {
        self.leaving || self.next_stream > u32::MAX >> 1
    }

    /// Whether one of its requests waits to be sent.
    pub fn holds(&self) -> bool {
        !self.waiting.is_empty() || self.output.holds_a_head()
    }

    /// Whether the peer should read before it is read from.
    pub fn is_stuffed(&self) -> bool {
        self.blocked && self.output.len() > MOST_UNSENT
    }

    /// Send a request as soon as the peer and the socket take it; false: the peer takes no more.
    #[must_use = "a request that is not taken has to go elsewhere"]
    pub fn begin(&mut self, request: Request<'_, T>) -> bool {
        if self.is_leaving() {
            return false;
        }
        if self.waiting.is_empty() && self.may_open() {
            self.open(request);
        } else {
            let Request { head, body, trace, to } = request;
            self.waiting.push_back(Waiting { head: head.clone(), body, trace: trace.copied(), to });
        }
        true
    }

    /// Whether a request can be begun now. Not where the socket is full: what is not begun can still be taken back.
    fn may_open(&self) -> bool {
        !self.blocked && self.streams.len() < self.limit() && !self.is_leaving()
    }

    /// Begin what waits.
    fn open_waiting(&mut self) {
        while !self.waiting.is_empty() && self.may_open() {
            let Some(Waiting { head, body, trace, to }) = self.waiting.pop_front() else { return };
            self.open(Request { head: &head, body, trace: trace.as_ref(), to });
        }
    }

    fn open(&mut self, request: Request<'_, T>) {
        let Request { head, body, trace, to } = request;
        let id = self.next_stream;
        self.next_stream += 2;
        let flags = if body.is_empty() { frame::END_STREAM } else { 0 };
        self.output.mark_head(id);
        let (encoder, most) = (&mut self.encoder, self.peer.frame_bytes);
        self.output.small(|out| {
            let from = out.len();
            out.extend_from_slice(&[0; frame::HEAD]);
            head.encode(body.len(), trace, encoder, out);
            let length = out.len() - from - frame::HEAD;
            if length <= most {
                let frame = Frame { length, kind: frame::HEADERS, flags: flags | frame::END_HEADERS, stream: id };
                out[from..from + frame::HEAD].copy_from_slice(&frame.bytes());
            } else {
                cut(out, from, most, flags, id);
            }
        });
        let has_body = !body.is_empty();
        self.streams.push(Stream::new(id, to, body, self.peer.window, head.asks_for_no_body()));
        if has_body {
            self.uploads.push_back(id);
            self.upload();
        }
    }

    /// Cut bodies into frames, a frame of each at a time, as far as the windows go.
    fn upload(&mut self) {
        while self.send_window > 0 && self.output.len() < AHEAD {
            let Some(id) = self.uploads.pop_front() else { return };
            let Some(stream) = self.streams.get(id) else { continue };
            let room = stream.send_window.min(self.send_window).min(self.peer.frame_bytes as i64);
            if room <= 0 {
                // Told by its next WINDOW_UPDATE.
                continue;
            }
            let part = stream.body.split_to(stream.body.len().min(room as usize));
            stream.send_window -= part.len() as i64;
            self.send_window -= part.len() as i64;
            let is_last = stream.body.is_empty();
            let flags = if is_last { frame::END_STREAM } else { 0 };
            let head = Frame { length: part.len(), kind: frame::DATA, flags, stream: id };
            self.output.small(|out| out.extend_from_slice(&head.bytes()));
            self.output.body(id, part);
            if !is_last {
                self.uploads.push_back(id);
            }
        }
    }

    /// Whether there is something to be sent.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// All that is to be sent next, where that is one piece.
    pub fn output(&self) -> Option<&[u8]> {
        self.output.only()
    }

    /// What is to be sent next, as far as there are `slices` for it; says how many.
    pub fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.output.fill(slices)
    }

    /// The socket has taken so many bytes; `left` is told of whose requests.
    pub fn took(&mut self, bytes: usize, mut left: impl FnMut(&T, Left)) {
        let streams = &mut self.streams;
        self.output.took(bytes, &mut |id, part| {
            if let Some(stream) = streams.get(id) {
                left(&stream.to, part);
            }
        });
        self.blocked = false;
        if !self.uploads.is_empty() {
            self.upload();
        }
        self.open_waiting();
    }

    /// Some bytes have come.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink<T>) -> Result<()> {
        let fed = inbound::feed(self, bytes, sink);
        if let Err(fatal) = fed {
            let mut payload = [0; 8];
            payload[4..].copy_from_slice(&fatal.code.0.to_be_bytes());
            self.say(frame::GOAWAY, 0, 0, &payload);
            self.leaving = true;
        }
        fed
    }

    /// Give up the request that `is_it`; with one that is over nothing happens.
    pub fn give_up(&mut self, is_it: impl Fn(&T) -> bool) -> Gone {
        if let Some(k) = self.waiting.iter().position(|request| is_it(&request.to)) {
            self.waiting.remove(k);
            return Gone::Whole;
        }
        let Some(id) = self.streams.find(is_it) else { return Gone::Told };
        let gone = if self.output.holds_head_of(id) { Gone::Later } else { Gone::Told };
        self.reset(id, Code::CANCEL);
        self.open_waiting();
        gone
    }

    /// The connection is over: all its requests.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.uploads.clear();
        let waiting = std::mem::take(&mut self.waiting);
        self.streams.drain().map(|stream| stream.to).chain(waiting.into_iter().map(|request| request.to))
    }

    /// End a stream, and tell the peer.
    fn reset(&mut self, id: u32, code: Code) -> Option<T> {
        let stream = self.streams.remove(id)?;
        self.say(frame::RST_STREAM, 0, id, &code.0.to_be_bytes());
        Some(stream.to)
    }

    /// An answer ends before its time, and the server is told why.
    fn stop(&mut self, id: u32, code: Code, end: End, sink: &mut impl Sink<T>) {
        if let Some(to) = self.reset(id, code) {
            sink.end(to, end);
        }
        self.open_waiting();
    }

    /// An answer is complete. Of a request that the server did not want to read whole, the rest is not sent.
    fn complete(&mut self, id: u32, sink: &mut impl Sink<T>) {
        let Some(stream) = self.streams.remove(id) else { return };
        if !stream.body.is_empty() {
            self.say(frame::RST_STREAM, 0, id, &Code::CANCEL.0.to_be_bytes());
        }
        sink.end(stream.to, End::Complete);
        self.open_waiting();
    }

    fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let head = Frame { length: payload.len(), kind, flags, stream };
        self.output.small(|out| {
            out.extend_from_slice(&head.bytes());
            out.extend_from_slice(payload);
        });
    }

    /// Let the peer send more.
    fn raise(&mut self, stream: u32, bytes: u32) {
        self.say(frame::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    }

    /// So many bytes have been read of the connection's window.
    fn receive(&mut self, bytes: usize) -> Result<()> {
        self.receive_window -= bytes as i64;
        if self.receive_window < 0 {
            return Err(Fatal::new(Code::FLOW_CONTROL_ERROR, "more than the connection's window"));
        }
        self.unreleased += bytes as u32;
        // As seldom as will do: it is read as it comes.
        if self.unreleased >= CONNECTION_WINDOW / 4 {
            let bytes = std::mem::take(&mut self.unreleased);
            self.receive_window += i64::from(bytes);
            self.raise(0, bytes);
        }
        Ok(())
    }

    fn fields(&mut self, block: &[u8]) -> Result<Rc<Fields>> {
        self.decoder
            .decode(block)
            .map_err(|_| Fatal::new(Code::COMPRESSION_ERROR, "fields that cannot be decompressed"))
    }
}

/// Turn a head that is longer than a frame into several; it begins at `from` with room for the first one's head.
#[cold]
fn cut(out: &mut Vec<u8>, from: usize, most: usize, flags: u8, stream: u32) {
    let block = out.split_off(from + frame::HEAD);
    out.truncate(from);
    let parts = block.len().div_ceil(most);
    for (k, part) in block.chunks(most).enumerate() {
        let kind = if k == 0 { frame::HEADERS } else { frame::CONTINUATION };
        let last = if k + 1 == parts { frame::END_HEADERS } else { 0 };
        let flags = last | if k == 0 { flags } else { 0 };
        out.extend_from_slice(&Frame { length: part.len(), kind, flags, stream }.bytes());
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests;
