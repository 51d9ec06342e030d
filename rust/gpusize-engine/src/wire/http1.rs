//! One HTTP/1.1 response, fed as its bytes arrive.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};

use super::WireError;
use super::body::Body;
use super::times::{HeadTimes, ServerTimes};

/// Where a server says how long the JSON before its tensors is.
const JSON_LENGTH: &str = "inference-header-content-length";
static JSON_LENGTH_FIELD: HeaderName = HeaderName::from_static(JSON_LENGTH);

const MAX_HEADERS: usize = 100;
/// Longer heads are not kept for comparison.
const MAX_KEPT_HEAD: usize = 4_096;

/// What a response head says that matters here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// Final status; 0 until the head has come.
    pub status: u16,
    /// Whether the connection may carry another request afterwards.
    pub keep_alive: bool,
    /// The content type, as far as it decides how the body is cut.
    pub content: Content,
    /// Bytes of the JSON that stands before tensors in the body (KServe's binary extension).
    pub json_length: Option<usize>,
    /// How long the server says that it took.
    pub times: ServerTimes,
    length: Length,
}

/// What servers call one JSON document a line; no name is registered.
const LINES: [&[u8]; 5] = [
    b"application/x-ndjson",
    b"application/ndjson",
    b"application/jsonl",
    b"application/jsonlines",
    b"application/x-jsonlines",
];

/// Content types that decide how a body is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Anything else.
    #[default]
    Other,
    /// Server-sent events.
    EventStream,
    /// One JSON document a line.
    Ndjson,
    /// One JSON document.
    Json,
    /// Plain text whose length is not said beforehand: it is made while it is sent.
    TextStream,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    #[default]
    UntilClose,
    Chunked,
    Bytes(u64),
}

/// What of a response has been read so far.
#[derive(Debug)]
pub struct Response {
    head: Head,
    body: Option<Body>,
    body_bytes: u64,
    /// The bytes of the last head: servers repeat themselves, and comparing costs a tenth of parsing.
    last_head: Vec<u8>,
    head_request: bool,
    max_header_bytes: usize,
    max_body_bytes: u64,
    times: HeadTimes,
}

impl Response {
    /// Ready for the first byte; `head_request`: the answer to HEAD never has a body.
    pub fn new(head_request: bool, max_header_bytes: usize, max_body_bytes: u64) -> Self {
        Self {
            head: Head::default(),
            body: None,
            body_bytes: 0,
            last_head: Vec::new(),
            head_request,
            max_header_bytes,
            max_body_bytes,
            times: HeadTimes::default(),
        }
    }

    /// Look for what the server says of its times.
    #[must_use]
    pub fn with_times(mut self, times: HeadTimes) -> Self {
        self.times = times;
        self
    }

    /// Be ready for another response.
    pub fn reset(&mut self) {
        self.body = None;
        self.body_bytes = 0;
    }

    /// Whether the whole response has been read.
    pub fn done(&self) -> bool {
        self.body.as_ref().is_some_and(Body::done)
    }

    /// Bytes of an announced length that are still to come.
    pub fn length_left(&self) -> u64 {
        match self.body {
            Some(Body::Length(left)) => left,
            _ => 0,
        }
    }

    /// So many bytes of an announced length were thrown away unread.
    pub fn skip(&mut self, bytes: u64) -> Result<(), WireError> {
        if let Some(Body::Length(left)) = &mut self.body {
            *left -= bytes;
        }
        self.body_bytes += bytes;
        self.check_length()
    }

    fn check_length(&self) -> Result<(), WireError> {
        if self.body_bytes > self.max_body_bytes {
            return Err(self.body_too_long());
        }
        Ok(())
    }

    /// The final head, once it has been read.
    pub fn head(&self) -> Option<&Head> {
        self.body.as_ref().map(|_| &self.head)
    }

