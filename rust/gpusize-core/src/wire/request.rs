//! Request bytes: rendered before the start where nothing changes from request to request, else piece by piece.

use std::io::Write;

use bytes::Bytes;

use super::grpc;
use crate::draw::Draw;
use crate::error::{Error, Result};
use crate::spec::{Segment, TargetSpec, TlsSpec, Transport};

/// Rendered requests are kept up to this many bytes; a larger dataset is rendered as it is sent.
const KEEP: usize = 256 << 20;

/// All requests of a session.
#[derive(Debug)]
pub struct Requests {
    around: Around,
    segments: Vec<Segment>,
    rows: Vec<Vec<Vec<u8>>>,
    says_length: bool,
    /// One for each head.
    rendered: Option<Vec<Rendered>>,
}

/// What stands around a body in one buffer.
#[derive(Debug)]
enum Around {
    /// An HTTP/1.1 head, which names the address: one for each.
    Heads(Vec<Vec<u8>>),
    /// Nothing: HTTP/2 sends heads apart.
    Nothing,
    /// The length of a gRPC message.
    Length,
}

/// Room in which one connection renders its requests.
#[derive(Debug, Default)]
pub struct Buffers {
    request: Vec<u8>,
    body: Vec<u8>,
}

#[derive(Debug)]
struct Rendered {
    bytes: Bytes,
    ends: Vec<usize>,
}

impl Requests {
    /// Check and, where possible, render. `rows` holds the fields of each dataset row.
    pub fn new(target: &TargetSpec, segments: Vec<Segment>, rows: Vec<Vec<Vec<u8>>>) -> Result<Self> {
        if rows.is_empty() {
            return Err(Error::usage("the dataset has no rows", "rows", "give at least one"));
        }
        for segment in &segments {
            if let Segment::Field(k) = segment
                && let Some(row) = rows.iter().position(|r| r.len() <= *k)
            {
                return Err(Error::usage(
                    format!("row {row} has no field {k}"),
                    "rows",
                    "give every field of every row",
                ));
            }
            if let Segment::Random { low, high, .. } = segment
                && low > high
            {
                return Err(Error::usage("low is above high", "segments.random", "swap them"));
            }
        }
        let says_length = !matches!(target.method.as_str(), "GET" | "HEAD" | "DELETE" | "OPTIONS");
        let around = match target.transport {
            Transport::Http1 => Around::Heads(
                target.endpoints().map(|(host, port, tls)| head(target, host, port, tls)).collect::<Result<_>>()?,
            ),
            Transport::Http2 => Around::Nothing,
            Transport::Grpc => Around::Length,
        };
        let mut requests = Self { around, segments, rows, says_length, rendered: None };
        requests.render_all();
        Ok(requests)
    }

    /// Number of dataset rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The bytes of one request to address `endpoint`, in `buffers` unless they were rendered before.
    pub fn bytes<'a>(&'a self, endpoint: usize, row: usize, seq: u64, seed: u64, buffers: &'a mut Buffers) -> &'a [u8] {
        if let Some(r) = &self.rendered {
            return &r[endpoint].bytes[r[endpoint].range(row)];
        }
        buffers.request.clear();
        self.render(endpoint, row, seq, seed, buffers);
        &buffers.request
    }

    /// The body of one request without its head, for HTTP/2; not copied where it was rendered before.
    pub fn body(&self, row: usize, seq: u64, seed: u64, buffers: &mut Buffers) -> Bytes {
        if let Some(r) = &self.rendered {
            return r[0].bytes.slice(r[0].range(row));
        }
        buffers.request.clear();
        self.render(0, row, seq, seed, buffers);
        std::mem::take(&mut buffers.request).into()
    }

    fn render_all(&mut self) {
        let fixed = self.segments.iter().all(|s| matches!(s, Segment::Static(_) | Segment::Field(_)));
        let fields: usize = self.rows.iter().flatten().map(Vec::len).sum();
        let (heads, around) = match &self.around {
            Around::Heads(heads) => (heads.len(), 40 + heads.iter().map(Vec::len).max().unwrap_or(0)),
            Around::Nothing | Around::Length => (1, grpc::PREFIX),
        };
        let per_row: usize =
            around + self.segments.iter().map(|s| if let Segment::Static(t) = s { t.len() } else { 0 }).sum::<usize>();
        if !fixed || (fields + per_row * self.rows.len()) * heads > KEEP {
            return;
        }
        let render_rows = |endpoint| {
            let mut buffers = Buffers::default();
            let mut ends = Vec::with_capacity(self.rows.len());
            for row in 0..self.rows.len() {
                self.render(endpoint, row, 0, 0, &mut buffers);
                ends.push(buffers.request.len());
            }
            Rendered { bytes: buffers.request.into(), ends }
        };
        self.rendered = Some((0..heads).map(render_rows).collect());
    }

    fn render(&self, endpoint: usize, row: usize, seq: u64, seed: u64, buffers: &mut Buffers) {
        let Buffers { request: out, body } = buffers;
        body.clear();
        for segment in &self.segments {
            match segment {
                Segment::Static(text) => body.extend_from_slice(text.as_bytes()),
                Segment::Field(k) => body.extend_from_slice(&self.rows[row][*k]),
                Segment::Counter { start } => {
                    let _ = write!(body, "{}", start.wrapping_add(seq));
                }
                Segment::Random { purpose, low, high } => {
                    let span = u128::from(high - low) + 1;
                    let draw = u128::from(Draw::new(seed, 0, *purpose).u64(seq));
                    let value = low + u64::try_from((draw * span) >> 64).unwrap_or(0);
                    let _ = write!(body, "{value}");
                }
            }
        }
        match &self.around {
            Around::Heads(heads) => {
                out.extend_from_slice(&heads[endpoint]);
                if !body.is_empty() || self.says_length {
                    let _ = write!(out, "Content-Length: {}\r\n", body.len());
                }
                out.extend_from_slice(b"\r\n");
            }
            Around::Nothing => {}
            Around::Length => out.extend_from_slice(&grpc::prefix(body.len())),
        }
        out.extend_from_slice(body);
    }
}

