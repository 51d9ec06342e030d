use super::*;
use crate::spec::Endings;
use crate::wire::message::MAX_MESSAGE;
use crate::wire::places::MAX_DEPTH;

fn spec(json: &str) -> Interpreter {
    Interpreter::new(&serde_json::from_str(json).unwrap())
}

fn chat() -> Interpreter {
    Interpreter::new(&ResponseSpec {
        content: "/choices/0/delta/content".into(),
        reasoning: "/choices/0/delta/reasoning_content".into(),
        tokens_in: "/usage/prompt_tokens".into(),
        tokens_out: "/usage/completion_tokens".into(),
        tokens_cached: "/usage/prompt_tokens_details/cached_tokens".into(),
        error: "/error".into(),
        end: Endings(vec![End::Text("[DONE]".into())]),
        ..ResponseSpec::default()
    })
}

#[test]
fn content_is_told_from_role_usage_and_end() {
    let mut a = Answer::default();
    let i = chat();
    assert_eq!(
        i.read(br#"{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}"#, &mut a),
        Found::Nothing
    );
    assert_eq!(i.read(br#"{"choices":[{"delta":{"role":"assistant"}}]}"#, &mut a), Found::Nothing);
    assert_eq!(i.read(br#"{"id":"x","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#, &mut a), Found::Content);
    assert_eq!(
        i.read(br#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#, &mut a),
        Found::Reasoning
    );
    assert_eq!(i.read(br#"{"choices":[{"delta":{"content":null}}],"usage":null}"#, &mut a), Found::Nothing);
    assert_eq!(a, Answer::default());
    let usage = br#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}"#;
    assert_eq!(i.read(usage, &mut a), Found::Nothing);
    assert_eq!((a.tokens_in, a.tokens_out, a.tokens_cached, a.ended), (Some(7), Some(2), Some(3), false));
    assert_eq!(i.read(b"[DONE]", &mut a), Found::Nothing);
    assert!(a.ended && !a.malformed && a.error.is_none());
}

#[test]
fn a_stream_ends_with_any_of_its_ends() {
    let i = spec(r#"{"content":"/text","end":["[DONE]",{"at":"/finish_reason"}]}"#);
    for end in [&b"[DONE]"[..], br#"{"finish_reason":"stop"}"#] {
        let mut a = Answer::default();
        i.read(br#"{"text":"a","finish_reason":null}"#, &mut a);
        assert!(!a.ended && !i.is_end(br#"{"finish_reason":null}"#));
        i.read(end, &mut a);
        assert!(a.ended && i.is_end(end));
        // Whatever else comes than the text that may end it is judged as before.
        i.read(b"nonsense", &mut a);
        assert!(a.malformed);
    }
}

#[test]
fn errors_inside_an_answer_and_broken_json_are_seen() {
    let i = chat();
    let mut a = Answer::default();
    i.read(br#"{"error":{"message":"out of memory","code":500}}"#, &mut a);
    assert_eq!(a.error.as_deref(), Some("out of memory"));
    let mut a = Answer::default();
    i.read(br#"{"error":null,"choices":[]}"#, &mut a);
    assert_eq!(a, Answer::default());
    for broken in [&b"{\"choices\":[{"[..], b"nonsense", b"{\"choices\" 3}"] {
        let mut a = Answer::default();
        i.read(broken, &mut a);
        assert!(a.malformed, "{broken:?}");
    }
}

#[test]
fn endless_nesting_is_refused_and_brackets_in_text_are_not_nesting() {
    let i = chat();
    for open in ["[", "{\"a\":"] {
        let mut a = Answer::default();
        assert_eq!(i.read(open.repeat(200_000).as_bytes(), &mut a), Found::Nothing);
        assert!(a.malformed);
        for times in [MAX_DEPTH + 1, 200_000] {
            assert!(message_of(open.repeat(times).as_bytes()).len() <= MAX_MESSAGE);
        }
    }
    let text = format!(r#"{{"choices":[{{"delta":{{"content":"{}\\\" [["}}}}]}}"#, "[{".repeat(2_000));
    let mut a = Answer::default();
    assert_eq!((i.read(text.as_bytes(), &mut a), a.malformed), (Found::Content, false));
}

#[test]
fn pointers_reach_numbers_indices_and_escaped_names() {
    let spec = ResponseSpec {
        content: "/a~1b/1/~01".into(),
        tokens_in: "/usage/in".into(),
        tokens_out: "/usage/out".into(),
        tokens_cached: "/usage/+1".into(),
        error: "/error".into(),
        ..ResponseSpec::default()
    };
    let i = Interpreter::new(&spec);
    let mut a = Answer::default();
    assert_eq!(i.read(br#"{"a/b":[{},{"~1":"x"}],"usage":{"in":7.0,"out":2.5e1,"+1":3}}"#, &mut a), Found::Content);
    assert_eq!((a.tokens_in, a.tokens_out, a.tokens_cached), (Some(7), Some(25), Some(3)));
    assert_eq!(i.read(br#"{"usage":{"in":null,"out":-1,"+1":0.5}}"#, &mut a), Found::Nothing);
    assert_eq!((a.tokens_in, a.tokens_out, a.tokens_cached), (Some(7), Some(25), Some(3)), "what was said stays");
    i.read(br#"{"error":"no room"}"#, &mut a);
    assert_eq!(a.error.as_deref(), Some("no room"));
}

#[test]
fn text_is_read_as_json_only_where_it_says_so() {
    let spec = ResponseSpec { content: "/c".into(), json: JsonRule::ByType, ..ResponseSpec::default() };
    let i = Interpreter::new(&spec);
    assert!(i.reads_bodies(Content::Json) && !i.reads_bodies(Content::Other) && chat().reads_bodies(Content::Other));
    let mut a = Answer::default();
    for (text, want) in
        [(&b"plain words"[..], Found::Content), (br#" {"c":"x"}"#, Found::Content), (br#"{"d":"x"}"#, Found::Nothing)]
    {
        assert_eq!(i.read(text, &mut a), want);
    }
    assert!(!a.malformed);
}

#[test]
fn a_stream_of_typed_events_is_read_by_conditions() {
    let i = spec(
        r#"{"content":[{"at":"/delta","if":{"at":"/type","is":["response.output_text.delta"]}}],
            "reasoning":[{"at":"/delta","if":{"at":"/type","is":["response.reasoning_text.delta"]}}],
            "tokens_in":["/response/usage/input_tokens","/usage/input_tokens"],"tokens_out":"/response/usage/output_tokens",
            "error":["/response/error","/error",{"at":"/message","if":{"at":"/type","is":["error"]}}],
            "end":{"at":"/type","is":["response.completed","response.incomplete"]}}"#,
    );
    let mut a = Answer::default();
    for (event, want) in [
        (r#"{"type":"response.created","response":{"id":"r","usage":null,"error":null}}"#, Found::Nothing),
        (r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#, Found::Reasoning),
        (r#"{"type":"response.output_text.delta","delta":""}"#, Found::Nothing),
        (r#"{"delta":"Hi","type":"response.output_text.delta"}"#, Found::Content),
        (r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#, Found::Nothing),
        (r#"{"type":"response.output_text.done","text":"Hi","delta":{"x":[]}}"#, Found::Nothing),
        (r#"{"type":"response.output_text.delta","message":"no error"}"#, Found::Nothing),
        ("", Found::Nothing),
    ] {
        assert_eq!(i.read(event.as_bytes(), &mut a), want, "{event}");
        assert_eq!(a, Answer::default(), "{event}");
    }
    let last =
        r#"{"type":"response.completed","response":{"error":null,"usage":{"input_tokens":9,"output_tokens":4}}}"#;
    assert_eq!(i.read(last.as_bytes(), &mut a), Found::Nothing);
    assert_eq!((a.tokens_in, a.tokens_out, a.ended, a.error.clone()), (Some(9), Some(4), true, None));
    i.read(b"[DONE]", &mut a);
    assert!(!a.malformed, "text after the end is nobody's business");
    let mut a = Answer::default();
    i.read(br#"{"type":"error","code":"x","message":"too long"}"#, &mut a);
    assert_eq!((a.error.as_deref(), a.ended), (Some("too long"), false));
    let mut a = Answer::default();
    i.read(b"[DONE]", &mut a);
    assert!(a.malformed, "before the end it is");
}

#[test]
fn the_first_place_that_holds_a_count_or_an_error_counts() {
    let i = spec(r#"{"tokens_in":["/a","/b"],"error":["/e","/f"]}"#);
    let mut a = Answer::default();
    i.read(br#"{"a":1,"b":2,"e":null,"f":"second"}"#, &mut a);
    assert_eq!((a.tokens_in, a.error.as_deref()), (Some(1), Some("second")));
    i.read(br#"{"a":null,"b":5,"e":"later"}"#, &mut a);
    assert_eq!((a.tokens_in, a.error.as_deref()), (Some(5), Some("second")), "the first error is the cause");
}

#[test]
fn contents_are_kept_as_they_stand_and_cut_where_nothing_breaks() {
    let mut i = chat();
    assert!(i.keep_text() && !spec(r#"{"reasoning":"/r"}"#).keep_text());
    let mut a = Answer::default();
    for event in [
        r#"{"choices":[{"delta":{"content":"a \"b\"\n"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
        r#"{"choices":[{"delta":{"content":"\u00e9é"}}]}"#,
    ] {
        i.read(event.as_bytes(), &mut a);
    }
    assert_eq!(std::str::from_utf8(&a.text), Ok(r#"a \"b\"\n\u00e9é"#));
    let text = r"é\n\\\\\u00e9x\ud83d\ude00é";
    for room in 0..text.len() {
        let end = cut(text, room);
        assert!(end <= room && end + 12 > room, "{room} {end}");
        let whole: Result<String, _> = serde_json::from_str(&format!("\"{}\"", &text[..end]));
        assert!(whole.is_ok(), "{room}: {}", &text[..end]);
    }
    let long = format!(r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#, "x".repeat(MAX_TEXT));
    i.read(long.as_bytes(), &mut a);
    assert_eq!(a.text.len(), MAX_TEXT);
}

#[test]
fn a_success_may_have_to_say_so() {
    let i = spec(r#"{"success_if":{"at":"/status","is":["ok"]},"json":"by_type"}"#);
    assert!(i.reads_bodies(Content::Other));
    let mut a = Answer::default();
    for text in [&br#"{"status":"no"}"#[..], b"status: ok", b"{}"] {
        i.read(text, &mut a);
        assert_eq!(i.lacks(&a), Some("/status that is ok"));
    }
    assert_eq!(i.read(br#"{"status":"ok"}"#, &mut a), Found::Content);
    assert_eq!((i.lacks(&a), chat().lacks(&Answer::default())), (None, None));
}

#[test]
fn any_sign_of_a_success_will_do() {
    let i = spec(
        r#"{"content":"/text","success_if":["content",{"at":"/choices/0/finish_reason"},{"at":"/n","is":[1,2]}]}"#,
    );
    for (text, is_enough) in [
        (r#"{"text":"a"}"#, true),
        (r#"{"choices":[{"finish_reason":"stop"}]}"#, true),
        (r#"{"n":2}"#, true),
        (r#"{"text":"","choices":[{"finish_reason":null}],"n":3}"#, false),
        (r#"{"choices":[]}"#, false),
        ("null", false),
        ("{}", false),
    ] {
        let mut a = Answer::default();
        i.read(text.as_bytes(), &mut a);
        assert_eq!((a.satisfied, a.malformed), (is_enough, false), "{text}");
        assert_eq!(i.lacks(&a).is_none(), is_enough);
    }
    let said = "content, or /choices/0/finish_reason, or /n that is 1 or 2";
    assert_eq!(i.lacks(&Answer::default()), Some(said));
    let plain = spec(r#"{"json":"by_type","success_if":"content"}"#);
    assert!(plain.reads_bodies(Content::Other));
    let mut a = Answer::default();
    plain.read(b"words", &mut a);
    assert_eq!(plain.lacks(&a), None);
}

/// A document in which most of what is looked for is there, and something of another kind elsewhere.
fn random_event(draw: &mut impl FnMut(u64) -> u64) -> serde_json::Value {
    use serde_json::{Value, json};
    let mut number = || match draw(8) {
        0 => Value::Null,
        1 => json!("12.5"),
        2 => json!(draw(1_000_000)),
        3 => json!(-(draw(1_000) as f64) / 8.0),
        4 => json!([1.5]),
        _ => json!(draw(100_000_000) as f64 / 1_000.0),
    };
    let mut event = json!({
        "id": "x", "choices": [{"delta": {"content": "a"}}],
        "metrics": {"queue_time_ms": number(), "time_to_first_token_ms": number(), "generation_time_ms": number()},
        "stats": {"time_in_queue_in_ms": number(), "generation_time_in_ms": number()},
        "timings": {"prompt_ms": number(), "predicted_ms": number()},
    });
    for name in ["metrics", "stats", "timings", "choices"] {
        match draw(3) {
            0 => drop(event.as_object_mut().unwrap().remove(name)),
            1 if draw(2) == 0 => event[name] = Value::Null,
            _ => {}
        }
    }
    event
}

#[test]
fn times_are_those_that_another_reader_finds() {
    let places: [(&str, &[&[&str]]); 2] = [
        ("server_queue", &[&["/metrics/queue_time_ms"], &["/stats/time_in_queue_in_ms"]]),
        (
            "server_service",
            &[
                &["/metrics/time_to_first_token_ms", "/metrics/generation_time_ms"],
                &["/stats/generation_time_in_ms"],
                &["/timings/prompt_ms", "/timings/predicted_ms"],
            ],
        ),
    ];
    let mut given = serde_json::json!({"content": "/choices/0/delta/content"});
    for (name, all) in places {
        given[name] = all.iter().map(|at| serde_json::json!({"at": at, "unit": "ms"})).collect();
    }
    let interpreter = Interpreter::new(&serde_json::from_value(given).unwrap());
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut said = 0;
    for _ in 0..5_000 {
        let (mut answer, mut want) = (Answer::default(), [crate::record::columns::NO_TIME; 2]);
        for _ in 0..=draw(3) {
            let event = random_event(&mut draw);
            for (want, (_, all)) in want.iter_mut().zip(places) {
                let sum = |at: &&[&str]| at.iter().map(|at| event.pointer(at)?.as_f64()).sum::<Option<f64>>();
                let first = all.iter().filter_map(sum).find(|ms| *ms >= 0.0);
                *want = first.map_or(*want, |ms| (ms * 1e6).round() as i64);
            }
            interpreter.read(event.to_string().as_bytes(), &mut answer);
        }
        assert_eq!([answer.times.queue_ns, answer.times.service_ns], want);
        said += u32::from(!answer.times.is_none());
    }
    assert!((1_000..4_900).contains(&said), "{said}");
}
