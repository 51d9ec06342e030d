//! The columns of a record, schema version 1 (docs/reference/records.md).

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of the columns below; raised when a column is added.
pub const VERSION: u32 = 1;

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
    ];
    Arc::new(Schema::new(fields))
});

/// The columns in order.
pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}
