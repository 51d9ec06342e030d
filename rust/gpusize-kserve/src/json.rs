//! From JSON to a request's bytes and from a response's bytes to JSON, by the name of the method.

use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::messages::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
    ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest, ModelStatisticsResponse,
    ModelStreamInferResponse, RepositoryIndexRequest, RepositoryIndexResponse, ServerLiveRequest, ServerLiveResponse,
    ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
};
use gpusize_base::error::{Error, Result};

const METHODS: &str = "one of ServerLive, ServerReady, ServerMetadata, ModelReady, ModelMetadata, ModelConfig, \
                       ModelStatistics, RepositoryIndex, ModelInfer, ModelStreamInfer";

/// The bytes of a request.
///
/// `raw` are its `raw_input_contents`, in the order of its inputs; only the two methods that infer take any.
pub fn encode(method: &str, json: &str, raw: Vec<Bytes>) -> Result<Vec<u8>> {
    if method == "ModelInfer" || method == "ModelStreamInfer" {
        let mut request: ModelInferRequest = read(method, json)?;
        check_raw(&request, raw.len())?;
        request.raw_input_contents = raw;
        return Ok(request.encode_to_vec());
    }
    if !raw.is_empty() {
        return Err(Error::usage(format!("{method} takes no raw tensors"), method, "hand them to ModelInfer"));
    }
    match method {
        "ServerLive" => Ok(read::<ServerLiveRequest>(method, json)?.encode_to_vec()),
        "ServerReady" => Ok(read::<ServerReadyRequest>(method, json)?.encode_to_vec()),
        "ServerMetadata" => Ok(read::<ServerMetadataRequest>(method, json)?.encode_to_vec()),
        "ModelReady" => Ok(read::<ModelReadyRequest>(method, json)?.encode_to_vec()),
        "ModelMetadata" => Ok(read::<ModelMetadataRequest>(method, json)?.encode_to_vec()),
        "ModelConfig" => Ok(read::<ModelConfigRequest>(method, json)?.encode_to_vec()),
        "ModelStatistics" => Ok(read::<ModelStatisticsRequest>(method, json)?.encode_to_vec()),
        "RepositoryIndex" => Ok(read::<RepositoryIndexRequest>(method, json)?.encode_to_vec()),
        _ => Err(unknown(method)),
    }
}

/// The JSON of a response.
pub fn decode(method: &str, response: &[u8]) -> Result<String> {
    match method {
        "ServerLive" => show::<ServerLiveResponse>(method, response),
        "ServerReady" => show::<ServerReadyResponse>(method, response),
        "ServerMetadata" => show::<ServerMetadataResponse>(method, response),
        "ModelReady" => show::<ModelReadyResponse>(method, response),
        "ModelMetadata" => show::<ModelMetadataResponse>(method, response),
        "ModelConfig" => show::<ModelConfigResponse>(method, response),
        "ModelStatistics" => show::<ModelStatisticsResponse>(method, response),
        "RepositoryIndex" => show::<RepositoryIndexResponse>(method, response),
        "ModelInfer" => show::<ModelInferResponse>(method, response),
        "ModelStreamInfer" => show::<ModelStreamInferResponse>(method, response),
        _ => Err(unknown(method)),
    }
}

/// The raw tensors of a `ModelInferResponse`, in the order of its outputs.
pub fn raw_outputs(response: &[u8]) -> Result<Vec<Bytes>> {
    let message: ModelInferResponse = parse("ModelInfer", response)?;
    Ok(message.raw_output_contents)
}

fn check_raw(request: &ModelInferRequest, raw: usize) -> Result<()> {
    if raw == 0 {
        return Ok(());
    }
    if raw != request.inputs.len() {
        let what = format!("{raw} raw tensors for {} inputs", request.inputs.len());
        return Err(Error::usage(what, "raw", "hand over one per input, in their order"));
    }
    match request.inputs.iter().find(|input| input.contents.is_some()) {
        Some(input) => {
            let what = format!("the input {} has contents, and there are raw tensors", input.name);
            Err(Error::usage(what, "raw", "a request has the one or the other"))
        }
        None => Ok(()),
    }
}

fn unknown(method: &str) -> Error {
    Error::usage(format!("there is no method {method}"), "method", METHODS)
}

fn read<T: DeserializeOwned>(method: &str, json: &str) -> Result<T> {
    let todo = "use the field names of the protocol, as in {\"name\": \"a model\"}";
    serde_json::from_str(json).map_err(|error| Error::usage(format!("does not fit: {error}"), method, todo))
}

fn parse<T: Message + Default>(method: &str, response: &[u8]) -> Result<T> {
    T::decode(response).map_err(|error| {
        let todo = "check that the address is that of a KServe v2 server's gRPC port";
        Error::target(format!("the answer is no {method} response: {error}"), method, todo)
    })
}

fn show<T: Message + Default + Serialize>(method: &str, response: &[u8]) -> Result<String> {
    let message: T = parse(method, response)?;
    serde_json::to_string(&message)
        .map_err(|error| Error::usage(format!("has no JSON: {error}"), method, "report it as a fault of gpusize"))
}
