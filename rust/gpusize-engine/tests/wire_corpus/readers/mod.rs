//! The readers as a connection uses them, for messages in any pieces. The fuzz targets use these too.

pub mod grpc;
pub mod http1;
pub mod http2;
pub mod sse;
