//! The body of an answer as it arrives: cut into events, stamped, interpreted.

use std::cell::RefCell;

use super::level::Live;
use crate::outcome::Outcome;
use crate::record::Row;
use crate::record::columns::NO_TIME;
use crate::spec::Framing;
use crate::wire::http1::Head;
use crate::wire::interpret::{Answer, Interpreter, MAX_MESSAGE, message_of};
use crate::wire::sse::Splitter;

/// Longest whole body that is kept to be read; what is beyond it cannot carry `usage` that we would see.
const MAX_WHOLE: usize = 64 << 20;

/// What of an answer's body has been read.
#[derive(Debug, Default)]
pub struct Reader {
    framing: Option<Framing>,
    keep_bytes: usize,
    reads_whole: bool,
    text: Vec<u8>,
    events: Splitter,
    answer: Answer,
}

impl Reader {
    /// Forget the last answer.
    pub fn reset(&mut self) {
        if self.framing.take().is_some() {
            self.text.clear();
            self.events.reset();
            self.answer = Answer::default();
        }
    }

    pub fn has_begun(&self) -> bool {
        self.framing.is_some()
    }

    /// The head is known: decide how the body is cut and how much of it is kept.
    pub fn begin(&mut self, interpreter: &Interpreter, head: &Head) {
        let success = interpreter.success(head.status);
        // A failure's body is the server's message, whatever its form.
        let framing = if success { interpreter.framing(head.content) } else { Framing::Whole };
        self.reads_whole = success && framing == Framing::Whole && interpreter.reads_bodies(head.content);
        self.keep_bytes = match (success, self.reads_whole) {
            (false, _) => MAX_MESSAGE * 4,
            (true, true) => MAX_WHOLE,
            (true, false) => 0,
        };
        self.framing = Some(framing);
    }

    /// Some body bytes that one read at `now` brought.
    pub fn body(&mut self, bytes: &[u8], now: i64, interpreter: &Interpreter, live: &RefCell<Live>, row: &mut Row) {
        let answer = &mut self.answer;
        let mut event = |data: &[u8]| {
            if interpreter.read(data, answer) {
                stamp(row, now, live);
            }
        };
        match self.framing {
            Some(Framing::Sse) => self.events.feed(bytes, &mut event),
            Some(Framing::Ndjson) => lines(&mut self.text, bytes, &mut event),
            _ => {
                let room = self.keep_bytes.saturating_sub(self.text.len()).min(bytes.len());
                self.text.extend_from_slice(&bytes[..room]);
            }
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self.framing, Some(Framing::Sse | Framing::Ndjson))
    }
}

/// An event with content came at `now`.
pub fn stamp(row: &mut Row, now: i64, live: &RefCell<Live>) {
    row.events += 1;
    if row.first_token_ns == NO_TIME {
        row.first_token_ns = now;
    } else {
        live.borrow_mut().itl.record(now - row.last_token_ns);
    }
    row.last_token_ns = now;
}

fn lines(held: &mut Vec<u8>, mut bytes: &[u8], event: &mut impl FnMut(&[u8])) {
    while let Some(end) = memchr::memchr(b'\n', bytes) {
        if held.is_empty() {
            line(&bytes[..end], event);
        } else {
            held.extend_from_slice(&bytes[..end]);
            line(held, event);
            held.clear();
        }
        bytes = &bytes[end + 1..];
    }
    let room = MAX_WHOLE.saturating_sub(held.len()).min(bytes.len());
    held.extend_from_slice(&bytes[..room]);
}

fn line(text: &[u8], event: &mut impl FnMut(&[u8])) {
    let text = text.trim_ascii();
    if !text.is_empty() {
        event(text);
    }
}

/// Token counts of what was read, also of an answer that broke off.
pub fn counts(reader: &Reader, row: &mut Row) {
    row.tokens_in = reader.answer.tokens_in;
    row.tokens_out = reader.answer.tokens_out;
    row.tokens_cached = reader.answer.tokens_cached;
    row.tokens_reasoning = reader.answer.tokens_reasoning;
}

/// How a complete response ended, and the message if it failed; `has_body`: the method lets an answer have a body.
pub fn verdict(
    interpreter: &Interpreter,
    reader: &mut Reader,
    live: &RefCell<Live>,
    has_body: bool,
    row: &mut Row,
) -> (Outcome, Option<String>) {
    if !interpreter.success(row.status) {
        let message = message_of(&reader.text);
        return (Outcome::HttpError, Some(message));
    }
    if reader.is_stream() {
        // A last line without its newline is still a line.
        if reader.framing == Some(Framing::Ndjson) && !reader.text.is_empty() {
            let rest = std::mem::take(&mut reader.text);
            line(&rest, &mut |data| {
                if interpreter.read(data, &mut reader.answer) {
                    stamp(row, row.end_ns, live);
                }
            });
        }
    } else if reader.reads_whole {
        if !reader.text.is_empty() {
            interpreter.read(&reader.text, &mut reader.answer);
        } else if has_body && !matches!(row.status, 204 | 205) && interpreter.wants_json() {
            reader.answer.malformed = true;
        }
    }
    counts(reader, row);
    if let Some(message) = reader.answer.error.take() {
        return (Outcome::ApiError, Some(message));
    }
    if reader.answer.malformed {
        return (Outcome::ProtocolError, Some("the answer is not JSON".to_owned()));
    }
    if reader.is_stream() && interpreter.wants_end() && !reader.answer.ended {
        return (Outcome::Truncated, Some("the stream ended without its end marker".to_owned()));
    }
    (Outcome::Ok, None)
}
