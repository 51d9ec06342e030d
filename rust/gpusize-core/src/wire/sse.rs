//! Server-sent events, split incrementally (WHATWG HTML, section 9.2.6). Only the data of each event is handed on.

/// Longest line or event kept; a longer one is cut off there.
const MAX_EVENT: usize = 16 << 20;

/// Splits a byte stream into events.
#[derive(Debug, Default)]
pub struct Splitter {
    /// The unfinished line.
    line: Vec<u8>,
    /// Data lines of the unfinished event.
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

impl Splitter {
    /// Forget an unfinished event.
    pub fn reset(&mut self) {
        self.line.clear();
        self.data.clear();
        self.has_data = false;
        self.after_cr = false;
    }

    /// Take all of `input`; `event` gets the data of every event that it completes.
    pub fn feed(&mut self, mut input: &[u8], event: &mut impl FnMut(&[u8])) {
        while !input.is_empty() {
            if std::mem::take(&mut self.after_cr) && input[0] == b'\n' {
                input = &input[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', input) else {
                let room = MAX_EVENT.saturating_sub(self.line.len()).min(input.len());
                self.line.extend_from_slice(&input[..room]);
                return;
            };
            self.after_cr = input[end] == b'\r';
            if self.line.is_empty() {
                // The common case: a whole line inside one read needs no copy of the line.
                let rest = &input[end + 1..];
                let one_event = !self.has_data && rest.first() == Some(&b'\n');
                if let (true, Some(data)) = (one_event && !self.after_cr, data_of(&input[..end])) {
                    event(data);
                    input = &rest[1..];
                    continue;
                }
                self.take_line(&input[..end], event);
            } else {
                self.line.extend_from_slice(&input[..end]);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, event);
                self.line = line;
                self.line.clear();
            }
            input = &input[end + 1..];
        }
    }

    fn take_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        if line.is_empty() {
            if self.has_data {
                event(&self.data);
                self.data.clear();
                self.has_data = false;
            }
        } else if let Some(data) = data_of(line) {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            let room = MAX_EVENT.saturating_sub(self.data.len()).min(data.len());
            self.data.extend_from_slice(&data[..room]);
        }
    }
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let rest = line.strip_prefix(b"data")?;
    match rest.first() {
        None => Some(rest),
        Some(b':') => Some(rest[1..].strip_prefix(b" ").unwrap_or(&rest[1..])),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(wire: &[u8], step: usize) -> Vec<String> {
        let mut splitter = Splitter::default();
        let mut out = Vec::new();
        for piece in wire.chunks(step) {
            splitter.feed(piece, &mut |d| out.push(String::from_utf8_lossy(d).into_owned()));
        }
        out
    }

    #[test]
    fn events_are_the_same_whole_and_byte_by_byte() {
        let cases: [(&[u8], &[&str]); 7] = [
            (b"data: a\n\ndata: b\n\n", &["a", "b"]),
            (b"data: a\r\n\r\ndata:b\r\n\r\n", &["a", "b"]),
            (b"data: a\r\rdata: b\r\r", &["a", "b"]),
            (b": ping\n\nevent: x\ndata: a\ndata: b\nid: 3\n\n", &["a\nb"]),
            (b"\xEF\xBB\xBFdata: a\n\ndata\n\ndatax: no\n\n", &["a", ""]),
            (b"data: a\n\n\n\ndata: {\"k\": 1}\n\ndata: unfinished\n", &["a", "{\"k\": 1}"]),
            (b"data:  two spaces\n\n", &[" two spaces"]),
        ];
        for (wire, want) in cases {
            for step in 1..=wire.len() {
                assert_eq!(split(wire, step), want, "{:?} in steps of {step}", String::from_utf8_lossy(wire));
            }
        }
    }
}
