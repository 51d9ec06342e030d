//! Request bytes: rendered before the start where nothing changes from request to request, else piece by piece.

use std::io::Write;

use crate::draw::Draw;
use crate::error::{Error, Result};
use crate::spec::{Segment, TargetSpec};

/// Rendered requests are kept up to this many bytes; a larger dataset is rendered as it is sent.
const KEEP: usize = 256 << 20;

/// All requests of a session.
#[derive(Debug)]
pub struct Requests {
    head: Vec<u8>,
    segments: Vec<Segment>,
    rows: Vec<Vec<Vec<u8>>>,
    says_length: bool,
    rendered: Option<Rendered>,
}

/// Room in which one connection renders its requests.
#[derive(Debug, Default)]
pub struct Buffers {
    request: Vec<u8>,
    body: Vec<u8>,
}

#[derive(Debug)]
struct Rendered {
    bytes: Vec<u8>,
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
        let mut requests = Self { head: head(target)?, segments, rows, says_length, rendered: None };
        requests.render_all();
        Ok(requests)
    }

    /// Number of dataset rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The bytes of one request, in `buffers` unless they were rendered before.
    pub fn bytes<'a>(&'a self, row: usize, seq: u64, seed: u64, buffers: &'a mut Buffers) -> &'a [u8] {
        if let Some(r) = &self.rendered {
            return &r.bytes[if row == 0 { 0 } else { r.ends[row - 1] }..r.ends[row]];
        }
        buffers.request.clear();
        self.render(row, seq, seed, buffers);
        &buffers.request
    }

    fn render_all(&mut self) {
        let fixed = self.segments.iter().all(|s| matches!(s, Segment::Static(_) | Segment::Field(_)));
        let fields: usize = self.rows.iter().flatten().map(Vec::len).sum();
        let per_row: usize = self.head.len()
            + 40
            + self.segments.iter().map(|s| if let Segment::Static(t) = s { t.len() } else { 0 }).sum::<usize>();
        if !fixed || fields + per_row * self.rows.len() > KEEP {
            return;
        }
        let mut buffers = Buffers::default();
        let mut ends = Vec::with_capacity(self.rows.len());
        for row in 0..self.rows.len() {
            self.render(row, 0, 0, &mut buffers);
            ends.push(buffers.request.len());
        }
        self.rendered = Some(Rendered { bytes: buffers.request, ends });
    }

    fn render(&self, row: usize, seq: u64, seed: u64, buffers: &mut Buffers) {
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
        out.extend_from_slice(&self.head);
        if !body.is_empty() || self.says_length {
            let _ = write!(out, "Content-Length: {}\r\n", body.len());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }
}

/// Request line and headers, without the blank line and without the length.
fn head(target: &TargetSpec) -> Result<Vec<u8>> {
    let clean = |text: &str, place: &str| {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(Error::usage("a control character in the request head", place, "remove it"));
        }
        Ok(())
    };
    clean(&target.method, "method")?;
    clean(&target.path, "path")?;
    let mut out = Vec::new();
    let default = if target.tls.is_some() { 443 } else { 80 };
    let host = if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
    let port = if target.port == default { String::new() } else { format!(":{}", target.port) };
    let path = if target.path.is_empty() { "/" } else { &target.path };
    let _ = write!(out, "{} {path} HTTP/1.1\r\nHost: {host}{port}\r\n", target.method);
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
        let (head, text) = body(r.bytes(1, 0, 0, &mut buffer));
        assert_eq!(text, "<three");
        assert!(head.starts_with("POST /p?q HTTP/1.1\r\nHost: [::1]\r\nA: b\r\nContent-Length: "), "{head}");
        assert!(head.ends_with(": 6"), "{head}");
        assert_eq!(body(r.bytes(0, 9, 9, &mut buffer)).1, "<one");
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
        assert_eq!(r.bytes(0, 2, 7, &mut a), r.bytes(0, 2, 7, &mut b));
        let values: std::collections::HashSet<_> = (0..100).map(|s| body(r.bytes(0, s, 7, &mut a)).1).collect();
        assert_eq!(values.len(), 100, "the counter makes each body its own");
        assert!(values.iter().all(|v| (3..=9).contains(&v.split_once(' ').unwrap().1.parse::<u64>().unwrap())));
    }

    #[test]
    fn a_request_without_segments_has_no_body() {
        let r = Requests::new(&target("GET"), vec![], vec![vec![]]).unwrap();
        let mut buffer = Buffers::default();
        assert_eq!(r.bytes(0, 0, 0, &mut buffer), b"GET /p?q HTTP/1.1\r\nHost: [::1]\r\nA: b\r\n\r\n");
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
