//! How a request ended.

use serde::{Deserialize, Serialize};

/// The outcome of one attempt; the number is what records hold (docs/reference/records.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Outcome {
    /// Answered as the API says a success looks.
    Ok = 0,
    /// A status outside the success range.
    HttpError = 1,
    /// A success status whose answer carries an error.
    ApiError = 2,
    /// Not finished within its bound.
    Timeout = 3,
    /// No connection.
    ConnectError = 4,
    /// No TLS session.
    TlsError = 5,
    /// The answer is not what the protocol allows.
    ProtocolError = 6,
    /// The answer ended before its end.
    Truncated = 7,
    /// The user stopped it.
    Cancelled = 8,
    /// Never sent: the queue was full.
    Shed = 9,
}

impl Outcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::HttpError,
        Self::ApiError,
        Self::Timeout,
        Self::ConnectError,
        Self::TlsError,
        Self::ProtocolError,
        Self::Truncated,
        Self::Cancelled,
        Self::Shed,
    ];

    /// The name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::HttpError => "http_error",
            Self::ApiError => "api_error",
            Self::Timeout => "timeout",
            Self::ConnectError => "connect_error",
            Self::TlsError => "tls_error",
            Self::ProtocolError => "protocol_error",
            Self::Truncated => "truncated",
            Self::Cancelled => "cancelled",
            Self::Shed => "shed",
        }
    }

    /// Whether it counts against the target. A user's own cancel does not, nor what we shed by rule: it was never sent, and
    /// is counted and shown as that.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Ok | Self::Cancelled | Self::Shed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree() {
        for (i, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, i);
            assert_eq!(serde_json::to_string(&outcome).unwrap(), format!("\"{}\"", outcome.name()));
        }
    }
}
