//! The gRPC API, on hyper's HTTP/2.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::TcpStream;

use super::super::super::Fault;
use super::super::routes::kind;
use super::super::state::Shared;
use super::error::{Code, Refused};
use super::grpc_frames::{Replies, Unframer, framed, trailers};
use super::{finish, grpc_stream, inference, is_restricted, model, take};
use gpusize_kserve::SERVICE;
use gpusize_kserve::messages as m;

const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// A load generator has as many streams per connection as it likes.
const MAX_STREAMS: u32 = 1 << 20;
const CONTENT: HeaderValue = HeaderValue::from_static("application/grpc");

/// Runs hyper's tasks on the server's own thread.
#[derive(Debug, Clone, Copy)]
struct Local;

impl<F: Future + 'static> Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            // What a stream's task returns is of no interest to anybody.
            let _ = future.await;
        });
    }
}

/// Serve one connection until its client leaves.
pub(crate) fn accept(shared: &Rc<Shared>, stream: TcpStream) {
    // A stream that refuses is closed already.
    let _ = stream.set_nodelay(true);
    shared.metrics.borrow_mut().connections += 1;
    let shared = Rc::clone(shared);
    let service = service_fn(move |request| serve(Rc::clone(&shared), request));
    tokio::task::spawn_local(async move {
        // How idle connections end is their clients' affair.
        let _ = http2::Builder::new(Local)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_streams(MAX_STREAMS)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
}

async fn serve(shared: Rc<Shared>, request: Request<Incoming>) -> Result<Response<Replies>, Infallible> {
    let is_grpc =
        request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc {
        let mut response = Response::new(Replies::of([]));
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Ok(response);
    }
    let path = request.uri().path().to_owned();
    let method = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE)).unwrap_or_default();
    let outcome = call(&shared, method, request).await;
    shared.thaw().await;
    Ok(match outcome {
        Ok(replies) => {
            let mut response = Response::new(replies);
            response.headers_mut().insert(CONTENT_TYPE, CONTENT);
            response
        }
        Err(refused) => refusal(&refused),
    })
}

/// An answer that is nothing but its status.
fn refusal(refused: &Refused) -> Response<Replies> {
    let mut response = Response::new(Replies::of([]));
    *response.headers_mut() = trailers(Err(refused));
    response.headers_mut().insert(CONTENT_TYPE, CONTENT);
    response
}

fn api(method: &str) -> &'static str {
    match method {
        "/ServerLive" | "/ServerReady" | "/ModelReady" => "health",
        "/ServerMetadata" | "/ModelMetadata" => "metadata",
        "/ModelConfig" => "model-config",
        "/ModelStatistics" => "statistics",
        "/RepositoryIndex" => "model-repository",
        _ => "inference",
    }
}

async fn call(shared: &Rc<Shared>, method: &str, request: Request<Incoming>) -> Result<Replies, Refused> {
    let config = &shared.config;
    let headers = request.headers();
    let header = |name: &str| headers.get(format!("triton-grpc-protocol-{name}")).map(HeaderValue::as_bytes);
    if is_restricted(&config.kserve, api(method), header) {
        let key = &config.kserve.restricted_key;
        let message = format!("This protocol is restricted, expecting header 'triton-grpc-protocol-{key}'");
        return Err(Refused::new(Code::Unavailable, message));
    }
    if method == "/ModelStreamInfer" {
        return Ok(grpc_stream::serve(shared, request.into_body()));
    }
    let body = only_message(request.into_body()).await?;
    match method {
        "/ServerLive" => Ok(one(&m::ServerLiveResponse { live: true })),
        "/ServerReady" => Ok(one(&m::ServerReadyResponse { ready: true })),
        "/ServerMetadata" => Ok(one(&model::server_metadata())),
        "/ModelReady" => {
            let asked: m::ModelReadyRequest = parse(&body)?;
            let ready = inference::find(&config.tensor_models, &asked.name, &asked.version).is_ok();
            Ok(one(&m::ModelReadyResponse { ready }))
        }
        "/ModelMetadata" => {
            let asked: m::ModelMetadataRequest = parse(&body)?;
            Ok(one(&model::metadata(config, &asked.name, &asked.version)?))
        }
        "/ModelConfig" => {
            let asked: m::ModelConfigRequest = parse(&body)?;
            let config = model::config_message(config, &asked.name, &asked.version)?;
            Ok(one(&m::ModelConfigResponse { config: Some(config) }))
        }
        "/ModelStatistics" => {
            let asked: m::ModelStatisticsRequest = parse(&body)?;
            Ok(one(&model::statistics(shared, &asked.name, &asked.version)?))
        }
        "/RepositoryIndex" => Ok(one(&model::repository_index(config))),
        "/ModelInfer" => {
            let outcome = infer(shared, &body).await;
            let kind = outcome.as_ref().map_or_else(Refused::kind, |(_, fault)| kind(*fault));
            shared.metrics.borrow_mut().note_answer(kind);
            outcome.map(|(replies, _)| replies)
        }
        _ => Err(Refused::new(Code::Unimplemented, "")),
    }
}

async fn only_message(mut body: Incoming) -> Result<Bytes, Refused> {
    let mut unframer = Unframer::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refused::new(Code::Internal, error.to_string()))?;
        if let Some(data) = frame.data_ref() {
            unframer.push(data);
            if let Some(message) = unframer.next()? {
                return Ok(message);
            }
        }
    }
    Err(Refused::new(Code::Internal, "the request has no whole message"))
}

pub(super) fn parse<T: Message + Default>(body: &[u8]) -> Result<T, Refused> {
    T::decode(body).map_err(|error| Refused::new(Code::Internal, format!("the message cannot be read: {error}")))
}

fn one(message: &impl Message) -> Replies {
    Replies::of([Ok(Frame::data(framed(message))), Ok(Frame::trailers(trailers(Ok(()))))])
}

async fn infer(shared: &Rc<Shared>, body: &[u8]) -> Result<(Replies, Option<Fault>), Refused> {
    let request: m::ModelInferRequest = parse(body)?;
    let models = &shared.config.tensor_models;
    let place = inference::find(models, &request.model_name, &request.model_version)?;
    inference::refuse_decoupled(&models[place], "ModelInfer RPC")?;
    let raw = inference::raw_inputs(models, &request)?;
    let taken = take(shared, &request, raw);
    shared.thaw().await;
    let mut taken = taken?;
    let response = finish(shared, &mut taken).await?;
    Ok((Replies::of(frames(framed(&response), taken.fault)), taken.fault))
}

/// An answer with its fault: reset, or with a message that is broken in itself or in its frame.
fn frames(message: Bytes, fault: Option<Fault>) -> Vec<io::Result<Frame<Bytes>>> {
    let end = || Ok(Frame::trailers(trailers(Ok(()))));
    let half = message.slice(..message.len() / 2);
    match fault {
        Some(Fault::Reset) => vec![Ok(Frame::data(half)), Err(io::Error::other("reset on request"))],
        Some(Fault::MalformedFraming) => vec![Ok(Frame::data(half)), end()],
        Some(Fault::MalformedJson) => vec![Ok(Frame::data(Bytes::from_static(b"\0\0\0\0\x02\xff\xff"))), end()],
        _ => vec![Ok(Frame::data(message)), end()],
    }
}
