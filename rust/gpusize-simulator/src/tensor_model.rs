//! Models that take and give tensors, as data: what a KServe server of the cluster serves.

use serde::{Deserialize, Serialize};

use super::SimError;
use super::config::in_range;

/// A model behind the KServe API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TensorModel {
    /// Name under which it is served; its version is 1.
    pub name: String,
    /// What it takes.
    pub inputs: Vec<TensorSpec>,
    /// What it gives.
    pub outputs: Vec<TensorSpec>,
    /// What it does with the elements.
    pub operation: Operation,
    /// Most items per execution; 0: tensors have no batch dimension and every request is an execution of its own.
    pub max_batch_size: u32,
    /// Whether waiting requests of the same shape are executed together, up to `max_batch_size` items.
    pub dynamic_batching: bool,
    /// Executions at once on each GPU.
    pub instances: u32,
    /// Cost of an execution, whatever it holds.
    pub base_s: f64,
    /// What each item of the batch adds; a request without a batch dimension is one item.
    pub per_item_s: f64,
    /// Time of an execution before its computing, which the instance is busy with too.
    pub input_s: f64,
    /// Time of an execution after its computing.
    pub output_s: f64,
    /// Replies to each request, made evenly through its computing; such a model is decoupled and serves streams only. Null: the usual one.
    pub decoupled_replies: Option<u32>,
    /// Most requests that may wait; more are refused. Null: no limit.
    pub max_queue_size: Option<u32>,
}

/// One tensor of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// The KServe name of its elements' type.
    pub datatype: Datatype,
    /// Its dimensions without the batch's; -1 for any size.
    pub shape: Vec<i64>,
}

/// Types of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Datatype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Bf16,
    Fp32,
    Fp64,
    Bytes,
}

/// What a model does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Each output is twice the input at the same place of the list.
    Double,
    /// Each output is the input at the same place of the list.
    Copy,
    /// Zeros of the outputs' shapes; a -1 in them is the size of the first input there, or 1.
    Zeros,
}

/// How the KServe server differs from an open one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KserveConfig {
    /// APIs that want a header: `health`, `metadata`, `inference`, `model-config`, `statistics`, `model-repository`.
    pub restricted: Vec<String>,
    /// The header's name over HTTP; over gRPC it has `triton-grpc-protocol-` in front.
    pub restricted_key: String,
    /// The header's value that opens them.
    pub restricted_value: String,
}

impl Datatype {
    /// Bytes of one element; none where elements differ in length.
    pub fn element_bytes(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Bf16 => "BF16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bytes => "BYTES",
        }
    }

    /// Its name in a model's configuration.
    pub fn config_name(self) -> String {
        if self == Self::Bytes { "TYPE_STRING".to_owned() } else { format!("TYPE_{}", self.name()) }
    }
}

impl Default for TensorModel {
    fn default() -> Self {
        let tensor = |name: &str| TensorSpec { name: name.to_owned(), datatype: Datatype::Fp32, shape: vec![-1] };
        Self {
            name: "double".to_owned(),
            inputs: vec![tensor("INPUT")],
            outputs: vec![tensor("OUTPUT")],
            operation: Operation::Double,
            max_batch_size: 8,
            dynamic_batching: true,
            instances: 1,
            base_s: 0.004,
            per_item_s: 0.000_5,
            input_s: 0.000_02,
            output_s: 0.000_02,
            decoupled_replies: None,
            max_queue_size: None,
        }
    }
}

impl TensorModel {
    /// The two that a cluster serves when it is told of none: one that doubles numbers, one that gives texts back.
    pub(super) fn defaults() -> Vec<Self> {
        let tensor = |name: &str| TensorSpec { name: name.to_owned(), datatype: Datatype::Bytes, shape: vec![-1] };
        let identity = Self {
            name: "identity".to_owned(),
            inputs: vec![tensor("INPUT")],
            outputs: vec![tensor("OUTPUT")],
            operation: Operation::Copy,
            ..Self::default()
        };
        vec![Self::default(), identity]
    }

    /// Dimensions of a tensor as the protocol shows them: with -1 for the batch where there is one.
    pub fn shown_shape(&self, tensor: &TensorSpec) -> Vec<i64> {
        let batch = (self.max_batch_size > 0).then_some(-1);
        batch.into_iter().chain(tensor.shape.iter().copied()).collect()
    }

    /// Whether several requests can be executed together.
    pub fn batches(&self) -> bool {
        self.dynamic_batching && self.max_batch_size > 0
    }

    pub(super) fn validate(&self, place: &str) -> Result<(), SimError> {
        let field = |name: &str| format!("{place}.{name}");
        if self.name.is_empty() || self.name.contains(['/', ' ', '"', '\\']) {
            return Err(SimError::value(&field("name"), "must be a word without slashes, blanks and quotes"));
        }
        for (list, name) in [(&self.inputs, "inputs"), (&self.outputs, "outputs")] {
            if list.is_empty() {
                return Err(SimError::value(&field(name), "must not be empty"));
            }
            if list.iter().any(|tensor| tensor.shape.iter().any(|&size| size < -1 || size == 0)) {
                return Err(SimError::value(&field(name), "has a shape whose sizes are neither positive nor -1"));
            }
        }
        for (name, value, least, most) in [
            ("max_batch_size", self.max_batch_size, 0, 1_000_000),
            ("instances", self.instances, 1, 1024),
            ("decoupled_replies", self.decoupled_replies.unwrap_or(1), 1, 1_000_000),
            ("max_queue_size", self.max_queue_size.unwrap_or(1), 1, u32::MAX),
        ] {
            if !(least..=most).contains(&value) {
                return Err(SimError::value(&field(name), format!("must be between {least} and {most}, not {value}")));
            }
        }
        for (name, value) in [
            ("base_s", self.base_s),
            ("per_item_s", self.per_item_s),
            ("input_s", self.input_s),
            ("output_s", self.output_s),
        ] {
            in_range(&field(name), value, 0.0, 3600.0)?;
        }
        self.validate_operation(&field("operation"))
    }

    fn validate_operation(&self, field: &str) -> Result<(), SimError> {
        if self.operation == Operation::Zeros {
            return Ok(());
        }
        let pairs_up = self.inputs.len() == self.outputs.len()
            && self.inputs.iter().zip(&self.outputs).all(|(input, output)| input.datatype == output.datatype);
        if !pairs_up {
            return Err(SimError::value(field, "needs an output of the same datatype for each input"));
        }
        let has_no_double =
            |datatype| matches!(datatype, Datatype::Bytes | Datatype::Bool | Datatype::Fp16 | Datatype::Bf16);
        if self.operation == Operation::Double && self.inputs.iter().any(|input| has_no_double(input.datatype)) {
            return Err(SimError::value(field, "cannot double BYTES, BOOL, FP16 or BF16"));
        }
        Ok(())
    }
}

impl KserveConfig {
    pub(super) fn validate(&self) -> Result<(), SimError> {
        const APIS: [&str; 6] = ["health", "metadata", "inference", "model-config", "statistics", "model-repository"];
        if let Some(other) = self.restricted.iter().find(|api| !APIS.contains(&api.as_str())) {
            return Err(SimError::value("kserve.restricted", format!("has {other}; there are {}", APIS.join(", "))));
        }
        let is_token = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !self.restricted.is_empty() && (self.restricted_key.is_empty() || !is_token(&self.restricted_key)) {
            return Err(SimError::value("kserve.restricted_key", "must be the name of a header"));
        }
        Ok(())
    }
}
