//! Answers that say no, in the form of the `OpenAI` API.

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::json;

use super::super::Refusal;

/// An answer other than the one asked for.
#[derive(Debug)]
pub(super) struct ApiError {
    pub status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<&'static str>,
    code: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, code: None }
    }

    /// A request that is wrong in itself, at `param` if it can be said.
    pub(super) fn invalid(message: impl Into<String>, param: Option<&'static str>) -> Self {
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message) }
    }

    pub(super) fn json(error: &serde_json::Error) -> Self {
        Self::invalid(format!("the body is not the JSON that is expected: {error}"), None)
    }

    pub(super) fn failed_on_request() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "failed on request (fail_rate)")
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        let error = json!({"message": self.message, "type": self.kind, "param": self.param, "code": self.code});
        Bytes::from(json!({ "error": error }).to_string())
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::QueueFull => Self {
                code: Some("queue_full"),
                ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded_error", "the queue is full (queue_limit)")
            },
            Refusal::TooLong { tokens, limit } => Self {
                code: Some("context_length_exceeded"),
                ..Self::invalid(
                    format!("prompt and answer need {tokens} tokens, and the KV cache of a GPU has room for {limit}"),
                    None,
                )
            },
        }
    }
}
