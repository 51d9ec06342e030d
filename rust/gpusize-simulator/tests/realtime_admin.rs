//! What an administrator asks of the cluster while it serves: replicas and stalls.

mod grpc_client;
mod simulate_client;

use std::thread;
use std::time::{Duration, Instant};

use gpusize_kserve::messages::ServerLiveRequest;
use gpusize_simulator::{ClusterConfig, Faults, Length, ReplicaStep, SimServer, TensorModel};
use serde_json::{Value, json};
use simulate_client::{Reply, call, chat, post, quick, start, stats};

fn get(server: &SimServer, path: &str) -> Reply {
    call(server, "GET", path, &Value::Null)
}

fn metrics(server: &SimServer) -> String {
    get(server, "/metrics").text().to_owned()
}

/// Lines of a page that begin so.
fn count(page: &str, prefix: &str) -> usize {
    page.lines().filter(|line| line.starts_with(prefix)).count()
}

fn scale(server: &SimServer, replicas: u32) -> Value {
    let reply = post(server, "/admin/replicas", &json!({"replicas": replicas}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

#[test]
fn replicas_are_asked_for_and_told() {
    let server = start(ClusterConfig { gpus: 3, start_delay_s: 0.05, ..quick() });
    assert_eq!(get(&server, "/admin/replicas").json(), json!({"desired": 3, "ready": 3, "gpus": 3}));
    assert_eq!(scale(&server, 1), json!({"desired": 1, "ready": 1, "gpus": 3}));
    assert_eq!(scale(&server, 2), json!({"desired": 2, "ready": 1, "gpus": 3}));
    while get(&server, "/admin/replicas").json()["ready"] == 1 {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(stats(&server)["replicas"], json!({"desired": 2, "ready": 2}));
    // An administrator is no client.
    assert_eq!((stats(&server)["requests"].as_u64(), &stats(&server)["answers"]), (Some(0), &json!({})));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let server = start(ClusterConfig { gpus: 3, ..quick() });
    for (path, body, needle) in [
        ("/admin/replicas", json!({"replicas": 0}), "replicas must be between 1 and 3, the cluster's GPUs, not 0"),
        ("/admin/replicas", json!({"replicas": 4}), "not 4"),
        ("/admin/replicas", json!({"replicas": -1}), "not -1"),
        ("/admin/replicas", json!({"replicas": 1.5}), "expected i64"),
        ("/admin/replicas", json!({"replica": 1}), "unknown field `replica`"),
        ("/admin/replicas", json!(null), "the body is not the JSON that is expected"),
        ("/admin/stall", json!({"duration_s": 0.0}), "duration_s must be above 0 and at most 3600, not 0"),
        ("/admin/stall", json!({"duration_s": 1e9}), "duration_s must be"),
        ("/admin/stall", json!({}), "missing field `duration_s`"),
    ] {
        let reply = post(&server, path, &body);
        assert_eq!(reply.status, 400, "{body}");
        assert!(
            reply.json()["error"]["message"].as_str().is_some_and(|said| said.contains(needle)),
            "{}",
            reply.text()
        );
    }
    assert_eq!(call(&server, "DELETE", "/admin/replicas", &Value::Null).status, 405);
    assert_eq!(get(&server, "/admin/stall").status, 405);
    assert_eq!(get(&server, "/admin/other").status, 404);
    assert_eq!(get(&server, "/admin/replicas").json()["ready"], 3);
}

#[test]
fn the_metrics_follow() {
    let server = start(ClusterConfig { gpus: 3, ..quick() });
    let page = metrics(&server);
    assert_eq!((count(&page, "gpusize_sim_replicas{"), count(&page, "vllm:num_requests_running{")), (1, 3));
    assert!(page.contains("gpusize_sim_replicas{model_name=\"simulated\"} 3\n"));
    scale(&server, 1);
    let page = metrics(&server);
    for series in ["vllm:num_requests_running{", "vllm:prompt_tokens_total{", "vllm:e2e_request_latency_seconds_count{"]
    {
        assert_eq!(count(&page, series), 1, "{series}");
    }
    for series in ["nv_gpu_utilization{", "nv_energy_consumption{"] {
        assert_eq!(count(&page, series), 1, "{series}");
    }
    assert!(page.contains("gpusize_sim_replicas{model_name=\"simulated\"} 1\n"));
    assert!(page.contains("gpusize_sim_replicas_desired{model_name=\"simulated\"} 1\n"));
    scale(&server, 2);
    assert_eq!(count(&metrics(&server), "nv_gpu_utilization{"), 2);
}

#[test]
fn a_removed_replica_finishes_what_it_has_and_is_gone_then() {
    // Three seconds: the two meet, and are seen together, however long a thread is stopped on a busy machine.
    let output_tokens = Length::Fixed { tokens: 300 };
    let server = start(ClusterConfig { gpus: 2, iteration_base_s: 0.01, output_tokens, ..quick() });
    thread::scope(|scope| {
        let calls: Vec<_> = (0..2).map(|_| scope.spawn(|| post(&server, "/generate", &json!({})).status)).collect();
        while stats(&server)["running"].as_u64() != Some(2) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(scale(&server, 1)["ready"], 1);
        assert_eq!(count(&metrics(&server), "vllm:num_requests_running{"), 2, "it is not up until it has finished");
        assert!(calls.into_iter().all(|call| call.join().expect("a call") == 200));
    });
    assert_eq!(count(&metrics(&server), "vllm:num_requests_running{"), 1);
    for _ in 0..3 {
        assert_eq!(post(&server, "/generate", &json!({"max_tokens": 1})).status, 200);
    }
    scale(&server, 2);
    let page = metrics(&server);
    let served = |gpu: usize, reason: &str| {
        let prefix = format!(
            "vllm:request_success_total{{engine=\"{gpu}\",model_name=\"simulated\",finished_reason=\"{reason}\"}} "
        );
        page.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
    };
    assert_eq!(["stop", "length"].map(|reason| served(0, reason)), ["1", "3"].map(|n| Some(n.to_owned())));
    assert_eq!(["stop", "length"].map(|reason| served(1, reason)), ["1", "0"].map(|n| Some(n.to_owned())));
}

#[test]
fn the_plan_of_the_configuration_is_kept_in_real_time() {
    let step = |at_s, replicas| ReplicaStep { at_s, replicas };
    let replicas = vec![step(0.0, 1), step(0.2, 3)];
    let server = start(ClusterConfig { gpus: 4, replicas, start_delay_s: 0.1, ..quick() });
    let mut seen = Vec::new();
    loop {
        let told = get(&server, "/admin/replicas").json();
        let state = (told["desired"].as_u64(), told["ready"].as_u64());
        if seen.last() != Some(&state) {
            seen.push(state);
        }
        if state == (Some(3), Some(3)) {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    // A slow machine may miss a state in between, and sees none in another order.
    let expected = [(Some(1), Some(1)), (Some(3), Some(1)), (Some(3), Some(3))];
    assert!(seen.iter().all(|state| expected.contains(state)), "{seen:?}");
    assert!(stats(&server)["uptime_s"].as_f64() >= Some(0.3));
}

#[test]
fn tensor_instances_follow() {
    let model = TensorModel { base_s: 1.0, dynamic_batching: false, ..TensorModel::default() };
    let server = start(ClusterConfig { gpus: 2, tensor_models: vec![model], ..quick() });
    let infer = || {
        let input = json!({"name": "INPUT", "datatype": "FP32", "shape": [1, 1], "data": [1.0]});
        post(&server, "/v2/models/double/infer", &json!({"inputs": [input]})).status
    };
    let waits = || metrics(&server).contains("nv_inference_pending_request_count{model=\"double\",version=\"1\"} 1\n");
    scale(&server, 1);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..2).map(|_| scope.spawn(infer)).collect();
        // One GPU is left for the two, so that one of them waits.
        while !waits() {
            assert!(!calls.iter().all(thread::ScopedJoinHandle::is_finished), "nobody has waited");
            thread::sleep(Duration::from_millis(2));
        }
        scale(&server, 2);
        assert!(!waits(), "the new GPU takes what waits");
        assert!(calls.into_iter().all(|call| call.join().expect("a call") == 200));
    });
}

#[test]
fn in_a_stall_nothing_is_answered_on_any_route() {
    let server = start(quick());
    let before_s = stats(&server)["uptime_s"].as_f64().expect("a time");
    let told = post(&server, "/admin/stall", &json!({"duration_s": 0.6})).json();
    let end_s = told["end_s"].as_f64().expect("a time");
    assert!(end_s >= before_s + 0.6 && told["duration_s"].as_f64() >= Some(0.6));
    thread::scope(|scope| {
        let calls: Vec<_> = [
            ("GET", "/health", json!(null)),
            ("GET", "/metrics", json!(null)),
            ("GET", "/nowhere", json!(null)),
            ("GET", "/v2/health/ready", json!(null)),
            ("GET", "/admin/replicas", json!(null)),
            ("POST", "/admin/stall", json!({"duration_s": 0.01})),
            ("POST", "/v1/chat/completions", chat(&json!({"stream": true}))),
            ("POST", "/generate", json!({})),
            ("POST", "/generate", json!("x")),
        ]
        .into_iter()
        .map(|(method, path, body)| {
            let server = &server;
            scope.spawn(move || {
                let reply = call(server, method, path, &body);
                let late = stats(server)["uptime_s"].as_f64() >= Some(end_s);
                (path, reply.status, late)
            })
        })
        .collect();
        for call in calls {
            let (path, status, late) = call.join().expect("a call");
            assert!(late, "{path} was answered in the stall");
            assert!(matches!((path, status), ("/nowhere", 404) | (_, 200)), "{path}: {status}");
        }
    });
}

#[test]
fn over_grpc_nothing_is_answered_in_a_stall_either() {
    let server = start(quick());
    let end_s = post(&server, "/admin/stall", &json!({"duration_s": 0.4})).json()["end_s"].as_f64();
    let reply = grpc_client::unary(&server, "ServerLive", &[], &ServerLiveRequest {});
    assert_eq!(reply.grpc_status, Some(0));
    assert!(stats(&server)["uptime_s"].as_f64() >= end_s);
}

#[test]
fn a_stall_puts_off_what_the_gpus_do() {
    // Long enough to be seen at work, however long a thread is stopped on a busy machine.
    let output_tokens = Length::Fixed { tokens: 200 };
    let server = start(ClusterConfig { iteration_base_s: 0.01, output_tokens, ..quick() });
    thread::scope(|scope| {
        let began = Instant::now();
        let call = scope.spawn(|| post(&server, "/generate", &json!({})).status);
        while stats(&server)["running"].as_u64() != Some(1) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(post(&server, "/admin/stall", &json!({"duration_s": 0.5})).status, 200);
        assert_eq!(call.join().expect("a call"), 200);
        // 2 s of work and the stall in the middle of it.
        assert!(began.elapsed() >= Duration::from_millis(2500));
    });
}

#[test]
fn stalls_of_the_configuration_freeze_every_route_too() {
    let faults = Faults { stall_s: 0.3, stall_after_s: 0.0, ..Faults::default() };
    let server = start(ClusterConfig { faults, ..quick() });
    assert_eq!(get(&server, "/health").status, 200);
    assert!(stats(&server)["uptime_s"].as_f64() >= Some(0.3));
}
