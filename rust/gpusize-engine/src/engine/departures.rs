//! When the requests of a connection of HTTP/2 leave, told by the frames that its socket has taken.
//!
//! The h2 crate says when a request was handed over to it, not when it went out: one may wait for a stream, for a window or
//! for room in the socket until its time is over, and then no server has seen it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::http2::Seen;
use super::outside::now_ns;
use super::worker_level::WorkerLevel;
use crate::record::Row;
use crate::record::columns::NO_TIME;

/// A client says this before its first frame.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Length, kind, flags and stream of a frame.
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// The requests under way on one connection, and where the bytes that it sends stand.
#[derive(Debug, Default)]
pub struct Departures {
    frames: RefCell<Frames>,
    under_way: RefCell<Vec<Rc<Departure>>>,
    /// Of these, those that have not left.
    held: Cell<usize>,
    /// The socket took nothing when it was last offered something.
    pub blocked: Cell<bool>,
}

/// One request on its way out.
#[derive(Debug)]
struct Departure {
    stream: u32,
    level: Rc<WorkerLevel>,
    /// It was sent before.
    again: bool,
    sent_ns: Cell<i64>,
    /// Bytes of its body that have left.
    body: Cell<u64>,
}

/// A request that is looked out for until this is dropped.
#[derive(Debug)]
pub struct Leaving {
    departure: Rc<Departure>,
    seen: Rc<Seen>,
}

/// Where the bytes that are sent stand among the frames.
#[derive(Debug)]
struct Frames {
    head: [u8; HEAD],
    /// Bytes of it that have left.
    have: usize,
    /// Bytes of the frame at hand that have not.
    left: usize,
    /// The stream whose data it carries; 0: none.
    data_of: u32,
}

impl Default for Frames {
    fn default() -> Self {
        Self { head: [0; HEAD], have: 0, left: PREFACE, data_of: 0 }
    }
}

/// What has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The beginning of a request's head.
    Head,
    /// So many bytes of its body.
    Body(usize),
}

impl Frames {
    /// `bytes` have left; `part` is told of which streams.
    fn take(&mut self, mut bytes: &[u8], part: &mut impl FnMut(u32, Part)) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let n = self.left.min(bytes.len());
                if self.data_of > 0 {
                    part(self.data_of, Part::Body(n));
                }
                self.left -= n;
                bytes = &bytes[n..];
                continue;
            }
            let n = bytes.len().min(HEAD - self.have);
            self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if self.have == HEAD {
                self.begin(part);
            }
        }
    }

    /// A frame's head is complete.
    fn begin(&mut self, part: &mut impl FnMut(u32, Part)) {
        let [a, b, c, kind, _, stream @ ..] = self.head;
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        self.have = 0;
        self.left = u32::from_be_bytes([0, a, b, c]) as usize;
        self.data_of = if kind == DATA { stream } else { 0 };
        if kind == HEADERS {
            part(stream, Part::Head);
        }
    }
}

impl Departures {
    /// The time, where a request may leave with what is written next.
    pub fn moment(&self) -> i64 {
        if self.held.get() > 0 { now_ns() } else { NO_TIME }
    }

    /// The socket has taken these bytes, offered to it at `now`.
    pub fn took(&self, bytes: &[u8], now: i64) {
        self.frames.borrow_mut().take(bytes, &mut |stream, part| {
            let under_way = self.under_way.borrow();
            let Some(departure) = under_way.iter().find(|d| d.stream == stream) else { return };
            match part {
                Part::Head => {
                    self.held.set(self.held.get() - 1);
                    departure.leave(now);
                }
                Part::Body(n) => departure.body.set(departure.body.get() + n as u64),
            }
        });
    }
}

impl Departure {
    fn leave(&self, now: i64) {
        self.sent_ns.set(now);
        if self.again {
            self.level.asked_again();
        } else {
            self.level.sent(now);
        }
    }
}

impl Leaving {
    /// Look out for the request on this stream, which has been handed over; `row` is its record so far.
    pub fn new(seen: Rc<Seen>, stream: u32, level: &Rc<WorkerLevel>, row: &Row) -> Self {
        let again = row.sent_ns != NO_TIME;
        let (sent_ns, body) = (Cell::new(NO_TIME), Cell::new(0));
        let departure = Rc::new(Departure { stream, level: level.clone(), again, sent_ns, body });
        let departures = &seen.departures;
        departures.held.set(departures.held.get() + 1);
        departures.under_way.borrow_mut().push(departure.clone());
        Self { departure, seen }
    }

    /// Whether nothing of it has left.
    pub fn is_held(&self) -> bool {
        self.departure.sent_ns.get() == NO_TIME
    }

    /// Bytes of its body that have left.
    pub fn body(&self) -> u64 {
        self.departure.body.get()
    }

    /// Into the record.
    pub fn note(&self, row: &mut Row) {
        if !self.is_held() {
            row.attempt = u16::from(self.departure.again);
            row.sent_ns = self.departure.sent_ns.get();
            row.bytes_out = self.body();
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let departures = &self.seen.departures;
        departures.under_way.borrow_mut().retain(|d| !Rc::ptr_eq(d, &self.departure));
        if self.is_held() {
            departures.held.set(departures.held.get() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        [&[a, b, c, kind, 0][..], &stream.to_be_bytes(), payload].concat()
    }

    #[test]
    fn heads_and_bodies_are_found_however_the_socket_takes_them() {
        let wire = [
            vec![b'p'; PREFACE],
            frame(4, 0, b"settings"),
            frame(HEADERS, 1, b"head"),
            frame(DATA, 1, b"body"),
            frame(HEADERS, 3, b""),
            frame(8, 3, &[0; 4]),
            frame(DATA, 1, b"more"),
            frame(DATA, 3, b""),
        ]
        .concat();
        for step in 1..=wire.len() {
            let mut frames = Frames::default();
            let (mut heads, mut bodies) = (Vec::new(), [0; 4]);
            for piece in wire.chunks(step) {
                frames.take(piece, &mut |stream, part| match part {
                    Part::Head => heads.push(stream),
                    Part::Body(n) => bodies[stream as usize] += n,
                });
            }
            assert_eq!(
                (heads, bodies, frames.have, frames.left),
                (vec![1, 3], [0, 8, 0, 0], 0, 0),
                "in steps of {step}"
            );
        }
    }
}
