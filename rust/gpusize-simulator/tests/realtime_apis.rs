//! Embeddings, responses, tools, reasoning, cached conversations and workflows of several calls, seen from a plain socket.

mod simulate_client;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gpusize_simulator::{ChatConfig, ClusterConfig, Faults, Length, WorkflowConfig};
use serde_json::{Value, json};
use simulate_client::{Reply, call, chat, post, quick, read, send, start, stats};

#[test]
fn embeddings_take_every_form_of_input_and_give_the_same_vector_for_the_same_text() {
    let server = start(quick());
    let ask = |body: &Value| post(&server, "/v1/embeddings", body).json();
    let one = ask(&json!({"model": "e", "input": "eight ch", "dimensions": 8}));
    assert_eq!((&one["object"], &one["model"], &one["data"][0]["index"]), (&json!("list"), &json!("e"), &json!(0)));
    assert_eq!(one["usage"], json!({"prompt_tokens": 2, "total_tokens": 2}));
    let numbers = |embedding: &Value| -> Vec<f32> {
        embedding.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number") as f32).collect()
    };
    let vector = numbers(&one["data"][0]["embedding"]);
    assert_eq!(vector.len(), 8);
    assert!((vector.iter().map(|number| number * number).sum::<f32>() - 1.0).abs() < 1e-5);
    let two = ask(&json!({"input": ["other", "eight ch"], "dimensions": 8, "encoding_format": "base64"}));
    assert_eq!((two["data"].as_array().map(Vec::len), &two["usage"]["prompt_tokens"]), (Some(2), &json!(4)));
    let bytes = STANDARD.decode(two["data"][1]["embedding"].as_str().expect("a text")).expect("base64");
    let same: Vec<f32> = bytes.chunks_exact(4).map(|f| f32::from_le_bytes([f[0], f[1], f[2], f[3]])).collect();
    assert_eq!(same, vector);
    assert_ne!(two["data"][0]["embedding"], two["data"][1]["embedding"]);
    assert_eq!(ask(&json!({"input": [5, 6, 7]}))["usage"]["prompt_tokens"], 3);
    let lists = ask(&json!({"input": [[5, 6, 7], [1]]}));
    assert_eq!((lists["data"].as_array().map(Vec::len), &lists["usage"]["prompt_tokens"]), (Some(2), &json!(4)));
    assert_eq!(lists["data"][0]["embedding"].as_array().map(Vec::len), Some(64));
    for body in [json!({}), json!({"input": ""}), json!({"input": []}), json!({"input": ["a", ""]})] {
        let reply = post(&server, "/v1/embeddings", &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("input")), "{body}");
    }
    assert_eq!(post(&server, "/v1/embeddings", &json!({"input": "a", "dimensions": 0})).status, 400);
}

/// The events of a stream with their names.
fn named_events(reply: &Reply) -> Vec<(String, Value)> {
    let blocks = reply.text().split("\n\n").filter(|block| !block.is_empty());
    blocks
        .map(|block| {
            let (name, data) = block.split_once('\n').expect("two lines");
            let name = name.strip_prefix("event: ").expect("a name").to_owned();
            (name, serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON"))
        })
        .collect()
}

#[test]
fn a_response_is_streamed_in_its_events() {
    let server = start(quick());
    let body = json!({"model": "m", "input": "twelve chars", "instructions": "be brief", "stream": true});
    let reply = post(&server, "/v1/responses", &body);
    assert!(reply.head.contains("content-type: text/event-stream"));
    let events = named_events(&reply);
    for (number, (name, data)) in events.iter().enumerate() {
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(number)));
    }
    let names: Vec<&str> = events.iter().map(|(name, _)| name.strip_prefix("response.").expect("a prefix")).collect();
    let mut expected = vec!["created", "in_progress", "output_item.added", "content_part.added"];
    expected.extend(["output_text.delta"; 10]);
    expected.extend(["output_text.done", "content_part.done", "output_item.done", "completed"]);
    assert_eq!(names, expected);
    assert!(events[4..14].iter().all(|(_, data)| data["delta"] == " token" && data["item_id"] == "msg_sim_0"));
    let text = " token".repeat(10);
    assert_eq!(events[14].1["text"], json!(text));
    let last = &events[17].1["response"];
    assert_eq!((&last["status"], &last["output"][0]["content"][0]["text"]), (&json!("completed"), &json!(text)));
    assert_eq!(
        last["usage"],
        json!({
            "input_tokens": 5, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15
        })
    );
    let cut =
        named_events(&post(&server, "/v1/responses", &json!({"input": "x", "stream": true, "max_output_tokens": 3})));
    let (name, data) = cut.last().expect("an event");
    assert_eq!((name.as_str(), cut.len()), ("response.incomplete", 4 + 3 + 4));
    assert_eq!(data["response"]["incomplete_details"], json!({"reason": "max_output_tokens"}));
}

