//! The messages of the KServe v2 protocol over gRPC, and their JSON.
//!
//! [`messages`] is written by the crate `codegen` from `proto/kserve.proto`. In JSON the fields have the names of the `.proto`,
//! 64-bit numbers are numbers, enums are their names, bytes are base64, and raw tensors are their lengths: they travel beside it.

pub mod as_base64;
pub mod as_lengths;
pub mod as_name;
mod json;
#[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
#[rustfmt::skip]
pub mod messages;

pub use json::{decode, encode, raw_outputs};

/// The gRPC service, as it stands in a method's path.
pub const SERVICE: &str = "inference.GRPCInferenceService";
