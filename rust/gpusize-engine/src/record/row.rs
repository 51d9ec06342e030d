//! One request's record, before it is a line of columns.

use super::gaps::Gaps;
use super::spans::Span;
use crate::outcome::Outcome;

/// "Did not happen" in a time, a count or a status. Turned into Arrow nulls when the chunk is closed, all rows at once,
/// which is cheaper than a bit for each value in the hot loop.
pub const NO_TIME: i64 = i64::MIN;
/// See `NO_TIME`.
pub const NO_COUNT: u32 = u32::MAX;
/// See `NO_TIME`.
pub const NO_STATUS: u16 = 0;
/// See `NO_TIME`.
pub const NO_SESSION: u64 = u64::MAX;
/// See `NO_TIME`.
pub const NO_TURN: u16 = u16::MAX;

/// A request's place in the schedule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Due {
    /// Position in the schedule.
    pub seq: u64,
    /// Dataset row.
    pub row: u32,
    /// When the schedule wanted it sent.
    pub due_ns: i64,
    /// When the pacer let it go.
    pub fired_ns: i64,
    /// Stream of the load.
    pub stream: u16,
}

/// One attempt at a request.
#[derive(Clone, Debug)]
pub struct Row {
    /// Stream of the load.
    pub stream: u16,
    /// Position in the schedule.
    pub seq: u64,
    /// 0 for the first try.
    pub attempt: u16,
    /// Dataset row.
    pub row: u32,
    /// Which address of the target.
    pub target: u16,
    /// Which model.
    pub model: u16,
    /// Conversation.
    pub session: Option<u64>,
    /// Turn within the conversation.
    pub turn: Option<u16>,
    /// Connection number within the worker.
    pub conn: u32,
    /// When the schedule wanted it sent.
    pub due_ns: i64,
    /// When the pacer let it go.
    pub fired_ns: i64,
    /// Just before the first write.
    pub sent_ns: i64,
    /// Duration of TCP connect.
    pub connect_ns: i64,
    /// Duration of the TLS handshake.
    pub tls_ns: i64,
    /// Read that brought the first byte.
    pub first_byte_ns: i64,
    /// Read that brought the first content.
    pub first_token_ns: i64,
    /// Read that brought the last content.
    pub last_token_ns: i64,
    /// Just after the last read.
    pub end_ns: i64,
    /// Stream events with content.
    pub events: u32,
    /// Prompt tokens.
    pub tokens_in: Option<u32>,
    /// Generated tokens.
    pub tokens_out: Option<u32>,
    /// Cached prompt tokens.
    pub tokens_cached: Option<u32>,
    /// Reasoning tokens.
    pub tokens_reasoning: Option<u32>,
    /// How long the server says that the request waited in it.
    pub server_queue_ns: i64,
    /// How long it says that it served the request.
    pub server_service_ns: i64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// HTTP status, 0 for none.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Index into the level's errors.
    pub error_id: Option<u32>,
    /// Of the events with content, those with reasoning only.
    pub reasoning_events: u32,
    /// Read that brought the first content that is not reasoning.
    pub first_output_ns: i64,
    /// Gaps between events with content, when there are two.
    pub itl: Option<Gaps>,
    /// Times of all events with content, where they are kept.
    pub events_ns: Option<Box<[i64]>>,
    /// Calls inside the request.
    pub spans: Option<Box<[Span]>>,
}

impl Row {
    /// A row of which nothing but its place in the schedule is known.
    pub fn due(due: Due) -> Self {
        Self {
            stream: due.stream,
            seq: due.seq,
            attempt: 0,
            row: due.row,
            target: 0,
            model: 0,
            session: None,
            turn: None,
            conn: 0,
            due_ns: due.due_ns,
            fired_ns: due.fired_ns,
            sent_ns: NO_TIME,
            connect_ns: NO_TIME,
            tls_ns: NO_TIME,
            first_byte_ns: NO_TIME,
            first_token_ns: NO_TIME,
            last_token_ns: NO_TIME,
            end_ns: NO_TIME,
            events: 0,
            tokens_in: None,
            tokens_out: None,
            tokens_cached: None,
            tokens_reasoning: None,
            server_queue_ns: NO_TIME,
            server_service_ns: NO_TIME,
            bytes_in: 0,
            bytes_out: 0,
            status: NO_STATUS,
            outcome: Outcome::Cancelled,
            error_id: None,
            reasoning_events: 0,
            first_output_ns: NO_TIME,
            itl: None,
            events_ns: None,
            spans: None,
        }
    }
    /// Whether there is a value that most rows have none of: connecting, counts of tokens, an error, a place among several.
    #[inline]
    #[allow(clippy::needless_bitwise_bool)] // all at once and not one after the other: for most rows the answer is no
    pub fn has_rare(&self) -> bool {
        let tokens = [self.tokens_in, self.tokens_out, self.tokens_cached, self.tokens_reasoning];
        let counted = tokens.iter().fold(self.error_id.is_some(), |any, count| any | count.is_some());
        let connected = (self.connect_ns != NO_TIME) | (self.tls_ns != NO_TIME);
        let said = (self.server_queue_ns != NO_TIME) | (self.server_service_ns != NO_TIME);
        counted
            | said
            | connected
            | (self.target | self.model | self.stream != 0)
            | self.session.is_some()
            | self.turn.is_some()
    }
}
