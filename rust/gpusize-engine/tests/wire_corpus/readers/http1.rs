//! One HTTP/1.1 response, read as a slot reads it.

use gpusize_engine::wire::WireError;
use gpusize_engine::wire::http1::{Content, Response};

/// Longest head that is taken.
pub const MAX_HEADER_BYTES: usize = 8_192;
/// Longest body that is taken.
pub const MAX_BODY_BYTES: u64 = 65_536;

/// A response that could be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    pub status: u16,
    pub keep_alive: bool,
    pub content: Content,
    pub body: Vec<u8>,
    /// Bytes that belong to the response and to interim ones before it.
    pub taken: usize,
}

/// Why one could not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Protocol,
    Truncated,
}

/// Read one response and then, with the same reader, the same again; the connection closes after the last piece.
pub fn read(pieces: &[&[u8]], head_request: bool) -> Result<Read, Broken> {
    let mut response = Response::new(head_request, MAX_HEADER_BYTES, MAX_BODY_BYTES);
    let first = once(&mut response, pieces);
    response.reset();
    assert_eq!(once(&mut response, pieces), first, "the same response again");
    first
}

fn once(response: &mut Response, pieces: &[&[u8]]) -> Result<Read, Broken> {
    let (mut held, mut body, mut taken) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        held.extend_from_slice(piece);
        while !response.done() {
            let n = response.feed(&held, &mut |bytes| body.extend_from_slice(bytes)).map_err(|e| kind(&e))?;
            assert!(n <= held.len() && body.len() as u64 <= MAX_BODY_BYTES, "more taken than allowed");
            held.drain(..n);
            taken += n;
            if n == 0 || held.is_empty() {
                break;
            }
        }
        if response.done() {
            break;
        }
        assert!(held.len() <= MAX_HEADER_BYTES, "{} bytes of a head are held", held.len());
    }
    if !response.done() {
        response.eof().map_err(|e| kind(&e))?;
    }
    let head = response.head().expect("a response that ended has a head");
    Ok(Read { status: head.status, keep_alive: head.keep_alive, content: head.content, body, taken })
}

fn kind(error: &WireError) -> Broken {
    match error {
        WireError::Protocol(_) => Broken::Protocol,
        WireError::Truncated(_) => Broken::Truncated,
        other => panic!("{other}"),
    }
}
