//! Where one connection renders its requests, and the bytes of one of them.

use std::io::IoSlice;
use std::ops::Range;

/// Room in which one connection renders its requests.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(super) request: Vec<u8>,
    pub(super) numbers: Vec<u8>,
    pub(super) ranges: Vec<Range<usize>>,
    /// What was answered before in the conversation, the last one at the end.
    answers: Vec<Vec<u8>>,
    /// Stream of the load that the next request belongs to.
    pub stream: u16,
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

    pub(super) fn answer(&self, turns_back: usize) -> &[u8] {
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
