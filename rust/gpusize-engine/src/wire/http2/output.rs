//! What is to be sent: small bytes in one buffer, large bodies from where they lie, and which request's they are.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// A body's part from this size on is not copied.
const COPIED: usize = 8 << 10;

/// See the module.
#[derive(Debug, Default)]
pub struct Output {
    small: Vec<u8>,
    /// Bytes of `small` that have left.
    gone: usize,
    /// In the order in which they leave; without any all is in `small`.
    pieces: VecDeque<Piece>,
    /// Bytes that were ever put in, and those that have left.
    put: u64,
    taken: u64,
    marks: VecDeque<Mark>,
}

#[derive(Debug)]
enum Piece {
    /// So many bytes of `small`.
    Small(usize),
    Body(Bytes),
}

/// Where something of a stream begins.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    stream: u32,
    /// Bytes of a body; none: a head.
    body: Option<u32>,
}

/// What has left of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Its first bytes.
    Head,
    /// So many bytes of its body.
    Body(u32),
}

impl Output {
    /// Bytes that have not left.
    pub fn len(&self) -> usize {
        (self.put - self.taken) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.put == self.taken
    }

    /// Whether a request's head is among them.
    pub fn holds_a_head(&self) -> bool {
        self.marks.iter().any(|mark| mark.body.is_none())
    }

    /// Whether this stream's is.
    pub fn holds_head_of(&self, stream: u32) -> bool {
        self.marks.iter().any(|mark| mark.stream == stream && mark.body.is_none())
    }

    /// Append what `write` writes.
    pub fn small<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let before = self.small.len();
        let result = write(&mut self.small);
        self.added(self.small.len() - before);
        result
    }

    fn added(&mut self, bytes: usize) {
        self.put += bytes as u64;
        match self.pieces.back_mut() {
            Some(Piece::Small(n)) => *n += bytes,
            Some(Piece::Body(_)) => self.pieces.push_back(Piece::Small(bytes)),
            None => {}
        }
    }

    /// Append a part of a stream's body.
    pub fn body(&mut self, stream: u32, part: Bytes) {
        let length = part.len();
        if length == 0 {
            return;
        }
        self.marks.push_back(Mark { at: self.put, stream, body: Some(length as u32) });
        if length < COPIED {
            self.small.extend_from_slice(&part);
            self.added(length);
            return;
        }
        if self.pieces.is_empty() {
            self.pieces.push_back(Piece::Small(self.small.len() - self.gone));
        }
        self.put += length as u64;
        self.pieces.push_back(Piece::Body(part));
    }

    /// What comes next is the head of this stream's request.
    pub fn mark_head(&mut self, stream: u32) {
        self.marks.push_back(Mark { at: self.put, stream, body: None });
    }

    /// All that is to be sent next, where that is one piece.
    pub fn only(&self) -> Option<&[u8]> {
        self.pieces.is_empty().then(|| &self.small[self.gone..])
    }

    /// What is to be sent next, as far as there are `slices` for it; says how many.
    pub fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut at, mut n) = (self.gone, 0);
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(match piece {
                Piece::Small(length) => &self.small[at..at + length],
                Piece::Body(bytes) => bytes,
            });
            if let Piece::Small(length) = piece {
                at += length;
            }
            n += 1;
        }
        n
    }

    /// So many bytes have left; `left` is told of which streams.
    pub fn took(&mut self, bytes: usize, left: &mut impl FnMut(u32, Left)) {
        self.taken += bytes as u64;
        while let Some(mark) = self.marks.front_mut() {
            if mark.at >= self.taken {
                break;
            }
            match mark.body {
                None => left(mark.stream, Left::Head),
                Some(length) => {
                    let gone = (self.taken - mark.at).min(u64::from(length)) as u32;
                    left(mark.stream, Left::Body(gone));
                    if gone < length {
                        (mark.at, mark.body) = (self.taken, Some(length - gone));
                        break;
                    }
                }
            }
            self.marks.pop_front();
        }
        if self.pieces.is_empty() {
            self.gone += bytes;
        } else {
            self.advance(bytes);
        }
        if self.is_empty() {
            self.small.clear();
            self.gone = 0;
            self.pieces.clear();
        }
    }

    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let (length, is_small) = match self.pieces.front() {
                None => return,
                Some(Piece::Small(length)) => (*length, true),
                Some(Piece::Body(body)) => (body.len(), false),
            };
            let n = bytes.min(length);
            bytes -= n;
            if is_small {
                self.gone += n;
            }
            match self.pieces.front_mut() {
                Some(Piece::Small(length)) if n < *length => *length -= n,
                Some(Piece::Body(body)) if n < length => body.advance(n),
                _ => drop(self.pieces.pop_front()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put some in, take it out in steps; what was taken, and what was told.
    fn through(step: usize) -> (Vec<u8>, Vec<(u32, u32)>) {
        let mut output = Output::default();
        let (mut taken, mut told) = (Vec::new(), vec![(0, 0); 4]);
        let take = |output: &mut Output, most: usize, taken: &mut Vec<u8>, told: &mut Vec<(u32, u32)>| {
            let mut slices = [IoSlice::new(&[]); 3];
            let whole = output.only();
            let offered = if whole.is_some() { 0 } else { output.fill(&mut slices) };
            let before = taken.len();
            for slice in whole.into_iter().chain(slices[..offered].iter().map(|slice| &**slice)) {
                let room = most - (taken.len() - before);
                taken.extend_from_slice(&slice[..slice.len().min(room)]);
            }
            let n = taken.len() - before;
            output.took(n, &mut |stream, left| match left {
                Left::Head => told[stream as usize].0 += 1,
                Left::Body(n) => told[stream as usize].1 += n,
            });
        };
        for stream in [1, 2, 3] {
            output.mark_head(stream);
            output.small(|out| out.extend_from_slice(b"head"));
            output.body(stream, Bytes::from(vec![b'0' + stream as u8; stream as usize * 5_000]));
            output.small(|out| out.extend_from_slice(b"end"));
            take(&mut output, step, &mut taken, &mut told);
        }
        while !output.is_empty() {
            take(&mut output, step, &mut taken, &mut told);
        }
        assert!(output.small.is_empty() && output.pieces.is_empty() && output.marks.is_empty());
        (taken, told)
    }

    #[test]
    fn bytes_leave_in_order_and_are_told_whatever_the_socket_takes() {
        let part = |k: u8| [&b"head"[..], &vec![b'0' + k; usize::from(k) * 5_000], b"end"].concat();
        let want = [part(1), part(2), part(3)].concat();
        for step in [1, 2, 3, 7, 100, 4_999, 5_000, 5_007, 10_007, 100_000] {
            let (taken, told) = through(step);
            assert!(taken == want, "steps of {step}");
            assert_eq!(told, [(0, 0), (1, 5_000), (1, 10_000), (1, 15_000)], "steps of {step}");
        }
    }

    #[test]
    fn a_head_has_left_with_its_first_byte() {
        let mut output = Output::default();
        output.small(|out| out.extend_from_slice(b"settings"));
        output.mark_head(1);
        output.small(|out| out.extend_from_slice(b"head"));
        let mut told = Vec::new();
        output.took(8, &mut |stream, left| told.push((stream, left)));
        assert!(told.is_empty() && output.holds_a_head() && output.holds_head_of(1));
        output.took(1, &mut |stream, left| told.push((stream, left)));
        assert_eq!(told, [(1, Left::Head)]);
        assert!(!output.holds_a_head());
    }
}
