//! Request bytes: rendered before the start where nothing changes from request to request, else piece by piece.

mod buffers;
mod heads;

use std::io::{IoSlice, Write};
use std::ops::Range;

use bytes::Bytes;

pub use self::buffers::{Buffers, Message};
use self::heads::Around;
pub use self::heads::authority;
use super::{grpc, trace};
use crate::spec::{LevelPlan, Mix, Segment, TargetSpec, Transport};
use gpusize_base::draw::Draw;
use gpusize_base::error::{Error, Result};

/// Rendered requests are kept up to this many bytes; a larger dataset is rendered as it is sent.
const KEEP: usize = 256 << 20;

/// A body from this size on is not copied to be sent: its pieces go to the socket from where they lie.
const COPIED: usize = 32 << 10;

/// Digits of the largest whole number.
const LONGEST_NUMBER: usize = 20;

/// All requests of a session.
#[derive(Debug)]
pub struct Requests {
    kinds: Vec<Kind>,
    /// Kind of each row; without entries all are of the first.
    of_row: Vec<u32>,
    /// The fields of each row, unless all is rendered.
    rows: Vec<Vec<Vec<u8>>>,
    count: usize,
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
        let count = rows.len();
        let mut requests = Self { kinds, of_row, rows, count, says_length, traced, captures, rendered: None };
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
        self.check_messages()
    }

    /// No message is longer than gRPC can say.
    fn check_messages(&self) -> Result<()> {
        let (none, of_kind) = (Buffers::default(), |row| &self.kinds[self.kind_of(row)]);
        let is_number = |s: &&Segment| matches!(s, Segment::Counter { .. } | Segment::Random { .. });
        for row in (0..self.rows.len()).filter(|row| matches!(of_kind(*row).around, Around::Length)) {
            let numbers = of_kind(row).segments.iter().filter(is_number).count();
            grpc::prefix(self.length(row, &none) + numbers * LONGEST_NUMBER)?;
        }
        Ok(())
    }

    /// Whether some requests repeat what was answered before in their conversation.
    pub fn captures(&self) -> bool {
        self.captures
    }

    /// Number of dataset rows.
    pub fn rows(&self) -> usize {
        self.count
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
        let traced = self.traced.then_some((plan.visit, buffers.stream, seq));
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
            let range = r[0].range(row);
            return if range.is_empty() { Bytes::new() } else { r[0].bytes.slice(range) };
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
        self.rows = Vec::new();
    }

    /// Bytes of a body, whose numbers have been written.
    fn length(&self, row: usize, buffers: &Buffers) -> usize {
        self.pieces(row, buffers).map(<[u8]>::len).sum()
    }

    /// What differs from request to request.
    fn write_numbers(&self, row: usize, seq: u64, seed: u64, buffers: &mut Buffers) {
        let Buffers { numbers, ranges, stream, .. } = buffers;
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
                    let draw = u128::from(Draw::new(seed, u64::from(*stream), *purpose).u64(seq));
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

    /// What stands before a body; `traced` are the visit, the stream and the number of a request that
    /// says them.
    fn write_head(
        &self,
        endpoint: usize,
        row: usize,
        length: usize,
        traced: Option<(u32, u16, u64)>,
        out: &mut Vec<u8>,
    ) {
        match &self.kinds[self.kind_of(row)].around {
            Around::Heads(heads) => {
                out.extend_from_slice(&heads[endpoint]);
                if let Some((visit, stream, seq)) = traced {
                    for piece in [trace::NAME.as_bytes(), b": ", &trace::value(visit, stream, seq), b"\r\n"] {
                        out.extend_from_slice(piece);
                    }
                }
                if length > 0 || self.says_length {
                    let _ = write!(out, "Content-Length: {length}\r\n");
                }
                out.extend_from_slice(b"\r\n");
            }
            Around::Nothing => {}
            // Beyond what a prefix can say no request was accepted.
            Around::Length => out.extend(grpc::prefix(length).into_iter().flatten()),
        }
    }

    fn write_body(&self, row: usize, buffers: &mut Buffers) {
        let mut out = std::mem::take(&mut buffers.request);
        self.pieces(row, buffers).for_each(|piece| out.extend_from_slice(piece));
        buffers.request = out;
    }
}

#[cfg(test)]
mod tests;
