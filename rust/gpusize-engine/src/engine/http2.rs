//! One exchange over HTTP/2 by the h2 crate: hand over the request, read and stamp its answer.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::Reason;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::Request;

use super::connections::Counted;
use super::context::Context as Shared;
use super::departures::{Departures, Leaving};
use super::download::{Broken, Download};
use super::failure::{self, Failure, Reach, guard, plain};
use super::io::{Io, Speaks};
use super::outside::spawn_local;
use super::pool::{Connected, Member};
use super::slot::{Abort, Slot};
use super::stream::Stream;
use super::worker_level::WorkerLevel;
use crate::outcome::Outcome;
use crate::record::Row;
use crate::spec::TargetSpec;

/// What a server may send on one stream, and on all of one connection, before we have read it.
const STREAM_WINDOW: u32 = 1 << 24;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// Largest frame that we take.
const FRAME_BYTES: u32 = 1 << 20;

/// What of a connection's bytes has been seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub speaks: Cell<Speaks>,
    /// How often something has come.
    pub reads: Cell<u64>,
    /// What has left.
    pub departures: Departures,
}

/// A slot's access to a connection.
#[derive(Debug)]
pub struct Channel {
    send: SendRequest<Bytes>,
    seen: Rc<Seen>,
    driving: Driving,
}

/// Who moves the connection's frames.
#[derive(Debug)]
enum Driving {
    /// The slot itself, whose connection nobody else uses: no other task has to be woken.
    Own(Box<Connection<Io, Bytes>>),
    /// A task that all its slots share.
    Shared(Member),
}

/// Say hello; the server's settings are not waited for.
pub async fn greet(
    target: &TargetSpec,
    stream: Stream,
    waker: Option<Waker>,
    seen: Rc<Seen>,
) -> Result<(SendRequest<Bytes>, Connection<Io, Bytes>), Failure> {
    Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_header_list_size(u32::try_from(target.max_header_bytes).unwrap_or(u32::MAX))
        .initial_max_send_streams(target.streams as usize)
        .enable_push(false)
        .handshake(Io::new(stream, waker, seen))
        .await
        .map_err(|e| Failure::new(Outcome::ConnectError, plain(&e.to_string())))
}

/// Hand over one request.
pub fn begin(send: &mut SendRequest<Bytes>, head: Request<()>, body: Bytes) -> Result<ResponseFuture, h2::Error> {
    let (response, mut upload) = send.send_request(head, body.is_empty())?;
    if !body.is_empty() {
        upload.send_data(body, true)?;
    }
    Ok(response)
}

impl Channel {
    /// A connection of this slot alone.
    pub async fn own(target: &TargetSpec, stream: Stream) -> Result<Self, Failure> {
        let seen = Rc::<Seen>::default();
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let (send, connection) = greet(target, stream, Some(waker), seen.clone()).await?;
        let mut channel = Self { send, seen, driving: Driving::Own(Box::new(connection)) };
        channel.flush();
        Ok(channel)
    }

