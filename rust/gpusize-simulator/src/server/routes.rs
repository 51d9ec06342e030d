//! From a request to whoever answers it.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::super::Fault;
use super::body::Answer;
use super::connection::Fate;
use super::error::ApiError;
use super::openai::{self, Api};
use super::state::{Shared, Submitted};
use super::ticket::Ticket;
use super::{admin, embeddings, kserve, report, responses, workflow};

pub(super) const MAX_BODY_BYTES: usize = 64 << 20;
const JSON: &str = "application/json";

/// An answer with its head and what the statistics call it.
pub(super) struct Reply {
    content_type: &'static str,
    answer: Answer,
    kind: &'static str,
}

impl Reply {
    pub(super) fn json(answer: Answer, fault: Option<Fault>) -> Self {
        Self { content_type: JSON, answer, kind: kind(fault) }
    }

    pub(super) fn event_stream(answer: Answer, fault: Option<Fault>) -> Self {
        Self { content_type: "text/event-stream; charset=utf-8", answer, kind: kind(fault) }
    }

    fn page(content_type: &'static str, text: impl Into<Bytes>) -> Response<Answer> {
        response(StatusCode::OK, content_type, Answer::Whole(Some(text.into())))
    }
}

pub(super) fn kind(fault: Option<Fault>) -> &'static str {
    match fault {
        None => "ok",
        Some(Fault::Fail) => "failed",
        Some(Fault::Reset) => "reset",
        Some(Fault::MalformedJson | Fault::MalformedFraming) => "malformed",
    }
}

/// The ticket of a request that the cluster took and that is not to fail.
pub(super) fn admitted(submitted: &Submitted) -> Result<Rc<Ticket>, ApiError> {
    match &submitted.ticket {
        Err(refusal) => Err(ApiError::from(*refusal)),
        Ok(_) if submitted.service.fault == Some(Fault::Fail) => Err(ApiError::failed_on_request()),
        Ok(ticket) => Ok(Rc::clone(ticket)),
    }
}

impl From<io::Error> for ApiError {
    fn from(error: io::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", error.to_string())
    }
}

/// Answer one request.
pub(super) async fn serve(
    shared: Rc<Shared>,
    fate: Rc<Fate>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    // The call that begins a stall is answered before it; within one, nothing is, on any route.
    let begins_stall = request.uri().path() == admin::STALL && !shared.is_frozen();
    let response = respond(&shared, fate, request).await;
    if !begins_stall {
        shared.thaw().await;
    }
    Ok(response)
}

async fn respond(shared: &Rc<Shared>, fate: Rc<Fate>, request: Request<Incoming>) -> Response<Answer> {
    let path = request.uri().path();
    if path == "/v2" || path.starts_with("/v2/") {
        return kserve::http::serve(Rc::clone(shared), fate, request).await;
    }
    let reply = match path {
        "/health" | "/metrics" | "/stats" | "/v1/models" => {
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return wrong_method("GET, HEAD");
            }
            return status_page(shared, path);
        }
        admin::REPLICAS | admin::STALL => return administer(shared, request).await,
        "/v1/chat/completions"
        | "/v1/completions"
        | "/v1/embeddings"
        | "/v1/responses"
        | "/chat"
        | "/generate"
        | "/generate/full" => {
            if request.method() != Method::POST {
                return wrong_method("POST");
            }
            work(shared, &fate, request).await
        }
        _ => Err(ApiError::new(StatusCode::NOT_FOUND, "not_found_error", format!("there is no {path} here"))),
    };
    match reply {
        Ok(reply) => {
            shared.metrics.borrow_mut().note_answer(reply.kind);
            response(StatusCode::OK, reply.content_type, reply.answer)
        }
        Err(error) => {
            shared.metrics.borrow_mut().note_answer(match error.status {
                StatusCode::INTERNAL_SERVER_ERROR => "failed",
                StatusCode::SERVICE_UNAVAILABLE => "refused",
                _ => "invalid",
            });
            failure(&error)
        }
    }
}

/// The answers to an administrator, which are no requests of the load and are not counted as such.
async fn administer(shared: &Rc<Shared>, request: Request<Incoming>) -> Response<Answer> {
    let is_stall = request.uri().path() == admin::STALL;
    let reads = !is_stall && matches!(*request.method(), Method::GET | Method::HEAD);
    if request.method() != Method::POST && !reads {
        return wrong_method(if is_stall { "POST" } else { "GET, HEAD, POST" });
    }
    let answer = if is_stall { admin::stall(shared, request).await } else { admin::replicas(shared, request).await };
    match answer {
        Ok(answer) => Reply::page(JSON, answer.to_string()),
        Err(error) => failure(&error),
    }
}

async fn work(shared: &Rc<Shared>, fate: &Rc<Fate>, request: Request<Incoming>) -> Result<Reply, ApiError> {
    let path = request.uri().path().to_owned();
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("the body is longer than {MAX_BODY_BYTES} bytes");
            return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message);
        }
        ApiError::invalid(format!("the body could not be read: {error}"), None)
    })?;
    let body = body.to_bytes();
    match path.as_str() {
        "/v1/chat/completions" => openai::answer(shared, fate, Api::Chat, &body).await,
        "/v1/completions" => openai::answer(shared, fate, Api::Completions, &body).await,
        "/v1/embeddings" => embeddings::answer(shared, fate, &body).await,
        "/v1/responses" => responses::answer(shared, fate, &body).await,
        "/chat" => openai::answer(shared, fate, Api::WholeChat, &body).await,
        "/generate" => workflow::generate(shared, fate, &body).await,
        _ => workflow::generate_full(shared, fate, &body).await,
    }
}

fn status_page(shared: &Shared, path: &str) -> Response<Answer> {
    match path {
        "/health" => Reply::page("text/plain; charset=utf-8", Bytes::new()),
        "/metrics" => Reply::page("text/plain; version=0.0.4; charset=utf-8", report::metrics_page(shared)),
        "/stats" => Reply::page(JSON, report::stats(shared).to_string()),
        _ => Reply::page(JSON, models(shared)),
    }
}

fn models(shared: &Shared) -> String {
    let config = &shared.config;
    let longest = u64::from(config.kv_blocks) * u64::from(config.kv_block_tokens);
    let model = json!({
        "id": config.model,
        "object": "model",
        "created": shared.wall_s(0) as u64,
        "owned_by": "gpusize",
        "max_model_len": longest,
    });
    json!({"object": "list", "data": [model]}).to_string()
}

fn wrong_method(allowed: &'static str) -> Response<Answer> {
    let message = format!("only {allowed} is served here");
    let mut response = failure(&ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn failure(error: &ApiError) -> Response<Answer> {
    response(error.status, JSON, Answer::Whole(Some(error.to_bytes())))
}

fn response(status: StatusCode, content_type: &'static str, answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
