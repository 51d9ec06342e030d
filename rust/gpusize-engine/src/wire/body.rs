//! How long a response body is and where it ends (RFC 9112, section 6).

use super::WireError;

/// Longest chunk-size line with its extensions, and longest trailer line; line ends count.
const MAX_LINE: usize = 8_192;
/// Longest trailers, all together.
const MAX_TRAILERS: usize = 65_536;
/// Digits of the largest chunk size that is taken: no sum of such sizes overflows.
const MAX_DIGITS: usize = 15;

/// The state of reading one body.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// This many bytes are to come.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(Chunked),
    /// All until the connection closes.
    Close,
}

/// Where in the chunked coding we are.
#[derive(Debug, PartialEq, Eq)]
pub enum Chunked {
    /// In a size line; holds what of it has come.
    Size(Vec<u8>),
    /// In a chunk's data, with this much left.
    Data(u64),
    /// At the line end after a chunk's data; the flag says that CR has come.
    DataEnd(bool),
    /// In the trailers.
    Trailer(Trailer),
    /// After the last line.
    Done,
}

/// What of the trailers has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes of the line so far.
    length: usize,
    /// Bytes of all lines so far.
    total: usize,
    /// The last byte was CR: only LF may follow.
    after_cr: bool,
    has_colon: bool,
    /// The line begins with a space: it goes on with the field before.
    is_fold: bool,
}

impl Body {
    /// A body in the chunked coding, from its first byte.
    pub fn chunked() -> Self {
        Self::Chunked(Chunked::Size(Vec::new()))
    }

    /// Whether the body is complete.
    pub fn done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunked::Done))
    }

    /// Take bytes off `input`, hand body bytes to `sink`, and say how many were taken.
    ///
    /// Takes everything unless the body ends inside `input`.
    pub fn feed(&mut self, input: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, WireError> {
        match self {
            Self::Length(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                if n > 0 {
                    sink(&input[..n]);
                    *left -= n as u64;
                }
                Ok(n)
            }
            Self::Close => {
                if !input.is_empty() {
                    sink(input);
                }
                Ok(input.len())
            }
            Self::Chunked(state) => {
                let mut at = 0;
                while at < input.len() && *state != Chunked::Done {
                    at += state.step(&input[at..], sink)?;
                }
                Ok(at)
            }
        }
    }

    /// The connection ended: was that the body's end?
    pub fn eof(&self) -> Result<(), WireError> {
        match self {
            Self::Close | Self::Length(0) | Self::Chunked(Chunked::Done) => Ok(()),
            Self::Length(_) => Err(WireError::Truncated("before the announced length")),
            Self::Chunked(_) => Err(WireError::Truncated("before the last chunk")),
        }
    }
}

