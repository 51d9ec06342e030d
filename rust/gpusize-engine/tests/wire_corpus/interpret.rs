//! Documents, read by JSON pointers.

use gpusize_engine::spec::ResponseSpec;
use gpusize_engine::wire::interpret::{Answer, Found, Interpreter};
use serde_json::{Map, Value, json};

use super::cases::load;

/// What of an answer is not as it was before, by name.
fn said(found: Found, answer: &Answer) -> Value {
    let mut said = Map::new();
    let found = match found {
        Found::Nothing => "nothing",
        Found::Reasoning => "reasoning",
        Found::Content => "content",
    };
    said.insert("found".to_owned(), json!(found));
    for (name, count) in [
        ("tokens_in", answer.tokens_in),
        ("tokens_out", answer.tokens_out),
        ("tokens_cached", answer.tokens_cached),
        ("tokens_reasoning", answer.tokens_reasoning),
    ] {
        if let Some(count) = count {
            said.insert(name.to_owned(), json!(count));
        }
    }
    for (name, flag) in [("ended", answer.ended), ("satisfied", answer.satisfied), ("malformed", answer.malformed)] {
        if flag {
            said.insert(name.to_owned(), json!(true));
        }
    }
    if let Some(error) = &answer.error {
        said.insert("error".to_owned(), json!(error));
    }
    Value::Object(said)
}

#[test]
fn every_document_is_read_as_expected() {
    // In a build that is not optimised, the frames of sonic-rs take 16 KB for each level of nesting.
    std::thread::Builder::new().stack_size(16 << 20).spawn(read_all).unwrap().join().unwrap();
}

fn read_all() {
    let cases = load("interpret");
    assert!(cases.len() > 50, "{} cases", cases.len());
    for case in cases {
        let spec: ResponseSpec = serde_json::from_value(case.get("spec").clone()).unwrap();
        let mut answer = Answer::default();
        let found = Interpreter::new(&spec).read(&case.wire, &mut answer);
        assert_eq!(said(found, &answer), *case.get("want"), "{}", case.name);
    }
}
