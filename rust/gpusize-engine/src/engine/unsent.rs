//! Sending a request: at once what the socket takes, the rest while the answer is awaited.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use super::stream::Stream;
use crate::wire::request::Message;

/// What the socket did not take at once. It is sent while the answer is awaited: a server may answer before it has read
/// everything, and then read no more.
pub struct Unsent<'a> {
    bytes: &'a [u8],
    /// Pieces of a large body, after `bytes`.
    rest: Vec<IoSlice<'a>>,
    /// How many of them are done.
    done: usize,
    /// There is something to do.
    pub flushes: bool,
    /// Bytes of the whole message.
    pub length: usize,
    /// Why the rest cannot be sent.
    pub error: Option<io::Error>,
}

impl<'a> Unsent<'a> {
    /// Write what the socket takes at once; with an error it has taken nothing.
    pub fn begin(stream: &Stream, message: Message<'a>) -> Self {
        let length = message.len();
        let Message { bytes, rest } = message;
        let mut unsent = Self { bytes, rest, done: 0, flushes: false, length, error: None };
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
    pub fn left(&self) -> usize {
        self.bytes.len() + self.rest[self.done..].iter().map(|piece| piece.len()).sum::<usize>()
    }

    /// Send some more, until all is sent and flushed.
    pub fn poll_send(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.flushes && self.left() > 0 {
            let n = if self.rest.is_empty() {
                ready!(stream.poll_write(cx, self.bytes))?
            } else {
                ready!(stream.poll_write_vectored(cx, &self.rest[self.done..]))?
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(n);
        }
        if self.flushes {
            ready!(stream.poll_flush(cx))?;
            self.flushes = false;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nothing_of_a_request_leaves_on_a_connection_that_was_reset() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let tcp = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let peer = socket2::Socket::from(listener.accept().unwrap().0);
            peer.set_linger(Some(Duration::ZERO)).unwrap();
            drop(peer);
            // The reset has come, and is told once: by this read. What comes then is a broken pipe.
            tcp.readable().await.unwrap();
            assert!(tcp.try_read(&mut [0; 1]).is_err());
            let stream = Stream::Plain(tcp);
            let whole = [&b"head"[..], b"body"].concat();
            for (bytes, rest) in [(&whole[..], vec![]), (&whole[..4], vec![IoSlice::new(&whole[4..])])] {
                let unsent = Unsent::begin(&stream, Message { bytes, rest });
                assert!(unsent.error.is_some());
                assert_eq!((unsent.left(), unsent.length, unsent.flushes), (8, 8, false));
            }
        });
    }
}
