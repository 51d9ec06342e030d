//! The body of an answer as it arrives: cut into events, stamped, interpreted.

mod verdict;

use super::held::{FREE, Held, empty};
use crate::record::Row;
use crate::record::columns::NO_TIME;
use crate::record::gaps::GapBuffer;
use crate::spec::{Framing, TargetSpec};
use crate::wire::calls::{CallReader, Calls};
use crate::wire::http1::Head;
use crate::wire::interpret::{Answer, Found, Interpreter};
use crate::wire::message::MAX_MESSAGE;
use crate::wire::sse::{Piece, Splitter};
use crate::wire::times::HeadTimes;
use gpusize_base::clock;
use gpusize_base::error::Error;

pub use verdict::{verdict, verdict_of_call};

/// Longest line of a stream of lines.
const MAX_LINE: usize = 64 << 20;

/// Times of more events than this are not kept of one request.
const MAX_TIMES: usize = 1 << 20;

/// How the answers of a target are read.
#[derive(Debug)]
pub struct ResponseFormat {
    pub interpreter: Interpreter,
    pub head_times: HeadTimes,
    /// Whether an answer may say how long its server took.
    says_times: bool,
    calls: Option<CallReader>,
    keeps_times: bool,
    max_body_bytes: usize,
    max_held_bytes: u64,
}

impl ResponseFormat {
    pub fn new(target: &TargetSpec) -> Self {
        Self {
            interpreter: Interpreter::new(&target.response),
            head_times: HeadTimes::new(&target.response),
            says_times: !(target.response.server_queue.is_empty() && target.response.server_service.is_empty()),
            calls: target.response.calls.as_ref().map(CallReader::new),
            keeps_times: target.record_events,
            max_body_bytes: usize::try_from(target.max_body_bytes).unwrap_or(usize::MAX),
            max_held_bytes: target.max_held_bytes,
        }
    }

