//! The cluster as a KServe server over gRPC, seen from hyper's HTTP/2 client.

mod grpc_client;
mod simulate_client;

use bytes::Bytes;
use gpusize_kserve::messages::infer_parameter::ParameterChoice;
use gpusize_kserve::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use gpusize_kserve::messages::{self as m, ModelInferRequest, ModelStreamInferResponse};
use gpusize_simulator::{ClusterConfig, Faults, KserveConfig, SimServer, TensorModel};
use grpc_client::{Call, unary};
use prost::Message;
use serde_json::json;
use simulate_client::{quick, start, stats};

fn request(model: &str, id: &str, numbers: &[f32]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: model.to_owned(),
        id: id.to_owned(),
        inputs: vec![InferInputTensor {
            name: "INPUT".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, numbers.len() as i64],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>().into()],
        ..ModelInferRequest::default()
    }
}

fn floats(raw: &Bytes) -> Vec<f32> {
    raw.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

fn ask<T: Message + Default>(server: &SimServer, method: &str, request: &impl Message) -> T {
    let reply = unary(server, method, &[], request);
    assert_eq!((reply.http_status, reply.grpc_status), (200, Some(0)), "{method}: {:?}", reply.grpc_message);
    assert_eq!(reply.messages.len(), 1);
    T::decode(&reply.messages[0][..]).expect("a response")
}

fn named(name: &str) -> m::ModelMetadataRequest {
    m::ModelMetadataRequest { name: name.to_owned(), ..m::ModelMetadataRequest::default() }
}

#[test]
fn the_server_and_its_models_are_described() {
    let server = start(quick());
    assert!(ask::<m::ServerLiveResponse>(&server, "ServerLive", &m::ServerLiveRequest {}).live);
    assert!(ask::<m::ServerReadyResponse>(&server, "ServerReady", &m::ServerReadyRequest {}).ready);
    // Requests for one model all have its name in field 1.
    assert!(ask::<m::ModelReadyResponse>(&server, "ModelReady", &named("double")).ready);
    assert!(!ask::<m::ModelReadyResponse>(&server, "ModelReady", &named("nosuch")).ready);
    let metadata: m::ModelMetadataResponse = ask(&server, "ModelMetadata", &named("identity"));
    assert_eq!((metadata.name.as_str(), metadata.versions.as_slice()), ("identity", &["1".to_owned()][..]));
    assert_eq!((metadata.inputs[0].datatype.as_str(), metadata.inputs[0].shape.as_slice()), ("BYTES", &[-1, -1][..]));
    let config: m::ModelConfigResponse = ask(&server, "ModelConfig", &named("double"));
    let config = config.config.expect("a configuration");
    assert_eq!((config.max_batch_size, config.input[0].data_type()), (8, m::DataType::TypeFp32));
    assert_eq!(config.instance_group[0].gpus, [0, 1]);
    let index: m::RepositoryIndexResponse = ask(&server, "RepositoryIndex", &m::RepositoryIndexRequest::default());
    assert_eq!(index.models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(), ["double", "identity"]);
    let metadata: m::ServerMetadataResponse = ask(&server, "ServerMetadata", &m::ServerMetadataRequest {});
    assert!(metadata.extensions.contains(&"statistics".to_owned()));
}

#[test]
fn inference_takes_raw_and_typed_tensors_and_counts_them() {
    let server = start(quick());
    let raw = request("double", "r1", &[1.0, -2.5]);
    let response: m::ModelInferResponse = ask(&server, "ModelInfer", &raw);
    assert_eq!(
        (response.id.as_str(), response.model_name.as_str(), response.model_version.as_str()),
        ("r1", "double", "1")
    );
    assert_eq!((response.outputs[0].name.as_str(), response.outputs[0].shape.as_slice()), ("OUTPUT", &[1, 2][..]));
    assert_eq!(floats(&response.raw_output_contents[0]), [2.0, -5.0]);
    let mut typed = request("double", "", &[4.0]);
    typed.raw_input_contents.clear();
    typed.inputs[0].contents =
        Some(m::InferTensorContents { fp32_contents: vec![4.0], ..m::InferTensorContents::default() });
    typed.outputs =
        vec![InferRequestedOutputTensor { name: "OUTPUT".to_owned(), ..InferRequestedOutputTensor::default() }];
    let response: m::ModelInferResponse = ask(&server, "ModelInfer", &typed);
    assert_eq!(floats(&response.raw_output_contents[0]), [8.0]);
    let statistics: m::ModelStatisticsResponse = ask(&server, "ModelStatistics", &named("double"));
    let statistics = &statistics.model_stats[0];
    assert_eq!((statistics.inference_count, statistics.execution_count), (2, 2));
    let sums = statistics.inference_stats.as_ref().expect("statistics");
    assert_eq!(sums.compute_infer.as_ref().map(|sum| (sum.count, sum.ns)), Some((2, 2 * 4_500_000)));
    assert_eq!(statistics.batch_stats[0].batch_size, 1);
    assert_eq!(stats(&server)["answers"], json!({"ok": 2}));
}

#[test]
fn a_large_message_comes_back_whole() {
    let server = start(quick());
    let numbers: Vec<f32> = (0..1_500_000).map(|n| n as f32).collect();
    let response: m::ModelInferResponse = ask(&server, "ModelInfer", &request("double", "", &numbers));
    let twice: Vec<f32> = numbers.iter().map(|number| 2.0 * number).collect();
    assert!(floats(&response.raw_output_contents[0]) == twice);
}

#[test]
fn errors_have_grpc_codes() {
    let server = start(quick());
    let mut both = request("double", "", &[1.0]);
    both.inputs[0].contents = Some(m::InferTensorContents::default());
    let cases: [(&str, &dyn Encoded, i32, &str); 7] = [
        ("ModelMetadata", &named("nosuch"), 5, "Request for unknown model: 'nosuch' is not found"),
        ("ModelStatistics", &named("nosuch"), 5, "Request for unknown model: 'nosuch' is not found"),
        ("ModelInfer", &request("nosuch", "", &[1.0]), 5, "Request for unknown model: 'nosuch' is not found"),
        ("ModelInfer", &request("identity", "", &[1.0]), 3, "data-type is 'FP32'"),
        ("ModelInfer", &both, 3, "contents field must not be specified when using raw_input_contents for 'INPUT'"),
        (
            "ModelInfer",
            &ModelInferRequest { raw_input_contents: vec![], ..request("double", "", &[1.0]) },
            3,
            "byte size mismatch",
        ),
        ("TraceSetting", &named(""), 12, ""),
    ];
    for (method, request, code, needle) in cases {
        let reply = grpc_client::unary_bytes(&server, method, &[], &request.bytes());
        assert_eq!((reply.http_status, reply.grpc_status), (200, Some(code)), "{method}");
        let message = reply.grpc_message.unwrap_or_default();
        assert!(message.contains(needle), "{message}");
        assert!(reply.messages.is_empty() && reply.is_trailers_only);
    }
    let unreadable = grpc_client::unary_bytes(&server, "ModelInfer", &[], b"\xff\xff");
    assert_eq!(unreadable.grpc_status, Some(13));
}

/// Messages of several types in one table.
trait Encoded {
    fn bytes(&self) -> Vec<u8>;
}

impl<T: Message> Encoded for T {
    fn bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

#[test]
fn restricted_methods_are_unavailable_without_their_key() {
    let kserve = KserveConfig {
        restricted: vec!["statistics".to_owned()],
        restricted_key: "access".to_owned(),
        restricted_value: "open".to_owned(),
    };
    let server = start(ClusterConfig { kserve, ..quick() });
    let closed = unary(&server, "ModelStatistics", &[], &named(""));
    assert_eq!(closed.grpc_status, Some(14));
    let expected = "This protocol is restricted, expecting header 'triton-grpc-protocol-access'";
    assert_eq!(closed.grpc_message.as_deref(), Some(expected));
    let open = unary(&server, "ModelStatistics", &[("triton-grpc-protocol-access", "open")], &named(""));
    assert_eq!(open.grpc_status, Some(0));
    assert!(ask::<m::ModelReadyResponse>(&server, "ModelReady", &named("double")).ready);
}

fn stream_replies(messages: &[Bytes]) -> Vec<ModelStreamInferResponse> {
    messages.iter().map(|message| ModelStreamInferResponse::decode(&message[..]).expect("a response")).collect()
}

fn is_final(reply: &ModelStreamInferResponse) -> bool {
    let parameter = &reply.infer_response.as_ref().expect("a response").parameters["triton_final_response"];
    parameter.parameter_choice == Some(ParameterChoice::BoolParam(true))
}

#[test]
fn a_stream_carries_many_requests_and_the_errors_of_some() {
    let server = start(quick());
    let mut call = Call::open(&server, "ModelStreamInfer", &[]);
    for n in 0..20 {
        let model = if n == 7 { "nosuch" } else { "double" };
        call.send(&request(model, &format!("id{n}"), &[n as f32]));
    }
    let reply = call.finish();
    assert_eq!((reply.grpc_status, reply.messages.len()), (Some(0), 20));
    let mut replies = stream_replies(&reply.messages);
    assert!(replies.iter().all(is_final));
    let failed = replies.iter().position(|reply| !reply.error_message.is_empty()).expect("one error");
    let failed = replies.remove(failed);
    assert_eq!(failed.error_message, "Request for unknown model: 'nosuch' is not found");
    assert_eq!(failed.infer_response.map(|response| response.id), Some("id7".to_owned()));
    for reply in &replies {
        let response = reply.infer_response.as_ref().expect("a response");
        let n: f32 = response.id[2..].parse().expect("a number");
        assert_eq!(floats(&response.raw_output_contents[0]), [2.0 * n]);
    }
    assert_eq!(stats(&server)["answers"], json!({"ok": 19, "invalid": 1}));
}

#[test]
fn replies_come_while_the_stream_is_open() {
    let server = start(quick());
    let mut call = Call::open(&server, "ModelStreamInfer", &[]);
    for n in 0..3 {
        call.send(&request("double", "", &[n as f32]));
        let reply = ModelStreamInferResponse::decode(&call.next_message()[..]).expect("a response");
        assert_eq!(floats(&reply.infer_response.expect("a response").raw_output_contents[0]), [2.0 * n as f32]);
    }
    assert_eq!(call.finish().grpc_status, Some(0));
}

#[test]
fn a_decoupled_model_sends_its_replies_and_on_request_a_final_one() {
    let model = TensorModel { decoupled_replies: Some(4), ..TensorModel::default() };
    let server = start(ClusterConfig { tensor_models: vec![model], ..quick() });
    let refused = unary(&server, "ModelInfer", &[], &request("double", "", &[1.0]));
    assert_eq!(refused.grpc_status, Some(12));
    let expected = "ModelInfer RPC doesn't support models with decoupled transaction policy";
    assert_eq!(refused.grpc_message.as_deref(), Some(expected));
    for wanted in [true, false] {
        let mut request = request("double", "d", &[1.0]);
        let choice = Some(ParameterChoice::BoolParam(wanted));
        request
            .parameters
            .insert("triton_enable_empty_final_response".to_owned(), m::InferParameter { parameter_choice: choice });
        let mut call = Call::open(&server, "ModelStreamInfer", &[]);
        call.send(&request);
        let replies = stream_replies(&call.finish().messages);
        let finals: Vec<bool> = replies.iter().map(is_final).collect();
        assert_eq!(finals, [&[false; 4][..], &[true][..usize::from(wanted)]].concat());
        for (n, reply) in replies.iter().enumerate() {
            let response = reply.infer_response.as_ref().expect("a response");
            assert_eq!((response.id.as_str(), response.outputs.is_empty()), ("d", n == 4));
        }
    }
    let config: m::ModelConfigResponse = ask(&server, "ModelConfig", &named("double"));
    let policy = config.config.and_then(|config| config.model_transaction_policy);
    assert_eq!(policy, Some(m::ModelTransactionPolicy { decoupled: true }));
}

#[test]
fn a_client_that_leaves_a_stream_frees_the_queue() {
    let model = TensorModel { base_s: 0.05, dynamic_batching: false, ..TensorModel::default() };
    let server = start(ClusterConfig { gpus: 1, tensor_models: vec![model], ..quick() });
    let mut call = Call::open(&server, "ModelStreamInfer", &[]);
    for _ in 0..100 {
        call.send(&request("double", "", &[1.0]));
    }
    call.next_message();
    drop(call);
    // Behind the hundred this would take five seconds of the model's time; those who left cost at most what was under way.
    let _: m::ModelInferResponse = ask(&server, "ModelInfer", &request("double", "", &[1.0]));
    let statistics: m::ModelStatisticsResponse = ask(&server, "ModelStatistics", &named("double"));
    assert!(statistics.model_stats[0].execution_count < 50, "{}", statistics.model_stats[0].execution_count);
}

#[test]
fn faults_break_the_call_the_message_or_the_frame() {
    let server = start(ClusterConfig { faults: Faults { reset_rate: 1.0, ..Faults::default() }, ..quick() });
    let reply = unary(&server, "ModelInfer", &[], &request("double", "", &[1.0]));
    assert_eq!((reply.grpc_status, reply.is_broken), (None, true));
    let server = start(ClusterConfig { faults: Faults { fail_rate: 1.0, ..Faults::default() }, ..quick() });
    let reply = unary(&server, "ModelInfer", &[], &request("double", "", &[1.0]));
    assert_eq!((reply.grpc_status, reply.grpc_message.as_deref()), (Some(13), Some("failed on request (fail_rate)")));
    let server = start(ClusterConfig { faults: Faults { malformed_rate: 1.0, ..Faults::default() }, ..quick() });
    let (mut cut, mut unreadable) = (0, 0);
    for _ in 0..20 {
        let reply = unary(&server, "ModelInfer", &[], &request("double", "", &[1.0]));
        assert_eq!(reply.grpc_status, Some(0));
        match reply.messages.first() {
            None => cut += 1,
            Some(message) => unreadable += usize::from(m::ModelInferResponse::decode(&message[..]).is_err()),
        }
    }
    assert!(cut >= 3 && unreadable >= 3, "{cut} and {unreadable}");
    assert_eq!(cut + unreadable, 20);
}

#[test]
fn other_traffic_is_told_so() {
    let server = start(quick());
    let reply = grpc_client::request(&server, "/x", "text/plain", &[], b"");
    assert_eq!(reply.http_status, 415);
}
