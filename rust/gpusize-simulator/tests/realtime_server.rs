//! The cluster as an HTTP server, seen from a plain socket.

mod simulate_client;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;

use gpusize_simulator::{ClusterConfig, Length, Load, SimError, SimServer, run_virtual};
use serde_json::{Value, json};
use simulate_client::{call, chat, post, quick, read, send, start, stats};

#[test]
fn a_chat_is_answered_whole() {
    let server = start(quick());
    let reply = post(&server, "/v1/chat/completions", &chat(&json!({})));
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains("content-type: application/json"));
    let answer = reply.json();
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "m \"1\"");
    assert_eq!(answer["choices"][0]["message"], json!({"role": "assistant", "content": " token".repeat(10)}));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"], json!({"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}));
}

#[test]
fn a_chat_is_streamed_token_by_token() {
    let server = start(quick());
    let body = chat(&json!({"stream": true, "stream_options": {"include_usage": true}, "max_tokens": 7}));
    let reply = post(&server, "/v1/chat/completions", &body);
    assert!(reply.head.contains("content-type: text/event-stream"));
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    let events = reply.events();
    assert_eq!(events.len(), 1 + 7 + 1);
    assert!(events.iter().all(|event| event["id"] == events[0]["id"] && event["object"] == "chat.completion.chunk"));
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert!(events[1..8].iter().all(|event| event["choices"][0]["delta"] == json!({"content": " token"})));
    let reasons: Vec<_> = events[..8].iter().map(|event| event["choices"][0]["finish_reason"].clone()).collect();
    assert_eq!((&reasons[..7], &reasons[7]), (&[const { Value::Null }; 7][..], &json!("length")));
    assert_eq!(events[8]["choices"], json!([]));
    assert_eq!(events[8]["usage"], json!({"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10}));
    let plain = post(&server, "/v1/chat/completions", &chat(&json!({"stream": true})));
    assert_eq!(plain.events().len(), 1 + 10);
    assert!(!plain.text().contains("usage"));
}

#[test]
fn completions_take_text_and_token_ids() {
    let server = start(quick());
    let whole =
        post(&server, "/v1/completions", &json!({"prompt": [5, 6, 7, 8, 9], "max_tokens": 20, "ignore_eos": true}))
            .json();
    assert_eq!(whole["object"], "text_completion");
    assert_eq!(whole["usage"], json!({"prompt_tokens": 5, "completion_tokens": 20, "total_tokens": 25}));
    let stream = post(&server, "/v1/completions", &json!({"prompt": "abcde", "stream": true}));
    let texts: Vec<_> = stream.events().iter().map(|event| event["choices"][0]["text"].clone()).collect();
    assert_eq!(texts, vec![json!(" token"); 10]);
}

#[test]
fn any_json_is_generated_from() {
    let server = start(quick());
    for body in [json!({"question": "why?", "deep": {"er": ["x", 1, null, true, 2.5]}}), json!(["a"]), json!("text")] {
        let answer = post(&server, "/generate", &body).json();
        assert_eq!(answer["completion_tokens"], 10, "{body}");
        assert_eq!(answer["value"].as_str().map(|value| value.split(' ').count()), Some(10));
    }
    let said = post(&server, "/generate", &json!({"prompt_tokens": 77, "max_tokens": 3})).json();
    assert_eq!((&said["prompt_tokens"], &said["completion_tokens"]), (&json!(77), &json!(3)));
}

#[test]
fn a_workflow_shows_its_call() {
    let server = start(quick());
    let reply = post(&server, "/generate/full", &json!({"input_message": "hello"}));
    let lines: Vec<&str> = reply.text().lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 3);
    let payloads: Vec<Value> = lines[..2]
        .iter()
        .map(|line| {
            let step: Value =
                serde_json::from_str(line.strip_prefix("intermediate_data: ").expect("a step")).expect("JSON");
            assert!(step["id"].is_string() && step["name"].is_string());
            serde_json::from_str(step["payload"].as_str().expect("text")).expect("JSON in the text")
        })
        .collect();
    assert_eq!((&payloads[0]["event_type"], &payloads[1]["event_type"]), (&json!("LLM_START"), &json!("LLM_END")));
    assert_eq!(payloads[0]["UUID"], payloads[1]["UUID"]);
    let stamp = |payload: &Value| payload["event_timestamp"].as_f64().expect("a time");
    let took_s = stamp(&payloads[1]) - stamp(&payloads[0]);
    // Ten iterations, whose ends are the model's and not the wake-ups'; a double of seconds since 1970 is good to 0.3 us.
    assert!((took_s - 10.0 * 0.000_21).abs() < 2e-6, "{took_s}");
    assert_eq!(payloads[1]["usage_info"]["token_usage"]["completion_tokens"], 10);
    let value: Value = serde_json::from_str(lines[2].strip_prefix("data: ").expect("the answer")).expect("JSON");
    assert_eq!(value["value"], payloads[1]["data"]["output"]);
    assert_eq!(post(&server, "/generate/full", &json!({"question": "?"})).status, 422);
}

#[test]
fn bad_requests_get_the_error_object() {
    let server = start(ClusterConfig { kv_blocks: 4, kv_block_tokens: 10, ..quick() });
    let text =
        |path: &str, body: &str| read(send(&server, "POST", path, body).expect("a connection")).expect("an answer");
    for (path, body, status, needle) in [
        ("/v1/chat/completions", "{\"messages\": [", 400, "line 1 column 14"),
        ("/v1/chat/completions", "{}", 400, "messages is missing"),
        ("/v1/chat/completions", "{\"messages\": []}", 400, "messages is empty"),
        ("/v1/chat/completions", "{\"messages\": 5}", 400, "invalid type"),
        (
            "/v1/chat/completions",
            "{\"messages\": [{\"content\": \"x\"}], \"max_tokens\": 0}",
            400,
            "max_tokens must be",
        ),
        ("/v1/chat/completions", "{\"messages\": [{\"content\": \"x\"}], \"n\": 2}", 400, "n must be 1"),
        (
            "/v1/chat/completions",
            "{\"messages\": [{\"content\": \"x\"}], \"max_tokens\": 90, \"ignore_eos\": true}",
            400,
            "room for 40",
        ),
        ("/v1/completions", "{\"prompt\": [\"a\", \"b\"]}", 400, "only one prompt"),
        ("/v1/completions", "{}", 400, "prompt is missing"),
        ("/generate", "nonsense", 400, "JSON"),
        ("/generate", "{\"prompt_tokens\": 0}", 400, "prompt_tokens"),
        ("/v1/nothing", "{}", 404, "/v1/nothing"),
        ("/health", "", 405, "only GET"),
    ] {
        let reply = text(path, body);
        assert_eq!(reply.status, status, "{path} {body}");
        let error = &reply.json()["error"];
        assert!(error["message"].as_str().is_some_and(|message| message.contains(needle)), "{path} {body}: {error}");
        assert!(error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some());
    }
    assert_eq!(call(&server, "GET", "/generate", &Value::Null).status, 405);
    assert_eq!(stats(&server)["requests"], 1, "only the one that was too long reached the cluster");
}

#[test]
fn status_pages_are_served() {
    let server = start(quick());
    assert_eq!(
        (call(&server, "GET", "/health", &Value::Null).status, call(&server, "HEAD", "/health", &Value::Null).status),
        (200, 200)
    );
    let models = call(&server, "GET", "/v1/models", &Value::Null).json();
    assert_eq!(models["data"][0]["id"], "simulated");
    let stats = call(&server, "GET", "/stats", &Value::Null).json();
    assert_eq!((&stats["requests"], &stats["running"]), (&json!(0), &json!(0)));
}

#[test]
fn the_metrics_page_adds_up() {
    let server = start(ClusterConfig { gpus: 1, model: "a\"b".to_owned(), ..quick() });
    for extra in [json!({"stream": true}), json!({"max_tokens": 4}), json!({})] {
        post(&server, "/v1/chat/completions", &chat(&extra));
    }
    let page = call(&server, "GET", "/metrics", &Value::Null);
    assert!(page.head.contains("text/plain; version=0.0.4"));
    let text = page.text();
    let value = |series: &str| {
        let line = text.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series}"));
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
    };
    let labels = r#"{engine="0",model_name="a\"b""#;
    for (series, expected) in [
        (format!("vllm:num_requests_running{labels}}}"), 0.0),
        (format!("vllm:num_requests_waiting{labels}}}"), 0.0),
        (format!("vllm:kv_cache_usage_perc{labels}}}"), 0.0),
        (format!("vllm:generation_tokens_total{labels}}}"), 24.0),
        (format!("vllm:prompt_tokens_total{labels}}}"), 9.0),
        (format!("vllm:request_success_total{labels},finished_reason=\"stop\"}}"), 2.0),
        (format!("vllm:request_success_total{labels},finished_reason=\"length\"}}"), 1.0),
        (format!("vllm:time_to_first_token_seconds_count{labels}}}"), 3.0),
        (format!("vllm:inter_token_latency_seconds_count{labels}}}"), 21.0),
        (format!("vllm:e2e_request_latency_seconds_bucket{labels},le=\"+Inf\"}}"), 3.0),
        (format!("vllm:cache_config_info{labels},block_size=\"16\",num_gpu_blocks=\"4096\"}}"), 1.0),
    ] {
        assert!((value(&series) - expected).abs() < 1e-9, "{series} {}", value(&series));
    }
    // Every sample belongs to a family that was announced.
    let mut family = String::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            family = kind.split(' ').next().unwrap_or_default().to_owned();
        } else if !line.starts_with('#') {
            assert!(
                line.starts_with(&family) && line.rsplit(' ').next().is_some_and(|value| value.parse::<f64>().is_ok()),
                "{line}"
            );
        }
    }
    let stats = stats(&server);
    let late = &stats["lateness_s"];
    assert!(late["count"].as_u64() >= Some(3));
    assert!(late["p50"].as_f64() > Some(1e-7) && late["p99"].as_f64() >= late["p50"].as_f64(), "{late}");
    assert!(late["max"].as_f64() >= late["p99"].as_f64(), "{late}");
    let buckets = stats["lateness_buckets"].as_array().expect("buckets");
    assert_eq!(buckets.last(), Some(&json!([null, late["count"]])));
    assert_eq!(stats["answers"], json!({"ok": 3}));
}