    /// What is said of an answer for which there was no memory.
    #[cold]
    pub fn no_room(&self) -> String {
        format!(
            "no memory for the answer: all answers under way may hold {} bytes (max_held_bytes)",
            self.max_held_bytes
        )
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
    /// What the answer takes of the process's budget, and whether there was no more.
    held: Held,
    is_full: bool,
    events: Splitter,
    content: Content,
    /// Something may stand in `events` or `content`; of a body that nobody reads there is nothing.
    fills: bool,
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
    /// Forget the last answer, and give back what is more than a usual one needs.
    #[inline]
    pub fn reset(&mut self) {
        if self.framing.take().is_none() {
            return;
        }
        empty(&mut self.text);
        self.held.release();
        self.is_full = false;
        if std::mem::take(&mut self.fills) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        if self.events.held() > FREE {
            self.events = Splitter::default();
        }
        self.events.reset();
        self.content.answer = Answer::default();
        self.content.gaps.reset();
        self.content.times.clear();
        self.content.times.shrink_to(FREE / size_of::<i64>());
    }

    /// Whether the answer is read at its end, and not as it comes.
    pub fn is_whole(&self) -> bool {
        self.framing.is_some_and(|framing| framing != Framing::Text) && !self.is_stream()
    }

    /// Whether nobody needs what is still to come of the body.
    pub fn wants_no_more(&self) -> bool {
        self.is_whole() && self.text.len() >= self.keep_bytes
    }

    /// Whether the process had no memory for the answer.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Account for `bytes` that somebody else holds of the answer.
    pub fn hold(&mut self, bytes: usize, format: &ResponseFormat) {
        self.is_full |= !self.held.hold(bytes, format.max_held_bytes);
    }

    pub fn has_begun(&self) -> bool {
        self.framing.is_some()
    }

    /// The head is known: decide how the body is cut and how much of it is kept.
    pub fn begin(&mut self, format: &ResponseFormat, head: &Head) {
        let interpreter = &format.interpreter;
        let success = interpreter.success(head.status);
        // A failure's body is the server's message, whatever its form.
        let framing = if success { interpreter.framing(head.content) } else { Framing::Whole };
        self.reads_whole = success && framing == Framing::Whole && interpreter.reads_bodies(head.content);
        self.keep_bytes = match (success, self.reads_whole) {
            (false, _) => MAX_MESSAGE * 4,
            (true, true) => {
                let length = head.length().and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
                head.json_length.unwrap_or(length).min(length).min(format.max_body_bytes)
            }
            (true, false) => 0,
        };
        self.framing = Some(framing);
        self.fills = framing != Framing::Whole || self.reads_whole;
        if format.says_times && !head.times.is_none() {
            self.content.answer.times = head.times;
            self.fills = true;
        }
        if format.calls.is_some() {
            let clocks = clock::pair();
            self.content.calls.reset(clocks.wall_ns - clocks.mono_ns);
        }
    }

    /// Some body bytes that one read at `now` brought.
    pub fn body(&mut self, bytes: &[u8], now: i64, format: &ResponseFormat, row: &mut Row) {
        let Self { content, text, held, is_full, .. } = self;
        let most = format.max_held_bytes;
        match self.framing {
            Some(Framing::Sse) => {
                let other = format.calls.as_ref().and_then(CallReader::field);
                self.events.feed(bytes, other, &mut |piece| match piece {
                    Piece::Data(data) => content.event(data, now, format, row),
                    Piece::Step(step) => content.step(step, format),
                });
                *is_full |= !held.hold(self.events.held(), most);
            }
            Some(Framing::Ndjson) => {
                lines(text, bytes, &mut |data| content.event(data, now, format, row));
                *is_full |= !held.hold(text.capacity(), most);
            }
            Some(Framing::Text) => {
                // Chunks that came together are one piece: where a text is cut says nothing.
                if !bytes.is_empty() && row.last_token_ns != now {
                    content.take(Found::Content, now, format, row);
                }
            }
            _ => {
                let room = self.keep_bytes.saturating_sub(text.len()).min(bytes.len());
                let needed = text.len() + room;
                if needed > text.capacity() {
                    // Doubled, as vectors grow, but asked for before, and not beyond what can come.
                    let grown = needed.max((text.capacity() * 2).min(self.keep_bytes));
                    *is_full |= !held.hold(grown, most);
                    if *is_full {
                        return;
                    }
                    text.reserve_exact(grown - text.len());
                }
                text.extend_from_slice(&bytes[..room]);
            }
        }
    }

    /// A gRPC reply with content, which a read at `now` completed.
    pub fn reply(&mut self, now: i64, format: &ResponseFormat, row: &mut Row) {
        self.fills = true;
        format.interpreter.note_content(&mut self.content.answer);
        self.content.take(Found::Content, now, format, row);
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
    fn event(&mut self, data: &[u8], now: i64, format: &ResponseFormat, row: &mut Row) {
        if let Some(calls) = format.calls.as_ref().filter(|c| c.field().is_none())
            && calls.read(data, &mut self.calls)
        {
            return;
        }
        let found = format.interpreter.read(data, &mut self.answer);
        if found != Found::Nothing {
            self.take(found, now, format, row);
        }
    }

    /// An event with content came at `now`.
    fn take(&mut self, found: Found, now: i64, format: &ResponseFormat, row: &mut Row) {
        self.stamp(found, now, row);
        if format.keeps_times && self.times.len() < MAX_TIMES {
            self.times.push(now);
        }
    }

    /// One intermediate step.
    fn step(&mut self, step: &[u8], format: &ResponseFormat) {
        if let Some(calls) = &format.calls {
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
    let room = MAX_LINE.saturating_sub(held.len()).min(bytes.len());
    held.extend_from_slice(&bytes[..room]);
}

fn line(text: &[u8], event: &mut impl FnMut(&[u8])) {
    let text = text.trim_ascii();
    if !text.is_empty() {
        event(text);
    }
}

/// What was read of an answer, also of one that broke off.
pub fn counts(format: &ResponseFormat, reader: &mut Reader, row: &mut Row) {
    let Content { answer, gaps, times, calls } = &mut reader.content;
    row.tokens_in = answer.tokens_in;
    row.tokens_out = answer.tokens_out;
    row.tokens_cached = answer.tokens_cached;
    row.tokens_reasoning = answer.tokens_reasoning;
    if format.says_times {
        (row.server_queue_ns, row.server_service_ns) = (answer.times.queue_ns, answer.times.service_ns);
    }
    if row.events > 1 {
        row.itl = gaps.digest();
    }
    if !times.is_empty() {
        row.events_ns = Some(times.as_slice().into());
    }
    if format.calls.is_some() {
        row.spans = Some(calls.take()).filter(|spans| !spans.is_empty()).map(Into::into);
    }
}
