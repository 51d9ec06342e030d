//! The engine of gpusize: what is sent over the wire, and the records of it. No Python in it, nor anything that answers but the
//! null server.
//!
//! - [`spec`]: what Python hands over: targets, levels, ways to read answers, mixes of requests.
//! - [`wire`]: bytes in, events out: HTTP/1.1 responses, heads of HTTP/2, gRPC messages, server-sent events, TLS; places in
//!   JSON and conditions on them, calls inside an answer.
//! - [`engine`]: sessions, coordinator, workers, slots, connections.
//! - [`record`]: rows as columns, counts by the second, Parquet parts.
//! - [`outcome`]: how a request ended.
//! - [`null_server`]: answers every HTTP/1.1 request at once: what `gpusize doctor` measures the machine against.

pub mod engine;
pub mod null_server;
pub mod outcome;
pub mod record;
pub mod spec;
#[cfg(test)]
#[path = "../../gpusize-base/src/test_folder.rs"]
mod test_folder;
pub mod wire;