#[test]
fn the_same_seed_gives_the_same_service_as_in_virtual_time() {
    let config = ClusterConfig { output_tokens: Length::Uniform { min_tokens: 1, max_tokens: 30 }, seed: 9, ..quick() };
    let expected =
        run_virtual(&config, &Load { warmup_requests: 0, ..Load::closed(1, 12) }).expect("a result").columns.tokens_out;
    let server = start(config);
    let served: Vec<u32> = (0..12)
        .map(|_| post(&server, "/generate", &json!({})))
        .map(|reply| reply.json()["completion_tokens"].as_u64().map_or(0, |n| n as u32))
        .collect();
    assert_eq!(served, expected);
}

#[test]
fn many_at_once_are_all_served() {
    let server = start(ClusterConfig { max_batch: 4, ..quick() });
    let events: Vec<usize> = thread::scope(|scope| {
        let calls: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| post(&server, "/v1/chat/completions", &chat(&json!({"stream": true}))).events().len())
            })
            .collect();
        calls.into_iter().map(|call| call.join().expect("a call")).collect()
    });
    assert_eq!(events, [11; 40]);
    let stats = stats(&server);
    assert_eq!((&stats["tokens_out"], &stats["running"], &stats["connections"]), (&json!(400), &json!(0), &json!(40)));
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let server = start(quick());
    let mut stream = TcpStream::connect(server.local_addr()).expect("a connection");
    for _ in 0..3 {
        let body = r#"{"prompt": "x"}"#;
        write!(stream, "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .expect("a request");
        let reply = read(BufReader::new(stream.try_clone().expect("a second handle"))).expect("an answer");
        assert_eq!(reply.status, 200);
    }
    assert_eq!(stats(&server)["connections"], 1);
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let config = ClusterConfig {
        gpus: 1,
        max_batch: 1,
        output_tokens: Length::Fixed { tokens: 50_000 },
        iteration_base_s: 0.002,
        ..quick()
    };
    let server = start(config);
    let body = chat(&json!({"stream": true})).to_string();
    for _ in 0..2 {
        let mut stream = send(&server, "POST", "/v1/chat/completions", &body).expect("a connection");
        let mut line = String::new();
        stream.read_line(&mut line).expect("a status line");
        assert!(line.contains("200"));
        while stream.read_line(&mut line).expect("a line") > 0 && !line.contains(" token") {}
    }
    // The second had its first token long before the first could have ended.
    assert!(stats(&server)["tokens_out"].as_u64() < Some(50_000));
}

#[test]
fn stopping_twice_gives_the_last_statistics() {
    let server = start(quick());
    post(&server, "/generate", &json!({}));
    let last = server.stop().expect("statistics");
    assert_eq!(serde_json::from_str::<Value>(&last).expect("JSON")["requests"], 1);
    assert_eq!(server.stop().expect("statistics"), last);
    assert_eq!(server.stats_json().expect("statistics"), last);
    assert!(TcpStream::connect(server.local_addr()).is_err());
}

#[test]
fn an_address_in_use_is_named() {
    let server = start(quick());
    let error = SimServer::start(quick(), server.local_addr()).expect_err("in use");
    assert!(matches!(error, SimError::Bind { .. }) && error.to_string().contains("127.0.0.1"), "{error}");
    let bad = ClusterConfig { gpus: 0, ..quick() };
    assert!(SimServer::start(bad, "127.0.0.1:0".parse().expect("an address")).is_err());
}