#[test]
fn a_response_is_given_whole_and_nothing_is_kept() {
    let server = start(quick());
    let messages = json!([{"role": "user", "content": [{"type": "input_text", "text": "twelve chars"}]}]);
    let answer = post(&server, "/v1/responses", &json!({"model": "m", "input": messages})).json();
    assert_eq!(
        (&answer["object"], &answer["status"], &answer["model"]),
        (&json!("response"), &json!("completed"), &json!("m"))
    );
    assert_eq!(answer["output"][0]["content"][0]["text"], json!(" token".repeat(10)));
    let refused = post(&server, "/v1/responses", &json!({"input": "x", "previous_response_id": "resp_1"}));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("previous_response_id")));
    assert_eq!(post(&server, "/v1/responses", &json!({"input": []})).status, 400);
}

#[test]
fn tools_are_called_when_the_configuration_says_so() {
    let tools = json!([{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]);
    let plain = start(quick());
    assert_eq!(
        post(&plain, "/v1/chat/completions", &chat(&json!({"tools": tools}))).json()["choices"][0]["finish_reason"],
        "stop"
    );
    let server = start(ClusterConfig { chat: ChatConfig { tool_call: true, ..ChatConfig::default() }, ..quick() });
    let whole = post(&server, "/v1/chat/completions", &chat(&json!({"tools": tools}))).json();
    let choice = &whole["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
    let function = &choice["message"]["tool_calls"][0]["function"];
    let arguments = json!({"text": " token".repeat(10)});
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(
        (&function["name"], read(function["arguments"].as_str().expect("text"))),
        (&json!("look_up"), arguments.clone())
    );
    let events = post(&server, "/v1/chat/completions", &chat(&json!({"tools": tools, "stream": true}))).events();
    let pieces: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str())
        .collect();
    assert_eq!(read(&pieces), arguments);
    assert_eq!(events[0]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"], "look_up");
    assert_eq!(events.last().expect("an event")["choices"][0]["finish_reason"], "tool_calls");
    let without = post(&server, "/v1/chat/completions", &chat(&json!({}))).json();
    assert_eq!(without["choices"][0]["finish_reason"], "stop");
}

#[test]
fn reasoning_comes_first_and_is_counted() {
    let server = start(ClusterConfig { chat: ChatConfig { reasoning_tokens: 4, ..ChatConfig::default() }, ..quick() });
    let body = chat(&json!({"stream": true, "stream_options": {"include_usage": true}}));
    let events = post(&server, "/v1/chat/completions", &body).events();
    let deltas: Vec<Value> = events[1..11].iter().map(|event| event["choices"][0]["delta"].clone()).collect();
    assert_eq!(deltas[..4], vec![json!({"reasoning_content": " thought"}); 4]);
    assert_eq!(deltas[4..], vec![json!({"content": " token"}); 6]);
    let usage = &events.last().expect("an event")["usage"];
    assert_eq!(usage["completion_tokens_details"], json!({"reasoning_tokens": 4}));
    let whole = post(&server, "/v1/chat/completions", &chat(&json!({}))).json();
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], json!(" thought".repeat(4)));
    assert_eq!(message["content"], json!(" token".repeat(6)));
    let short = post(&server, "/v1/chat/completions", &chat(&json!({"max_tokens": 2}))).json();
    assert_eq!(short["choices"][0]["message"]["content"], " token");
}

