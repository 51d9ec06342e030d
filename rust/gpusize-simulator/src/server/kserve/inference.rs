//! One inference: what the request must be, and what its answer is.

use bytes::Bytes;

use super::super::super::{Operation, TensorModel};
use super::error::{Code, Refused};
use super::tensor;
use gpusize_kserve::messages::model_infer_response::InferOutputTensor;
use gpusize_kserve::messages::{ModelInferRequest, ModelInferResponse};

/// The only version of every model.
pub(super) const VERSION: &str = "1";

const BATCH_NOTE: &str = " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be \
                          prepended to each input shape. If you want to specify the full shape including the batch dim in your \
                          input dims config, try setting max_batch_size to zero. See the model configuration docs for more info \
                          on max_batch_size.";

/// A request that can be served.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Place of the model in the configuration.
    pub model: usize,
    /// Items of its batch.
    pub items: u32,
    id: String,
    shapes: Vec<Vec<i64>>,
    raw: Vec<Bytes>,
    /// Places of the outputs wanted.
    outputs: Vec<usize>,
    /// Whether a stream wants an empty reply behind the last.
    pub wants_final: bool,
}

/// The model of this name and version.
pub(crate) fn find(models: &[TensorModel], name: &str, version: &str) -> Result<usize, Refused> {
    let place = models.iter().position(|model| model.name == name && (version.is_empty() || version == VERSION));
    let known = models.iter().any(|model| model.name == name);
    place.ok_or_else(|| Refused::unknown_model(name, if known { version } else { "" }))
}

/// Check a request whose inputs are raw, against its model.
pub(crate) fn prepare(
    models: &[TensorModel],
    request: &ModelInferRequest,
    raw: Vec<Bytes>,
) -> Result<Prepared, Refused> {
    let place = find(models, &request.model_name, &request.model_version)?;
    let model = &models[place];
    let (shapes, raw) = in_model_order(model, request, raw)?;
    let items = check_shapes(model, request, &shapes)?;
    for ((spec, shape), raw) in model.inputs.iter().zip(&shapes).zip(&raw) {
        let elements = tensor::elements(shape).ok_or_else(|| {
            Refused::invalid(format!("invalid shape for input '{}' for model '{}'", spec.name, model.name))
        })?;
        tensor::check_length(spec, &model.name, elements, raw)
            .map_err(|problem| Refused::invalid(format!("{}{problem}", of_request(request))))?;
    }
    let outputs = wanted(model, request)?;
    let wants_final = request.parameters.get("triton_enable_empty_final_response").is_some_and(is_true);
    Ok(Prepared { model: place, items, id: request.id.clone(), shapes, raw, outputs, wants_final })
}

fn is_true(parameter: &gpusize_kserve::messages::InferParameter) -> bool {
    use gpusize_kserve::messages::infer_parameter::ParameterChoice;
    parameter.parameter_choice == Some(ParameterChoice::BoolParam(true))
}

fn of_request(request: &ModelInferRequest) -> String {
    let id = if request.id.is_empty() { "<id_unknown>" } else { &request.id };
    format!("[request id: {id}] ")
}

type Inputs = (Vec<Vec<i64>>, Vec<Bytes>);

fn in_model_order(model: &TensorModel, request: &ModelInferRequest, raw: Vec<Bytes>) -> Result<Inputs, Refused> {
    let name = &model.name;
    let mut found: Vec<Option<(Vec<i64>, Bytes)>> = vec![None; model.inputs.len()];
    for (input, raw) in request.inputs.iter().zip(raw) {
        let Some(place) = model.inputs.iter().position(|spec| spec.name == input.name) else {
            return Err(Refused::invalid(format!("unexpected inference input '{}' for model '{name}'", input.name)));
        };
        let expected = model.inputs[place].datatype.name();
        if input.datatype != expected {
            return Err(Refused::invalid(format!(
                "{}inference input '{}' data-type is '{}', but model '{name}' expects '{expected}'",
                of_request(request),
                input.name,
                input.datatype
            )));
        }
        if found[place].replace((input.shape.clone(), raw)).is_some() {
            return Err(Refused::invalid(format!("input '{}' already exists in request", input.name)));
        }
    }
    let missing: Vec<String> = model
        .inputs
        .iter()
        .zip(&found)
        .filter(|(_, found)| found.is_none())
        .map(|(spec, _)| format!("'{}'", spec.name))
        .collect();
    if !missing.is_empty() {
        let got: Vec<String> = request.inputs.iter().map(|input| format!("'{}'", input.name)).collect();
        return Err(Refused::invalid(format!(
            "{}expected {} inputs but got {} inputs for model '{name}'. Got input(s) [{}], but missing required input(s) [{}]. \
             Please provide all required input(s).",
            of_request(request),
            model.inputs.len(),
            got.len(),
            got.join(","),
            missing.join(",")
        )));
    }
    Ok(found.into_iter().flatten().unzip())
}

