//! Compressed fields of HTTP/2 (RFC 7541).

mod decoder;
mod encoder;
mod fields;
mod huffman;
mod integer;
mod tables;

pub use decoder::{Broken, Decoder};
pub use encoder::{Encoder, passing};
pub use fields::Fields;

/// What one entry takes of a table beside its bytes (section 4.1).
const OVERHEAD: usize = 32;
/// A table's size until somebody says another.
const FIRST_TABLE_BYTES: usize = 4_096;
