//! The faults that the simulated cluster commits on request, seen from a plain socket.

mod simulate_client;

use std::io::{ErrorKind, Read};
use std::thread;

use gpusize_simulator::{ClusterConfig, Faults, Length, SimServer};
use serde_json::{Value, json};
use simulate_client::{chat, post, quick, read, send, start, stats};

fn faulty(faults: Faults) -> SimServer {
    start(ClusterConfig { faults, ..quick() })
}

#[test]
fn a_failing_server_says_so() {
    let server = faulty(Faults { fail_rate: 1.0, ..Faults::default() });
    let reply = post(&server, "/v1/chat/completions", &chat(&json!({})));
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (500, &json!("server_error")));
    assert_eq!(stats(&server)["answers"], json!({"failed": 1}));
}

#[test]
fn a_full_queue_refuses() {
    let output_tokens = Length::Fixed { tokens: 4 };
    let config =
        ClusterConfig { gpus: 1, max_batch: 1, queue_limit: Some(1), iteration_base_s: 0.25, output_tokens, ..quick() };
    let server = start(config);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let calls: Vec<_> = (0..6).map(|_| scope.spawn(|| post(&server, "/generate", &json!({})).status)).collect();
        calls.into_iter().map(|call| call.join().expect("a call")).collect()
    });
    assert!(statuses.contains(&503) && statuses.contains(&200), "{statuses:?}");
}

#[test]
fn a_reset_comes_in_the_middle() {
    let server = faulty(Faults { reset_rate: 1.0, ..Faults::default() });
    for (body, needle) in [(chat(&json!({"stream": true})), " token"), (chat(&json!({})), "chat.completion")] {
        let mut stream = send(&server, "POST", "/v1/chat/completions", &body.to_string()).expect("a connection");
        let mut bytes = Vec::new();
        let error = stream.read_to_end(&mut bytes).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(needle) && !text.contains("finish_reason\":\"stop\""), "{text}");
    }
}

#[test]
fn malformed_answers_are_broken_in_json_or_in_framing() {
    let server = faulty(Faults { malformed_rate: 1.0, ..Faults::default() });
    let (mut json_broken, mut framing_broken) = (0, 0);
    for _ in 0..20 {
        let body = chat(&json!({"stream": true})).to_string();
        match read(send(&server, "POST", "/v1/chat/completions", &body).expect("a connection")) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidData);
                framing_broken += 1;
            }
            Ok(reply) => {
                let data = reply.text().split("\n\n").filter_map(|event| event.strip_prefix("data: "));
                json_broken +=
                    data.filter(|data| serde_json::from_str::<Value>(data).is_err() && *data != "[DONE]").count();
            }
        }
    }
    assert!(json_broken >= 3 && framing_broken >= 3, "{json_broken} and {framing_broken}");
    assert_eq!(json_broken + framing_broken, 20);
    let whole = post(&server, "/generate", &json!({}));
    assert!(serde_json::from_slice::<Value>(&whole.body).is_err());
    assert_eq!(stats(&server)["answers"], json!({"malformed": 21}));
}

#[test]
fn a_stall_freezes_the_whole_server() {
    let faults = Faults { stall_s: 0.3, stall_after_s: 0.0, fail_rate: 0.5, ..Faults::default() };
    let server = faulty(faults);
    // All of these arrive within the stall, or after it; none is answered in it.
    for _ in 0..6 {
        post(&server, "/generate", &json!({}));
        assert!(stats(&server)["uptime_s"].as_f64() >= Some(0.3));
    }
}
