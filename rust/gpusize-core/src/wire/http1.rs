//! One HTTP/1.1 response, fed as its bytes arrive.

use super::WireError;
use super::body::Body;

const MAX_HEADERS: usize = 100;

/// What of a response has been read so far.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // four independent facts of one response head
pub struct Response {
    /// Final status; 0 until the head has come.
    pub status: u16,
    /// Whether the connection may carry another request afterwards.
    pub keep_alive: bool,
    /// `content-type` says server-sent events.
    pub event_stream: bool,
    /// `content-type` says one JSON document a line.
    pub ndjson: bool,
    /// Body bytes seen.
    pub body_bytes: u64,
    body: Option<Body>,
    head_request: bool,
    max_header_bytes: usize,
    max_body_bytes: u64,
}

impl Response {
    /// Ready for the first byte; `head_request`: the answer to HEAD never has a body.
    pub fn new(head_request: bool, max_header_bytes: usize, max_body_bytes: u64) -> Self {
        Self {
            status: 0,
            keep_alive: true,
            event_stream: false,
            ndjson: false,
            body_bytes: 0,
            body: None,
            head_request,
            max_header_bytes,
            max_body_bytes,
        }
    }

    /// Forget the last response, keep the limits.
    pub fn reset(&mut self) {
        *self = Self::new(self.head_request, self.max_header_bytes, self.max_body_bytes);
    }

    /// Whether the whole response has been read.
    pub fn done(&self) -> bool {
        self.body.as_ref().is_some_and(Body::done)
    }

    /// Whether the final head has been read.
    pub fn has_head(&self) -> bool {
        self.body.is_some()
    }

    /// Take bytes off `input`; returns how many. Fewer than all: the response is done, or the head is incomplete and
    /// the same bytes are wanted again together with more. Call again while bytes are taken.
    pub fn feed(&mut self, input: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, WireError> {
        if let Some(body) = &mut self.body {
            let seen = &mut self.body_bytes;
            let taken = body.feed(input, &mut |b| {
                *seen += b.len() as u64;
                sink(b);
            })?;
            if self.body_bytes > self.max_body_bytes {
                return Err(WireError::Protocol(format!("body longer than {} bytes", self.max_body_bytes)));
            }
            return Ok(taken);
        }
        self.head(input)
    }

    /// The connection ended: was that the response's end?
    pub fn eof(&self) -> Result<(), WireError> {
        match &self.body {
            Some(body) => body.eof(),
            None => Err(WireError::Truncated("before the response head was complete")),
        }
    }

    fn head(&mut self, input: &[u8]) -> Result<usize, WireError> {
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed = config.parse_response_with_uninit_headers(&mut head, input, &mut headers);
        let length = match parsed {
            Ok(httparse::Status::Complete(n)) => n,
            Ok(httparse::Status::Partial) if input.len() <= self.max_header_bytes => return Ok(0),
            Ok(httparse::Status::Partial) => return Err(self.too_long()),
            Err(e) => return Err(WireError::Protocol(format!("{e} in the response head"))),
        };
        if length > self.max_header_bytes {
            return Err(self.too_long());
        }
        let status = head.code.unwrap_or(0);
        match status {
            101 => return Err(WireError::Protocol("101 Switching Protocols was not asked for".to_owned())),
            100..=199 => return Ok(length),
            200..=599 => {}
            _ => return Err(WireError::Protocol(format!("status {status}"))),
        }
        self.status = status;
        self.keep_alive = head.version == Some(1);
        let mut body = self.headers(head.headers)?;
        if self.head_request || status == 204 || status == 304 {
            body = Body::Length(0);
        }
        if body == Body::Close {
            self.keep_alive = false;
        }
        self.body = Some(body);
        Ok(length)
    }

    fn headers(&mut self, headers: &[httparse::Header<'_>]) -> Result<Body, WireError> {
        let mut length = None;
        let mut chunked = None;
        for header in headers {
            let (name, value) = (header.name.as_bytes(), header.value.trim_ascii());
            // The length of the name rules out nearly every header before any byte is compared.
            match name.len() {
                14 if name.eq_ignore_ascii_case(b"content-length") => {
                    let n = content_length(value)?;
                    if length.is_some_and(|l| l != n) {
                        return Err(WireError::Protocol("two different content lengths".to_owned()));
                    }
                    length = Some(n);
                }
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    let last = value.rsplit(|&b| b == b',').next().unwrap_or(value).trim_ascii();
                    chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
                }
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    for token in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                        if token.eq_ignore_ascii_case(b"close") {
                            self.keep_alive = false;
                        } else if token.eq_ignore_ascii_case(b"keep-alive") {
                            self.keep_alive = true;
                        }
                    }
                }
                12 if name.eq_ignore_ascii_case(b"content-type") => {
                    let kind = value.split(|&b| b == b';').next().unwrap_or(value).trim_ascii();
                    self.event_stream = kind.eq_ignore_ascii_case(b"text/event-stream");
                    self.ndjson = kind.eq_ignore_ascii_case(b"application/x-ndjson")
                        || kind.eq_ignore_ascii_case(b"application/jsonl");
                }
                _ => {}
            }
        }
        Ok(match (chunked, length) {
            (Some(true), _) => Body::chunked(),
            (Some(false), _) | (None, None) => Body::Close,
            (None, Some(n)) => Body::Length(n),
        })
    }

    fn too_long(&self) -> WireError {
        WireError::Protocol(format!("response head longer than {} bytes", self.max_header_bytes))
    }
}

