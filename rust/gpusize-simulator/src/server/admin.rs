//! `/admin/replicas` and `/admin/stall`: what an administrator asks of the cluster while it serves.

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::{ns, seconds};
use super::error::ApiError;
use super::state::Shared;

pub(super) const REPLICAS: &str = "/admin/replicas";
pub(super) const STALL: &str = "/admin/stall";

const MAX_BODY_BYTES: usize = 64 << 10;
const LONGEST_STALL_S: f64 = 3600.0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleRequest {
    replicas: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StallRequest {
    duration_s: f64,
}

/// Answer `GET` and `POST /admin/replicas`: how many replicas are asked for and ready, and how many there can be.
pub(super) async fn replicas(shared: &Rc<Shared>, request: Request<Incoming>) -> Result<Value, ApiError> {
    if request.method() == Method::POST {
        let ScaleRequest { replicas } = parse(request).await?;
        let most = shared.config.gpus;
        match u32::try_from(replicas) {
            Ok(replicas) if (1..=most).contains(&replicas) => shared.scale(replicas),
            _ => {
                let message = format!("replicas must be between 1 and {most}, the cluster's GPUs, not {replicas}");
                return Err(ApiError::invalid(message, Some("replicas")));
            }
        }
    }
    shared.catch_up(shared.model_ns(shared.now_ns()));
    let (desired, ready) = shared.replicas();
    Ok(json!({"desired": desired, "ready": ready, "gpus": shared.config.gpus}))
}

/// Answer `POST /admin/stall`. The stall begins with the answer, which is the last one until it ends.
pub(super) async fn stall(shared: &Rc<Shared>, request: Request<Incoming>) -> Result<Value, ApiError> {
    let StallRequest { duration_s } = parse(request).await?;
    if !(duration_s > 0.0 && duration_s <= LONGEST_STALL_S) {
        let message = format!("duration_s must be above 0 and at most {LONGEST_STALL_S}, not {duration_s}");
        return Err(ApiError::invalid(message, Some("duration_s")));
    }
    let begin_ns = shared.now_ns();
    let end_ns = shared.freeze(begin_ns, ns(duration_s));
    Ok(json!({"duration_s": seconds(end_ns - begin_ns), "end_s": seconds(end_ns), "end_wall_s": shared.wall_s(end_ns)}))
}

async fn parse<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, ApiError> {
    let body: Bytes = match Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Err(ApiError::invalid(format!("the body could not be read: {error}"), None)),
    };
    serde_json::from_slice(&body).map_err(|error| ApiError::json(&error))
}
