//! Counts complete HTTP/1.1 requests in a byte stream, however it is split.

use memchr::memmem;

/// A head longer than this is refused.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

const HEAD_END: &[u8] = b"\r\n\r\n";

/// Why a stream cannot be counted; its connection is closed.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Refused {
    /// The head has no end within [`MAX_HEAD_BYTES`].
    HeadTooLong,
    /// `Content-Length` is no number, or the body is chunked.
    BodyUnknown,
}

/// The state of one connection's request stream.
#[derive(Debug, Default)]
pub struct RequestCounter {
    /// The beginning of a head whose end has not come yet.
    head: Vec<u8>,
    /// Bytes of the current request's body that are still to come.
    body_left: u64,
}

impl RequestCounter {
    /// Takes the next bytes of the stream; the number of requests that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, Refused> {
        let mut rest = bytes;
        let mut complete = 0;
        while !rest.is_empty() {
            if self.body_left > 0 {
                let taken = self.body_left.min(rest.len() as u64);
                self.body_left -= taken;
                rest = &rest[taken as usize..];
            } else if let Some(used) = self.take_head(rest)? {
                rest = &rest[used..];
            } else {
                return Ok(complete);
            }
            complete += usize::from(self.body_left == 0);
        }
        Ok(complete)
    }

    /// Ends a head within `bytes` and sets `body_left`; the number of bytes that the head used, or None when its end is still to come.
    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        if self.head.is_empty() {
            if let Some(at) = memmem::find(bytes, HEAD_END) {
                let end = at + HEAD_END.len();
                self.body_left = body_length(&bytes[..end])?;
                return Ok(Some(end));
            }
            self.head.extend_from_slice(bytes);
        } else {
            let known = self.head.len();
            let from = known.saturating_sub(HEAD_END.len() - 1);
            self.head.extend_from_slice(bytes);
            if let Some(at) = memmem::find(&self.head[from..], HEAD_END) {
                let end = from + at + HEAD_END.len();
                self.body_left = body_length(&self.head[..end])?;
                self.head.clear();
                return Ok(Some(end - known));
            }
        }
        if self.head.len() > MAX_HEAD_BYTES { Err(Refused::HeadTooLong) } else { Ok(None) }
    }
}

/// The length of the body that a head announces.
fn body_length(head: &[u8]) -> Result<u64, Refused> {
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"content-length") {
            let text = std::str::from_utf8(value).map_err(|_| Refused::BodyUnknown)?;
            return text.trim().parse().map_err(|_| Refused::BodyUnknown);
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Err(Refused::BodyUnknown);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::{MAX_HEAD_BYTES, Refused, RequestCounter};

    const STREAM: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST /b HTTP/1.1\r\ncontent-length: 6\r\n\r\n\r\n\r\nabGET /c HTTP/1.1\r\n\r\n";

    #[test]
    fn every_split_counts_the_same() {
        for first in 0..=STREAM.len() {
            for second in first..=STREAM.len() {
                let mut counter = RequestCounter::default();
                let pieces = [&STREAM[..first], &STREAM[first..second], &STREAM[second..]];
                let counted: Result<usize, Refused> = pieces.iter().map(|piece| counter.feed(piece)).sum();
                assert_eq!(counted, Ok(3), "split at {first} and {second}");
            }
        }
    }

    #[test]
    fn byte_by_byte_a_request_counts_at_its_last_byte() {
        let mut counter = RequestCounter::default();
        let ends: Vec<usize> =
            (0..STREAM.len()).filter(|at| counter.feed(&STREAM[*at..=*at]) == Ok(1)).map(|at| at + 1).collect();
        assert_eq!(ends, [27, 72, STREAM.len()]);
    }

    #[test]
    fn what_has_no_known_end_is_refused() {
        let mut counter = RequestCounter::default();
        assert_eq!(counter.feed(&vec![b'a'; MAX_HEAD_BYTES + 1]), Err(Refused::HeadTooLong));
        for line in ["Transfer-Encoding: chunked", "Content-Length: six"] {
            let head = format!("POST / HTTP/1.1\r\n{line}\r\n\r\n");
            assert_eq!(RequestCounter::default().feed(head.as_bytes()), Err(Refused::BodyUnknown));
        }
    }
}
