//! Rows of `stamps`, as Arrow columns. The workload's name is added by whoever knows it.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

/// One source's word on when a moment was.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Of the object.
    pub kind: &'a str,
    /// Of the object.
    pub namespace: Option<&'a str>,
    /// Of the object.
    pub name: &'a str,
    /// Of the object.
    pub uid: &'a str,
    /// Of which part of it.
    pub part: Option<&'a str>,
    /// Which moment.
    pub moment: &'a str,
    /// When, ns since 1970.
    pub at_ns: i64,
    /// The true time is less than so much later.
    pub resolution_ns: i64,
    /// Who says so.
    pub source: &'a str,
    /// By whose clock.
    pub clock: &'static str,
    /// When it reached us, by ours.
    pub received_ns: i64,
    /// Of the condition or Event.
    pub reason: Option<&'a str>,
    /// Of the condition or Event.
    pub message: Option<&'a str>,
    /// Whether it was seen as it happened.
    pub reported: bool,
}

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = |name, kind: &DataType| Field::new(name, kind.clone(), true);
    let (text, number) = (DataType::Utf8, DataType::Int64);
    Arc::new(Schema::new(vec![
        field("kind", &text),
        field("namespace", &text),
        field("name", &text),
        field("uid", &text),
        field("part", &text),
        field("moment", &text),
        field("at_ns", &number),
        field("resolution_ns", &number),
        field("source", &text),
        field("clock", &text),
        field("received_ns", &number),
        field("reason", &text),
        field("message", &text),
        field("reported", &DataType::Boolean),
    ]))
});

/// Rows until they are taken.
#[derive(Debug, Default)]
pub struct Rows {
    count: usize,
    kind: StringBuilder,
    namespace: StringBuilder,
    name: StringBuilder,
    uid: StringBuilder,
    part: StringBuilder,
    moment: StringBuilder,
    at_ns: Int64Builder,
    resolution_ns: Int64Builder,
    source: StringBuilder,
    clock: StringBuilder,
    received_ns: Int64Builder,
    reason: StringBuilder,
    message: StringBuilder,
    reported: BooleanBuilder,
}

impl Rows {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Add one.
    pub fn push(&mut self, row: &Row<'_>) {
        self.count += 1;
        self.kind.append_value(row.kind);
        self.namespace.append_option(row.namespace);
        self.name.append_value(row.name);
        self.uid.append_value(row.uid);
        self.part.append_option(row.part);
        self.moment.append_value(row.moment);
        self.at_ns.append_value(row.at_ns);
        self.resolution_ns.append_value(row.resolution_ns);
        self.source.append_value(row.source);
        self.clock.append_value(row.clock);
        self.received_ns.append_value(row.received_ns);
        self.reason.append_option(row.reason);
        self.message.append_option(row.message);
        self.reported.append_value(row.reported);
    }

    /// All of them, in the order in which they came; none are left.
    pub fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let mut rows = std::mem::take(self);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.kind.finish()),
            Arc::new(rows.namespace.finish()),
            Arc::new(rows.name.finish()),
            Arc::new(rows.uid.finish()),
            Arc::new(rows.part.finish()),
            Arc::new(rows.moment.finish()),
            Arc::new(rows.at_ns.finish()),
            Arc::new(rows.resolution_ns.finish()),
            Arc::new(rows.source.finish()),
            Arc::new(rows.clock.finish()),
            Arc::new(rows.received_ns.finish()),
            Arc::new(rows.reason.finish()),
            Arc::new(rows.message.finish()),
            Arc::new(rows.reported.finish()),
        ];
        RecordBatch::try_new(SCHEMA.clone(), columns)
    }
}
