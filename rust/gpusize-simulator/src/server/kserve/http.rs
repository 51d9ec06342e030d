//! The HTTP API.

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

use super::super::super::Fault;
use super::super::body::Answer;
use super::super::connection::Fate;
use super::super::routes::{MAX_BODY_BYTES, kind};
use super::super::state::Shared;
use super::error::{Code, Refused};
use super::{finish, http_body, inference, is_restricted, model, take};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";
/// Length of the JSON before the tensors.
const JSON_BYTES: &str = "inference-header-content-length";

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
enum Ask<'a> {
    Live,
    Ready,
    Server,
    ModelReady(&'a str, &'a str),
    Metadata(&'a str, &'a str),
    Config(&'a str, &'a str),
    /// All models, with an empty name.
    Stats(&'a str, &'a str),
    Index,
    Infer(&'a str, &'a str),
}

impl<'a> Ask<'a> {
    fn of_path(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_end_matches('/').split('/').skip(2).collect();
        let (parts, version) = match parts.as_slice() {
            ["models", name, "versions", version, rest @ ..] => ([&["models", name], rest].concat(), *version),
            _ => (parts, ""),
        };
        Some(match parts.as_slice() {
            [] => Self::Server,
            ["health", "live"] => Self::Live,
            ["health", "ready"] => Self::Ready,
            ["repository", "index"] => Self::Index,
            ["models", "stats"] => Self::Stats("", ""),
            ["models", name] => Self::Metadata(name, version),
            ["models", name, "ready"] => Self::ModelReady(name, version),
            ["models", name, "config"] => Self::Config(name, version),
            ["models", name, "stats"] => Self::Stats(name, version),
            ["models", name, "infer"] => Self::Infer(name, version),
            _ => return None,
        })
    }

    /// The API that it belongs to, for restrictions.
    fn api(&self) -> &'static str {
        match self {
            Self::Live | Self::Ready | Self::ModelReady(..) => "health",
            Self::Server | Self::Metadata(..) => "metadata",
            Self::Config(..) => "model-config",
            Self::Stats(..) => "statistics",
            Self::Index => "model-repository",
            Self::Infer(..) => "inference",
        }
    }

    fn method(&self) -> Method {
        if matches!(self, Self::Infer(..) | Self::Index) { Method::POST } else { Method::GET }
    }
}

/// Answer one request under `/v2`.
pub(crate) async fn serve(shared: Rc<Shared>, fate: Rc<Fate>, request: Request<Incoming>) -> Response<Answer> {
    let path = request.uri().path().to_owned();
    let Some(ask) = Ask::of_path(&path) else { return response(StatusCode::NOT_FOUND, TEXT, Bytes::new()) };
    if request.method() != ask.method() {
        return response(StatusCode::METHOD_NOT_ALLOWED, TEXT, Bytes::new());
    }
    let header = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes);
    if is_restricted(&shared.config.kserve, ask.api(), header) {
        let message = format!("This API is restricted, expecting header '{}'", shared.config.kserve.restricted_key);
        return response(StatusCode::FORBIDDEN, TEXT, Refused::invalid(message).to_json());
    }
    let config = &shared.config;
    match ask {
        Ask::Live | Ask::Ready => response(StatusCode::OK, TEXT, Bytes::new()),
        Ask::Server => said(Ok(model::server_metadata())),
        Ask::ModelReady(name, version) => match inference::find(&config.tensor_models, name, version) {
            Ok(_) => response(StatusCode::OK, TEXT, Bytes::new()),
            Err(_) => response(StatusCode::BAD_REQUEST, TEXT, Refused::invalid("Model version not ready").to_json()),
        },
        Ask::Metadata(name, version) => said(model::metadata(config, name, version)),
        Ask::Config(name, version) => said(model::config_json(config, name, version)),
        Ask::Stats(name, version) => said(model::statistics(&shared, name, version)),
        Ask::Index => said(Ok(model::repository_index(config).models)),
        Ask::Infer(name, version) => infer(&shared, &fate, request, name, version).await,
    }
}

fn said<T: Serialize>(answer: Result<T, Refused>) -> Response<Answer> {
    let text = answer.and_then(|answer| {
        serde_json::to_string(&answer).map_err(|error| Refused::new(Code::Internal, error.to_string()))
    });
    match text {
        Ok(text) => response(StatusCode::OK, JSON, text),
        Err(refused) => response(refused.status(), JSON, refused.to_json()),
    }
}

async fn infer(
    shared: &Rc<Shared>,
    fate: &Fate,
    request: Request<Incoming>,
    name: &str,
    version: &str,
) -> Response<Answer> {
    match answer(shared, request, name, version).await {
        Ok((body, json_bytes, fault)) => {
            shared.metrics.borrow_mut().note_answer(kind(fault));
            let content_type = if json_bytes.is_some() { "application/octet-stream" } else { JSON };
            let mut response = Response::new(Answer::whole(body, fault, fate));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            if let Some(json_bytes) = json_bytes {
                response.headers_mut().insert(JSON_BYTES, HeaderValue::from(json_bytes));
            }
            response
        }
        Err(refused) => {
            shared.metrics.borrow_mut().note_answer(refused.kind());
            // Of a model that does not exist Triton says so in JSON that it calls text.
            let content_type = if refused.code == Code::NotFound { TEXT } else { JSON };
            response(refused.status(), content_type, refused.to_json())
        }
    }
}

type Inferred = (Bytes, Option<usize>, Option<Fault>);

async fn answer(
    shared: &Rc<Shared>,
    request: Request<Incoming>,
    name: &str,
    version: &str,
) -> Result<Inferred, Refused> {
    let json_bytes = json_length(request.headers())?;
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
    let body = body.map_err(|error| Refused::invalid(format!("the body could not be read: {error}")))?.to_bytes();
    let models = &shared.config.tensor_models;
    let model = &models[inference::find(models, name, version)?];
    inference::refuse_decoupled(model, "HTTP end point")?;
    let mut body = http_body::read(models, name, version, &body, json_bytes)?;
    let taken = take(shared, &body.message, std::mem::take(&mut body.raw));
    shared.thaw().await;
    let mut taken = taken?;
    let response = finish(shared, &mut taken).await?;
    let (bytes, json_bytes) = body.write(model, &response)?;
    Ok((bytes, json_bytes, taken.fault))
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Refused> {
    let Some(value) = headers.get(JSON_BYTES) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| Refused::invalid("Unable to parse Inference-Header-Content-Length"))
}

fn response(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(Some(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_with_and_without_a_version() {
        for (path, expected) in [
            ("/v2", Some(Ask::Server)),
            ("/v2/", Some(Ask::Server)),
            ("/v2/models/a", Some(Ask::Metadata("a", ""))),
            ("/v2/models/a/versions/1", Some(Ask::Metadata("a", "1"))),
            ("/v2/models/a/versions/1/infer", Some(Ask::Infer("a", "1"))),
            ("/v2/models/stats", Some(Ask::Stats("", ""))),
            ("/v2/models/a/stats", Some(Ask::Stats("a", ""))),
            ("/v2/models/a/load", None),
            ("/v2/health", None),
        ] {
            assert_eq!(Ask::of_path(path), expected, "{path}");
        }
    }
}