#[test]
fn a_conversation_goes_on_from_its_cached_turns() {
    let config =
        ClusterConfig { prefix_cache: true, kv_block_tokens: 4, prefill_per_token_s: 0.002, gpus: 1, ..quick() };
    let server = start(config);
    let question = |text: &str| json!({"role": "user", "content": text.repeat(20)});
    let ask = |messages: &[Value]| {
        let answer = post(&server, "/v1/chat/completions", &json!({"messages": messages})).json();
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count");
        (answer["choices"][0]["message"].clone(), cached)
    };
    let mut messages = vec![question("abcd")];
    let (answer, cached) = ask(&messages);
    assert_eq!(cached, 0);
    messages.extend([json!({"role": "assistant", "content": answer["content"]}), question("efgh")]);
    // 80 characters and the answer's 60 are 35 tokens, in whole blocks 32.
    assert_eq!(ask(&messages).1, 32);
    // The same again: all of it is known, and something must be left to prefill.
    assert_eq!(ask(&messages).1, 52);
    assert_eq!(ask(&[question("efgh"), question("abcd")]).1, 0);
    let page = call(&server, "GET", "/metrics", &Value::Null);
    let value = |name: &str| {
        let line = page.text().lines().find(|line| line.starts_with(name)).expect("a series");
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
    };
    assert!((value("vllm:prefix_cache_hits_total") - 84.0).abs() < 1e-9);
    assert!((value("vllm:prefix_cache_queries_total") - (20.0 + 55.0 + 55.0 + 40.0)).abs() < 1e-9);
    // Prefill of what was not cached is what the model charged: the time to the first token has no other part that is as long.
    let prefill_s = value("vllm:request_prefill_time_seconds_sum");
    let expected_s = 0.002 * (20.0 + 23.0 + 3.0 + 40.0) + 4.0 * 0.000_21;
    assert!((prefill_s - expected_s).abs() < 1e-6, "{prefill_s}");
}

#[test]
fn answers_say_how_long_they_waited_and_were_served() {
    let config = ClusterConfig { per_request_metrics: true, gpus: 1, ..quick() };
    let server = start(config);
    let streamed = json!({"stream": true, "stream_options": {"include_usage": true}});
    let input = |extra: &Value| {
        let mut body = chat(extra);
        body["input"] = json!("a question");
        body
    };
    let events = post(&server, "/v1/chat/completions", &chat(&streamed)).events();
    let (last, others) = events.split_last().expect("an event");
    assert!(others.iter().all(|event| event.get("metrics").is_none()));
    let stream = post(&server, "/v1/responses", &input(&json!({"stream": true})));
    let ended = stream.text().lines().filter_map(|line| line.strip_prefix("data: ")).next_back().expect("an event");
    let of_responses: Value = serde_json::from_str(ended).expect("JSON");
    for metrics in [
        &last["metrics"],
        &post(&server, "/v1/chat/completions", &chat(&json!({}))).json()["metrics"],
        &post(&server, "/v1/responses", &input(&json!({}))).json()["metrics"],
        &of_responses["response"]["metrics"],
    ] {
        let ms = |name: &str| metrics[name].as_f64().expect(name);
        // Ten iterations of one sequence, the first with its prompt; nobody else is there.
        assert!((0.0..50.0).contains(&ms("queue_time_ms")), "{metrics}");
        assert!((ms("mean_itl_ms") * 9.0 - ms("generation_time_ms")).abs() < 1e-6, "{metrics}");
        let served_ms = ms("time_to_first_token_ms") + ms("generation_time_ms");
        assert!((ms("tokens_per_second") * served_ms / 1e3 - 10.0).abs() < 1e-6, "{metrics}");
    }
    let silent = post(&start(quick()), "/v1/chat/completions", &chat(&json!({}))).json();
    assert!(silent.get("metrics").is_none());
}