    /// A connection for several slots, and the task that drives it.
    pub async fn shared(
        target: &TargetSpec,
        stream: Stream,
        number: u32,
        retired: Rc<Cell<bool>>,
        counted: Counted,
    ) -> Result<Connected, Failure> {
        let seen = Rc::<Seen>::default();
        let (send, mut connection) = greet(target, stream, None, seen.clone()).await?;
        // How many streams the server allows stands in its first frame.
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Err(Broken::from(ended).failure(seen.speaks.get(), target))),
            Poll::Pending if seen.reads.get() > 0 => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        spawn_local(async move {
            let _ended = connection.await;
            retired.set(true);
            drop(counted);
        });
        Ok(Connected { send, number, seen })
    }

    /// A place on a connected link.
    pub fn join(member: Member, open: &Connected) -> Self {
        Self { send: open.send.clone(), seen: open.seen.clone(), driving: Driving::Shared(member) }
    }

    /// Whether it takes no further request now.
    pub fn is_spent(&self) -> bool {
        matches!(&self.driving, Driving::Shared(member) if member.0.retired.get() || member.0.is_full())
    }

    /// Whether the peer has ended a connection that lay idle.
    pub fn is_stale(&mut self) -> bool {
        match &self.driving {
            Driving::Own(_) => self.drive().is_ready(),
            Driving::Shared(member) => member.0.retired.get(),
        }
    }

    /// Move the frames of a connection of our own; ready when it has ended. Nobody but the socket wakes the slot.
    pub fn drive(&mut self) -> Poll<()> {
        match &mut self.driving {
            Driving::Own(connection) => {
                Pin::new(connection.as_mut()).poll(&mut Context::from_waker(Waker::noop())).map(drop)
            }
            Driving::Shared(_) => Poll::Pending,
        }
    }

    /// Let no slot use the connection for another request.
    pub fn retire(&self) {
        if let Driving::Shared(member) = &self.driving {
            member.0.retired.set(true);
        }
    }

    /// Whether all that can wake the slot is its socket.
    pub fn is_own(&self) -> bool {
        matches!(self.driving, Driving::Own(_))
    }

    fn flush(&mut self) {
        let _ended = self.drive();
    }

    /// Hand over one request; nothing has been sent when that fails.
    pub fn begin(
        &mut self,
        head: Request<()>,
        body: Bytes,
        level: &Rc<WorkerLevel>,
        row: &Row,
    ) -> Result<(ResponseFuture, Leaving), h2::Error> {
        let response = begin(&mut self.send, head, body)?;
        let stream = response.stream_id().as_u32();
        Ok((response, Leaving::new(self.seen.clone(), stream, level, row)))
    }

    /// Read the answer to a request with a body of `length` bytes.
    pub async fn finish(
        &mut self,
        mut download: Download<'_>,
        leaving: &Leaving,
        length: usize,
        slot: &Slot,
        context: &Shared,
    ) -> Result<(), Failure> {
        let reads = self.seen.reads.get();
        let _under_way = match &self.driving {
            Driving::Own(_) => None,
            Driving::Shared(member) => Some(member.begin()),
        };
        match guard(slot, poll_fn(|cx| download.poll(self, cx))).await {
            Ok(result) => result.map_err(|e| {
                let failure = e.failure(self.seen.speaks.get(), &context.target);
                let reach = match failure.reach {
                    _ if leaving.is_held() && !failure.keeps_connection => Reach::Unsent,
                    Reach::Cut if self.was_told_to_go() => Reach::Taken,
                    reach => reach,
                };
                Failure { reach, ..failure }
            }),
            Err(abort) => {
                let held_up = self.held_up(leaving, length);
                // Dropping a stream that is under way tells the server so.
                drop(download);
                self.flush();
                let mut failure = Failure::given_up(abort, &|| context.late() + &held_up);
                // What is held must not leave later, when its record says that it never did.
                let answers = abort == Abort::Cancelled || self.seen.reads.get() > reads;
                failure.keeps_connection = answers && !leaving.is_held();
                Err(failure)
            }
        }
    }

    /// Whether the server has said GOAWAY. It may then have looked at every request that it did not name as left out.
    fn was_told_to_go(&mut self) -> bool {
        let ready = self.send.poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(ready, Poll::Ready(Err(e)) if e.is_go_away() && e.is_remote())
    }

    /// What a request that is given up has waited for, where that was not the answer.
    fn held_up(&self, leaving: &Leaving, length: usize) -> String {
        let blocked = self.seen.departures.blocked.get();
        match leaving.body() {
            _ if leaving.is_held() && blocked => ": it was not sent, the server reads nothing".to_owned(),
            _ if leaving.is_held() => {
                let most = self.send.current_max_send_streams();
                format!(": it was not sent, the server allows {most} requests at a time on a connection")
            }
            sent if sent < length as u64 => {
                let why = if blocked { "the server reads no more" } else { "the server's window is full" };
                format!(": {sent} of the {length} bytes of its body were sent, {why}")
            }
            _ => String::new(),
        }
    }
}

/// What h2 says, as an outcome.
pub fn failure(e: &h2::Error, target: &TargetSpec) -> Failure {
    let reason = e.reason().unwrap_or(Reason::NO_ERROR);
    let of = |outcome, message: String| Failure::new(outcome, plain(&message));
    match () {
        // Only streams that the server has not looked at end by its GOAWAY.
        () if e.is_remote() && e.is_go_away() => Failure {
            reach: Reach::Refused,
            ..of(Outcome::Truncated, format!("the server closed the connection: {e}"))
        },
        () if e.is_remote() => Failure {
            reach: if reason == Reason::REFUSED_STREAM { Reach::Refused } else { Reach::Taken },
            keeps_connection: true,
            ..of(Outcome::Truncated, format!("the server reset the stream: {reason:?}"))
        },
        () if e.is_reset() => {
            let limit = target.max_header_bytes;
            let message = format!("the answer breaks HTTP/2 ({reason:?}), or its head is longer than {limit} bytes");
            Failure { keeps_connection: true, ..of(Outcome::ProtocolError, message) }
        }
        () if e.is_go_away() => of(Outcome::ProtocolError, format!("the server breaks HTTP/2: {reason:?}")),
        () if e.is_io() => failure::ended(plain(&format!("the connection broke: {e}"))),
        () => of(Outcome::ProtocolError, format!("the request cannot be sent: {e}")),
    }
}
