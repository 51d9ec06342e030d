//! The tables of seconds and of histograms (docs/reference/records.md). Several rows of one key add up.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow_array::types::{Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::accounts::{Events, Key};
use super::histogram::bucket_at;
use super::tally::{METRICS, Tally};
use crate::outcome::Outcome;
use gpusize_base::arrays::full;

static SECONDS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let mut fields = vec![Field::new("second", DataType::UInt32, false), Field::new("stream", DataType::UInt16, false)];
    let names = ["due", "sent", "done"].into_iter().map(str::to_owned);
    let ended = Outcome::ALL.into_iter().map(|o| o.name().to_owned());
    let of_due = Outcome::ALL.into_iter().map(|o| format!("due_{}", o.name()));
    fields.extend(names.chain(ended).chain(of_due).map(|name| Field::new(name, DataType::UInt64, false)));
    Arc::new(Schema::new(fields))
});

static HISTOGRAMS: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("metric", DataType::Utf8, false),
        Field::new("second", DataType::UInt32, false),
        Field::new("stream", DataType::UInt16, false),
        Field::new("low_ns", DataType::Int64, false),
        Field::new("high_ns", DataType::Int64, false),
        Field::new("count", DataType::UInt64, false),
    ]))
});

/// Counts by the second of the event; those of due requests by the second in which they were due.
pub fn seconds(events: &BTreeMap<Key, Events>) -> Result<RecordBatch, ArrowError> {
    let counts = |of: &dyn Fn(&Events) -> u64| full::<UInt64Type>(events.values().map(of).collect());
    let mut columns: Vec<ArrayRef> = vec![
        full::<UInt32Type>(events.keys().map(|key| key.0).collect()),
        full::<UInt16Type>(events.keys().map(|key| key.1).collect()),
        counts(&|e| e.due),
        counts(&|e| e.sent),
        counts(&|e| e.ended.iter().sum()),
    ];
    columns.extend(Outcome::ALL.into_iter().map(|o| counts(&|e| e.ended[o as usize])));
    columns.extend(Outcome::ALL.into_iter().map(|o| counts(&|e| e.of_due[o as usize])));
    RecordBatch::try_new(SECONDS.clone(), columns)
}

/// The buckets of each time, by the second in which the requests were due.
pub fn histograms(due: &BTreeMap<Key, Tally>) -> Result<RecordBatch, ArrowError> {
    let mut names = Vec::new();
    let (mut seconds, mut streams) = (Vec::new(), Vec::new());
    let (mut lows, mut highs, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (metric, name) in METRICS.into_iter().enumerate() {
        for (key, tally) in due {
            for (place, count) in tally.times[metric].places() {
                let bucket = bucket_at(place, count);
                names.push(name);
                seconds.push(key.0);
                streams.push(key.1);
                lows.push(bucket.0 as i64);
                highs.push(bucket.1 as i64);
                counts.push(bucket.2);
            }
        }
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(names)),
        full::<UInt32Type>(seconds),
        full::<UInt16Type>(streams),
        full::<Int64Type>(lows),
        full::<Int64Type>(highs),
        full::<UInt64Type>(counts),
    ];
    RecordBatch::try_new(HISTOGRAMS.clone(), columns)
}