#[test]
fn the_chat_of_a_workflow_server_is_never_streamed() {
    let server = start(quick());
    let answer =
        post(&server, "/chat", &json!({"messages": [{"role": "user", "content": "hi"}], "stream": true})).json();
    assert_eq!(
        (&answer["object"], &answer["choices"][0]["message"]["role"]),
        (&json!("chat.completion"), &json!("assistant"))
    );
}

/// The intermediate steps and the answer of a workflow.
fn steps(reply: &Reply) -> (Vec<Value>, Value) {
    let mut steps = Vec::new();
    let mut answer = Value::Null;
    for line in reply.text().lines().filter(|line| !line.is_empty()) {
        if let Some(step) = line.strip_prefix("intermediate_data: ") {
            let step: Value = serde_json::from_str(step).expect("JSON");
            steps.push(serde_json::from_str(step["payload"].as_str().expect("text")).expect("JSON in the text"));
        } else {
            answer = serde_json::from_str(line.strip_prefix("data: ").expect("the answer")).expect("JSON");
        }
    }
    (steps, answer)
}

fn calls_of(steps: &[Value]) -> Vec<(f64, f64)> {
    let stamp = |step: &Value| step["event_timestamp"].as_f64().expect("a time");
    let starts = steps.iter().filter(|step| step["event_type"] == "LLM_START");
    starts
        .map(|start| {
            let end = steps.iter().find(|step| step["event_type"] == "LLM_END" && step["UUID"] == start["UUID"]);
            (stamp(start), stamp(end.expect("an end")))
        })
        .collect()
}

#[test]
fn a_workflow_makes_its_calls_one_after_the_other_or_overlapping() {
    let slow = ClusterConfig { iteration_base_s: 0.02, ..quick() };
    let body = json!({"input_message": "hello"});
    let server = start(ClusterConfig { workflow: WorkflowConfig { llm_calls: 3, stagger_s: None }, ..slow });
    let (in_turn, answer) = steps(&post(&server, "/generate/full", &body));
    let calls = calls_of(&in_turn);
    assert_eq!((in_turn.len(), calls.len()), (6, 3));
    assert!(calls.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{calls:?}");
    assert_eq!(answer["value"].as_str().map(|value| value.split(' ').count()), Some(10));
    let slower = ClusterConfig { iteration_base_s: 0.15, ..quick() };
    let server = start(ClusterConfig { workflow: WorkflowConfig { llm_calls: 3, stagger_s: Some(0.02) }, ..slower });
    let (overlapping, _) = steps(&post(&server, "/generate/full", &body));
    let calls = calls_of(&overlapping);
    assert_eq!((overlapping.len(), calls.len()), (6, 3));
    // Each lasts 1.5 s and more, which no server is late. They begin 20 ms apart by the plan of the first, or later: one that is
    // late does not put off the next.
    assert!(calls.windows(2).all(|pair| pair[0].1 > pair[1].0), "{calls:?}");
    assert!((0..3).all(|number| calls[number].0 - calls[0].0 > 0.02 * number as f64 - 1e-4), "{calls:?}");
    let uuids: std::collections::BTreeSet<_> = overlapping.iter().map(|step| step["UUID"].to_string()).collect();
    assert_eq!((uuids.len(), &stats(&server)["requests"]), (3, &json!(3)));
}

#[test]
fn faults_reach_workflows_of_several_calls_and_the_new_apis() {
    let workflow = WorkflowConfig { llm_calls: 2, stagger_s: None };
    let output_tokens = Length::Fixed { tokens: 4 };
    let with = |faults| start(ClusterConfig { workflow, output_tokens, faults, ..quick() });
    let failing = with(Faults { fail_rate: 1.0, ..Faults::default() });
    for (path, body) in [
        ("/generate/full", json!({"input_message": "x"})),
        ("/v1/embeddings", json!({"input": "x"})),
        ("/v1/responses", json!({"input": "x"})),
    ] {
        assert_eq!(post(&failing, path, &body).status, 500, "{path}");
    }
    let resetting = with(Faults { reset_rate: 1.0, ..Faults::default() });
    let reader = send(&resetting, "POST", "/generate/full", &json!({"input_message": "x"}).to_string());
    assert!(read(reader.expect("a connection")).is_err());
}