impl Rendered {
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        if row == 0 { 0..self.ends[0] } else { self.ends[row - 1]..self.ends[row] }
    }
}

/// Host and port as `Host` and `:authority` name them.
pub fn authority(host: &str, port: u16, tls: Option<&TlsSpec>) -> String {
    let default = if tls.is_some() { 443 } else { 80 };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default { host } else { format!("{host}:{port}") }
}

/// Request line and headers, without the blank line and without the length.
fn head(target: &TargetSpec, host: &str, port: u16, tls: Option<&TlsSpec>) -> Result<Vec<u8>> {
    let clean = |text: &str, place: &str| {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(Error::usage("a control character in the request head", place, "remove it"));
        }
        Ok(())
    };
    clean(&target.method, "method")?;
    clean(&target.path, "path")?;
    let mut out = Vec::new();
    let path = if target.path.is_empty() { "/" } else { &target.path };
    let _ = write!(out, "{} {path} HTTP/1.1\r\nHost: {}\r\n", target.method, authority(host, port, tls));
    for (name, value) in &target.headers {
        clean(name, name)?;
        clean(value, name)?;
        let _ = write!(out, "{name}: {value}\r\n");
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: &str) -> TargetSpec {
        let json = format!(r#"{{"host":"::1","port":80,"method":"{method}","path":"/p?q","headers":[["A","b"]]}}"#);
        serde_json::from_str(&json).unwrap()
    }

    fn body(bytes: &[u8]) -> (String, String) {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    #[test]
    fn rendered_rows_carry_their_own_bytes() {
        let rows = vec![vec![b"one".to_vec()], vec![b"three".to_vec()]];
        let r = Requests::new(&target("POST"), vec![Segment::Static("<".into()), Segment::Field(0)], rows).unwrap();
        let mut buffer = Buffers::default();
        let (head, text) = body(r.bytes(0, 1, 0, 0, &mut buffer));
        assert_eq!(text, "<three");
        assert!(head.starts_with("POST /p?q HTTP/1.1\r\nHost: [::1]\r\nA: b\r\nContent-Length: "), "{head}");
        assert!(head.ends_with(": 6"), "{head}");
        assert_eq!(body(r.bytes(0, 0, 9, 9, &mut buffer)).1, "<one");
    }

    #[test]
    fn drawn_bodies_depend_on_seed_and_sequence_only() {
        let segments = vec![
            Segment::Counter { start: 5 },
            Segment::Static(" ".into()),
            Segment::Random { purpose: 1, low: 3, high: 9 },
        ];
        let r = Requests::new(&target("POST"), segments, vec![vec![]]).unwrap();
        let (mut a, mut b) = (Buffers::default(), Buffers::default());
        assert_eq!(r.bytes(0, 0, 2, 7, &mut a), r.bytes(0, 0, 2, 7, &mut b));
        let values: std::collections::HashSet<_> = (0..100).map(|s| body(r.bytes(0, 0, s, 7, &mut a)).1).collect();
        assert_eq!(values.len(), 100, "the counter makes each body its own");
        assert!(values.iter().all(|v| (3..=9).contains(&v.split_once(' ').unwrap().1.parse::<u64>().unwrap())));
    }

    #[test]
    fn a_request_without_segments_has_no_body() {
        let r = Requests::new(&target("GET"), vec![], vec![vec![]]).unwrap();
        let mut buffer = Buffers::default();
        assert_eq!(r.bytes(0, 0, 0, 0, &mut buffer), b"GET /p?q HTTP/1.1\r\nHost: [::1]\r\nA: b\r\n\r\n");
    }

    #[test]
    fn each_address_has_its_own_head_and_http2_sends_bodies_alone() {
        let mut t = target("POST");
        t.replicas = serde_json::from_str(r#"[{"host": "b", "port": 443, "tls": {"server_name": "b"}}]"#).unwrap();
        let rows = || vec![vec![b"one".to_vec()], vec![b"three".to_vec()]];
        let mut buffer = Buffers::default();
        let r = Requests::new(&t, vec![Segment::Field(0)], rows()).unwrap();
        let heads = [0, 1].map(|e| body(r.bytes(e, 1, 0, 0, &mut buffer)).0);
        assert!(heads[0].contains("\r\nHost: [::1]\r\n") && heads[1].contains("\r\nHost: b\r\n"), "{heads:?}");
        for (transport, want) in [(Transport::Http2, &b"three"[..]), (Transport::Grpc, b"\0\0\0\0\x05three")] {
            t.transport = transport;
            for more in [vec![], vec![Segment::Counter { start: 7 }]] {
                let drawn = !more.is_empty();
                let r = Requests::new(&t, [vec![Segment::Field(0)], more].concat(), rows()).unwrap();
                let bytes = r.body(1, 0, 0, &mut buffer);
                assert!(if drawn { bytes.ends_with(b"three7") } else { bytes == want }, "{bytes:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        assert!(Requests::new(&target("GET"), vec![Segment::Field(1)], vec![vec![vec![]]]).is_err());
        assert!(Requests::new(&target("GET"), vec![], vec![]).is_err());
        let mut t = target("GET");
        t.headers.push(("X".into(), "a\r\nB: c".into()));
        assert!(Requests::new(&t, vec![], vec![vec![]]).is_err());
    }
}
