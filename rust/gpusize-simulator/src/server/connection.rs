//! A connection that can be made to misbehave.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// No chunk size and no status line begins like this.
const GARBAGE: &[u8] = b"*broken on request*\r\n";

/// What an answer may ask of the connection it goes out on.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// Close with a reset instead of in good order.
    pub reset: Cell<bool>,
    /// Put garbage before the next bytes.
    pub garbage: Cell<bool>,
}

/// A TCP stream and its fate.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TokioIo<TcpStream>,
    fate: Rc<Fate>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, fate: Rc<Fate>) -> Self {
        Self { stream: TokioIo::new(stream), fate }
    }

    fn poll_garbage(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fate.garbage.get() {
            ready!(Pin::new(&mut self.stream).poll_write(context, GARBAGE))?;
            self.fate.garbage.set(false);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.fate.reset.get() {
            // Where this fails the connection is gone already.
            let _ = self.stream.inner().set_zero_linger();
        }
    }
}

impl Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_garbage(context))?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_garbage(context))?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fate.reset.get() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
