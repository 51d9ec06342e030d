//! The calls inside requests, one row each (docs/reference/calls.md).

use std::sync::{Arc, LazyLock};

use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::columns::{Common, Row};
use crate::outcome::Outcome;
use gpusize_base::sparse::keep;

/// Whose clock a span's times are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Domain {
    /// This host's monotonic clock.
    Host = 0,
    /// The server's wall clock, mapped through this host's two clocks; how far the hosts' wall clocks differ is unknown.
    Server = 1,
}

/// One call inside a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// What kind of call: `llm`, `tool`, or the user's own word.
    pub kind: String,
    /// Who or what was called.
    pub name: String,
    /// When it began.
    pub start_ns: i64,
    /// When it ended, if that was said.
    pub end_ns: Option<i64>,
    /// When its first token came, if that was said.
    pub first_token_ns: Option<i64>,
    /// Prompt tokens.
    pub tokens_in: Option<u32>,
    /// Generated tokens.
    pub tokens_out: Option<u32>,
    /// How it ended.
    pub outcome: Outcome,
    /// Whose clock.
    pub domain: Domain,
}

/// Stream, number and attempt of a request, and the number of a call in it.
type Key = (u16, u64, u16, u32);

/// Calls with the keys of their requests.
#[derive(Debug, Default)]
pub struct SpanChunk {
    common: Common,
    keys: Vec<Key>,
    spans: Vec<Span>,
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    use DataType::{Int64, UInt8, UInt16, UInt32, UInt64, Utf8};
    let field = |name: &str, kind: DataType, null: bool| Field::new(name, kind, null);
    Arc::new(Schema::new(vec![
        field("visit", UInt32, false),
        field("stream", UInt16, false),
        field("seq", UInt64, false),
        field("attempt", UInt16, false),
        field("call", UInt32, false),
        field("kind", Utf8, false),
        field("name", Utf8, false),
        field("start_ns", Int64, false),
        field("end_ns", Int64, true),
        field("first_token_ns", Int64, true),
        field("tokens_in", UInt32, true),
        field("tokens_out", UInt32, true),
        field("outcome", UInt8, false),
        field("domain", UInt8, false),
    ]))
});

/// The columns in order.
pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

impl SpanChunk {
    /// Without a call yet.
    pub fn new(common: Common) -> Self {
        Self { common, ..Self::default() }
    }

    /// Calls held.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no call.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Add the calls of one request, numbered in this order.
    pub fn push(&mut self, row: &Row, spans: Vec<Span>) {
        self.keys.extend((0..spans.len()).map(|call| (row.stream, row.seq, row.attempt, call as u32)));
        self.spans.extend(spans);
    }

    /// Keep the calls of requests whose number is a multiple of `n`.
    pub fn sample(&mut self, n: u64) {
        let marks: Vec<bool> = self.keys.iter().map(|key| key.1.is_multiple_of(n)).collect();
        keep(&mut self.spans, &marks);
        keep(&mut self.keys, &marks);
    }

    /// As an Arrow batch; columns that do not fit one another are an error, never rows that are missing.
    pub fn into_batch(self) -> Result<RecordBatch, ArrowError> {
        let Self { common, keys, spans } = self;
        let times = |of: fn(&Span) -> Option<i64>| -> ArrayRef {
            Arc::new(spans.iter().map(of).collect::<PrimitiveArray<Int64Type>>())
        };
        let counts = |of: fn(&Span) -> Option<u32>| -> ArrayRef {
            Arc::new(spans.iter().map(of).collect::<PrimitiveArray<UInt32Type>>())
        };
        let texts =
            |of: fn(&Span) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(spans.iter().map(of))) };
        let codes = |of: fn(&Span) -> u8| -> ArrayRef {
            Arc::new(PrimitiveArray::<UInt8Type>::from_iter_values(spans.iter().map(of)))
        };
        let n = spans.len();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(PrimitiveArray::<UInt32Type>::from_value(common.visit, n)),
            Arc::new(PrimitiveArray::<UInt16Type>::from_iter_values(keys.iter().map(|k| k.0))),
            Arc::new(PrimitiveArray::<UInt64Type>::from_iter_values(keys.iter().map(|k| k.1))),
            Arc::new(PrimitiveArray::<UInt16Type>::from_iter_values(keys.iter().map(|k| k.2))),
            Arc::new(PrimitiveArray::<UInt32Type>::from_iter_values(keys.iter().map(|k| k.3))),
            texts(|s| &s.kind),
            texts(|s| &s.name),
            times(|s| Some(s.start_ns)),
            times(|s| s.end_ns),
            times(|s| s.first_token_ns),
            counts(|s| s.tokens_in),
            counts(|s| s.tokens_out),
            codes(|s| s.outcome as u8),
            codes(|s| s.domain as u8),
        ];
        RecordBatch::try_new(schema(), columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Due;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;

    #[test]
    fn calls_that_cannot_become_a_batch_are_an_error() {
        let mut chunk = SpanChunk::new(Common::default());
        chunk.keys.push((0, 1, 0, 0));
        assert!(chunk.into_batch().unwrap_err().to_string().contains("length"));
    }

    #[test]
    fn calls_carry_the_key_of_their_request() {
        let span = Span {
            kind: "llm".into(),
            name: "m".into(),
            start_ns: 5,
            end_ns: None,
            first_token_ns: None,
            tokens_in: Some(3),
            tokens_out: None,
            outcome: Outcome::Truncated,
            domain: Domain::Server,
        };
        let mut chunk = SpanChunk::new(Common { visit: 4, host: 0, worker: 1 });
        let row = Row { attempt: 1, ..Row::due(Due { seq: 9, stream: 2, ..Due::default() }) };
        chunk.push(&row, vec![span.clone(), Span { end_ns: Some(8), outcome: Outcome::Ok, ..span }]);
        let batch = chunk.into_batch().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (2, schema().fields().len()));
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert_eq!(column("seq").as_primitive::<UInt64Type>().values(), &[9, 9]);
        assert_eq!(column("stream").as_primitive::<UInt16Type>().values(), &[2, 2]);
        assert_eq!(column("attempt").as_primitive::<UInt16Type>().values(), &[1, 1]);
        assert_eq!(column("call").as_primitive::<UInt32Type>().values(), &[0, 1]);
        assert_eq!(column("outcome").as_primitive::<UInt8Type>().values(), &[7, 0]);
        assert_eq!(column("domain").as_primitive::<UInt8Type>().values(), &[1, 1]);
        assert_eq!(column("name").as_string::<i32>().value(1), "m");
        assert!(column("end_ns").is_null(0) && column("end_ns").is_valid(1));
    }
}