/// Items of the batch, when all shapes are those of the model.
fn check_shapes(model: &TensorModel, request: &ModelInferRequest, shapes: &[Vec<i64>]) -> Result<u32, Refused> {
    let has_batch = model.max_batch_size > 0;
    for (spec, shape) in model.inputs.iter().zip(shapes) {
        let expected = model.shown_shape(spec);
        let fits = |(&size, &expected): (&i64, &i64)| size >= 0 && (expected == -1 || size == expected);
        if shape.len() != expected.len() || !shape.iter().zip(&expected).all(fits) {
            return Err(Refused::invalid(format!(
                "{}unexpected shape for input '{}' for model '{}'. Expected {}, got {}.{}",
                of_request(request),
                spec.name,
                model.name,
                shown(&expected),
                shown(shape),
                if has_batch { BATCH_NOTE } else { "" }
            )));
        }
    }
    if !has_batch {
        return Ok(1);
    }
    let items = shapes[0][0];
    if shapes.iter().any(|shape| shape[0] != items) {
        return Err(Refused::invalid(format!(
            "{}input batch sizes do not agree for model '{}'",
            of_request(request),
            model.name
        )));
    }
    if !(1..=i64::from(model.max_batch_size)).contains(&items) {
        let (most, name) = (model.max_batch_size, &model.name);
        return Err(Refused::invalid(format!(
            "{}inference request batch-size must be <= {most} for '{name}'",
            of_request(request)
        )));
    }
    Ok(items as u32)
}

fn shown(shape: &[i64]) -> String {
    let sizes: Vec<String> = shape.iter().map(i64::to_string).collect();
    format!("[{}]", sizes.join(","))
}

fn wanted(model: &TensorModel, request: &ModelInferRequest) -> Result<Vec<usize>, Refused> {
    if request.outputs.is_empty() {
        return Ok((0..model.outputs.len()).collect());
    }
    let place =
        |name: &String| {
            model.outputs.iter().position(|spec| spec.name == *name).ok_or_else(|| {
                Refused::invalid(format!("unexpected inference output '{name}' for model '{}'", model.name))
            })
        };
    request.outputs.iter().map(|output| place(&output.name)).collect()
}

/// The inputs of a message as raw bytes, one per input: as they are, or from their typed lists.
pub(super) fn raw_inputs(models: &[TensorModel], request: &ModelInferRequest) -> Result<Vec<Bytes>, Refused> {
    let name = &request.model_name;
    let raw = &request.raw_input_contents;
    if !raw.is_empty() {
        if raw.len() != request.inputs.len() {
            return Err(Refused::invalid(format!(
                "expected {} raw input contents for model '{name}', got {}",
                request.inputs.len(),
                raw.len()
            )));
        }
        if let Some(input) = request.inputs.iter().find(|input| input.contents.is_some()) {
            return Err(Refused::invalid(format!(
                "contents field must not be specified when using raw_input_contents for '{}' for model '{name}'",
                input.name
            )));
        }
        return Ok(raw.clone());
    }
    let model = &models[find(models, name, &request.model_version)?];
    let of_input = |input: &gpusize_kserve::messages::model_infer_request::InferInputTensor| {
        let spec = model.inputs.iter().find(|spec| spec.name == input.name);
        match (spec, &input.contents) {
            (Some(spec), Some(contents)) => tensor::raw_of_contents(spec.datatype, contents).map_err(Refused::invalid),
            // A tensor without elements has no list; a name that is unknown is refused with the other checks.
            _ => Ok(Bytes::new()),
        }
    };
    request.inputs.iter().map(of_input).collect()
}

impl Prepared {
    /// What the shapes must agree in to be executed together: all but the batch.
    pub(crate) fn shape_key(&self, model: &TensorModel) -> Vec<i64> {
        let skip = usize::from(model.max_batch_size > 0);
        self.shapes.iter().flat_map(|shape| shape.iter().skip(skip).copied()).collect()
    }

    /// The answer, its tensors raw.
    pub(crate) fn response(&self, model: &TensorModel) -> ModelInferResponse {
        let mut response = ModelInferResponse {
            model_name: model.name.clone(),
            model_version: VERSION.to_owned(),
            id: self.id.clone(),
            ..ModelInferResponse::default()
        };
        for &place in &self.outputs {
            let spec = &model.outputs[place];
            let (shape, raw) = match model.operation {
                Operation::Copy => (self.shapes[place].clone(), self.raw[place].clone()),
                Operation::Double => (self.shapes[place].clone(), tensor::doubled(spec.datatype, &self.raw[place])),
                Operation::Zeros => self.zeros(model, place),
            };
            response.outputs.push(InferOutputTensor {
                name: spec.name.clone(),
                datatype: spec.datatype.name().to_owned(),
                shape,
                ..InferOutputTensor::default()
            });
            response.raw_output_contents.push(raw);
        }
        response
    }

    fn zeros(&self, model: &TensorModel, place: usize) -> (Vec<i64>, Bytes) {
        let spec = &model.outputs[place];
        let like = &self.shapes[0];
        let shown = model.shown_shape(spec);
        let shape: Vec<i64> = shown
            .iter()
            .enumerate()
            .map(|(axis, &size)| if size == -1 { like.get(axis).copied().unwrap_or(1) } else { size })
            .collect();
        // A text of no characters is the four bytes of its length.
        let bytes = tensor::elements(&shape).unwrap_or(0) * spec.datatype.element_bytes().unwrap_or(4);
        (shape, Bytes::from(vec![0; bytes]))
    }
}

/// A decoupled model serves streams only.
pub(super) fn refuse_decoupled(model: &TensorModel, what: &str) -> Result<(), Refused> {
    if model.decoupled_replies.is_none() {
        return Ok(());
    }
    let message = format!("{what} doesn't support models with decoupled transaction policy");
    Err(Refused::new(Code::Unimplemented, message))
}
