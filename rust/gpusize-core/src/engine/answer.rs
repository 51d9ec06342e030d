//! The body of an answer as it arrives: cut into events, stamped, interpreted.

use crate::clock;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::record::Row;
use crate::record::columns::NO_TIME;
use crate::record::gaps::GapBuffer;
use crate::spec::{Framing, TargetSpec};
use crate::wire::calls::{CallReader, Calls};
use crate::wire::http1::Head;
use crate::wire::interpret::{Answer, Found, Interpreter};
use crate::wire::message::{MAX_MESSAGE, message_of, stated_message};
use crate::wire::sse::{Piece, Splitter};

/// Longest whole body that is kept to be read; what is beyond it cannot carry `usage` that we would see.
const MAX_WHOLE: usize = 64 << 20;

/// Times of more events than this are not kept of one request.
const MAX_TIMES: usize = 1 << 20;

/// How the answers of a target are read.
#[derive(Debug)]
pub struct Reading {
    pub interpreter: Interpreter,
    calls: Option<CallReader>,
    keeps_times: bool,
}

impl Reading {
    pub fn new(target: &TargetSpec) -> Self {
        Self {
            interpreter: Interpreter::new(&target.response),
            calls: target.response.calls.as_ref().map(CallReader::new),
            keeps_times: target.record_events,
        }
    }

    /// Keep the text of contents, for requests that repeat it.
    pub fn keep_text(&mut self) -> Result<(), Error> {
        if self.interpreter.keep_text() {
            return Ok(());
        }
        let todo = "say where an answer's content stands (response.content)";
        Err(Error::usage(
            "requests repeat contents of answers, and nobody said where those are",
            "segments.capture",
            todo,
        ))
    }
}

/// What of an answer's body has been read.
#[derive(Debug, Default)]
pub struct Reader {
    framing: Option<Framing>,
    keep_bytes: usize,
    reads_whole: bool,
    text: Vec<u8>,
    events: Splitter,
    content: Content,
}

/// What the events of an answer brought.
#[derive(Debug, Default)]
struct Content {
    answer: Answer,
    gaps: GapBuffer,
    times: Vec<i64>,
    calls: Calls,
}

impl Reader {
    /// Forget the last answer.
    pub fn reset(&mut self) {
        if self.framing.take().is_some() {
            self.text.clear();
            self.events.reset();
            self.content.answer = Answer::default();
            self.content.gaps.reset();
            self.content.times.clear();
        }
    }

    pub fn has_begun(&self) -> bool {
        self.framing.is_some()
    }

    /// The head is known: decide how the body is cut and how much of it is kept.
    pub fn begin(&mut self, reading: &Reading, head: &Head) {
        let interpreter = &reading.interpreter;
        let success = interpreter.success(head.status);
        // A failure's body is the server's message, whatever its form.
        let framing = if success { interpreter.framing(head.content) } else { Framing::Whole };
        self.reads_whole = success && framing == Framing::Whole && interpreter.reads_bodies(head.content);
        self.keep_bytes = match (success, self.reads_whole) {
            (false, _) => MAX_MESSAGE * 4,
            (true, true) => head.json_length.unwrap_or(MAX_WHOLE),
            (true, false) => 0,
        };
        self.framing = Some(framing);
        if reading.calls.is_some() {
            let clocks = clock::pair();
            self.content.calls.reset(clocks.wall_ns - clocks.mono_ns);
        }
    }

    /// Some body bytes that one read at `now` brought.
    pub fn body(&mut self, bytes: &[u8], now: i64, reading: &Reading, row: &mut Row) {
        let content = &mut self.content;
        match self.framing {
            Some(Framing::Sse) => {
                let other = reading.calls.as_ref().and_then(CallReader::field);
                self.events.feed(bytes, other, &mut |piece| match piece {
                    Piece::Data(data) => content.event(data, now, reading, row),
                    Piece::Step(step) => content.step(step, reading),
                });
            }
            Some(Framing::Ndjson) => {
                lines(&mut self.text, bytes, &mut |data| content.event(data, now, reading, row));
            }
            _ => {
                let room = self.keep_bytes.saturating_sub(self.text.len()).min(bytes.len());
                self.text.extend_from_slice(&bytes[..room]);
            }
        }
    }

    /// A gRPC reply with content, which a read at `now` completed.
    pub fn reply(&mut self, now: i64, reading: &Reading, row: &mut Row) {
        reading.interpreter.note_content(&mut self.content.answer);
        self.content.take(Found::Content, now, reading, row);
    }

    /// The buckets of the gaps between the answer's events.
    pub fn gaps(&self) -> impl Iterator<Item = u16> + '_ {
        self.content.gaps.places()
    }

    /// The content of the answer as it stood there, without the quotes around it.
    pub fn take_text(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.content.answer.text)
    }

    fn is_stream(&self) -> bool {
        matches!(self.framing, Some(Framing::Sse | Framing::Ndjson))
    }
}

