//! Why an exchange failed, and waits that end when their slot is told to give up.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::slot::{Abort, CANCELLED, Slot};
use crate::outcome::Outcome;
use crate::wire::WireError;

/// Why an exchange failed.
#[derive(Debug)]
pub struct Failure {
    pub outcome: Outcome,
    pub message: String,
    pub reach: Reach,
    /// The connection may carry other requests.
    pub keeps_connection: bool,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The connection had ended, or was told to take no more, before anything of it had left.
    Unsent,
    /// The server said that it did nothing about it.
    Refused,
    /// The connection ended by itself, without a word about it.
    Cut,
    /// The server may have acted on it: what came is its answer.
    Taken,
}

impl Failure {
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into(), reach: Reach::Taken, keeps_connection: false }
    }

    pub fn given_up(abort: Abort, late: &dyn Fn() -> String) -> Self {
        match abort {
            Abort::Timeout => Self::new(Outcome::Timeout, late()),
            Abort::Cancelled => Self::new(Outcome::Cancelled, CANCELLED),
        }
    }
}

/// The connection ended, or broke, by itself.
pub fn ended(message: impl Into<String>) -> Failure {
    Failure { reach: Reach::Cut, ..Failure::new(Outcome::Truncated, message) }
}

impl From<WireError> for Failure {
    fn from(e: WireError) -> Self {
        match e {
            WireError::Truncated(_) => ended(e.to_string()),
            _ => Self::new(Outcome::ProtocolError, e.to_string()),
        }
    }
}

/// A message that cannot be read.
impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(Outcome::ProtocolError, message)
    }
}

/// Await, unless the slot is told to give up.
pub async fn guard<F: Future>(slot: &Slot, future: F) -> Result<F::Output, Abort> {
    let mut future = pin!(future);
    poll_fn(|cx| match slot.abort.get() {
        Some(abort) => Poll::Ready(Err(abort)),
        None => future.as_mut().poll(cx).map(Ok),
    })
    .await
}

/// Keep a future's code out of the function that awaits it: the path of a request over HTTP/1.1 is paid for in instructions.
pub async fn apart<F: Future>(future: F) -> F::Output {
    #[inline(never)]
    fn poll<F: Future>(future: Pin<&mut F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        future.poll(cx)
    }
    let mut future = pin!(future);
    poll_fn(|cx| poll(future.as_mut(), cx)).await
}

/// Text that a peer may have written: bounded, and without control characters.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}
