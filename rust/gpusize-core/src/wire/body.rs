//! How long a response body is and where it ends (RFC 9112, section 6).

use super::WireError;

/// Longest chunk-size line with its extensions, and longest trailer line.
const MAX_LINE: usize = 8_192;

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
    /// In the trailers; holds the length of the line so far, without CR.
    Trailer(usize),
    /// After the last line.
    Done,
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
                let Some(end) = memchr::memchr(b'\n', input) else {
                    line.extend_from_slice(input);
                    return if line.len() > MAX_LINE { Err(bad("chunk-size line too long")) } else { Ok(input.len()) };
                };
                let size = if line.is_empty() {
                    chunk_size(&input[..end])?
                } else {
                    line.extend_from_slice(&input[..end]);
                    chunk_size(line)?
                };
                *self = if size == 0 { Self::Trailer(0) } else { Self::Data(size) };
                Ok(end + 1)
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
                    b'\n' => *self = Self::Size(Vec::new()),
                    _ => return Err(bad("chunk data longer than its size")),
                }
                Ok(1)
            }
            Self::Trailer(length) => {
                let end = memchr::memchr(b'\n', input);
                let line = &input[..end.unwrap_or(input.len())];
                let total = *length + line.len() - usize::from(line.ends_with(b"\r") && end.is_some());
                if total > MAX_LINE {
                    return Err(bad("trailer line too long"));
                }
                // A lone CR that ends a read counts as no text, so that a split "\r" + "\n" still ends the trailers.
                *self = match end {
                    Some(_) if total == 0 => Self::Done,
                    Some(_) => Self::Trailer(0),
                    None if line == b"\r" => Self::Trailer(*length),
                    None => Self::Trailer(total),
                };
                Ok(line.len() + usize::from(end.is_some()))
            }
            Self::Done => Ok(0),
        }
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, WireError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let digits = line.split(|&b| b == b';' || b == b' ' || b == b'\t').next().unwrap_or(&[]);
    if digits.is_empty() || digits.len() > 15 {
        return Err(bad("chunk size is not a hexadecimal number"));
    }
    let mut size = 0_u64;
    for &b in digits {
        let digit = (b as char).to_digit(16).ok_or_else(|| bad("chunk size is not a hexadecimal number"))?;
        size = size << 4 | u64::from(digit);
    }
    Ok(size)
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
