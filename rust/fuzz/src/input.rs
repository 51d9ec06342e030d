//! The bytes of a fuzzer as a message and a way of cutting it.

/// Bytes before the message.
const HEAD: usize = 5;

/// One input.
pub struct Input<'a> {
    /// What the target makes of it: its first byte.
    pub flags: u8,
    /// Lengths of the pieces, over and over.
    lengths: [u8; HEAD - 1],
    /// The message.
    pub message: &'a [u8],
}

impl<'a> Input<'a> {
    /// None: too short to say how it is read.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let ([flags, lengths @ ..], message) = bytes.split_first_chunk::<HEAD>()?;
        Some(Self { flags: *flags, lengths: *lengths, message })
    }

    /// The message in pieces of 1 to 64 bytes, with long ones between them where a length's high bits say so.
    pub fn pieces(&self) -> Vec<&'a [u8]> {
        let (mut pieces, mut rest) = (Vec::new(), self.message);
        for length in self.lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let length = (usize::from(length & 63) + 1) << (2 * (length >> 6));
            let (piece, after) = rest.split_at(length.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }

    /// The message in one piece; none if it is empty.
    pub fn whole(&self) -> Vec<&'a [u8]> {
        if self.message.is_empty() { Vec::new() } else { vec![self.message] }
    }
}
