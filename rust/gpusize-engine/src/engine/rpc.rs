//! The replies of one gRPC call, cut out of a body and read as its framing says.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use super::failure::{Failure, plain};
use super::held::FREE;
use crate::outcome::Outcome;
use crate::spec::{Framing, TargetSpec, Transport};
use crate::wire::{grpc, kserve};

/// See the module.
#[derive(Debug)]
pub struct Replies {
    deframer: grpc::Deframer,
    framing: Framing,
    count: u64,
    /// Code and text of the call's end.
    status: Option<(u32, String)>,
    /// The first error that a reply carries.
    error: Option<String>,
}

impl Replies {
    /// For a target that speaks gRPC.
    pub fn new(target: &TargetSpec) -> Option<Self> {
        (target.transport == Transport::Grpc).then(|| Self {
            deframer: grpc::Deframer::new(target.max_body_bytes),
            framing: target.response.framing,
            count: 0,
            status: None,
            error: None,
        })
    }

    /// Forget the last call.
    pub fn reset(&mut self) {
        self.deframer.reset();
        (self.count, self.status, self.error) = (0, None, None);
    }

    /// Bytes of memory that an unfinished reply takes.
    pub fn held(&self) -> usize {
        self.deframer.held()
    }

    /// The call is over: a large reply's memory is given back.
    pub fn release(&mut self) {
        if self.deframer.held() > FREE {
            self.deframer = grpc::Deframer::new(self.deframer.max_bytes());
        }
    }

    /// The head of a successful answer; one that is all trailers carries the status.
    pub fn head(&mut self, fields: &HeaderMap) -> Result<(), Failure> {
        self.status = status_of_head(fields)?;
        Ok(())
    }

    /// Some body bytes; `content` is called for each reply that carries some.
    pub fn feed(&mut self, bytes: &[u8], content: &mut impl FnMut()) -> Result<(), Failure> {
        let Self { deframer, framing, count, error, .. } = self;
        deframer.feed(bytes, &mut |message| {
            *count += 1;
            let reply = match framing {
                Framing::Kserve => kserve::infer_response(message),
                Framing::KserveStream => kserve::stream_response(message),
                _ => Some(kserve::Reply { error: None, has_outputs: !message.is_empty() }),
            };
            let reply = reply.ok_or_else(|| "a reply that is not a protobuf message".to_owned())?;
            if reply.has_outputs {
                content();
            }
            if error.is_none() {
                *error = reply.error;
            }
            Ok(())
        })
    }

    /// What came after the last message.
    pub fn trailers(&mut self, fields: &HeaderMap) {
        self.status = grpc::status(fields).or(self.status.take());
    }

    /// How a call whose stream has ended ended, and the message if it failed.
    pub fn verdict(&mut self) -> (Outcome, Option<String>) {
        let failed = |outcome, message: String| (outcome, Some(message));
        match (self.status.take(), self.error.take()) {
            (None, _) => failed(Outcome::Truncated, "the answer ended without a grpc-status".to_owned()),
            (Some((code, text)), _) if code != 0 => failed(Outcome::ApiError, grpc::describe(code, &text)),
            (_, Some(error)) => failed(Outcome::ApiError, error),
            _ if !self.deframer.is_at_boundary() => {
                failed(Outcome::Truncated, "the answer ended inside a message".to_owned())
            }
            _ if self.framing == Framing::Kserve && self.count != 1 => {
                failed(Outcome::ProtocolError, format!("{} replies to one request", self.count))
            }
            _ => (Outcome::Ok, None),
        }
    }
}

/// The status in a successful answer's head, where the answer is all trailers.
pub fn status_of_head(fields: &HeaderMap) -> Result<Option<(u32, String)>, Failure> {
    let status = grpc::status(fields);
    let kind = fields.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if status.is_none() && !kind.starts_with(b"application/grpc") {
        let kind = plain(&String::from_utf8_lossy(&kind[..kind.len().min(100)]));
        return Err(Failure::new(Outcome::ProtocolError, format!("not a gRPC answer: its content type is '{kind}'")));
    }
    Ok(status)
}