    /// Take bytes off `input`; returns how many. Fewer than all: the response is done, or the head is incomplete and
    /// the same bytes are wanted again together with more. Call again while bytes are taken.
    pub fn feed(&mut self, input: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, WireError> {
        let Some(body) = &mut self.body else { return self.read_head(input) };
        let seen = &mut self.body_bytes;
        let taken = body.feed(input, &mut |b| {
            *seen += b.len() as u64;
            sink(b);
        })?;
        self.check_length()?;
        Ok(taken)
    }

    /// The connection ended: was that the response's end?
    pub fn eof(&self) -> Result<(), WireError> {
        match &self.body {
            Some(body) => body.eof(),
            None => Err(WireError::Truncated("before the response head was complete")),
        }
    }

    fn read_head(&mut self, input: &[u8]) -> Result<usize, WireError> {
        if !self.last_head.is_empty() && input.starts_with(&self.last_head) {
            self.begin_body();
            return Ok(self.last_head.len());
        }
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut []);
        let mut config = httparse::ParserConfig::default();
        // A user agent takes a field that goes on in the next line (RFC 9112, section 5.2); no value that matters here has one inside.
        config.allow_obsolete_multiline_headers_in_responses(true);
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
        // A head that turns out broken must not pass for the one before it.
        self.last_head.clear();
        self.head = Head { status, keep_alive: head.version == Some(1), ..Head::default() };
        self.head.read(head.headers)?;
        if !self.times.is_empty() {
            self.head.times = self.times.of_lines(head.headers);
        }
        if self.head_request || status == 204 || status == 304 {
            self.head.length = Length::Bytes(0);
        }
        if matches!(self.head.length, Length::Bytes(n) if n > self.max_body_bytes) {
            return Err(self.body_too_long());
        }
        self.head.keep_alive &= self.head.length != Length::UntilClose;
        if length <= MAX_KEPT_HEAD {
            self.last_head.extend_from_slice(&input[..length]);
        }
        self.begin_body();
        Ok(length)
    }

    fn begin_body(&mut self) {
        self.body = Some(match self.head.length {
            Length::UntilClose => Body::Close,
            Length::Chunked => Body::chunked(),
            Length::Bytes(n) => Body::Length(n),
        });
    }

    fn body_too_long(&self) -> WireError {
        WireError::Protocol(format!("body longer than {} bytes", self.max_body_bytes))
    }

    fn too_long(&self) -> WireError {
        WireError::Protocol(format!("response head longer than {} bytes", self.max_header_bytes))
    }
}

impl Head {
    /// A head that came in another form than HTTP/1.1's.
    pub fn new(status: u16, fields: &HeaderMap) -> Self {
        let kind = fields.get(CONTENT_TYPE).map(|value| content(value.as_bytes())).unwrap_or_default();
        let content = kind.with_length(fields.contains_key(CONTENT_LENGTH));
        let json_length = fields.get(&JSON_LENGTH_FIELD).and_then(|value| value.to_str().ok()?.parse().ok());
        Self { status, content, json_length, ..Self::default() }
    }

    /// Bytes of the body, where the head says so.
    pub fn length(&self) -> Option<u64> {
        match self.length {
            Length::Bytes(length) => Some(length),
            Length::Chunked | Length::UntilClose => None,
        }
    }

    fn read(&mut self, headers: &[httparse::Header<'_>]) -> Result<(), WireError> {
        let old = !self.keep_alive;
        let mut length = None;
        let mut chunked = None;
        let mut closes = false;
        for header in headers {
            let (name, value) = (header.name, header.value.trim_ascii());
            if name.eq_ignore_ascii_case("content-length") {
                let n = content_length(value)?;
                if length.is_some_and(|l| l != n) {
                    return Err(WireError::Protocol("two different content lengths".to_owned()));
                }
                length = Some(n);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                let last = value.rsplit(|&b| b == b',').next().unwrap_or(value).trim_ascii();
                chunked = Some(last.eq_ignore_ascii_case(b"chunked"));
            } else if name.eq_ignore_ascii_case("connection") {
                closes |= self.read_connection(value);
            } else if name.eq_ignore_ascii_case("content-type") {
                self.content = content(value);
            } else if name.eq_ignore_ascii_case(JSON_LENGTH) {
                self.json_length = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
            }
        }
        // A chunked body of HTTP/1.0 passed something that did not understand it (RFC 9112, section 6.1).
        self.keep_alive &= !(closes || old && chunked.is_some());
        self.length = match (chunked, length) {
            (Some(true), _) => Length::Chunked,
            (Some(false), _) | (None, None) => Length::UntilClose,
            (None, Some(n)) => Length::Bytes(n),
        };
        self.content = self.content.with_length(matches!(self.length, Length::Bytes(_)));
        Ok(())
    }

    /// Says whether it closes, which counts whatever else stands there (RFC 9112, section 9.3).
    fn read_connection(&mut self, value: &[u8]) -> bool {
        let mut closes = false;
        for token in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") {
                closes = true;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            }
        }
        closes
    }
}

