//! Request bytes: rendered before the start where nothing changes from request to request, else piece by piece.

use std::io::{IoSlice, Write};
use std::ops::Range;

use bytes::Bytes;

use super::{grpc, trace};
use crate::draw::Draw;
use crate::error::{Error, Result};
use crate::spec::{LevelPlan, Mix, Segment, TargetSpec, TlsSpec, Transport};

/// Rendered requests are kept up to this many bytes; a larger dataset is rendered as it is sent.
const KEEP: usize = 256 << 20;

/// A body from this size on is not copied to be sent: its pieces go to the socket from where they lie.
const COPIED: usize = 32 << 10;

/// All requests of a session.
#[derive(Debug)]
pub struct Requests {
    kinds: Vec<Kind>,
    /// Kind of each row; without entries all are of the first.
    of_row: Vec<u32>,
    rows: Vec<Vec<Vec<u8>>>,
    says_length: bool,
    /// Each head says which request it is; in HTTP/2, whose heads are not here, never set.
    traced: bool,
    /// Some repeat what was answered before.
    captures: bool,
    /// One for each address whose requests differ.
    rendered: Option<Vec<Rendered>>,
}

/// What requests of one kind share.
#[derive(Debug)]
struct Kind {
    around: Around,
    segments: Vec<Segment>,
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

impl Around {
    fn new(target: &TargetSpec) -> Result<Self> {
        Ok(match target.transport {
            Transport::Http1 => Self::Heads(
                target.endpoints().map(|(host, port, tls)| head(target, host, port, tls)).collect::<Result<_>>()?,
            ),
            Transport::Http2 => Self::Nothing,
            Transport::Grpc => Self::Length,
        })
    }
}

/// Room in which one connection renders its requests.
#[derive(Debug, Default)]
pub struct Buffers {
    request: Vec<u8>,
    numbers: Vec<u8>,
    ranges: Vec<Range<usize>>,
    /// What was answered before in the conversation, the last one at the end.
    answers: Vec<Vec<u8>>,
}

impl Buffers {
    /// What was answered before in the conversation of the next request.
    pub fn lend(&mut self, answers: Vec<Vec<u8>>) {
        self.answers = answers;
    }

    /// Take that back.
    pub fn give_back(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.answers)
    }

    fn answer(&self, turns_back: usize) -> &[u8] {
        self.answers.len().checked_sub(turns_back).and_then(|at| self.answers.get(at)).map_or(&[], Vec::as_slice)
    }
}

/// The bytes of one request: `bytes`, then the pieces of `rest`, of which a small request has none.
#[derive(Debug)]
pub struct Message<'a> {
    /// The request, or its head.
    pub bytes: &'a [u8],
    /// Pieces of a large body.
    pub rest: Vec<IoSlice<'a>>,
}

impl Message<'_> {
    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.rest.iter().map(|piece| piece.len()).sum::<usize>()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug)]
struct Rendered {
    bytes: Bytes,
    ends: Vec<usize>,
}

impl Rendered {
    fn range(&self, row: usize) -> Range<usize> {
        if row == 0 { 0..self.ends[0] } else { self.ends[row - 1]..self.ends[row] }
    }
}

impl Requests {
    /// Check and, where possible, render. `rows` holds the fields of each dataset row; a mix has its own segments.
    pub fn new(
        target: &TargetSpec,
        segments: Vec<Segment>,
        rows: Vec<Vec<Vec<u8>>>,
        mix: Option<&Mix>,
    ) -> Result<Self> {
        if rows.is_empty() {
            return Err(Error::usage("the dataset has no rows", "rows", "give at least one"));
        }
        let (kinds, of_row) = match mix {
            None => (vec![Kind { around: Around::new(target)?, segments }], Vec::new()),
            Some(mix) => {
                mix.check(rows.len())?;
                let kind = |request| {
                    let own = Mix::target_of(request, target);
                    own.check()?;
                    Ok(Kind { around: Around::new(&own)?, segments: request.segments.clone() })
                };
                (mix.requests.iter().map(kind).collect::<Result<_>>()?, mix.of_row.clone())
            }
        };
        let says_length = !matches!(target.method.as_str(), "GET" | "HEAD" | "DELETE" | "OPTIONS");
        let traced = target.trace && target.transport == Transport::Http1;
        let captures =
            kinds.iter().flat_map(|kind: &Kind| &kind.segments).any(|s| matches!(s, Segment::Capture { .. }));
        if captures && target.transport == Transport::Grpc {
            let todo = "leave the captures out, or use HTTP";
            return Err(Error::usage("a gRPC message cannot repeat an earlier answer", "segments.capture", todo));
        }
        let mut requests = Self { kinds, of_row, rows, says_length, traced, captures, rendered: None };
        requests.check()?;
        requests.render_all();
        Ok(requests)
    }

