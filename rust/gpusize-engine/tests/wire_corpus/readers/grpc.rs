//! A gRPC body, cut into messages as it arrives.

use gpusize_engine::wire::grpc::Deframer;

/// Longest message that is taken.
pub const MAX_MESSAGE_BYTES: u64 = 4_096;

/// What was cut out of a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    pub messages: Vec<Vec<u8>>,
    /// Whether the body ended between two messages.
    pub whole: bool,
    pub error: Option<String>,
}

/// The messages of a body that comes in these pieces, up to the first that cannot be read.
pub fn cut(pieces: &[&[u8]]) -> Cut {
    let mut deframer = Deframer::new(MAX_MESSAGE_BYTES);
    let mut messages = Vec::new();
    let mut error = None;
    for piece in pieces {
        let fed = deframer.feed(piece, &mut |message| {
            assert!(message.len() as u64 <= MAX_MESSAGE_BYTES);
            messages.push(message.to_vec());
            Ok::<(), String>(())
        });
        if let Err(e) = fed {
            error = Some(e);
            break;
        }
    }
    Cut { messages, whole: deframer.is_at_boundary(), error }
}
