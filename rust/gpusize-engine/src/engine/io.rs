//! A connection's bytes as the h2 crate takes them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http2::Seen;
use super::stream::Stream;

/// What the first bytes from the peer look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// Nothing has come yet.
    #[default]
    Unknown,
    /// An answer of HTTP/1.
    Http1,
    /// Anything else.
    Other,
}

/// See the module.
#[derive(Debug)]
pub struct Io {
    stream: Stream,
    /// Who is woken by the socket, whoever polls. A slot that drives its own connection is woken by nothing else: what
    /// h2's parts would tell each other, it finds by looking.
    waker: Option<Waker>,
    seen: Rc<Seen>,
}

impl Io {
    pub fn new(stream: Stream, waker: Option<Waker>, seen: Rc<Seen>) -> Self {
        Self { stream, waker, seen }
    }

    fn with<T>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Stream, &mut Context<'_>) -> T) -> T {
        match &self.waker {
            Some(waker) => poll(&mut self.stream, &mut Context::from_waker(waker)),
            None => poll(&mut self.stream, cx),
        }
    }

    /// What of `parts` the socket has taken, offered to it at `now`.
    fn note_written(&self, written: &Poll<io::Result<usize>>, parts: &[IoSlice<'_>], now: i64) {
        let departures = &self.seen.departures;
        departures.blocked.set(written.is_pending());
        let Poll::Ready(Ok(mut left)) = *written else { return };
        for part in parts {
            let n = left.min(part.len());
            departures.took(&part[..n], now);
            left -= n;
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.with(cx, |stream, cx| stream.poll_read(cx, buf));
        if buf.filled().len() > before {
            let seen = &self.seen;
            seen.reads.set(seen.reads.get() + 1);
            if seen.speaks.get() == Speaks::Unknown {
                let is_http1 = buf.filled()[before..].starts_with(b"HTTP/1");
                seen.speaks.set(if is_http1 { Speaks::Http1 } else { Speaks::Other });
            }
        }
        read
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let now = self.seen.departures.moment();
        let written = self.with(cx, |stream, cx| stream.poll_write(cx, bytes));
        self.note_written(&written, &[IoSlice::new(bytes)], now);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let now = self.seen.departures.moment();
        let written = self.with(cx, |stream, cx| stream.poll_write_vectored(cx, parts));
        self.note_written(&written, parts, now);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(cx, Stream::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(cx, Stream::poll_shutdown)
    }
}
