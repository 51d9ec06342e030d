//! Fields that have a number: those that the RFC names (RFC 7541, appendix A), and those that were said before.

use std::collections::VecDeque;

use super::OVERHEAD;

/// The first number of the other table.
pub const STATIC: usize = 62;

/// The RFC's, from number 1.
#[rustfmt::skip]
pub const FIXED: [(&str, &str); STATIC - 1] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

/// A field's name and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: Box<[u8]>,
    pub value: Box<[u8]>,
}

impl Entry {
    pub fn new(name: &[u8], value: &[u8]) -> Self {
        Self { name: name.into(), value: value.into() }
    }

    pub fn size(&self) -> usize {
        self.name.len() + self.value.len() + OVERHEAD
    }
}

/// Those that were said before, the last one first.
#[derive(Debug)]
pub struct Table {
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
}

impl Table {
    pub fn new(most: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, most }
    }

    pub fn get(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    pub fn position(&self, name: &[u8], value: &[u8]) -> Option<usize> {
        self.entries.iter().position(|e| *e.name == *name && *e.value == *value)
    }

    /// Whether it has room without forgetting another.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.size + bytes <= self.most
    }

    /// Remember one, and forget what has no room then; one larger than the whole table empties it.
    pub fn insert(&mut self, entry: Entry) {
        let size = entry.size();
        self.shrink(self.most.saturating_sub(size));
        if size <= self.most {
            self.size += size;
            self.entries.push_front(entry);
        }
    }

    pub fn resize(&mut self, most: usize) {
        self.most = most;
        self.shrink(most);
    }

    fn shrink(&mut self, most: usize) {
        while self.size > most {
            let Some(last) = self.entries.pop_back() else { break };
            self.size -= last.size();
        }
    }
}
