//! Refusals as Triton words and codes them.

use hyper::StatusCode;
use serde_json::json;

/// Why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub code: Code,
    pub message: String,
}

/// The kinds that there are here, with gRPC's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

impl Refused {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn unknown_model(name: &str, version: &str) -> Self {
        let version = if version.is_empty() { String::new() } else { format!(" version {version}") };
        Self::new(Code::NotFound, format!("Request for unknown model: '{name}'{version} is not found"))
    }

    /// The status that the HTTP API gives it.
    pub(crate) fn status(&self) -> StatusCode {
        match self.code {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What the statistics call it.
    pub(crate) fn kind(&self) -> &'static str {
        match self.code {
            Code::Internal => "failed",
            Code::Unavailable => "refused",
            _ => "invalid",
        }
    }

    pub(crate) fn to_json(&self) -> String {
        json!({ "error": self.message }).to_string()
    }
}
