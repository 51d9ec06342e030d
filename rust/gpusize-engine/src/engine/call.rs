//! One gRPC call outside every level: the control plane asks a server what it serves.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::ResponseFuture;

use super::context::Endpoint;
use super::download::Broken;
use super::failure::Failure;
use super::http2::{self, Seen, begin, greet};
use super::rpc::status_of_head;
use super::sources::Sources;
use super::stream::Stream;
use crate::outcome::Outcome;
use crate::spec::{TargetSpec, Transport};
use crate::wire::grpc;
use gpusize_base::error::{Error, Result};
use gpusize_load::pace::sleep_until;

/// What a call brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The gRPC status code, 0 for OK.
    pub code: u32,
    /// Its text.
    pub message: String,
    /// The reply's message; empty without one.
    pub body: Vec<u8>,
}

/// Call a unary method of the target's first address on a connection of its own and wait for the reply; a status other
/// than OK is a reply too. Blocks the thread, for `timeout` at most.
pub fn grpc_call(target: &TargetSpec, method: &str, message: &[u8], timeout: Duration) -> Result<Reply> {
    let target = TargetSpec { transport: Transport::Grpc, path: method.to_owned(), ..target.clone() };
    let endpoint = Endpoint::new(&target, None, &target.host, target.port, target.tls.as_ref())?;
    let place = format!("{}:{}{method}", target.host, target.port);
    let todo = "check the address, and that the server speaks gRPC there";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::environment(e.to_string(), "sockets", "raise the limit of open files"))?;
    let body = [&grpc::prefix(message.len())?, message].concat().into();
    match runtime.block_on(async { tokio::time::timeout(timeout, call(&target, endpoint, body)).await }) {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(failure)) => Err(Error::target(failure.message, place, todo)),
        Err(_) => Err(Error::target(format!("no reply within {} s", timeout.as_secs_f64()), place, todo)),
    }
}

async fn call(target: &TargetSpec, endpoint: Endpoint, body: Bytes) -> std::result::Result<Reply, Failure> {
    let (stream, _) = Stream::connect(&endpoint.name, endpoint.tls.as_ref(), &Sources::default(), sleep_until)
        .await
        .map_err(|refused| Failure::new(refused.outcome, refused.message))?;
    let Some(mut head) = endpoint.heads.into_iter().next() else {
        return Err(Failure::new(Outcome::ProtocolError, "no head for the request"));
    };
    let seen = Rc::<Seen>::default();
    let (mut send, connection) = greet(target, stream, None, seen.clone()).await?;
    let head = head.of(body.len());
    let response = begin(&mut send, head, body).map_err(|e| http2::failure(&e, target))?;
    let (mut connection, mut reply) = (pin!(connection), pin!(read(response, target)));
    let mut ended = false;
    let result = std::future::poll_fn(|cx| {
        ended = ended || connection.as_mut().poll(cx).is_ready();
        match reply.as_mut().poll(cx) {
            Poll::Pending if ended => Poll::Ready(Err(Broken::Ended)),
            other => other,
        }
    })
    .await;
    result.map_err(|e| e.failure(seen.speaks.get(), target))
}

async fn read(response: ResponseFuture, target: &TargetSpec) -> std::result::Result<Reply, Broken> {
    let (head, mut stream) = response.await?.into_parts();
    if !head.status.is_success() {
        let message = format!("HTTP status {} in place of a gRPC answer", head.status.as_u16());
        return Err(Broken::Answer(Failure::new(Outcome::HttpError, message)));
    }
    let early = status_of_head(&head.headers).map_err(Broken::Answer)?;
    let mut deframer = grpc::Deframer::new(target.max_body_bytes);
    let mut body = Vec::new();
    while let Some(bytes) = stream.data().await {
        let bytes = bytes?;
        stream.flow_control().release_capacity(bytes.len())?;
        let mut keep = |message: &[u8]| {
            body = message.to_vec();
            Ok::<(), Failure>(())
        };
        deframer.feed(&bytes, &mut keep).map_err(Broken::Answer)?;
    }
    let late = stream.trailers().await?.as_ref().and_then(grpc::status);
    let cut_off = || Broken::Answer(Failure::new(Outcome::Truncated, "the answer ended without a grpc-status"));
    let (code, message) = late.or(early).ok_or_else(cut_off)?;
    Ok(Reply { code, message, body })
}
