//! An event stream, read as it arrives, and a second reading of the standard to compare with.

use gpusize_engine::wire::sse::{Piece, Splitter};

/// One event's data, or a document of the other field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Data(Vec<u8>),
    Step(Vec<u8>),
}

/// The events of a stream that comes in these pieces.
pub fn split(pieces: &[&[u8]], other: Option<&[u8]>) -> Vec<Event> {
    let mut splitter = Splitter::default();
    let mut events = Vec::new();
    for piece in pieces {
        splitter.feed(piece, other, &mut |piece| {
            events.push(match piece {
                Piece::Data(data) => Event::Data(data.to_vec()),
                Piece::Step(step) => Event::Step(step.to_vec()),
            });
        });
    }
    events
}

/// The events of a whole text, line by line as the standard's own words put it (WHATWG HTML, section 9.2.6).
pub fn reference(text: &[u8], other: Option<&[u8]>) -> Vec<Event> {
    let mut events = Vec::new();
    let (mut data, mut step): (Vec<&[u8]>, Vec<&[u8]>) = (Vec::new(), Vec::new());
    for line in lines(text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)) {
        if line.is_empty() {
            if !step.is_empty() {
                events.push(Event::Step(step.join(&b'\n')));
                step.clear();
            }
            if !data.is_empty() {
                events.push(Event::Data(data.join(&b'\n')));
                data.clear();
            }
            continue;
        }
        let (name, value) = match line.iter().position(|b| *b == b':') {
            None => (line, &b""[..]),
            Some(colon) => (&line[..colon], &line[colon + 1..]),
        };
        let value = if value.first() == Some(&b' ') { &value[1..] } else { value };
        if name == b"data" {
            data.push(value);
        } else if Some(name) == other && !(step.is_empty() && value.is_empty()) {
            step.push(value);
            let joined = step.join(&b'\n');
            if joined.trim_ascii_end().ends_with(b"}")
                && serde_json::from_slice::<serde::de::IgnoredAny>(&joined).is_ok()
            {
                events.push(Event::Step(joined));
                step.clear();
            }
        }
    }
    events
}

/// The lines that have ended.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut from, mut at) = (Vec::new(), 0, 0);
    while at < text.len() {
        let length = match &text[at..] {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => 0,
        };
        if length > 0 {
            lines.push(&text[from..at]);
            from = at + length;
        }
        at += length.max(1);
    }
    lines
}
