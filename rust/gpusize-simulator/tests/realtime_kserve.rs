//! The cluster as a KServe server over HTTP: what a real Triton said to the same requests.

mod simulate_client;

use std::thread;

use gpusize_simulator::{ClusterConfig, Datatype, Faults, KserveConfig, Operation, SimServer, TensorModel, TensorSpec};
use serde_json::{Value, json};
use simulate_client::{Reply, call, post, post_bytes, quick, start, stats};

fn tensor(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
}

/// The model of the recorded exchanges, but that it doubles.
fn numpy_mlp() -> TensorModel {
    TensorModel {
        name: "numpy_mlp".to_owned(),
        inputs: vec![tensor("x", Datatype::Fp32, &[64])],
        outputs: vec![tensor("y", Datatype::Fp32, &[64])],
        base_s: 0.001,
        ..TensorModel::default()
    }
}

fn serving(model: TensorModel) -> SimServer {
    start(ClusterConfig { gpus: 1, tensor_models: vec![model], ..quick() })
}

fn get(server: &SimServer, path: &str) -> Reply {
    call(server, "GET", path, &Value::Null)
}

fn request(id: &str, elements: usize) -> Value {
    let data: Vec<f32> = (0..elements).map(|n| n as f32 + 0.5).collect();
    json!({"id": id, "inputs": [{"name": "x", "shape": [1, elements], "datatype": "FP32", "data": data}]})
}

