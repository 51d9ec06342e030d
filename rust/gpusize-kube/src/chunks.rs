//! The chunks of an HTTP body (RFC 9112, section 7.1), however they were cut.

use thiserror::Error;

/// More than this without an end is no line with a length.
const LONGEST: usize = 1024;

/// What is no body in chunks.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ChunkError {
    /// A line that does not end.
    #[error("a chunk has no length")]
    Endless,
    /// Something else where the length should be.
    #[error("a chunk's length is no number")]
    NoNumber,
}

/// What has come of a body in chunks.
#[derive(Debug, Default)]
pub struct Chunks {
    /// The beginning of a line with a length.
    line: Vec<u8>,
    /// Bytes of the current chunk that are still to come, its line end included.
    missing: u64,
    ended: bool,
}

impl Chunks {
    /// Whether the body has come to its end. Trailers are not looked at.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The parts of `data` that belong to the body.
    pub fn feed<'a>(&mut self, mut data: &'a [u8]) -> Result<Vec<&'a [u8]>, ChunkError> {
        let mut parts = Vec::new();
        while !data.is_empty() && !self.ended {
            if self.missing > 0 {
                let come = self.missing.min(data.len() as u64);
                // The last two bytes of a chunk are its line end.
                let body = come.min(self.missing.saturating_sub(2)) as usize;
                if body > 0 {
                    parts.push(&data[..body]);
                }
                self.missing -= come;
                data = &data[come as usize..];
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', data) else {
                self.line.extend_from_slice(data);
                if self.line.len() > LONGEST {
                    return Err(ChunkError::Endless);
                }
                break;
            };
            self.line.extend_from_slice(&data[..end]);
            data = &data[end + 1..];
            let length = length(&self.line)?;
            self.line.clear();
            self.ended = length == 0;
            self.missing = length + 2;
        }
        Ok(parts)
    }
}

/// The length in a line, before any extensions.
fn length(line: &[u8]) -> Result<u64, ChunkError> {
    let digits = line.split(|each| *each == b';').next().unwrap_or_default().trim_ascii();
    let text = std::str::from_utf8(digits).map_err(|_| ChunkError::NoNumber)?;
    // Fifteen digits are more than anybody sends, and leave room for the line end.
    if text.is_empty() || text.len() > 15 || !text.bytes().all(|each| each.is_ascii_hexdigit()) {
        return Err(ChunkError::NoNumber);
    }
    u64::from_str_radix(text, 16).map_err(|_| ChunkError::NoNumber)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut chunks = Chunks::default();
        let body = pieces.iter().flat_map(|piece| chunks.feed(piece).expect("chunks").concat()).collect();
        (body, chunks.ended())
    }

    #[test]
    fn a_body_is_the_same_wherever_it_is_cut() {
        let sent = b"3\r\nabc\r\n1a;note=1\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n";
        let whole = read(&[sent]);
        assert_eq!(whole, (b"abcabcdefghijklmnopqrstuvwxyz".to_vec(), true));
        for at in 0..sent.len() {
            assert_eq!(read(&[&sent[..at], &sent[at..]]), whole, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = sent.chunks(1).collect();
        assert_eq!(read(&bytes), whole);
    }

    #[test]
    fn what_is_no_chunk_is_said_to_be_none() {
        for sent in [b"zz\r\n".as_slice(), b"\r\n", b"-1\r\n", b"+1\r\n", b"ffffffffffffffff\r\n", b"\xff\r\n"] {
            assert_eq!(Chunks::default().feed(sent), Err(ChunkError::NoNumber));
        }
        assert_eq!(Chunks::default().feed(&[b'1'; 2000]), Err(ChunkError::Endless));
    }
}
