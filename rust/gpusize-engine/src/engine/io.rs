//! A connection's bytes as the h2 crate takes them.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::Stream;

/// See the module.
#[derive(Debug)]
pub struct Io {
    stream: Stream,
    has_read: bool,
    /// The first that came is an answer of HTTP/1.
    is_http1: Rc<Cell<bool>>,
}

impl Io {
    pub fn new(stream: Stream, is_http1: Rc<Cell<bool>>) -> Self {
        Self { stream, has_read: false, is_http1 }
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.stream.poll_read(cx, buf);
        if buf.filled().len() > before && !std::mem::replace(&mut self.has_read, true) {
            self.is_http1.set(buf.filled()[before..].starts_with(b"HTTP/1"));
        }
        read
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(cx)
    }
}