impl Chunked {
    fn step(&mut self, input: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, WireError> {
        match self {
            Self::Size(line) => {
                let end = memchr::memchr(b'\n', input);
                let taken = end.map_or(input.len(), |end| end + 1);
                if line.len() + taken > MAX_LINE {
                    return Err(bad("chunk-size line too long"));
                }
                let Some(end) = end else {
                    line.extend_from_slice(input);
                    return Ok(taken);
                };
                let size = if line.is_empty() {
                    chunk_size(&input[..end])?
                } else {
                    line.extend_from_slice(&input[..end]);
                    chunk_size(line)?
                };
                *self = if size == 0 { Self::Trailer(Trailer::default()) } else { Self::Data(size) };
                Ok(taken)
            }
            Self::Data(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                sink(&input[..n]);
                *left -= n as u64;
                if *left == 0 {
                    *self = Self::DataEnd(false);
                }
                Ok(n)
            }
            Self::DataEnd(seen_cr) => {
                match input[0] {
                    b'\r' if !*seen_cr => *seen_cr = true,
                    b'\n' if *seen_cr => *self = Self::Size(Vec::new()),
                    _ => return Err(bad("chunk data longer than its size")),
                }
                Ok(1)
            }
            Self::Trailer(trailer) => {
                let end = memchr::memchr(b'\n', input);
                let taken = end.map_or(input.len(), |end| end + 1);
                if trailer.take(&input[..taken], end.is_some())? {
                    *self = Self::Done;
                }
                Ok(taken)
            }
            Self::Done => Ok(0),
        }
    }
}

impl Trailer {
    /// Some bytes of one line, with its LF where `ends`; says whether it was the empty line after the last.
    fn take(&mut self, bytes: &[u8], ends: bool) -> Result<bool, WireError> {
        let text = if ends { &bytes[..bytes.len() - 1] } else { bytes };
        if let Some(first) = text.first().filter(|_| self.length == 0) {
            self.is_fold = matches!(first, b' ' | b'\t');
        }
        self.length += bytes.len();
        self.total += bytes.len();
        if self.length > MAX_LINE || self.total > MAX_TRAILERS {
            return Err(bad("trailers too long"));
        }
        if let Some(last) = text.last() {
            let cr = memchr::memchr(b'\r', text);
            if self.after_cr || cr.is_some_and(|at| at + 1 < text.len()) {
                return Err(bad("CR inside a trailer"));
            }
            self.after_cr = *last == b'\r';
            self.has_colon |= text.contains(&b':');
        }
        if !ends {
            return Ok(false);
        }
        let is_empty = self.length == 1 + usize::from(self.after_cr);
        if !is_empty && !self.has_colon && !self.is_fold {
            return Err(bad("a trailer that is not a field"));
        }
        *self = Self { total: self.total, ..Self::default() };
        Ok(is_empty)
    }
}

/// The size in a chunk's first line; after it nothing but white space and extensions. LF alone ends fields, not chunks
/// (RFC 9112, section 2.2).
fn chunk_size(line: &[u8]) -> Result<u64, WireError> {
    let line = line.strip_suffix(b"\r").ok_or_else(|| bad("a chunk-size line without CR"))?;
    let end = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, rest) = line.split_at(end);
    let is_extension = matches!(rest.trim_ascii_start().first(), None | Some(b';'));
    if digits.is_empty() || digits.len() > MAX_DIGITS || !is_extension {
        return Err(bad("chunk size is not a hexadecimal number"));
    }
    if rest.iter().any(|b| b.is_ascii_control() && *b != b'\t') {
        return Err(bad("control characters in a chunk-size line"));
    }
    Ok(digits.iter().filter_map(|b| char::from(*b).to_digit(16)).fold(0, |size, digit| size << 4 | u64::from(digit)))
}

fn bad(what: &str) -> WireError {
    WireError::Protocol(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut body: Body, input: &[u8], step: usize) -> Result<(Vec<u8>, usize), WireError> {
        let mut out = Vec::new();
        let mut taken = 0;
        for piece in input.chunks(step) {
            let n = body.feed(piece, &mut |b| out.extend_from_slice(b))?;
            taken += n;
            if body.done() {
                return Ok((out, taken));
            }
            assert_eq!(n, piece.len(), "an unfinished body takes everything");
        }
        body.eof()?;
        Ok((out, taken))
    }

    #[test]
    fn chunked_reads_the_same_whole_and_in_any_pieces() {
        let wire = b"4;ext=1\r\nWiki\r\n6\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nTrailer: x\r\n\r\nnext";
        for step in 1..=wire.len() {
            let (out, taken) = read(Body::chunked(), wire, step).unwrap();
            assert_eq!(out, b"Wikipedia in \r\n\r\nchunks.", "step {step}");
            assert_eq!(taken, wire.len() - 4, "step {step}");
        }
    }

    #[test]
    fn broken_chunks_are_refused() {
        for wire in [&b"x\r\n"[..], b"\r\n", b"4\r\nWikix", b"FFFFFFFFFFFFFFFFFF\r\n", b"-1\r\n"] {
            for step in 1..=wire.len() {
                assert!(matches!(read(Body::chunked(), wire, step), Err(WireError::Protocol(_))), "{wire:?} {step}");
            }
        }
        assert!(matches!(read(Body::chunked(), b"4\r\nWi", 3), Err(WireError::Truncated(_))));
    }

    #[test]
    fn a_length_stops_at_its_end() {
        assert_eq!(read(Body::Length(3), b"abcdef", 6).unwrap(), (b"abc".to_vec(), 3));
        assert!(matches!(read(Body::Length(9), b"abc", 2), Err(WireError::Truncated(_))));
        assert_eq!(read(Body::Close, b"abc", 2).unwrap().0, b"abc");
    }
}
