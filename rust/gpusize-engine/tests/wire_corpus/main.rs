//! The corpora of the wire's readers: every message whole, byte by byte, cut in two everywhere, and in random pieces.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod cases;
mod grpc;
mod http1;
mod http2;
mod interpret;
mod readers;
mod sse;