fn content_type(reply: &Reply) -> &str {
    reply.head.split("content-type: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap_or("none")
}

#[test]
fn the_server_and_its_models_are_described_as_triton_does() {
    let server = serving(numpy_mlp());
    for path in
        ["/v2/health/live", "/v2/health/ready", "/v2/models/numpy_mlp/ready", "/v2/models/numpy_mlp/versions/1/ready"]
    {
        let reply = get(&server, path);
        assert_eq!((reply.status, content_type(&reply), reply.text()), (200, "text/plain", ""), "{path}");
    }
    let metadata = get(&server, "/v2/models/numpy_mlp");
    assert_eq!(content_type(&metadata), "application/json");
    assert_eq!(
        metadata.text(),
        r#"{"name":"numpy_mlp","versions":["1"],"platform":"simulated","inputs":[{"name":"x","datatype":"FP32","shape":[-1,64]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,64]}]}"#
    );
    assert_eq!(get(&server, "/v2/models/numpy_mlp/versions/1").text(), metadata.text());
    assert!(
        get(&server, "/v2").json()["extensions"].as_array().is_some_and(|list| list.contains(&json!("statistics")))
    );
    let index = post(&server, "/v2/repository/index", &json!({})).json();
    assert_eq!(index, json!([{"name": "numpy_mlp", "version": "1", "state": "READY", "reason": ""}]));
}

/// Every field of `real` is in `ours`, with the same kind of value, at any depth; lists by their first elements.
fn assert_same_fields(real: &Value, ours: &Value, place: &str) {
    match (real, ours) {
        (Value::Object(real), Value::Object(ours)) => {
            for (key, value) in real {
                assert!(ours.contains_key(key), "{place}.{key} is missing");
                assert_same_fields(value, &ours[key], &format!("{place}.{key}"));
            }
        }
        (Value::Array(real), Value::Array(ours)) => {
            if let (Some(real), Some(ours)) = (real.first(), ours.first()) {
                assert_same_fields(real, ours, &format!("{place}[0]"));
            }
        }
        _ => assert_eq!(std::mem::discriminant(real), std::mem::discriminant(ours), "{place}: {real} and {ours}"),
    }
}

#[test]
fn configuration_and_statistics_have_the_fields_of_the_real_ones() {
    let server = serving(numpy_mlp());
    post(&server, "/v2/models/numpy_mlp/infer", &request("", 64));
    let read = |text: &str| -> Value { serde_json::from_str(text).expect("a fixture") };
    let mut config = read(include_str!("fixtures/kserve/model_config.json"));
    config["parameters"] = json!({});
    // What an optimizer of graphs is told has no counterpart here.
    config.as_object_mut().expect("an object").remove("optimization");
    assert_same_fields(&config, &get(&server, "/v2/models/numpy_mlp/config").json(), "config");
    let statistics = read(include_str!("fixtures/kserve/triton_stats.json"));
    for path in ["/v2/models/numpy_mlp/versions/1/stats", "/v2/models/numpy_mlp/stats", "/v2/models/stats"] {
        assert_same_fields(&statistics, &get(&server, path).json(), path);
    }
}

#[test]
fn json_in_and_json_out_with_the_id() {
    let server = serving(numpy_mlp());
    let reply = post(&server, "/v2/models/numpy_mlp/infer", &request("a1", 64));
    assert_eq!((reply.status, content_type(&reply)), (200, "application/json"));
    let answer = reply.json();
    assert_eq!(
        (&answer["id"], &answer["model_name"], &answer["model_version"]),
        (&json!("a1"), &json!("numpy_mlp"), &json!("1"))
    );
    let output = &answer["outputs"][0];
    assert_eq!(
        (&output["name"], &output["datatype"], &output["shape"]),
        (&json!("y"), &json!("FP32"), &json!([1, 64]))
    );
    let expected: Vec<f64> = (0..64).map(|n| 2.0 * f64::from(n) + 1.0).collect();
    assert_eq!(output["data"], json!(expected));
    let nameless = post(&server, "/v2/models/numpy_mlp/versions/1/infer", &request("", 64)).json();
    assert!(nameless.get("id").is_none());
}

#[test]
fn binary_goes_either_way() {
    let server = serving(numpy_mlp());
    let tensor: Vec<u8> = (0..64).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let twice: Vec<u8> = (0..64).flat_map(|n| (2.0 * n as f32).to_le_bytes()).collect();
    let input = json!({"name": "x", "shape": [1, 64], "datatype": "FP32", "parameters": {"binary_data_size": 256}});
    let send = |extra: Value, tensor: &[u8]| {
        let mut json = json!({"id": "b1", "inputs": [input]});
        for (key, value) in extra.as_object().expect("an object") {
            json[key] = value.clone();
        }
        let json = json.to_string();
        let headers = format!("Inference-Header-Content-Length: {}\r\n", json.len());
        post_bytes(&server, "/v2/models/numpy_mlp/infer", &headers, &[json.as_bytes(), tensor].concat())
    };
    for extra in [
        json!({"outputs": [{"name": "y", "parameters": {"binary_data": true}}]}),
        json!({"parameters": {"binary_data_output": true}}),
    ] {
        let reply = send(extra, &tensor);
        assert_eq!((reply.status, content_type(&reply)), (200, "application/octet-stream"));
        let length = reply.head.split("inference-header-content-length: ").nth(1).expect("the header");
        let length: usize = length.split("\r\n").next().expect("a line").parse().expect("a number");
        let (json, raw) = reply.body.split_at(length);
        assert_eq!(
            std::str::from_utf8(json),
            Ok(
                r#"{"id":"b1","model_name":"numpy_mlp","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,64],"parameters":{"binary_data_size":256}}]}"#
            )
        );
        assert_eq!(raw, twice);
    }
    let mixed = send(json!({}), &tensor);
    assert_eq!((content_type(&mixed), &mixed.json()["outputs"][0]["data"][3]), ("application/json", &json!(6.0)));
    for (tensor, needle) in [
        (&tensor[..255], "binary_data_size of input 'x'"),
        (&[tensor.as_slice(), b"!"].concat(), "unexpected additional input data for model 'numpy_mlp'"),
    ] {
        let reply = send(json!({}), tensor);
        assert_eq!(reply.status, 400);
        assert!(reply.text().contains(needle), "{}", reply.text());
    }
    let wrong = post_bytes(&server, "/v2/models/numpy_mlp/infer", "Inference-Header-Content-Length: 900\r\n", b"{}");
    assert_eq!(wrong.status, 400);
}

#[test]
fn texts_come_back() {
    let server = start(quick());
    for data in [json!(["é", "", "third"]), json!([["é"], [""], ["third"]])] {
        let shape = json!([1, 3]);
        let body = json!({"inputs": [{"name": "INPUT", "datatype": "BYTES", "shape": shape, "data": data}]});
        let answer = post(&server, "/v2/models/identity/infer", &body).json();
        assert_eq!(answer["outputs"][0]["data"], json!(["é", "", "third"]));
    }
}

#[test]
fn errors_have_the_words_the_status_and_the_type_of_the_real_ones() {
    let server = serving(numpy_mlp());
    let infer = "/v2/models/numpy_mlp/infer";
    let shape = "[request id: <id_unknown>] unexpected shape for input 'x' for model 'numpy_mlp'. Expected [-1,64], got [1,63]. \
                 NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each \
                 input shape. If you want to specify the full shape including the batch dim in your input dims config, try \
                 setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size.";
    let other = json!({"inputs": [{"name": "zz", "shape": [1, 64], "datatype": "FP32", "data": [0.0]}]});
    for (path, body, status, kind, message) in [
        (infer, request("", 63).to_string(), 400, "application/json", shape),
        (infer, other.to_string(), 400, "application/json", "unexpected inference input 'zz' for model 'numpy_mlp'"),
        (
            "/v2/models/nosuch/infer",
            json!({"inputs": []}).to_string(),
            404,
            "text/plain",
            "Request for unknown model: 'nosuch' is not found",
        ),
        (
            "/v2/models/numpy_mlp/versions/7/infer",
            request("", 64).to_string(),
            404,
            "text/plain",
            "Request for unknown model: 'numpy_mlp' version 7 is not found",
        ),
    ] {
        let reply = post_bytes(&server, path, "", body.as_bytes());
        assert_eq!((reply.status, content_type(&reply)), (status, kind), "{path}");
        assert_eq!(reply.json(), json!({ "error": message }));
    }
    let broken = post_bytes(&server, infer, "", b"{not json");
    assert_eq!((broken.status, content_type(&broken)), (500, "application/json"));
    assert!(broken.text().starts_with(r#"{"error":"failed to parse the request JSON buffer: "#), "{}", broken.text());
    let unknown = get(&server, "/v2/models/nosuch");
    assert_eq!((unknown.status, content_type(&unknown)), (404, "application/json"));
    assert_eq!(unknown.text(), r#"{"error":"Request for unknown model: 'nosuch' is not found"}"#);
    let not_ready = get(&server, "/v2/models/nosuch/ready");
    assert_eq!((not_ready.status, content_type(&not_ready)), (400, "text/plain"));
    assert_eq!(not_ready.text(), r#"{"error":"Model version not ready"}"#);
    assert_eq!((get(&server, infer).status, get(&server, "/v2/nothing").status), (405, 404));
    assert_eq!(stats(&server)["answers"], json!({"failed": 1, "invalid": 4}));
}

#[test]
fn wrong_tensors_are_refused_with_what_is_wrong() {
    let server = serving(numpy_mlp());
    let with = |change: Value| {
        let mut body = request("r", 64);
        for (key, value) in change.as_object().expect("an object") {
            body["inputs"][0][key] = value.clone();
        }
        body
    };
    for (body, needle) in [
        (with(json!({"datatype": "INT32"})), "[request id: r] inference input 'x' data-type is 'INT32'"),
        (with(json!({"shape": [9, 64]})), "batch-size must be <= 8 for 'numpy_mlp'"),
        (with(json!({"shape": [0, 64]})), "batch-size must be <= 8"),
        (with(json!({"shape": [-1, 64]})), "unexpected shape"),
        (
            with(json!({"data": [1.0]})),
            "input byte size mismatch for input 'x' for model 'numpy_mlp'. Expected 256, got 4",
        ),
        (with(json!({"data": ["a"]})), "is no FP32"),
        (with(json!({"data": null})), "must specify 'data'"),
        (json!({"inputs": []}), "missing required input(s) ['x']"),
        (json!({"inputs": [request("", 64)["inputs"][0], request("", 64)["inputs"][0]]}), "already exists"),
        (json!({}), "missing field `inputs`"),
        (
            json!({"inputs": request("", 64)["inputs"], "outputs": [{"name": "q"}]}),
            "unexpected inference output 'q' for model 'numpy_mlp'",
        ),
    ] {
        let reply = post(&server, "/v2/models/numpy_mlp/infer", &body);
        assert_eq!(reply.status, 400, "{needle}");
        let error = reply.json()["error"].as_str().expect("a text").to_owned();
        assert!(error.contains(needle), "{error}");
    }
}

#[test]
fn statistics_are_true_for_what_was_executed() {
    let model = TensorModel { base_s: 0.02, per_item_s: 0.001, input_s: 0.002, output_s: 0.003, ..numpy_mlp() };
    let server = serving(model);
    thread::scope(|scope| {
        for _ in 0..9 {
            scope.spawn(|| assert_eq!(post(&server, "/v2/models/numpy_mlp/infer", &request("", 64)).status, 200));
        }
    });
    let statistics = &get(&server, "/v2/models/stats").json()["model_stats"][0];
    let sum = |name: &str, field: &str| statistics["inference_stats"][name][field].as_u64().expect("a number");
    assert_eq!((&statistics["inference_count"], sum("success", "count"), sum("fail", "count")), (&json!(9), 9, 0));
    let parts = ["queue", "compute_input", "compute_infer", "compute_output"];
    assert!(parts.iter().all(|part| sum(part, "count") == 9));
    assert_eq!(parts.iter().map(|part| sum(part, "ns")).sum::<u64>(), sum("success", "ns"));
    let batches = statistics["batch_stats"].as_array().expect("a list");
    let mut in_all = [0; 4];
    for batch in batches {
        let size = batch["batch_size"].as_u64().expect("a size");
        let count = batch["compute_infer"]["count"].as_u64().expect("a count");
        // 20 ms and 1 ms per item, whatever the machine does.
        assert_eq!(batch["compute_infer"]["ns"], json!(count * (20_000_000 + size * 1_000_000)));
        assert_eq!(batch["compute_input"]["ns"], json!(count * 2_000_000));
        assert_eq!(batch["compute_output"]["ns"], json!(count * 3_000_000));
        let charged = size * count;
        for (sum, add) in
            in_all.iter_mut().zip([count, charged, charged * 2_000_000, charged * (20 + size) * 1_000_000])
        {
            *sum += add;
        }
    }
    let counted = [statistics["execution_count"].as_u64().expect("a count"), 9];
    assert_eq!(in_all, [counted[0], counted[1], sum("compute_input", "ns"), sum("compute_infer", "ns")]);
    assert!(statistics["last_inference"].as_u64() > Some(1_700_000_000_000));
}

#[test]
fn triton_series_are_on_the_metrics_page() {
    let server = serving(numpy_mlp());
    for _ in 0..3 {
        post(&server, "/v2/models/numpy_mlp/infer", &request("", 64));
    }
    let page = get(&server, "/metrics");
    let text = page.text();
    for line in include_str!("fixtures/kserve/triton_metrics_cpu.txt").lines() {
        let series = line.rsplit_once(' ').map_or("", |(series, _)| series);
        // Of the host it says nothing: it simulates none.
        if line.starts_with('#') || ["nv_cpu", "nv_pinned"].iter().any(|host| series.starts_with(host)) {
            continue;
        }
        assert!(text.contains(&format!("\n{series} ")), "{series}");
    }
    for line in [
        "nv_inference_request_success{model=\"numpy_mlp\",version=\"1\"} 3",
        "nv_inference_count{model=\"numpy_mlp\",version=\"1\"} 3",
        "nv_inference_compute_input_duration_us{model=\"numpy_mlp\",version=\"1\"} 60",
        "nv_gpu_memory_total_bytes{gpu_uuid=\"GPU-00000000-0000-4000-8000-000000000000\"} 85899345920",
        "nv_gpu_power_limit{gpu_uuid=\"GPU-00000000-0000-4000-8000-000000000000\"} 300",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}");
    }
    let gpu = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{gpu_uuid"))).expect("a series");
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    };
    let share = gpu("nv_gpu_utilization");
    assert!(share > 0.0 && share <= 1.0, "{share}");
    assert!((gpu("nv_gpu_power_usage") - (60.0 + 240.0 * share)).abs() < 1e-6);
    assert!(gpu("nv_energy_consumption") > 0.0);
}

#[test]
fn restricted_apis_want_their_header() {
    let kserve = KserveConfig {
        restricted: vec!["statistics".to_owned(), "model-config".to_owned()],
        restricted_key: "triton-access-token".to_owned(),
        restricted_value: "open".to_owned(),
    };
    let server = start(ClusterConfig { kserve, ..quick() });
    for path in ["/v2/models/stats", "/v2/models/double/stats", "/v2/models/double/config"] {
        let reply = get(&server, path);
        assert_eq!((reply.status, content_type(&reply)), (403, "text/plain"), "{path}");
        assert_eq!(reply.text(), r#"{"error":"This API is restricted, expecting header 'triton-access-token'"}"#);
    }
    assert_eq!(get(&server, "/v2/models/double").status, 200);
    let mut stream = std::net::TcpStream::connect(server.local_addr()).expect("a connection");
    let head = "GET /v2/models/stats HTTP/1.1\r\nHost: h\r\nTriton-Access-Token: open\r\n\r\n";
    std::io::Write::write_all(&mut stream, head.as_bytes()).expect("a request");
    assert_eq!(simulate_client::read(std::io::BufReader::new(stream)).expect("an answer").status, 200);
}

#[test]
fn shapes_like_those_of_track_reconstruction() {
    let model = TensorModel {
        name: "traccc-gpu".to_owned(),
        inputs: vec![
            tensor("CELL_POSITIONS", Datatype::Int64, &[-1, 4]),
            tensor("CELL_PROPERTIES", Datatype::Fp32, &[-1, 2]),
        ],
        outputs: vec![
            tensor("TRK_PARAMS", Datatype::Fp32, &[-1, 8]),
            tensor("GEOMETRY_IDS", Datatype::Int64, &[-1, 1]),
        ],
        operation: Operation::Zeros,
        max_batch_size: 0,
        ..TensorModel::default()
    };
    let server = serving(model);
    let inputs = json!([
        {"name": "CELL_PROPERTIES", "datatype": "FP32", "shape": [3, 2], "data": [1, 2, 3, 4, 5, 6]},
        {"name": "CELL_POSITIONS", "datatype": "INT64", "shape": [3, 4], "data": [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]},
    ]);
    let answer =
        post(&server, "/v2/models/traccc-gpu/infer", &json!({"inputs": inputs, "outputs": [{"name": "GEOMETRY_IDS"}]}));
    assert_eq!(
        answer.json()["outputs"],
        json!([{"name": "GEOMETRY_IDS", "datatype": "INT64", "shape": [3, 1], "data": [0, 0, 0]}])
    );
    let metadata = get(&server, "/v2/models/traccc-gpu").json();
    assert_eq!(metadata["inputs"][0]["shape"], json!([-1, 4]));
}

#[test]
fn queues_and_faults_refuse_as_triton_does() {
    let model = TensorModel { base_s: 1.0, dynamic_batching: false, max_queue_size: Some(1), ..numpy_mlp() };
    let server = serving(model);
    let replies: Vec<(u16, String)> = thread::scope(|scope| {
        let calls: Vec<_> = (0..5)
            .map(|_| {
                scope.spawn(|| {
                    let reply = post(&server, "/v2/models/numpy_mlp/infer", &request("", 64));
                    (reply.status, reply.text().to_owned())
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().expect("a call")).collect()
    });
    assert!(replies.iter().any(|(status, _)| *status == 200));
    assert!(replies.contains(&(503, r#"{"error":"Exceeds maximum queue size"}"#.to_owned())), "{replies:?}");
    let faults = Faults { fail_rate: 1.0, ..Faults::default() };
    let failing = start(ClusterConfig { faults, tensor_models: vec![numpy_mlp()], ..quick() });
    assert_eq!(post(&failing, "/v2/models/numpy_mlp/infer", &request("", 64)).status, 500);
    let statistics = &get(&failing, "/v2/models/stats").json()["model_stats"][0];
    assert_eq!(statistics["inference_stats"]["fail"]["count"], 1);
    let decoupled = serving(TensorModel { decoupled_replies: Some(2), ..numpy_mlp() });
    let reply = post(&decoupled, "/v2/models/numpy_mlp/infer", &request("", 64));
    assert_eq!(reply.status, 501);
    assert_eq!(reply.text(), r#"{"error":"HTTP end point doesn't support models with decoupled transaction policy"}"#);
}
