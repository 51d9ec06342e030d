//! Bodies of the HTTP API: JSON, with the tensors in it or behind it.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::super::{Datatype, TensorModel};
use super::error::{Code, Refused};
use super::inference::find;
use super::tensor;
use gpusize_kserve::messages::infer_parameter::ParameterChoice;
use gpusize_kserve::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use gpusize_kserve::messages::{InferParameter, ModelInferRequest, ModelInferResponse};

#[derive(Debug, Deserialize)]
struct Request {
    #[serde(default)]
    id: String,
    #[serde(default)]
    parameters: Map<String, Value>,
    inputs: Vec<Input>,
    #[serde(default)]
    outputs: Vec<Output>,
}

#[derive(Debug, Deserialize)]
struct Input {
    name: String,
    shape: Vec<i64>,
    datatype: String,
    #[serde(default)]
    parameters: Map<String, Value>,
    data: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Output {
    name: String,
    #[serde(default)]
    parameters: Map<String, Value>,
}

/// An answer, in the order of fields that Triton has.
#[derive(Debug, Serialize)]
struct Reply<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    model_name: &'a str,
    model_version: &'a str,
    outputs: Vec<Given<'a>>,
}

/// One tensor of it.
#[derive(Debug, Serialize)]
struct Given<'a> {
    name: &'a str,
    datatype: &'a str,
    shape: &'a [i64],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

/// A request as the protocol's message, and its tensors raw.
pub(super) struct Body {
    pub message: ModelInferRequest,
    pub raw: Vec<Bytes>,
    binary_by_default: bool,
    binary: Vec<(String, bool)>,
}

/// Read a request for `name`; `json_bytes` is the length of its JSON when there are tensors behind it.
pub(super) fn read(
    models: &[TensorModel],
    name: &str,
    version: &str,
    body: &Bytes,
    json_bytes: Option<usize>,
) -> Result<Body, Refused> {
    let model = &models[find(models, name, version)?];
    let split = json_bytes.unwrap_or(body.len());
    if split > body.len() {
        return Err(Refused::invalid(format!(
            "Inference-Header-Content-Length is {split}, and the body has {} bytes",
            body.len()
        )));
    }
    let request: Request = serde_json::from_slice(&body[..split]).map_err(|error| broken(&error))?;
    let mut tensors = body.slice(split..);
    let raw = request
        .inputs
        .iter()
        .map(|input| raw_input(model, input, &mut tensors))
        .collect::<Result<Vec<Bytes>, Refused>>()?;
    if !tensors.is_empty() {
        return Err(Refused::invalid(format!("unexpected additional input data for model '{name}'")));
    }
    let flag = |parameters: &Map<String, Value>, key: &str| parameters.get(key).and_then(Value::as_bool);
    Ok(Body {
        binary_by_default: flag(&request.parameters, "binary_data_output").unwrap_or(false),
        binary: request
            .outputs
            .iter()
            .filter_map(|output| Some((output.name.clone(), flag(&output.parameters, "binary_data")?)))
            .collect(),
        message: message(name, version, request),
        raw,
    })
}

fn broken(error: &serde_json::Error) -> Refused {
    if error.is_data() {
        return Refused::invalid(format!("failed to parse the request JSON: {error}"));
    }
    Refused::new(Code::Internal, format!("failed to parse the request JSON buffer: {error}"))
}

fn raw_input(model: &TensorModel, input: &Input, tensors: &mut Bytes) -> Result<Bytes, Refused> {
    if let Some(size) = input.parameters.get("binary_data_size") {
        let size = size.as_u64().map_or(usize::MAX, |size| size as usize);
        if size > tensors.len() {
            return Err(Refused::invalid(format!(
                "binary_data_size of input '{}' for model '{}' is more than the body holds",
                input.name, model.name
            )));
        }
        return Ok(tensors.split_to(size));
    }
    // A name that is unknown is refused with the other checks.
    let Some(spec) = model.inputs.iter().find(|spec| spec.name == input.name) else { return Ok(Bytes::new()) };
    let Some(data) = &input.data else {
        return Err(Refused::invalid(format!(
            "must specify 'data' field or 'binary_data_size' for input '{}'",
            input.name
        )));
    };
    tensor::raw_of_json(spec.datatype, data)
        .map_err(|problem| Refused::invalid(format!("Unable to parse 'data' of input '{}': {problem}", input.name)))
}

