//! Counts complete HTTP/1.1 requests in a stream of bytes, however it is split.

use memchr::memmem;

const HEAD_END: &[u8] = b"\r\n\r\n";
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The state of one connection's stream.
#[derive(Debug, Default)]
pub struct RequestCounter {
    /// The beginning of a head whose end has not come yet.
    head: Vec<u8>,
    /// Bytes of the body that are still to come.
    body_left: u64,
}

impl RequestCounter {
    /// Takes the next bytes; the number of requests that they complete. None where the stream cannot be followed: a
    /// head without an end, a chunked body, a length that is no number.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Option<usize> {
        let mut complete = 0;
        while !bytes.is_empty() {
            if self.body_left > 0 {
                let taken = self.body_left.min(bytes.len() as u64);
                self.body_left -= taken;
                bytes = &bytes[taken as usize..];
            } else {
                let Some(used) = self.head(bytes)? else { break };
                bytes = &bytes[used..];
            }
            complete += usize::from(self.body_left == 0);
        }
        Some(complete)
    }

    /// Reads on in a head: the bytes up to its end, or `Some(None)` when that is still to come.
    #[allow(clippy::option_option)] // broken, not yet, and so many bytes
    fn head(&mut self, bytes: &[u8]) -> Option<Option<usize>> {
        if self.head.is_empty()
            && let Some(at) = memmem::find(bytes, HEAD_END)
        {
            self.body_left = body_length(&bytes[..at])?;
            return Some(Some(at + HEAD_END.len()));
        }
        let known = self.head.len();
        self.head.extend_from_slice(bytes);
        let from = known.saturating_sub(HEAD_END.len() - 1);
        if let Some(at) = memmem::find(&self.head[from..], HEAD_END) {
            self.body_left = body_length(&self.head[..from + at])?;
            self.head.clear();
            return Some(Some(from + at + HEAD_END.len() - known));
        }
        (self.head.len() <= MAX_HEAD_BYTES).then_some(None)
    }
}

fn body_length(head: &[u8]) -> Option<u64> {
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"content-length") {
            return str::from_utf8(value).ok()?.trim().parse().ok();
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return None;
        }
    }
    Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"GET / HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\ncontent-length: 5\r\n\r\n\r\n\r\naGET /c HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn every_split_counts_the_same() {
        for first in 0..=STREAM.len() {
            for second in first..=STREAM.len() {
                let mut counter = RequestCounter::default();
                let pieces = [&STREAM[..first], &STREAM[first..second], &STREAM[second..]];
                let counted: Option<usize> = pieces.iter().map(|piece| counter.feed(piece)).sum();
                assert_eq!(counted, Some(3), "split at {first} and {second}");
            }
        }
    }

    #[test]
    fn what_has_no_known_end_is_given_up() {
        assert_eq!(RequestCounter::default().feed(&vec![b'a'; MAX_HEAD_BYTES + 1]), None);
        for line in ["Transfer-Encoding: chunked", "Content-Length: six"] {
            let head = format!("POST / HTTP/1.1\r\n{line}\r\n\r\n");
            assert_eq!(RequestCounter::default().feed(head.as_bytes()), None);
        }
    }
}
