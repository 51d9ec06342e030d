//! Server-sent events, split incrementally (WHATWG HTML, section 9.2.6). The data of each event is handed on, and one field that is not the standard's.

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
    /// Lines of the other field that make no JSON document yet.
    step: Step,
    after_cr: bool,
    /// The first line has come: a byte order mark may stand before it only.
    has_begun: bool,
}

/// The unfinished lines of the other field, and how far they are from a document.
#[derive(Debug, Default)]
struct Step {
    text: Vec<u8>,
    /// Brackets that are open; negative: one too many was closed.
    depth: i64,
    in_text: bool,
    /// Its brackets were closed once and it was no document: it never will be one.
    is_hopeless: bool,
}

/// What a splitter hands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The data of an event.
    Data(&'a [u8]),
    /// What came in the other field.
    Step(&'a [u8]),
}

impl Splitter {
    /// Forget an unfinished event.
    pub fn reset(&mut self) {
        self.line.clear();
        self.data.clear();
        self.has_data = false;
        self.step.reset();
        self.after_cr = false;
        self.has_begun = false;
    }

    /// Bytes of memory that an unfinished event takes.
    pub fn held(&self) -> usize {
        self.line.capacity() + self.data.capacity() + self.step.text.capacity()
    }

    /// Take all of `input`; `event` gets the data of every event that it completes, and what comes in the field named
    /// `other`: each JSON document as soon as its last line has come, or what there is at the event's end.
    pub fn feed(&mut self, mut input: &[u8], other: Option<&[u8]>, event: &mut impl FnMut(Piece<'_>)) {
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
                let one_event = !self.has_data && self.step.text.is_empty() && rest.first() == Some(&b'\n');
                let line = &input[..end.min(MAX_EVENT)];
                if let (true, Some(data)) = (one_event && !self.after_cr, value_of(line, b"data")) {
                    self.has_begun = true;
                    event(Piece::Data(data));
                    input = &rest[1..];
                    continue;
                }
                self.take_line(line, other, event);
            } else {
                let room = MAX_EVENT.saturating_sub(self.line.len()).min(end);
                self.line.extend_from_slice(&input[..room]);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, other, event);
                self.line = line;
                self.line.clear();
            }
            input = &input[end + 1..];
        }
    }

    /// The body has ended: `event` gets the data of an event that only lacks its empty line. The standard drops it.
    pub fn finish(&mut self, event: &mut impl FnMut(&[u8])) {
        // The first ends a line that has begun, and the second the event.
        self.feed(b"\n\n", None, &mut |piece| {
            if let Piece::Data(data) = piece {
                event(data);
            }
        });
    }

    fn take_line(&mut self, mut line: &[u8], other: Option<&[u8]>, event: &mut impl FnMut(Piece<'_>)) {
        if !std::mem::replace(&mut self.has_begun, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            if !self.step.text.is_empty() {
                event(Piece::Step(&self.step.text));
            }
            self.step.reset();
            if self.has_data {
                event(Piece::Data(&self.data));
                self.data.clear();
                self.has_data = false;
            }
        } else if let Some(data) = value_of(line, b"data") {
            add_line(&mut self.data, data, self.has_data);
            self.has_data = true;
        } else if let Some(step) = other.and_then(|name| value_of(line, name))
            && self.step.add(step)
        {
            event(Piece::Step(&self.step.text));
            self.step.reset();
        }
    }
}

impl Step {
    fn reset(&mut self) {
        self.text.clear();
        (self.depth, self.in_text, self.is_hopeless) = (0, false, false);
    }

    /// Add a line; says whether the lines are now a JSON object. Brackets are counted as lines come, and the lines are
    /// parsed once at most: trying after every line would cost the square of what a hostile server sends.
    fn add(&mut self, line: &[u8]) -> bool {
        let follows = !self.text.is_empty();
        add_line(&mut self.text, line, follows);
        if self.is_hopeless {
            return false;
        }
        let mut escaped = false;
        for byte in line {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = self.in_text,
                b'"' => self.in_text = !self.in_text,
                b'[' | b'{' if !self.in_text => self.depth += 1,
                b']' | b'}' if !self.in_text => self.depth -= 1,
                _ => {}
            }
        }
        // No text of a document goes over a line's end.
        self.is_hopeless = self.in_text || self.depth < 0;
        if self.is_hopeless || self.depth != 0 || !self.text.trim_ascii_end().ends_with(b"}") {
            return false;
        }
        self.is_hopeless = serde_json::from_slice::<serde::de::IgnoredAny>(&self.text).is_err();
        !self.is_hopeless
    }
}

fn add_line(held: &mut Vec<u8>, line: &[u8], follows: bool) {
    if follows && held.len() < MAX_EVENT {
        held.push(b'\n');
    }
    let room = MAX_EVENT.saturating_sub(held.len()).min(line.len());
    held.extend_from_slice(&line[..room]);
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
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
            splitter.feed(piece, Some(b"step"), &mut |piece| {
                let (mark, bytes) = match piece {
                    Piece::Data(d) => ("", d),
                    Piece::Step(d) => ("step ", d),
                };
                out.push(format!("{mark}{}", String::from_utf8_lossy(bytes)));
            });
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
    #[test]
    fn steps_come_line_by_line_or_over_several_lines() {
        let cases: [(&[u8], &[&str]); 5] = [
            (b"step: {\"a\":1}\n\ndata: x\n\n", &["step {\"a\":1}", "x"]),
            (b"step: {\"a\":1}\nstep:{\"b\":2}\ndata: x\n\n", &["step {\"a\":1}", "step {\"b\":2}", "x"]),
            (b"step: {\"a\":\r\nstep: {}}\r\n\r\ndata: x\r\n\r\n", &["step {\"a\":\n{}}", "x"]),
            (b"step: {\"a\"\n\ndata: {\"k\":\ndata: 1}\n\n", &["step {\"a\"", "{\"k\":\n1}"]),
            (b"data: {\"k\":\nstep: {}\ndata: 1}\n\nsteps: {}\n\n", &["step {}", "{\"k\":\n1}"]),
        ];
        for (wire, want) in cases {
            for step in 1..=wire.len() {
                assert_eq!(split(wire, step), want, "{:?} in steps of {step}", String::from_utf8_lossy(wire));
            }
        }
    }
}