impl Content {
    /// One event, which a read at `now` completed.
    fn event(&mut self, data: &[u8], now: i64, reading: &Reading, row: &mut Row) {
        if let Some(calls) = reading.calls.as_ref().filter(|c| c.field().is_none())
            && calls.read(data, &mut self.calls)
        {
            return;
        }
        let found = reading.interpreter.read(data, &mut self.answer);
        if found != Found::Nothing {
            self.take(found, now, reading, row);
        }
    }

    /// An event with content came at `now`.
    fn take(&mut self, found: Found, now: i64, reading: &Reading, row: &mut Row) {
        self.stamp(found, now, row);
        if reading.keeps_times && self.times.len() < MAX_TIMES {
            self.times.push(now);
        }
    }

    /// One intermediate step.
    fn step(&mut self, step: &[u8], reading: &Reading) {
        if let Some(calls) = &reading.calls {
            calls.read(step, &mut self.calls);
        }
    }

    /// Into the record.
    fn stamp(&mut self, found: Found, now: i64, row: &mut Row) {
        row.events += 1;
        if found == Found::Reasoning {
            row.reasoning_events += 1;
        } else if row.first_output_ns == NO_TIME {
            row.first_output_ns = now;
        }
        if row.first_token_ns == NO_TIME {
            row.first_token_ns = now;
        } else {
            let gap_ns = now - row.last_token_ns;
            self.gaps.push(gap_ns);
        }
        row.last_token_ns = now;
    }
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

/// What was read of an answer, also of one that broke off.
pub fn counts(reading: &Reading, reader: &mut Reader, row: &mut Row) {
    let Content { answer, gaps, times, calls } = &mut reader.content;
    row.tokens_in = answer.tokens_in;
    row.tokens_out = answer.tokens_out;
    row.tokens_cached = answer.tokens_cached;
    row.tokens_reasoning = answer.tokens_reasoning;
    if row.events > 1 {
        row.itl = gaps.digest();
    }
    if !times.is_empty() {
        row.events_ns = Some(times.as_slice().into());
    }
    if reading.calls.is_some() {
        row.spans = Some(calls.take()).filter(|spans| !spans.is_empty()).map(Into::into);
    }
}

/// How a complete response ended, and the message if it failed; `has_body`: the method lets an answer have a body.
pub fn verdict(reading: &Reading, reader: &mut Reader, has_body: bool, row: &mut Row) -> (Outcome, Option<String>) {
    let interpreter = &reading.interpreter;
    if !interpreter.success(row.status) {
        let message = message_of(&reader.text);
        return (Outcome::HttpError, Some(message));
    }
    if reader.is_stream() {
        take_end(reader, reading, row);
        // A last line without its newline is still a line.
        if reader.framing == Some(Framing::Ndjson) && !reader.text.is_empty() {
            let rest = std::mem::take(&mut reader.text);
            let now = row.end_ns;
            line(&rest, &mut |data| reader.content.event(data, now, reading, row));
        }
    } else if reader.reads_whole {
        let has_text = !reader.text.trim_ascii().is_empty();
        if has_text {
            interpreter.read(&reader.text, &mut reader.content.answer);
        } else if has_body && !matches!(row.status, 204 | 205) && interpreter.wants_json() {
            reader.content.answer.malformed = true;
        }
    }
    counts(reading, reader, row);
    judge(interpreter, reader, has_body)
}

/// Servers leave out the empty line after the event that ends a stream, and end the body there.
fn take_end(reader: &mut Reader, reading: &Reading, row: &mut Row) {
    let Reader { events, content, .. } = reader;
    if reader.framing == Some(Framing::Sse) && reading.interpreter.wants_end() && !content.answer.ended {
        let now = row.end_ns;
        events.finish(&mut |data| {
            if reading.interpreter.is_end(data) {
                content.event(data, now, reading, row);
            }
        });
    }
}

/// The same for the end of a gRPC call that its status calls a success.
pub fn verdict_of_call(reading: &Reading, reader: &Reader) -> (Outcome, Option<String>) {
    match reading.interpreter.lacks(&reader.content.answer) {
        Some(_) => (Outcome::ApiError, Some(lacking("outputs", None))),
        None => (Outcome::Ok, None),
    }
}

fn lacking(missing: &str, stated: Option<String>) -> String {
    let said = stated.map_or_else(String::new, |message| format!("; it says: {message}"));
    format!("the answer lacks what makes it a success (success_if): {missing}{said}")
}

/// Whether an answer with a successful status is a success.
fn judge(interpreter: &Interpreter, reader: &mut Reader, has_body: bool) -> (Outcome, Option<String>) {
    if let Some(message) = reader.content.answer.error.take() {
        return (Outcome::ApiError, Some(message));
    }
    let answer = &reader.content.answer;
    if answer.malformed {
        return (Outcome::ProtocolError, Some("the answer is not JSON".to_owned()));
    }
    if reader.is_stream() && interpreter.wants_end() && !answer.ended {
        return (Outcome::Truncated, Some("the stream ended without its end marker".to_owned()));
    }
    if has_body && let Some(missing) = interpreter.lacks(answer) {
        let stated = if reader.is_stream() { None } else { stated_message(&reader.text) };
        return (Outcome::ApiError, Some(lacking(missing, stated)));
    }
    (Outcome::Ok, None)
}
