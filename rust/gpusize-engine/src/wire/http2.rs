//! HTTP/2 as a client speaks it (RFC 9113), without a socket: bytes in, what they say of which request out, and bytes to be
//! sent.

pub mod client;
mod frame;
pub mod head;
mod hpack;
mod output;

pub use client::{Client, Code, End, Fatal, Gone, Left, Request, Sink};
pub use head::Head;
pub use hpack::{Broken, Decoder, Fields};
