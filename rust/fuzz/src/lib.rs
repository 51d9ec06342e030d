//! What holds for every input of the wire's readers. The fuzz targets look for one for which it does not.
//!
//! An input begins with five bytes that say how it is read; the rest is the message. So each message of a corpus is a seed.

mod grpc;
mod http1;
mod http2;
mod input;
mod sse;

#[path = "../../gpusize-engine/tests/wire_corpus/readers/mod.rs"]
mod readers;

pub use grpc::grpc;
pub use http1::http1;
pub use http2::http2;
pub use sse::sse;

/// Read the files named on the command line; a target without a fuzzer does that.
pub fn replay(property: impl Fn(&[u8])) {
    for path in std::env::args_os().skip(1) {
        match std::fs::read(&path) {
            Ok(input) => property(&input),
            Err(error) => panic!("{}: {error}", path.display()),
        }
        println!("{}: holds", path.display());
    }
}
