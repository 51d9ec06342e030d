//! KServe messages: their bytes are those of the protocol, and JSON goes there and back.

use bytes::Bytes;
use gpusize_kserve::messages::infer_parameter::ParameterChoice;
use gpusize_kserve::messages::{ModelConfigResponse, ModelInferRequest, ModelInferResponse};
use gpusize_kserve::{decode, encode, raw_outputs};
use prost::Message;
use serde_json::{Value, json};

/// A field of the wire format: number and type, then its bytes.
fn field(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![(number << 3 | 2) as u8, payload.len() as u8];
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn a_request_has_the_bytes_that_the_field_numbers_ask_for() {
    let request = json!({
        "model_name": "m", "model_version": "1", "id": "a",
        "parameters": {"priority": {"uint64_param": 2}},
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"k": {"string_param": "v"}}}],
        "outputs": [{"name": "y"}],
    });
    let raw = vec![Bytes::from_static(&[0, 0, 128, 63, 0, 0, 0, 64])];
    let bytes = encode("ModelInfer", &request.to_string(), raw).expect("a request");
    let parameter = [field(1, b"priority"), field(2, &[5 << 3, 2])].concat();
    let of_input = [field(1, b"k"), field(2, &field(3, b"v"))].concat();
    let input = [field(1, b"x"), field(2, b"FP32"), field(3, &[1, 2]), field(4, &of_input)].concat();
    let expected = [
        field(1, b"m"),
        field(2, b"1"),
        field(3, b"a"),
        field(4, &parameter),
        field(5, &input),
        field(6, &field(1, b"y")),
        field(7, &[0, 0, 128, 63, 0, 0, 0, 64]),
    ]
    .concat();
    assert_eq!(bytes, expected);
    let read = ModelInferRequest::decode(&bytes[..]).expect("a request");
    assert_eq!(read.parameters["priority"].parameter_choice, Some(ParameterChoice::Uint64Param(2)));
}

#[test]
fn typed_contents_and_every_parameter_come_through() {
    let request = json!({
        "model_name": "m",
        "parameters": {"a": {"bool_param": true}, "b": {"int64_param": -5}, "c": {"double_param": 0.5}},
        "inputs": [{"name": "t", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": ["aGk="]}}],
    });
    let bytes = encode("ModelStreamInfer", &request.to_string(), Vec::new()).expect("a request");
    let read = ModelInferRequest::decode(&bytes[..]).expect("a request");
    assert_eq!(read.inputs[0].contents.as_ref().expect("contents").bytes_contents, [Bytes::from_static(b"hi")]);
    assert_eq!(serde_json::to_value(&read.parameters).expect("JSON"), request["parameters"]);
}

#[test]
fn responses_are_shown_with_the_lengths_of_raw_tensors() {
    let response = ModelInferResponse {
        model_name: "m".to_owned(),
        raw_output_contents: vec![Bytes::from_static(b"1234"), Bytes::new()],
        ..ModelInferResponse::default()
    }
    .encode_to_vec();
    let shown: Value = serde_json::from_str(&decode("ModelInfer", &response).expect("a response")).expect("JSON");
    assert_eq!(shown["raw_output_contents"], json!([4, 0]));
    assert_eq!(raw_outputs(&response).expect("a response"), ["1234", ""]);
}

#[test]
fn a_configuration_has_names_for_its_enums_and_unknown_fields_are_skipped() {
    // name, max_batch_size, one input of TYPE_FP32 with dims [-1], one instance group of KIND_GPU, and field 25 that is not read.
    let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let input = [field(1, b"x"), vec![2 << 3, 11], field(4, &minus_one)].concat();
    let group = [field(1, b"g"), vec![2 << 3, 3], vec![4 << 3, 1]].concat();
    let config = [field(1, b"m"), vec![4 << 3, 8], field(5, &input), field(7, &group), vec![0xca, 1, 1, b'r']].concat();
    let shown = decode("ModelConfig", &field(1, &config)).expect("a configuration");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let config = &shown["config"];
    assert_eq!((&config["name"], &config["max_batch_size"]), (&json!("m"), &json!(8)));
    assert_eq!((&config["input"][0]["data_type"], &config["input"][0]["dims"]), (&json!("TYPE_FP32"), &json!([-1])));
    assert_eq!(
        (&config["instance_group"][0]["kind"], &config["instance_group"][0]["count"]),
        (&json!("KIND_GPU"), &json!(3))
    );
    assert_eq!(config["dynamic_batching"], Value::Null);
    let again: ModelConfigResponse = serde_json::from_value(shown).expect("its own JSON");
    assert_eq!(again.config.expect("a configuration").input[0].data_type, 11);
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place() {
    let one = || vec![Bytes::from_static(b"x")];
    for (method, request, raw, needle) in [
        ("ModelInfers", "{}", vec![], "there is no method ModelInfers"),
        ("ModelInfer", "{\"model\": \"m\"}", vec![], "unknown field `model`"),
        ("ModelInfer", "{\"raw_input_contents\": [4]}", vec![], "beside the JSON"),
        ("ModelInfer", "{}", one(), "1 raw tensors for 0 inputs"),
        ("ModelInfer", "{\"inputs\": [{\"name\": \"i\", \"contents\": {}}]}", one(), "the input i has contents"),
        ("ModelReady", "{}", one(), "takes no raw tensors"),
        ("ModelInfer", "{\"inputs\": [{\"contents\": {\"bytes_contents\": [\"!\"]}}]}", vec![], "does not fit"),
    ] {
        let error = encode(method, request, raw).expect_err(request).to_string();
        assert!(error.contains(needle), "{request}: {error}");
    }
    let error = decode("ModelReady", b"<html>").expect_err("not protobuf").to_string();
    assert!(error.contains("no ModelReady response"), "{error}");
}