fn message(name: &str, version: &str, request: Request) -> ModelInferRequest {
    let input = |input: Input| InferInputTensor {
        name: input.name,
        datatype: input.datatype,
        shape: input.shape,
        ..InferInputTensor::default()
    };
    let output =
        |output: Output| InferRequestedOutputTensor { name: output.name, ..InferRequestedOutputTensor::default() };
    ModelInferRequest {
        model_name: name.to_owned(),
        model_version: version.to_owned(),
        id: request.id,
        parameters: request.parameters.into_iter().filter_map(|(key, value)| Some((key, parameter(&value)?))).collect(),
        inputs: request.inputs.into_iter().map(input).collect(),
        outputs: request.outputs.into_iter().map(output).collect(),
        raw_input_contents: Vec::new(),
    }
}

fn parameter(value: &Value) -> Option<InferParameter> {
    let choice = match value {
        Value::Bool(bit) => ParameterChoice::BoolParam(*bit),
        Value::String(text) => ParameterChoice::StringParam(text.clone()),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => ParameterChoice::Int64Param(whole),
            None => ParameterChoice::DoubleParam(number.as_f64()?),
        },
        _ => return None,
    };
    Some(InferParameter { parameter_choice: Some(choice) })
}

impl Body {
    fn is_binary(&self, output: &str) -> bool {
        self.binary.iter().find(|(name, _)| name == output).map_or(self.binary_by_default, |&(_, binary)| binary)
    }

    /// The answer's body, and the length of its JSON when there are tensors behind it.
    pub(super) fn write(
        &self,
        model: &TensorModel,
        response: &ModelInferResponse,
    ) -> Result<(Bytes, Option<usize>), Refused> {
        let mut outputs = Vec::new();
        let mut tensors = BytesMut::new();
        let mut any_binary = false;
        for (output, raw) in response.outputs.iter().zip(&response.raw_output_contents) {
            let is_binary = self.is_binary(&output.name);
            if is_binary {
                any_binary = true;
                tensors.extend_from_slice(raw);
            }
            outputs.push(Given {
                name: &output.name,
                datatype: &output.datatype,
                shape: &output.shape,
                parameters: is_binary.then(|| json!({"binary_data_size": raw.len()})),
                data: if is_binary { None } else { Some(data(model, &output.name, raw)?) },
            });
        }
        let answer = Reply {
            id: Some(response.id.as_str()).filter(|id| !id.is_empty()),
            model_name: &response.model_name,
            model_version: &response.model_version,
            outputs,
        };
        let json = serde_json::to_vec(&answer).map_err(|error| Refused::new(Code::Internal, error.to_string()))?;
        if !any_binary {
            return Ok((Bytes::from(json), None));
        }
        let json_bytes = json.len();
        let mut body = BytesMut::from(&json[..]);
        body.unsplit(tensors);
        Ok((body.freeze(), Some(json_bytes)))
    }
}

fn data(model: &TensorModel, output: &str, raw: &[u8]) -> Result<Value, Refused> {
    let datatype = model.outputs.iter().find(|spec| spec.name == output).map_or(Datatype::Bytes, |spec| spec.datatype);
    tensor::json_of_raw(datatype, raw).map(Value::from).ok_or_else(|| {
        let problem =
            format!("sending {} data via JSON is not supported. Please use the binary data format", datatype.name());
        Refused::invalid(format!("{problem} for output '{output}'"))
    })
}
