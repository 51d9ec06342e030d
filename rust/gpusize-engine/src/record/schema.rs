//! The columns of a record, schema version 3 (docs/reference/records.md).

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

/// Version of the columns below; raised when a column is added.
pub const VERSION: u32 = 3;

/// Number of columns of version 1. The later ones are left out of a part in which no row has a value for them.
pub const PLAIN_COLUMNS: usize = 31;

/// Number of columns of version 2; those of version 3 are left out likewise.
pub const STREAM_COLUMNS: usize = 38;

/// The first column of version 3.
const SERVER_QUEUE: &str = "server_queue_ns";

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    use DataType::{Int64, UInt8, UInt16, UInt32, UInt64};
    let field = |name: &str, kind: &DataType, null: bool| Field::new(name, kind.clone(), null);
    let fields = vec![
        field("visit", &UInt32, false),
        field("stream", &UInt16, false),
        field("seq", &UInt64, false),
        field("attempt", &UInt16, false),
        field("row", &UInt32, false),
        field("target", &UInt16, false),
        field("model", &UInt16, false),
        field("session", &UInt64, true),
        field("turn", &UInt16, true),
        field("host", &UInt16, false),
        field("worker", &UInt16, false),
        field("conn", &UInt32, false),
        field("due_ns", &Int64, false),
        field("fired_ns", &Int64, true),
        field("sent_ns", &Int64, true),
        field("connect_ns", &Int64, true),
        field("tls_ns", &Int64, true),
        field("first_byte_ns", &Int64, true),
        field("first_token_ns", &Int64, true),
        field("last_token_ns", &Int64, true),
        field("end_ns", &Int64, true),
        field("events", &UInt32, false),
        field("tokens_in", &UInt32, true),
        field("tokens_out", &UInt32, true),
        field("tokens_cached", &UInt32, true),
        field("tokens_reasoning", &UInt32, true),
        field("bytes_in", &UInt64, false),
        field("bytes_out", &UInt64, false),
        field("status", &UInt16, true),
        field("outcome", &UInt8, false),
        field("error_id", &UInt32, true),
        field("reasoning_events", &UInt32, false),
        field("first_output_ns", &Int64, true),
        field("itl_min_ns", &Int64, true),
        field("itl_mean_ns", &Int64, true),
        field("itl_p50_ns", &Int64, true),
        field("itl_p99_ns", &Int64, true),
        field("itl_max_ns", &Int64, true),
        field(SERVER_QUEUE, &Int64, true),
        field("server_service_ns", &Int64, true),
    ];
    Arc::new(Schema::new(fields))
});

static WITH_EVENTS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let mut fields: Vec<_> = SCHEMA.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("events_ns", DataType::List(item()), true)));
    Arc::new(Schema::new(fields))
});

/// What the list in `events_ns` holds.
pub fn item() -> FieldRef {
    Arc::new(Field::new("item", DataType::Int64, false))
}

/// The version whose columns these are.
pub fn version_of(columns: &Schema) -> u32 {
    match columns.fields().get(STREAM_COLUMNS) {
        Some(field) if field.name() == SERVER_QUEUE => VERSION,
        _ if columns.fields().len() > PLAIN_COLUMNS => 2,
        _ => 1,
    }
}

/// The places of a version's columns among all of `columns`; the times of events, where they are kept, come last.
pub fn places_of(version: u32, columns: &Schema) -> Vec<usize> {
    let count = columns.fields().len();
    match version {
        1 => (0..PLAIN_COLUMNS).collect(),
        2 => (0..STREAM_COLUMNS).chain(schema().fields().len()..count).collect(),
        _ => (0..count).collect(),
    }
}

/// The columns in order.
pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

/// The columns in order, with the times of all events as the last.
pub fn schema_with_events() -> SchemaRef {
    WITH_EVENTS.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_add_columns_at_the_end() {
        assert_eq!(schema().field(PLAIN_COLUMNS - 1).name(), "error_id");
        assert_eq!(schema().field(PLAIN_COLUMNS).name(), "reasoning_events");
        assert_eq!(schema().field(STREAM_COLUMNS).name(), SERVER_QUEUE);
        assert_eq!(schema_with_events().fields().len(), schema().fields().len() + 1);
        for (columns, count) in [(schema(), 0), (schema_with_events(), 1)] {
            for (version, own) in [(2, STREAM_COLUMNS), (3, schema().fields().len())] {
                let kept = columns.project(&places_of(version, &columns)).unwrap();
                assert_eq!((version_of(&kept), kept.fields().len()), (version, own + count));
                assert_eq!(kept.fields().last().unwrap().name() == "events_ns", count == 1);
            }
        }
        assert_eq!(version_of(&schema().project(&places_of(1, &schema())).unwrap()), 1);
    }
}
