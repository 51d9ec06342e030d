//! Bodies of answers: whole, or written as the tokens are made; broken on request.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::Fault;
use super::connection::Fate;
use super::state::Shared;
use super::ticket::Ticket;

/// What a stream says, and when.
pub(super) struct Script {
    /// Before everything, at once.
    pub opening: Bytes,
    /// Before the first token, in the same write.
    pub first: Bytes,
    /// For each token.
    pub token: Token,
    /// After the last token, in the same write, given how many there were.
    pub tail: Box<dyn FnOnce(u32) -> Bytes>,
}

/// What is said of a token.
pub(super) enum Token {
    /// The same of each; nothing when tokens are not written.
    Same(Bytes),
    /// By its number, from 0.
    Each(Box<dyn Fn(u32) -> Bytes>),
}

impl Token {
    fn bytes(&self, token: u32) -> Bytes {
        match self {
            Self::Same(bytes) => bytes.clone(),
            Self::Each(bytes) => bytes(token),
        }
    }

    fn is_silent(&self) -> bool {
        matches!(self, Self::Same(bytes) if bytes.is_empty())
    }
}

/// A stream under way.
pub(super) struct Stream {
    shared: Rc<Shared>,
    fate: Rc<Fate>,
    ticket: Rc<Ticket>,
    fault: Option<Fault>,
    /// The token at which a malformed answer breaks; none has the largest number.
    broken_token: u32,
    opening: Option<Bytes>,
    first: Option<Bytes>,
    token: Token,
    tail: Option<Box<dyn FnOnce(u32) -> Bytes>>,
    sent: u32,
}

pub(super) enum Answer {
    Whole(Option<Bytes>),
    /// The first half of a body, then a reset.
    Half {
        half: Option<Bytes>,
        length: u64,
        flushed: bool,
    },
    Stream(Box<Stream>),
    /// As it comes; an error resets the connection.
    Coming {
        lines: UnboundedReceiver<io::Result<Bytes>>,
        broken: bool,
        flushed: bool,
    },
}

impl Answer {
    pub(super) fn stream(
        shared: Rc<Shared>,
        fate: Rc<Fate>,
        ticket: Rc<Ticket>,
        fault: Option<Fault>,
        tokens: u32,
        script: Script,
    ) -> Self {
        Self::Stream(Box::new(Stream {
            shared,
            fate,
            ticket,
            fault,
            broken_token: if is_malformed(fault) { tokens / 2 } else { u32::MAX },
            opening: Some(script.opening).filter(|opening| !opening.is_empty()),
            first: Some(script.first),
            token: script.token,
            tail: Some(script.tail),
            sent: 0,
        }))
    }

    /// A whole JSON document, with the fault of its request.
    pub(super) fn whole(json: Bytes, fault: Option<Fault>, fate: &Fate) -> Self {
        let half = json.slice(..json.len() / 2);
        match fault {
            Some(Fault::Reset) => {
                fate.reset.set(true);
                Self::Half { half: Some(half), length: json.len() as u64, flushed: false }
            }
            fault if is_malformed(fault) => Self::Whole(Some(half)),
            _ => Self::Whole(Some(json)),
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Half { half, flushed, .. } => match half.take() {
                Some(half) => Poll::Ready(Some(Ok(Frame::data(half)))),
                None => poll_break(flushed, context),
            },
            Self::Stream(stream) => stream.poll(context),
            Self::Coming { flushed, broken: true, .. } => poll_break(flushed, context),
            Self::Coming { lines, broken, flushed } => match lines.poll_recv(context) {
                Poll::Ready(Some(Err(_))) => {
                    *broken = true;
                    poll_break(flushed, context)
                }
                other => other.map(|line| line.map(|line| line.map(Frame::data))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Half { .. } | Self::Coming { .. } => false,
            Self::Stream(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Half { length, .. } => SizeHint::with_exact(*length),
            Self::Stream(_) | Self::Coming { .. } => SizeHint::default(),
        }
    }
}

fn is_malformed(fault: Option<Fault>) -> bool {
    matches!(fault, Some(Fault::MalformedJson | Fault::MalformedFraming))
}

/// The error that makes hyper drop the connection, after one more turn in which it writes out what it holds.
fn poll_break(flushed: &mut bool, context: &Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
    if *flushed {
        return Poll::Ready(Some(Err(io::Error::other("reset on request"))));
    }
    *flushed = true;
    context.waker().wake_by_ref();
    Poll::Pending
}

impl Stream {
    fn is_over(&self) -> bool {
        self.tail.is_none() && self.fault != Some(Fault::Reset)
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(Ok(Frame::data(opening))));
        }
        let since_ns = self.ticket.take_pending_since_ns();
        let bytes = self.next_bytes();
        if !bytes.is_empty() {
            let since_ns = since_ns.unwrap_or_else(|| self.ticket.end_ns());
            self.shared.note_write(since_ns);
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if self.ticket.is_done() {
            if self.fault != Some(Fault::Reset) {
                return Poll::Ready(None);
            }
            let mut flushed = self.fate.reset.replace(true);
            return poll_break(&mut flushed, context);
        }
        self.ticket.watch(context);
        Poll::Pending
    }

    /// The events of the tokens made since the last call, and the tail with the last; empty when there is nothing to say.
    fn next_bytes(&mut self) -> Bytes {
        let made = self.ticket.made();
        let first = if made > 0 { self.first.take() } else { None };
        let tail = if self.ticket.is_done() && self.fault != Some(Fault::Reset) { self.tail.take() } else { None };
        let is_broken = (self.sent..made).contains(&self.broken_token);
        let plain = first.is_none() && tail.is_none() && !is_broken;
        if plain && made == self.sent + 1 {
            let token = self.token.bytes(self.sent);
            self.sent = made;
            return token;
        }
        let mut bytes = BytesMut::new();
        bytes.extend_from_slice(&first.unwrap_or_default());
        for token in self.sent..made {
            let said = self.token.bytes(token);
            if token == self.broken_token {
                self.write_broken(&said, &mut bytes);
            } else {
                bytes.extend_from_slice(&said);
            }
        }
        self.sent = made;
        if let Some(tail) = tail {
            let tail = tail(made);
            let cut = if self.token.is_silent() && self.is_malformed_json() { tail.len() / 2 } else { tail.len() };
            bytes.extend_from_slice(&tail[..cut]);
        }
        bytes.freeze()
    }

    fn is_malformed_json(&self) -> bool {
        self.fault == Some(Fault::MalformedJson)
    }

    fn write_broken(&self, said: &[u8], bytes: &mut BytesMut) {
        if self.is_malformed_json() && !said.is_empty() {
            bytes.extend_from_slice(&said[..said.len() / 2]);
            bytes.extend_from_slice(b"\n\n");
            return;
        }
        self.fate.garbage.set(self.fault == Some(Fault::MalformedFraming));
        bytes.extend_from_slice(said);
    }
}
