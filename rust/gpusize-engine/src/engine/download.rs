//! An answer of HTTP/2 on its way in: stamped, cut, interpreted.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use h2::RecvStream;
use h2::client::ResponseFuture;
use http::Response;

use super::failure::{self, Failure};
use super::http2::{self, Channel};
use super::io::Speaks;
use super::outside::now_ns;
use super::response::Reader;
use super::rpc::Replies;
use super::worker::Worker;
use crate::outcome::Outcome;
use crate::record::Row;
use crate::spec::TargetSpec;
use crate::wire::http1::Head;

/// Read bytes are given back to the stream's window in portions of this size: doing it for each frame costs more than the frame.
const RELEASE_BYTES: usize = 1 << 20;

/// Why reading stopped.
pub enum Broken {
    Http2(h2::Error),
    Ended,
    Answer(Failure),
}

impl From<h2::Error> for Broken {
    fn from(e: h2::Error) -> Self {
        Self::Http2(e)
    }
}

/// How a connection as a whole ended.
impl From<Result<(), h2::Error>> for Broken {
    fn from(ended: Result<(), h2::Error>) -> Self {
        ended.map_or_else(Self::Http2, |()| Self::Ended)
    }
}

impl Broken {
    pub fn failure(self, speaks: Speaks, target: &TargetSpec) -> Failure {
        match self {
            // What is wrong with one answer leaves the others of its connection alone.
            Self::Answer(failure) => Failure { keeps_connection: true, ..failure },
            _ if speaks == Speaks::Http1 => {
                Failure::new(Outcome::ProtocolError, "the server answered in HTTP/1.1, not HTTP/2")
            }
            Self::Ended => failure::ended("the server closed the connection"),
            Self::Http2(e) => http2::failure(&e, target),
        }
    }
}

#[derive(Debug)]
enum Phase {
    Head(ResponseFuture),
    Body(RecvStream),
    /// The body has ended.
    Trailers(RecvStream),
    Done,
}

/// An answer on its way in.
#[derive(Debug)]
pub struct Download<'a> {
    phase: Phase,
    unreleased: usize,
    worker: &'a Worker,
    reader: &'a mut Reader,
    replies: Option<&'a mut Replies>,
    row: &'a mut Row,
}

impl<'a> Download<'a> {
    pub fn new(
        response: ResponseFuture,
        worker: &'a Worker,
        reader: &'a mut Reader,
        replies: Option<&'a mut Replies>,
        row: &'a mut Row,
    ) -> Self {
        Self { phase: Phase::Head(response), unreleased: 0, worker, reader, replies, row }
    }

    /// Read on; ready at the last byte or when there can be none.
    pub fn poll(&mut self, channel: &mut Channel, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            let ended = channel.drive();
            // What one look at the connection brought has one time.
            let mut seen_ns = None;
            let mut released = false;
            let read = if channel.is_own() {
                self.read(&mut Context::from_waker(Waker::noop()), &mut seen_ns, &mut released)
            } else {
                self.read(cx, &mut seen_ns, &mut released)
            };
            match read {
                Poll::Ready(result) => return Poll::Ready(result),
                Poll::Pending if ended.is_ready() => return Poll::Ready(Err(Broken::Ended)),
                // A window that was opened has to be told to the server.
                Poll::Pending if released => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Take all that has come.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        seen_ns: &mut Option<i64>,
        released: &mut bool,
    ) -> Poll<Result<(), Broken>> {
        loop {
            let done = match &mut self.phase {
                Phase::Head(response) => {
                    let answer = ready!(Pin::new(response).poll(cx))?;
                    self.row.first_byte_ns = *seen_ns.get_or_insert_with(now_ns);
                    self.row.end_ns = self.row.first_byte_ns;
                    self.head(answer).map_err(Broken::Answer)?
                }
                Phase::Body(stream) => {
                    if let Some(bytes) = ready!(stream.poll_data(cx)) {
                        let bytes = bytes?;
                        let now = *seen_ns.get_or_insert_with(now_ns);
                        self.unreleased += bytes.len();
                        if self.unreleased >= RELEASE_BYTES {
                            stream.flow_control().release_capacity(std::mem::take(&mut self.unreleased))?;
                            *released = true;
                        }
                        let done = stream.is_end_stream();
                        self.body(&bytes, now).map_err(Broken::Answer)?;
                        done
                    } else {
                        let Phase::Body(stream) = std::mem::replace(&mut self.phase, Phase::Done) else { continue };
                        self.phase = Phase::Trailers(stream);
                        false
                    }
                }
                Phase::Trailers(stream) => {
                    let fields = ready!(stream.poll_trailers(cx))?;
                    self.row.end_ns = *seen_ns.get_or_insert_with(now_ns);
                    if let (Some(replies), Some(fields)) = (&mut self.replies, fields) {
                        replies.trailers(&fields);
                    }
                    true
                }
                Phase::Done => true,
            };
            if done {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The head has come; says whether that was all.
    fn head(&mut self, answer: Response<RecvStream>) -> Result<bool, Failure> {
        let (parts, stream) = answer.into_parts();
        let format = &self.worker.context.format;
        self.row.status = parts.status.as_u16();
        self.reader.begin(format, &Head::new(self.row.status, &parts.headers));
        if let Some(replies) = self.replies.as_deref_mut().filter(|_| format.interpreter.success(self.row.status)) {
            replies.head(&parts.headers)?;
        }
        let done = stream.is_end_stream();
        self.phase = Phase::Body(stream);
        Ok(done)
    }

    fn body(&mut self, bytes: &[u8], now: i64) -> Result<(), Failure> {
        let Self { reader, replies, row, worker, .. } = self;
        let context = &worker.context;
        row.end_ns = now;
        row.bytes_in += bytes.len() as u64;
        match replies.as_deref_mut().filter(|_| context.format.interpreter.success(row.status)) {
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
