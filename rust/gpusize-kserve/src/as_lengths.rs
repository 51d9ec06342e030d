//! Raw tensors in JSON: their lengths in bytes, as a reader's hint; a request's are handed over beside the JSON.

use bytes::Bytes;
use serde::de::{Deserializer, Error};
use serde::ser::Serializer;

/// The lengths.
pub fn serialize<S: Serializer>(list: &[Bytes], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(list.iter().map(Bytes::len))
}

/// Never: raw tensors have no JSON.
pub fn deserialize<'de, D: Deserializer<'de>>(_: D) -> Result<Vec<Bytes>, D::Error> {
    Err(D::Error::custom("raw tensors are handed over beside the JSON, not in it"))
}