impl Content {
    /// As it is once the length is known: text that is there as a whole is no stream.
    fn with_length(self, says_length: bool) -> Self {
        if self == Self::TextStream && says_length { Self::Other } else { self }
    }
}

fn content(value: &[u8]) -> Content {
    let kind = value.split(|&b| b == b';').next().unwrap_or(value).trim_ascii();
    if kind.eq_ignore_ascii_case(b"text/event-stream") {
        Content::EventStream
    } else if LINES.iter().any(|lines| kind.eq_ignore_ascii_case(lines)) {
        Content::Ndjson
    } else if kind.eq_ignore_ascii_case(b"application/json")
        || kind.last_chunk::<5>().is_some_and(|end| end.eq_ignore_ascii_case(b"+json"))
    {
        Content::Json
    } else if kind.eq_ignore_ascii_case(b"text/plain") {
        Content::TextStream
    } else {
        Content::Other
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

    fn status(r: &Response) -> u16 {
        r.head().unwrap().status
    }

    fn keeps(r: &Response) -> bool {
        r.head().unwrap().keep_alive
    }

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
            assert_eq!((status(&r), body.as_slice(), left, keeps(&r)), (200, &b"hello"[..], 4, true), "step {step}");
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
            assert!(r.done() && body.is_empty() && left == 1 && keeps(&r), "{wire:?}");
        }
    }

    #[test]
    fn close_and_old_versions_end_the_connection() {
        let (r, body, _) = read(b"HTTP/1.1 200 OK\r\n\r\nall of it", 3, false).unwrap();
        assert!(!keeps(&r) && body == b"all of it");
        let (r, ..) = read(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 50, false).unwrap();
        assert!(!keeps(&r));
        let (r, ..) =
            read(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", 99, false).unwrap();
        assert!(keeps(&r));
        let (r, ..) =
            read(b"HTTP/1.1 200 OK\r\nConnection: Foo, Close\r\nContent-Length: 1\r\n\r\nx", 99, false).unwrap();
        assert!(!keeps(&r));
    }

    #[test]
    fn chunked_wins_over_length_and_types_are_seen() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nContent-Length: 3\r\n\
            Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
        let (r, body, left) = read(wire, 7, false).unwrap();
        assert!(r.done() && r.head().unwrap().content == Content::EventStream && body == b"ab" && left == 0);
    }

    #[test]
    fn a_repeated_head_means_the_same_and_another_is_read() {
        let mut r = Response::new(false, 4096, 1 << 20);
        let heads = [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"[..], 200),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", 200),
            (b"HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nabc", 404),
            (b"HTTP/1.1 404 No\r\nContent-Length: 3\r\n\r\nabc", 404),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 200),
        ];
        for (wire, want) in heads {
            r.reset();
            assert!(r.head().is_none());
            let mut at = 0;
            while !r.done() {
                at += r.feed(&wire[at..], &mut |_| {}).unwrap();
            }
            assert_eq!((status(&r), at), (want, wire.len()));
        }
    }

    #[test]
    fn a_broken_head_does_not_change_what_an_earlier_one_meant() {
        let mut r = Response::new(false, 4096, 1 << 20);
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        r.feed(good, &mut |_| {}).unwrap();
        r.reset();
        assert!(r.feed(b"HTTP/1.1 500 No\r\nContent-Length: x\r\n\r\n", &mut |_| {}).is_err());
        r.reset();
        r.feed(good, &mut |_| {}).unwrap();
        assert_eq!(status(&r), 200);
        r.feed(b"ab", &mut |_| {}).unwrap();
        assert!(r.done());
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