fn content_length(value: &[u8]) -> Result<u64, WireError> {
    let bad = || WireError::Protocol("content-length is not a number".to_owned());
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(bad());
    }
    std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feed in pieces as a connection does; returns (response, body, bytes left over).
    fn read(wire: &[u8], step: usize, head: bool) -> Result<(Response, Vec<u8>, usize), WireError> {
        let mut response = Response::new(head, 4096, 1 << 20);
        let (mut out, mut held) = (Vec::new(), Vec::new());
        for piece in wire.chunks(step) {
            held.extend_from_slice(piece);
            while !response.done() {
                let n = response.feed(&held, &mut |b| out.extend_from_slice(b))?;
                held.drain(..n);
                if n == 0 || held.is_empty() {
                    break;
                }
            }
        }
        if !response.done() {
            response.eof()?;
        }
        Ok((response, out, held.len()))
    }

    #[test]
    fn a_length_response_reads_the_same_in_any_pieces() {
        let wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhelloNEXT";
        for step in 1..=wire.len() {
            let (r, body, left) = read(wire, step, false).unwrap();
            assert_eq!((r.status, body.as_slice(), left, r.keep_alive), (200, &b"hello"[..], 4, true), "step {step}");
        }
    }

    #[test]
    fn no_body_where_there_can_be_none() {
        for (wire, head) in [
            (&b"HTTP/1.1 204 No Content\r\n\r\nX"[..], false),
            (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nX", false),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nX", true),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nX", false),
        ] {
            let (r, body, left) = read(wire, wire.len(), head).unwrap();
            assert!(r.done() && body.is_empty() && left == 1 && r.keep_alive, "{wire:?}");
        }
    }

    #[test]
    fn close_and_old_versions_end_the_connection() {
        let (r, body, _) = read(b"HTTP/1.1 200 OK\r\n\r\nall of it", 3, false).unwrap();
        assert!(!r.keep_alive && body == b"all of it");
        let (r, ..) = read(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 50, false).unwrap();
        assert!(!r.keep_alive);
        let (r, ..) =
            read(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", 99, false).unwrap();
        assert!(r.keep_alive);
        let (r, ..) =
            read(b"HTTP/1.1 200 OK\r\nConnection: Foo, Close\r\nContent-Length: 1\r\n\r\nx", 99, false).unwrap();
        assert!(!r.keep_alive);
    }

    #[test]
    fn chunked_wins_over_length_and_types_are_seen() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nContent-Length: 3\r\n\
            Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
        let (r, body, left) = read(wire, 7, false).unwrap();
        assert!(r.done() && r.event_stream && body == b"ab" && left == 0);
    }

    #[test]
    fn nonsense_is_refused() {
        for wire in [
            &b"HELLO\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            b"HTTP/1.1 101 Switching\r\n\r\n",
            b"HTTP/1.1 999 What\r\n\r\n",
        ] {
            assert!(matches!(read(wire, wire.len(), false), Err(WireError::Protocol(_))), "{wire:?}");
        }
        let long = [b"HTTP/1.1 200 OK\r\nX: ", vec![b'a'; 5000].as_slice()].concat();
        assert!(matches!(read(&long, 1000, false), Err(WireError::Protocol(_))));
        assert!(matches!(read(b"HTTP/1.1 200 OK\r\nContent-", 9, false), Err(WireError::Truncated(_))));
    }
}
