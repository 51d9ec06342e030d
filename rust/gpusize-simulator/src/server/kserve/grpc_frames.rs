//! gRPC's framing of messages, and the bodies of its answers.

use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::routes::MAX_BODY_BYTES;
use super::error::{Code, Refused};

const PREFIX_BYTES: usize = 5;

/// A message behind its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
    // The room is there.
    let _ = message.encode(&mut bytes);
    bytes.freeze()
}

/// Messages cut out of what has come so far.
#[derive(Debug, Default)]
pub(super) struct Unframer {
    held: BytesMut,
}

impl Unframer {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next whole message; none before it is there.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Refused> {
        let Some((prefix, _)) = self.held.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            return Err(Refused::new(Code::Unimplemented, "compressed messages are not taken"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_BODY_BYTES {
            let message = format!("Received message larger than max ({length} vs. {MAX_BODY_BYTES})");
            return Err(Refused::new(Code::ResourceExhausted, message));
        }
        if self.held.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.held.advance(PREFIX_BYTES);
        Ok(Some(self.held.split_to(length).freeze()))
    }

    /// Whether a message has begun and not ended.
    pub(super) fn is_amid(&self) -> bool {
        !self.held.is_empty()
    }
}

/// The body of an answer: what is in hand, then what comes, until the other end is gone.
pub(crate) struct Replies {
    ready: VecDeque<io::Result<Frame<Bytes>>>,
    coming: Option<UnboundedReceiver<io::Result<Frame<Bytes>>>>,
    flushed: bool,
}

impl Replies {
    pub(super) fn of(frames: impl IntoIterator<Item = io::Result<Frame<Bytes>>>) -> Self {
        Self { ready: frames.into_iter().collect(), coming: None, flushed: false }
    }

    pub(super) fn coming(frames: UnboundedReceiver<io::Result<Frame<Bytes>>>) -> Self {
        Self { ready: VecDeque::new(), coming: Some(frames), flushed: false }
    }
}

impl Body for Replies {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.ready.is_empty()
            && let Some(coming) = &mut self.coming
        {
            match coming.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(frame)) => self.ready.push_back(frame),
            }
        }
        // An error resets the stream at once: what stands before it goes out first, in a turn of its own.
        if matches!(self.ready.front(), Some(Err(_))) && !self.flushed {
            self.flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.ready.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && self.coming.is_none()
    }
}

/// The trailers that say how a call ended.
pub(super) fn trailers(outcome: Result<(), &Refused>) -> HeaderMap {
    let mut map = HeaderMap::new();
    let code = outcome.err().map_or(0, |refused| refused.code as i32);
    map.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(code));
    if let Err(refused) = outcome
        && let Ok(message) = HeaderValue::from_str(&percent_encoded(&refused.message))
    {
        map.insert(HeaderName::from_static("grpc-message"), message);
    }
    map
}

/// Everything but printable ASCII as `%XX`, and the percent sign too.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_out_byte_by_byte() {
        let mut unframer = Unframer::default();
        let mut messages = Vec::new();
        for byte in [&b"\0\0\0\0\x02ab"[..], b"\0\0\0\0\0", b"\0\0\0\0\x01c"].concat() {
            unframer.push(&[byte]);
            messages.extend(unframer.next().expect("sound"));
        }
        assert_eq!(messages, ["ab", "", "c"]);
        assert!(!unframer.is_amid());
        unframer.push(&[1, 0, 0, 0, 0]);
        assert_eq!(unframer.next().expect_err("compressed").code, Code::Unimplemented);
        let mut large = Unframer::default();
        large.push(&[0, 255, 0, 0, 0]);
        assert_eq!(large.next().expect_err("too large").code, Code::ResourceExhausted);
    }

    #[test]
    fn messages_of_errors_are_printable() {
        let trailers = trailers(Err(&Refused::new(Code::NotFound, "50 % of\né")));
        assert_eq!(
            (&trailers["grpc-status"], &trailers["grpc-message"]),
            (&HeaderValue::from(5), &HeaderValue::from_static("50 %25 of%0A%C3%A9"))
        );
    }
}
