//! Bytes in, events out: HTTP/1.1 responses, heads of HTTP/2, gRPC messages, server-sent events, and what an answer says.

pub mod body;
pub mod calls;
pub mod grpc;
pub mod http1;
pub mod http2;
pub mod interpret;
pub mod kserve;
pub mod lowat;
pub mod message;
pub mod nested;
pub mod places;
pub mod request;
pub mod sse;
pub mod times;
pub mod tls;
pub mod trace;

/// Why a response cannot be read. Each becomes an outcome of its request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes are not an HTTP/1.1 response.
    #[error("not an HTTP/1.1 response: {0}")]
    Protocol(String),
    /// The connection ended inside the response.
    #[error("the connection ended {0}")]
    Truncated(&'static str),
}