    fn check(&self) -> Result<()> {
        for (number, kind) in self.kinds.iter().enumerate() {
            for segment in &kind.segments {
                if let Segment::Field(k) = segment
                    && let Some(row) =
                        (0..self.rows.len()).find(|row| self.kind_of(*row) == number && self.rows[*row].len() <= *k)
                {
                    let what = format!("row {row} has no field {k}");
                    return Err(Error::usage(what, "rows", "give every field of every row"));
                }
                if let Segment::Random { low, high, .. } = segment
                    && low > high
                {
                    return Err(Error::usage("low is above high", "segments.random", "swap them"));
                }
                if *segment == (Segment::Capture { turns_back: 0 }) {
                    let todo = "give 1 for the turn before";
                    return Err(Error::usage("a request cannot repeat its own answer", "segments.capture", todo));
                }
            }
        }
        Ok(())
    }

    /// Whether some requests repeat what was answered before in their conversation.
    pub fn captures(&self) -> bool {
        self.captures
    }

    /// Number of dataset rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Number of the kind that a row is sent as.
    pub fn kind_of(&self, row: usize) -> usize {
        self.of_row.get(row).map_or(0, |kind| *kind as usize)
    }

    /// The bytes of request `seq` of a level to address `endpoint`, in `buffers` unless they were rendered before.
    pub fn message<'a>(
        &'a self,
        endpoint: usize,
        row: usize,
        seq: u64,
        plan: &LevelPlan,
        buffers: &'a mut Buffers,
    ) -> Message<'a> {
        if let Some(r) = &self.rendered {
            return Message { bytes: &r[endpoint].bytes[r[endpoint].range(row)], rest: Vec::new() };
        }
        buffers.request.clear();
        self.write_numbers(row, seq, plan.seed, buffers);
        let length = self.length(row, buffers);
        let traced = self.traced.then_some((plan.visit, seq));
        self.write_head(endpoint, row, length, traced, &mut buffers.request);
        if length < COPIED {
            self.write_body(row, buffers);
            return Message { bytes: &buffers.request, rest: Vec::new() };
        }
        let buffers = &*buffers;
        Message { bytes: &buffers.request, rest: self.pieces(row, buffers).map(IoSlice::new).collect() }
    }

    /// The body of one request without its head, for HTTP/2; not copied where it was rendered before.
    pub fn body(&self, row: usize, seq: u64, seed: u64, buffers: &mut Buffers) -> Bytes {
        if let Some(r) = &self.rendered {
            return r[0].bytes.slice(r[0].range(row));
        }
        buffers.request.clear();
        self.write_numbers(row, seq, seed, buffers);
        let length = self.length(row, buffers);
        self.write_head(0, row, length, None, &mut buffers.request);
        self.write_body(row, buffers);
        std::mem::take(&mut buffers.request).into()
    }

    fn render_all(&mut self) {
        let fixed = |kind: &Kind| kind.segments.iter().all(|s| matches!(s, Segment::Static(_) | Segment::Field(_)));
        if self.traced || !self.kinds.iter().all(fixed) {
            return;
        }
        let addresses = self.kinds.first().map_or(1, |kind| match &kind.around {
            Around::Heads(heads) => heads.len(),
            Around::Nothing | Around::Length => 1,
        });
        let mut buffers = Buffers::default();
        let size = |row| {
            let around = match &self.kinds[self.kind_of(row)].around {
                Around::Heads(heads) => 40 + heads.iter().map(Vec::len).max().unwrap_or(0),
                Around::Nothing | Around::Length => grpc::PREFIX,
            };
            around + self.length(row, &buffers)
        };
        let total: usize = (0..self.rows.len()).map(size).sum();
        if total * addresses > KEEP {
            return;
        }
        let mut render = |endpoint| {
            buffers.request = Vec::with_capacity(total);
            let mut ends = Vec::with_capacity(self.rows.len());
            for row in 0..self.rows.len() {
                let length = self.length(row, &buffers);
                self.write_head(endpoint, row, length, None, &mut buffers.request);
                self.write_body(row, &mut buffers);
                ends.push(buffers.request.len());
            }
            Rendered { bytes: std::mem::take(&mut buffers.request).into(), ends }
        };
        let rendered = (0..addresses).map(&mut render).collect();
        self.rendered = Some(rendered);
    }

    /// Bytes of a body, whose numbers have been written.
    fn length(&self, row: usize, buffers: &Buffers) -> usize {
        self.pieces(row, buffers).map(<[u8]>::len).sum()
    }

    /// What differs from request to request.
    fn write_numbers(&self, row: usize, seq: u64, seed: u64, buffers: &mut Buffers) {
        let Buffers { numbers, ranges, .. } = buffers;
        numbers.clear();
        ranges.clear();
        for segment in &self.kinds[self.kind_of(row)].segments {
            let from = numbers.len();
            match segment {
                Segment::Static(_) | Segment::Field(_) | Segment::Capture { .. } => continue,
                Segment::Counter { start } => {
                    let _ = write!(numbers, "{}", start.wrapping_add(seq));
                }
                Segment::Random { purpose, low, high } => {
                    let span = u128::from(high - low) + 1;
                    let draw = u128::from(Draw::new(seed, 0, *purpose).u64(seq));
                    let value = low + u64::try_from((draw * span) >> 64).unwrap_or(0);
                    let _ = write!(numbers, "{value}");
                }
            }
            ranges.push(from..numbers.len());
        }
    }

    /// The pieces of a body, whose numbers have been written.
    fn pieces<'a>(&'a self, row: usize, buffers: &'a Buffers) -> impl Iterator<Item = &'a [u8]> {
        let mut written = buffers.ranges.iter();
        self.kinds[self.kind_of(row)].segments.iter().map(move |segment| match segment {
            Segment::Static(text) => text.as_bytes(),
            Segment::Field(k) => &self.rows[row][*k],
            Segment::Capture { turns_back } => buffers.answer(*turns_back),
            Segment::Counter { .. } | Segment::Random { .. } => {
                written.next().map_or(&[][..], |range| &buffers.numbers[range.clone()])
            }
        })
    }

    /// What stands before a body; `traced` are the visit and the number of a request that says them.
    fn write_head(&self, endpoint: usize, row: usize, length: usize, traced: Option<(u32, u64)>, out: &mut Vec<u8>) {
        match &self.kinds[self.kind_of(row)].around {
            Around::Heads(heads) => {
                out.extend_from_slice(&heads[endpoint]);
                if let Some((visit, seq)) = traced {
                    for piece in [trace::NAME.as_bytes(), b": ", &trace::value(visit, seq), b"\r\n"] {
                        out.extend_from_slice(piece);
                    }
                }
                if length > 0 || self.says_length {
                    let _ = write!(out, "Content-Length: {length}\r\n");
                }
                out.extend_from_slice(b"\r\n");
            }
            Around::Nothing => {}
            Around::Length => out.extend_from_slice(&grpc::prefix(length)),
        }
    }

    fn write_body(&self, row: usize, buffers: &mut Buffers) {
        let mut out = std::mem::take(&mut buffers.request);
        self.pieces(row, buffers).for_each(|piece| out.extend_from_slice(piece));
        buffers.request = out;
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

    fn whole(message: &Message<'_>) -> Vec<u8> {
        let mut out = message.bytes.to_vec();
        message.rest.iter().for_each(|piece| out.extend_from_slice(piece));
        assert_eq!(out.len(), message.len());
        out
    }

    fn target(method: &str) -> TargetSpec {
        let json = format!(r#"{{"host":"::1","port":80,"method":"{method}","path":"/p?q","headers":[["A","b"]]}}"#);
        serde_json::from_str(&json).unwrap()
    }

    fn plan(seed: u64) -> LevelPlan {
        serde_json::from_str(&format!(
            r#"{{"visit":3,"seed":{seed},"load":{{"closed":{{"concurrency":1}}}},"stop":{{"count":1}}}}"#
        ))
        .unwrap()
    }

    fn body(bytes: &[u8]) -> (String, String) {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    #[test]
    fn rendered_rows_carry_their_own_bytes() {
        let rows = vec![vec![b"one".to_vec()], vec![b"three".to_vec()]];
        let r =
            Requests::new(&target("POST"), vec![Segment::Static("<".into()), Segment::Field(0)], rows, None).unwrap();
        let mut buffer = Buffers::default();
        let (head, text) = body(&whole(&r.message(0, 1, 0, &plan(0), &mut buffer)));
        assert_eq!(text, "<three");
        assert!(head.starts_with("POST /p?q HTTP/1.1\r\nHost: [::1]\r\nA: b\r\nContent-Length: "), "{head}");
        assert!(head.ends_with(": 6"), "{head}");
        assert_eq!(body(&whole(&r.message(0, 0, 9, &plan(9), &mut buffer))).1, "<one");
    }

    #[test]
    fn drawn_bodies_depend_on_seed_and_sequence_only() {
        let segments = vec![
            Segment::Counter { start: 5 },
            Segment::Static(" ".into()),
            Segment::Random { purpose: 1, low: 3, high: 9 },
        ];
        let r = Requests::new(&target("POST"), segments, vec![vec![]], None).unwrap();
        let (mut a, mut b) = (Buffers::default(), Buffers::default());
        assert_eq!(whole(&r.message(0, 0, 2, &plan(7), &mut a)), whole(&r.message(0, 0, 2, &plan(7), &mut b)));
        let values: std::collections::HashSet<_> =
            (0..100).map(|s| body(&whole(&r.message(0, 0, s, &plan(7), &mut a))).1).collect();
        assert_eq!(values.len(), 100, "the counter makes each body its own");
        assert!(values.iter().all(|v| (3..=9).contains(&v.split_once(' ').unwrap().1.parse::<u64>().unwrap())));
    }

    #[test]
    fn a_request_without_segments_has_no_body() {
        let r = Requests::new(&target("GET"), vec![], vec![vec![]], None).unwrap();
        let mut buffer = Buffers::default();
        assert_eq!(
            whole(&r.message(0, 0, 0, &plan(0), &mut buffer)),
            b"GET /p?q HTTP/1.1\r\nHost: [::1]\r\nA: b\r\n\r\n"
        );
    }

    #[test]
    fn each_address_has_its_own_head_and_http2_sends_bodies_alone() {
        let mut t = target("POST");
        t.replicas = serde_json::from_str(r#"[{"host": "b", "port": 443, "tls": {"server_name": "b"}}]"#).unwrap();
        let rows = || vec![vec![b"one".to_vec()], vec![b"three".to_vec()]];
        let mut buffer = Buffers::default();
        let r = Requests::new(&t, vec![Segment::Field(0)], rows(), None).unwrap();
        let heads = [0, 1].map(|e| body(&whole(&r.message(e, 1, 0, &plan(0), &mut buffer))).0);
        assert!(heads[0].contains("\r\nHost: [::1]\r\n") && heads[1].contains("\r\nHost: b\r\n"), "{heads:?}");
        for (transport, want) in [(Transport::Http2, &b"three"[..]), (Transport::Grpc, b"\0\0\0\0\x05three")] {
            t.transport = transport;
            for more in [vec![], vec![Segment::Counter { start: 7 }]] {
                let drawn = !more.is_empty();
                let r = Requests::new(&t, [vec![Segment::Field(0)], more].concat(), rows(), None).unwrap();
                let bytes = r.body(1, 0, 0, &mut buffer);
                assert!(if drawn { bytes.ends_with(b"three7") } else { bytes == want }, "{bytes:?}");
            }
        }
    }

    #[test]
    fn traced_requests_differ_in_one_line_of_their_head() {
        let mut t = target("POST");
        let large = vec![b'x'; COPIED];
        let rows = || vec![vec![b"small".to_vec()], vec![large.clone()]];
        let plain = Requests::new(&t, vec![Segment::Field(0)], rows(), None).unwrap();
        t.trace = true;
        for more in [vec![], vec![Segment::Static(String::new()), Segment::Counter { start: 10 }]] {
            let drawn = !more.is_empty();
            let r = Requests::new(&t, [vec![Segment::Field(0)], more].concat(), rows(), None).unwrap();
            let (mut a, mut b) = (Buffers::default(), Buffers::default());
            for (row, seq) in [(0, 0), (1, 1), (0, 2), (1, 0x00ab_cdef)] {
                let message = r.message(0, row, seq, &plan(0), &mut a);
                assert_eq!(message.rest.len(), if row == 0 { 0 } else { 1 + 2 * usize::from(drawn) });
                let (head, text) = body(&whole(&message));
                let line = format!("\r\ntraceparent: 00-6770000000030000{seq:016x}-{:016x}-01", seq + 1);
                assert_eq!(head.matches("traceparent").count(), 1, "{head}");
                assert!(head.ends_with(&format!("{line}\r\nContent-Length: {}", text.len())), "{head}");
                if !drawn {
                    let without = body(&whole(&plain.message(0, row, seq, &plan(0), &mut b)));
                    assert_eq!((head.replace(&line, ""), text), without);
                }
            }
        }
    }

    #[test]
    fn a_traceparent_of_the_users_own_is_refused_beside_ours() {
        let mix = r#"{"requests":[{"path":"/a","segments":[],"headers":[["TraceParent","x"]]}],"of_row":[0]}"#;
        let mix: Mix = serde_json::from_str(mix).unwrap();
        let mut t = target("POST");
        for (traced, transport) in
            [(false, Transport::Http1), (true, Transport::Http1), (true, Transport::Http2), (true, Transport::Grpc)]
        {
            (t.trace, t.transport) = (traced, transport);
            let made = Requests::new(&t, vec![], vec![vec![]], Some(&mix));
            assert_eq!(made.is_err(), traced, "{transport:?}");
            assert!(t.check().is_ok());
            let mut own = t.clone();
            own.headers.push(("TRACEPARENT".into(), "x".into()));
            assert_eq!(own.check().is_err(), traced, "{transport:?}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        assert!(Requests::new(&target("GET"), vec![Segment::Field(1)], vec![vec![vec![]]], None).is_err());
        assert!(Requests::new(&target("GET"), vec![], vec![], None).is_err());
        let mut t = target("GET");
        t.headers.push(("X".into(), "a\r\nB: c".into()));
        assert!(Requests::new(&t, vec![], vec![vec![]], None).is_err());
    }

    #[test]
    fn a_large_body_is_sent_from_where_it_lies() {
        let field = vec![b'x'; COPIED];
        let segments = vec![
            Segment::Static("{".into()),
            Segment::Counter { start: 7 },
            Segment::Field(0),
            Segment::Random { purpose: 1, low: 5, high: 5 },
        ];
        let rows = vec![vec![field.clone()], vec![b"small".to_vec()]];
        let r = Requests::new(&target("POST"), segments, rows, None).unwrap();
        let mut buffers = Buffers::default();
        let message = r.message(0, 0, 3, &plan(0), &mut buffers);
        assert_eq!(message.rest.len(), 4);
        let (head, text) = body(&whole(&message));
        assert!(head.ends_with(&format!("Content-Length: {}", text.len())), "{head}");
        assert_eq!(text, format!("{{10{}5", String::from_utf8(field).unwrap()));
        let pointer = message.rest[2].as_ptr();
        assert_eq!(pointer, r.rows[0][0].as_ptr());
        let message = r.message(0, 1, 4, &plan(0), &mut buffers);
        assert!(message.rest.is_empty());
        assert_eq!(body(&whole(&message)).1, "{11small5");
    }

    #[test]
    fn a_mix_has_paths_headers_and_bodies_of_its_own() {
        let mix = r#"{"requests":[{"path":"/a","segments":[{"field":0}],"headers":[["M","a"]],"model":0},
                                  {"path":"/b","segments":[{"static":"b"}],"model":1}],"of_row":[1,0,1]}"#;
        let mix: Mix = serde_json::from_str(mix).unwrap();
        let rows = vec![vec![], vec![b"one".to_vec()], vec![]];
        let r = Requests::new(&target("POST"), vec![], rows.clone(), Some(&mix)).unwrap();
        let mut buffers = Buffers::default();
        let texts: Vec<_> = (0..3).map(|row| body(&whole(&r.message(0, row, 0, &plan(0), &mut buffers)))).collect();
        assert!(texts[0].0.starts_with("POST /b HTTP/1.1\r\nHost: [::1]\r\nA: b\r\nContent-Length: 1"), "{texts:?}");
        assert!(texts[1].0.starts_with("POST /a HTTP/1.1\r\nHost: [::1]\r\nA: b\r\nM: a\r\n"), "{texts:?}");
        assert_eq!(texts.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(), ["b", "one", "b"]);
        for wrong in [
            Mix { of_row: vec![0, 1], ..mix.clone() },
            Mix { of_row: vec![0, 1, 2], ..mix.clone() },
            Mix { of_row: vec![0, 0, 0], ..mix.clone() },
            Mix { sessions: Some(vec![1]), ..mix.clone() },
            Mix { turns: Some(vec![0, 1, u16::MAX]), ..mix.clone() },
        ] {
            assert!(Requests::new(&target("POST"), vec![], rows.clone(), Some(&wrong)).is_err(), "{wrong:?}");
        }
    }
}
