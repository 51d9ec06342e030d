//! The fields of an answer's head, or of what follows its body.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::OVERHEAD;
use crate::wire::http1::Head;

/// Fields that belong to a connection of HTTP/1.1 (RFC 9113, section 8.2.2).
const OF_HTTP1: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// See the module.
#[derive(Debug, Default)]
pub struct Fields {
    /// What `:status` says.
    pub status: Option<u16>,
    /// The others.
    pub fields: HeaderMap,
    /// What matters of an answer's head.
    pub head: Head,
    /// Bytes of the body, where they say so.
    pub content_length: Option<u64>,
    /// Why no answer may have these (section 8.1.1).
    pub malformed: Option<&'static str>,
    /// They are larger than is allowed; those beyond are left out.
    pub is_too_long: bool,
    size: usize,
}

impl Fields {
    /// One more; all of them take at most `most` bytes.
    pub(super) fn push(&mut self, name: &[u8], value: &[u8], most: usize) {
        self.size += name.len() + value.len() + OVERHEAD;
        self.is_too_long |= self.size > most;
        if self.is_too_long || self.malformed.is_some() {
            return;
        }
        let wrong = if name.first() == Some(&b':') { self.status(name, value) } else { self.field(name, value) };
        self.malformed = wrong.err();
    }

    fn status(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if name != b":status" {
            return Err("a pseudo-header that no answer has");
        }
        if self.status.is_some() || !self.fields.is_empty() {
            return Err("a second :status, or one after other fields");
        }
        let digits = value.iter().map(|b| char::from(*b).to_digit(10)).collect::<Option<Vec<_>>>();
        match digits.as_deref() {
            Some([a @ 1..=9, b, c]) => self.status = Some((a * 100 + b * 10 + c) as u16),
            _ => return Err("a :status that is no number of three digits"),
        }
        Ok(())
    }

    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let name = HeaderName::from_lowercase(name).map_err(|_| "a field's name that is none, or not in lower case")?;
        if OF_HTTP1.contains(&name.as_str()) {
            return Err("a field of HTTP/1.1 that HTTP/2 forbids");
        }
        let value = HeaderValue::from_bytes(value).map_err(|_| "a field's value with a control character")?;
        if name == http::header::CONTENT_LENGTH {
            let length = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let length = length.and_then(|text| text.parse().ok()).ok_or("a content-length that is no number")?;
            if self.content_length.is_some_and(|other| other != length) {
                return Err("two lengths of one body");
            }
            self.content_length = Some(length);
        }
        self.fields.append(name, value);
        Ok(())
    }

    /// All have come.
    pub(super) fn finish(&mut self) {
        self.head = Head::new(self.status.unwrap_or(0), &self.fields);
    }
}
