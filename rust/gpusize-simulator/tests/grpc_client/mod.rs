//! A gRPC client for the tests, on hyper's HTTP/2.
#![allow(dead_code)] // each test file uses its own part

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use gpusize_kserve::SERVICE;
use gpusize_simulator::SimServer;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::header::HeaderMap;
use hyper::rt::Executor;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet};

/// What became of a call.
#[derive(Debug, Default)]
pub struct Reply {
    pub http_status: u16,
    pub grpc_status: Option<i32>,
    pub grpc_message: Option<String>,
    pub messages: Vec<Bytes>,
    pub is_trailers_only: bool,
    pub is_broken: bool,
}

#[derive(Debug, Clone, Copy)]
struct Local;

impl<F: Future + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move { drop(future.await) });
    }
}

struct Outgoing(mpsc::UnboundedReceiver<Bytes>);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A call under way.
pub struct Call {
    runtime: Runtime,
    local: LocalSet,
    out: Option<mpsc::UnboundedSender<Bytes>>,
    response: Option<JoinHandle<Response<Incoming>>>,
    body: Option<Incoming>,
    held: BytesMut,
    reply: Reply,
}

impl Call {
    pub fn open(server: &SimServer, method: &str, metadata: &[(&str, &str)]) -> Self {
        Self::to(server, &format!("/{SERVICE}/{method}"), "application/grpc", metadata)
    }

    fn to(server: &SimServer, path: &str, content_type: &str, metadata: &[(&str, &str)]) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let local = LocalSet::new();
        let (out, outgoing) = mpsc::unbounded_channel();
        let mut request = Request::builder()
            .method("POST")
            .uri(format!("http://{}{path}", server.grpc_addr()))
            .header("content-type", content_type)
            .header("te", "trailers");
        for (name, value) in metadata {
            request = request.header(*name, *value);
        }
        let request = request.body(Outgoing(outgoing)).expect("a request");
        let address = server.grpc_addr();
        let response = local.spawn_local(async move {
            let stream = TcpStream::connect(address).await.expect("a connection");
            let (mut sender, connection) =
                http2::handshake::<_, _, Outgoing>(Local, TokioIo::new(stream)).await.expect("a handshake");
            tokio::task::spawn_local(async move { drop(connection.await) });
            sender.send_request(request).await.expect("a response")
        });
        Self {
            runtime,
            local,
            out: Some(out),
            response: Some(response),
            body: None,
            held: BytesMut::new(),
            reply: Reply::default(),
        }
    }

    pub fn send(&mut self, message: &impl Message) {
        self.send_bytes(&message.encode_to_vec());
    }

    pub fn send_bytes(&mut self, message: &[u8]) {
        let mut framed = BytesMut::from(&[0][..]);
        framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
        framed.extend_from_slice(message);
        self.out.as_ref().expect("open").send(framed.freeze()).expect("a call under way");
    }

    /// Wait for one more message.
    pub fn next_message(&mut self) -> Bytes {
        let seen = self.reply.messages.len();
        while self.reply.messages.len() == seen {
            assert!(self.step(), "the call ended: {:?}", self.reply);
        }
        self.reply.messages[seen].clone()
    }

    /// Say that nothing more is sent, and wait for the end.
    pub fn finish(mut self) -> Reply {
        self.out = None;
        while self.step() {}
        std::mem::take(&mut self.reply)
    }

    /// Read one more frame; whether there was one.
    fn step(&mut self) -> bool {
        if let Some(response) = self.response.take() {
            let response = self.local.block_on(&self.runtime, response).expect("a response");
            self.reply.http_status = response.status().as_u16();
            self.reply.is_trailers_only = response.headers().contains_key("grpc-status");
            self.note(&response.headers().clone());
            self.body = Some(response.into_body());
        }
        let body = self.body.as_mut().expect("a body");
        match self.local.block_on(&self.runtime, body.frame()) {
            None => false,
            Some(Err(_)) => {
                self.reply.is_broken = true;
                false
            }
            Some(Ok(frame)) => {
                match frame.into_data() {
                    Ok(data) => self.take_messages(&data),
                    Err(frame) => self.note(frame.trailers_ref().expect("trailers")),
                }
                true
            }
        }
    }

    fn take_messages(&mut self, data: &[u8]) {
        self.held.extend_from_slice(data);
        while let Some((prefix, rest)) = self.held.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
            if rest.len() < length {
                return;
            }
            self.held.advance(5);
            self.reply.messages.push(self.held.split_to(length).freeze());
        }
    }

    fn note(&mut self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().expect("text").to_owned());
        if let Some(status) = text("grpc-status") {
            self.reply.grpc_status = Some(status.parse().expect("a number"));
            self.reply.grpc_message = text("grpc-message");
        }
    }
}

pub fn unary(server: &SimServer, method: &str, metadata: &[(&str, &str)], message: &impl Message) -> Reply {
    unary_bytes(server, method, metadata, &message.encode_to_vec())
}

pub fn unary_bytes(server: &SimServer, method: &str, metadata: &[(&str, &str)], message: &[u8]) -> Reply {
    let mut call = Call::open(server, method, metadata);
    call.send_bytes(message);
    call.finish()
}

pub fn request(server: &SimServer, path: &str, content_type: &str, metadata: &[(&str, &str)], message: &[u8]) -> Reply {
    let mut call = Call::to(server, path, content_type, metadata);
    call.send_bytes(message);
    call.finish()
}
