//! Lists of bytes in JSON: base64 texts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

/// Each as base64 with padding.
pub fn serialize<S: Serializer>(list: &[Bytes], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(list.iter().map(|bytes| STANDARD.encode(bytes)))
}

/// From base64 with padding.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Bytes>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.into_iter().map(|text| STANDARD.decode(text).map(Bytes::from).map_err(D::Error::custom)).collect()
}
