//! gRPC on top of HTTP/2: the five bytes before each message, and the status after the last.

use http::{HeaderMap, HeaderName};

use gpusize_base::error::{Error, Result};

/// Bytes before each message: a flag and a length.
pub const PREFIX: usize = 5;

/// Longest status text that is kept.
const MAX_TEXT: usize = 2_048;

/// Names of the status codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// What stands before a message of this length, not compressed; the length has 32 bits.
pub fn prefix(length: usize) -> Result<[u8; PREFIX]> {
    let Ok(length) = u32::try_from(length) else {
        let what = format!("a message of {length} bytes, and gRPC has none beyond 4 GiB");
        return Err(Error::usage(what, "the request's body", "send less in one request, or use HTTP"));
    };
    let [a, b, c, d] = length.to_be_bytes();
    Ok([0, a, b, c, d])
}

/// Cuts a body into messages, however its bytes arrive.
#[derive(Debug)]
pub struct Deframer {
    prefix: [u8; PREFIX],
    /// Bytes of the prefix that have come.
    have: usize,
    /// The unfinished message.
    held: Vec<u8>,
    max_bytes: u64,
}

impl Deframer {
    /// Ready for the first byte; a message longer than `max_bytes` is refused before it is read.
    pub fn new(max_bytes: u64) -> Self {
        Self { prefix: [0; PREFIX], have: 0, held: Vec::new(), max_bytes }
    }

    /// Forget an unfinished message.
    pub fn reset(&mut self) {
        self.have = 0;
        self.held.clear();
    }

    /// The longest message that is taken.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Bytes of memory that an unfinished message takes.
    pub fn held(&self) -> usize {
        self.held.capacity()
    }

    /// Whether no message is unfinished.
    pub fn is_at_boundary(&self) -> bool {
        self.have == 0
    }

    /// Take all of `input`; `message` gets every message that it completes. The error says what no gRPC server of ours sends.
    pub fn feed<E: From<String>>(
        &mut self,
        mut input: &[u8],
        message: &mut impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        while !input.is_empty() {
            if self.have < PREFIX {
                let n = input.len().min(PREFIX - self.have);
                self.prefix[self.have..self.have + n].copy_from_slice(&input[..n]);
                self.have += n;
                input = &input[n..];
                if self.have < PREFIX {
                    return Ok(());
                }
            }
            let length = self.length()?;
            let missing = length - self.held.len();
            if input.len() < missing {
                self.held.extend_from_slice(input);
                return Ok(());
            }
            let (mine, rest) = input.split_at(missing);
            if self.held.is_empty() {
                message(mine)?;
            } else {
                self.held.extend_from_slice(mine);
                message(&self.held)?;
            }
            self.reset();
            input = rest;
        }
        // An empty message has nothing that could follow its prefix.
        if self.have == PREFIX && self.length()? == 0 {
            self.reset();
            message(&[])?;
        }
        Ok(())
    }

    fn length(&self) -> std::result::Result<usize, String> {
        let [flag, length @ ..] = self.prefix;
        let length = u32::from_be_bytes(length);
        match flag {
            0 if u64::from(length) <= self.max_bytes => Ok(length as usize),
            0 => Err(format!("a gRPC message of {length} bytes, longer than {} bytes", self.max_bytes)),
            1 => Err("a compressed gRPC message, though only identity was offered".to_owned()),
            _ => Err(format!("a gRPC message with flag {flag}")),
        }
    }
}

/// Names that are looked up in every answer: made from text they would be checked and hashed as text each time.
static STATUS: HeaderName = HeaderName::from_static("grpc-status");
static MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// A call's end: code and text, as trailers or, without an answer, the head carry them. None: they carry no status.
pub fn status(fields: &HeaderMap) -> Option<(u32, String)> {
    let code = fields.get(&STATUS)?.to_str().ok().and_then(|t| t.parse().ok()).unwrap_or(2);
    let text = fields.get(&MESSAGE).map(|t| unescape(t.as_bytes())).unwrap_or_default();
    Some((code, text))
}

/// `NOT_FOUND: text`, or the name alone.
pub fn describe(code: u32, text: &str) -> String {
    let name = CODES.get(code as usize).map_or_else(|| format!("code {code}"), |name| (*name).to_owned());
    if text.is_empty() { name } else { format!("{name}: {text}") }
}

/// Percent-decode; what is not an escape stands for itself. Bounded, and without control characters.
fn unescape(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len().min(MAX_TEXT));
    let mut at = 0;
    while at < text.len() && out.len() < MAX_TEXT {
        let digit = |k: usize| text.get(at + k).and_then(|b| char::from(*b).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (text[at], digit(1), digit(2)) {
            out.push((high * 16 + low) as u8);
            at += 3;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    let text = String::from_utf8_lossy(&out);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(wire: &[u8], step: usize) -> std::result::Result<(Vec<Vec<u8>>, bool), String> {
        let mut deframer = Deframer::new(100);
        let mut out = Vec::new();
        for piece in wire.chunks(step) {
            deframer.feed(piece, &mut |m| {
                out.push(m.to_vec());
                Ok::<(), String>(())
            })?;
        }
        Ok((out, deframer.is_at_boundary()))
    }

    #[test]
    fn messages_are_the_same_whole_and_in_any_pieces() {
        let messages = [&b"one"[..], b"", b"three", b"", b""];
        let wire: Vec<u8> = messages.iter().flat_map(|m| [&prefix(m.len()).unwrap()[..], m].concat()).collect();
        for step in 1..=wire.len() {
            let (out, whole) = cut(&wire, step).unwrap();
            assert!(out == messages && whole, "step {step}: {out:?}");
            assert!(!cut(&wire[..wire.len() - 1], step).unwrap().1, "step {step}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (wire, words) in [
            (&b"\x01\0\0\0\x03abc"[..], "compressed"),
            (b"\x07\0\0\0\x03abc", "flag 7"),
            (b"\0\0\0\0\x65", "101 bytes"),
            (b"\0\xff\xff\xff\xff", "4294967295 bytes"),
        ] {
            for step in 1..=wire.len() {
                let error = cut(&[wire, &[b'x'; 3]].concat(), step).unwrap_err();
                assert!(error.contains(words), "{error}");
            }
        }
    }

    #[test]
    fn a_status_has_a_name_and_a_readable_text() {
        let mut fields = HeaderMap::new();
        assert_eq!(status(&fields), None);
        for (code, text, want) in [
            ("5", "no%20model%3a %e2%82%ac %zz%", "NOT_FOUND: no model: \u{20ac} %zz%"),
            ("0", "", "OK"),
            ("14", "a%0Ab", "UNAVAILABLE: a b"),
            ("99", "x", "code 99: x"),
            ("five", "x", "UNKNOWN: x"),
        ] {
            fields.insert("grpc-status", code.parse().unwrap());
            fields.insert("grpc-message", text.parse().unwrap());
            let (code, text) = status(&fields).unwrap();
            assert_eq!(describe(code, &text), want);
        }
    }
}
