//! What is said of the server and its models.

use serde_json::{Value, json};

use super::super::super::{ClusterConfig, TensorModel, TensorSpec};
use super::super::state::Shared;
use super::error::Refused;
use super::inference::{VERSION, find};
use gpusize_kserve::messages as m;
use gpusize_kserve::messages::model_metadata_response::TensorMetadata;
use gpusize_kserve::messages::repository_index_response::ModelIndex;

/// The protocol's extensions that are served here.
const EXTENSIONS: [&str; 5] =
    ["model_repository", "model_configuration", "binary_tensor_data", "parameters", "statistics"];

pub(super) fn server_metadata() -> m::ServerMetadataResponse {
    m::ServerMetadataResponse {
        name: "gpusize-simulated".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.map(str::to_owned).to_vec(),
    }
}

pub(super) fn metadata(config: &ClusterConfig, name: &str, version: &str) -> Result<m::ModelMetadataResponse, Refused> {
    let model = &config.tensor_models[find(&config.tensor_models, name, version)?];
    let tensor = |spec: &TensorSpec| TensorMetadata {
        name: spec.name.clone(),
        datatype: spec.datatype.name().to_owned(),
        shape: model.shown_shape(spec),
    };
    Ok(m::ModelMetadataResponse {
        name: model.name.clone(),
        versions: vec![VERSION.to_owned()],
        platform: "simulated".to_owned(),
        inputs: model.inputs.iter().map(tensor).collect(),
        outputs: model.outputs.iter().map(tensor).collect(),
    })
}

pub(super) fn repository_index(config: &ClusterConfig) -> m::RepositoryIndexResponse {
    let entry = |model: &TensorModel| ModelIndex {
        name: model.name.clone(),
        version: VERSION.to_owned(),
        state: "READY".to_owned(),
        reason: String::new(),
    };
    m::RepositoryIndexResponse { models: config.tensor_models.iter().map(entry).collect() }
}

/// Statistics of one model, or of all when `name` is empty.
pub(super) fn statistics(shared: &Shared, name: &str, version: &str) -> Result<m::ModelStatisticsResponse, Refused> {
    let models = &shared.config.tensor_models;
    let tensors = shared.tensors.borrow();
    let places =
        if name.is_empty() { 0..models.len() } else { find(models, name, version).map(|place| place..place + 1)? };
    Ok(m::ModelStatisticsResponse {
        model_stats: places.map(|place| tensors.stats[place].message(&models[place])).collect(),
    })
}

/// The configuration as gRPC gives it.
pub(super) fn config_message(config: &ClusterConfig, name: &str, version: &str) -> Result<m::ModelConfig, Refused> {
    let model = &config.tensor_models[find(&config.tensor_models, name, version)?];
    let datatype = |spec: &TensorSpec| m::DataType::from_str_name(&spec.datatype.config_name()).map_or(0, i32::from);
    let input = |spec: &TensorSpec| m::ModelInput {
        name: spec.name.clone(),
        data_type: datatype(spec),
        dims: spec.shape.clone(),
        ..m::ModelInput::default()
    };
    let output = |spec: &TensorSpec| m::ModelOutput {
        name: spec.name.clone(),
        data_type: datatype(spec),
        dims: spec.shape.clone(),
    };
    Ok(m::ModelConfig {
        name: model.name.clone(),
        backend: "simulated".to_owned(),
        max_batch_size: model.max_batch_size as i32,
        input: model.inputs.iter().map(input).collect(),
        output: model.outputs.iter().map(output).collect(),
        instance_group: vec![m::ModelInstanceGroup {
            name: format!("{}_0", model.name),
            count: model.instances as i32,
            gpus: (0..config.gpus as i32).collect(),
            kind: m::model_instance_group::Kind::Gpu.into(),
        }],
        dynamic_batching: model.batches().then(m::ModelDynamicBatching::default),
        model_transaction_policy: Some(m::ModelTransactionPolicy { decoupled: model.decoupled_replies.is_some() }),
        ..m::ModelConfig::default()
    })
}

/// The configuration as HTTP gives it: the same, with the fields of Triton's JSON.
pub(super) fn config_json(config: &ClusterConfig, name: &str, version: &str) -> Result<Value, Refused> {
    let model = &config.tensor_models[find(&config.tensor_models, name, version)?];
    let input = |spec: &TensorSpec| {
        json!({
            "name": spec.name, "data_type": spec.datatype.config_name(), "format": "FORMAT_NONE", "dims": spec.shape,
            "is_shape_tensor": false, "allow_ragged_batch": false, "optional": false, "is_non_linear_format_io": false,
        })
    };
    let output = |spec: &TensorSpec| {
        json!({
            "name": spec.name, "data_type": spec.datatype.config_name(), "dims": spec.shape, "label_filename": "",
            "is_shape_tensor": false, "is_non_linear_format_io": false,
        })
    };
    let mut shown = json!({
        "name": model.name,
        "platform": "",
        "backend": "simulated",
        "runtime": "",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": model.max_batch_size,
        "input": model.inputs.iter().map(input).collect::<Vec<_>>(),
        "output": model.outputs.iter().map(output).collect::<Vec<_>>(),
        "batch_input": [],
        "batch_output": [],
        "instance_group": [{
            "name": format!("{}_0", model.name), "kind": "KIND_GPU", "count": model.instances,
            "gpus": (0..config.gpus).collect::<Vec<_>>(), "secondary_devices": [], "profile": [], "passive": false,
            "host_policy": "",
        }],
        "default_model_filename": "",
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {},
        "model_warmup": [],
        "model_transaction_policy": {"decoupled": model.decoupled_replies.is_some()},
    });
    if model.batches() {
        shown["dynamic_batching"] = json!({
            "preferred_batch_size": [model.max_batch_size], "max_queue_delay_microseconds": 0, "preserve_ordering": false,
            "priority_levels": 0, "default_priority_level": 0, "priority_queue_policy": {},
        });
    }
    Ok(shown)
}
