//! One gRPC call outside every level, by the h2 crate: the control plane asks a server what it serves.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture};

use super::context::Endpoint;
use super::failure::{self, Failure, plain};
use super::io::Io;
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

/// Why there is no reply.
enum Broken {
    Http2(h2::Error),
    Ended,
    Answer(Failure),
}

impl From<h2::Error> for Broken {
    fn from(e: h2::Error) -> Self {
        Self::Http2(e)
    }
}

impl Broken {
    fn failure(self, is_http1: bool) -> Failure {
        match self {
            Self::Answer(failure) => failure,
            _ if is_http1 => Failure::new(Outcome::ProtocolError, "the server answered in HTTP/1.1, not HTTP/2"),
            Self::Ended => failure::ended("the server closed the connection"),
            Self::Http2(e) => Failure::new(Outcome::ProtocolError, plain(&format!("the connection broke: {e}"))),
        }
    }
}

async fn call(target: &TargetSpec, endpoint: Endpoint, body: Bytes) -> std::result::Result<Reply, Failure> {
    let (stream, _) = Stream::connect(&endpoint.name, endpoint.tls.as_ref(), &Sources::default(), sleep_until)
        .await
        .map_err(|refused| Failure::new(refused.outcome, refused.message))?;
    let Some(head) = endpoint.heads.first() else {
        return Err(Failure::new(Outcome::ProtocolError, "no head for the request"));
    };
    let is_http1 = Rc::<Cell<bool>>::default();
    let broken = |e: h2::Error| Broken::Http2(e).failure(is_http1.get());
    let mut builder = Builder::new();
    builder.max_header_list_size(u32::try_from(target.max_header_bytes).unwrap_or(u32::MAX)).enable_push(false);
    let (mut send, connection) = builder.handshake(Io::new(stream, is_http1.clone())).await.map_err(broken)?;
    let (response, mut upload) = send.send_request(head.request(body.len()), body.is_empty()).map_err(broken)?;
    if !body.is_empty() {
        upload.send_data(body, true).map_err(broken)?;
    }
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
    result.map_err(|e| e.failure(is_http1.get()))
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
