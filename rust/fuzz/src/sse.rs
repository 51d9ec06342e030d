//! Event streams, and what their events say.

use std::sync::LazyLock;

use gpusize_engine::record::columns::NO_TIME;
use gpusize_engine::spec::ResponseSpec;
use gpusize_engine::wire::calls::{CallReader, Calls};
use gpusize_engine::wire::interpret::{Answer, Found, Interpreter};
use gpusize_engine::wire::message::{MAX_MESSAGE, message_of};

use crate::input::Input;
use crate::readers::sse::{Event, reference, split};

/// As the API of each kind of server gives it: chat, typed events, steps beside the events.
const SPECS: [&str; 4] = [
    r#"{"content":"/choices/0/delta/content","reasoning":"/choices/0/delta/reasoning_content","tokens_in":"/usage/prompt_tokens",
        "tokens_out":"/usage/completion_tokens","tokens_cached":"/usage/prompt_tokens_details/cached_tokens","error":"/error","end":"[DONE]",
        "server_queue":[{"at":"/metrics/queue_time_ms","unit":"ms"},{"header":"x-queue-time","unit":"ms"}],
        "server_service":[{"at":["/metrics/time_to_first_token_ms","/metrics/generation_time_ms"],"unit":"ms"}]}"#,
    r#"{"content":[{"at":"/delta","if":{"at":"/type","is":["response.output_text.delta"]}}],"tokens_in":["/response/usage/input_tokens","/usage/in"],
        "error":["/response/error","/error"],"end":{"at":"/type","is":["response.completed"]},"success_if":{"at":"/status","is":["ok",1,true]}}"#,
    r#"{"content":["/a/0","/a/b",""],"json":"by_type","error":"/error/message"}"#,
    r#"{"content":"/value","calls":{"field":"step","kind":"/t","start":"S","end":"E","id":"/id","name":"/name","time_s":"/time",
        "tokens_in":"/in","tokens_out":"/out"}}"#,
];

/// Most calls that are kept of one answer.
const MAX_CALLS: usize = 65_536;

struct Reading {
    interpreter: Interpreter,
    calls: Option<CallReader>,
}

static READINGS: LazyLock<Vec<Reading>> = LazyLock::new(|| {
    SPECS
        .iter()
        .map(|text| {
            let spec: ResponseSpec = serde_json::from_str(text).expect("a ResponseSpec");
            Reading { interpreter: Interpreter::new(&spec), calls: spec.calls.as_ref().map(CallReader::new) }
        })
        .collect()
});

/// A stream is split as the standard says, alike whole and in pieces, and its events are read without a panic.
pub fn sse(bytes: &[u8]) {
    let Some(input) = Input::new(bytes) else { return };
    let reading = &READINGS[usize::from(input.flags) % SPECS.len()];
    let other = reading.calls.as_ref().and_then(CallReader::field);
    let events = reference(input.message, other);
    assert_eq!(split(&input.whole(), other), events, "whole");
    assert_eq!(split(&input.pieces(), other), events, "in pieces");
    let mut answer = Answer::default();
    let mut calls = Calls::default();
    for event in &events {
        match event {
            Event::Data(data) => read(&reading.interpreter, data, &mut answer),
            Event::Step(step) => {
                reading.calls.as_ref().map(|reader| reader.read(step, &mut calls));
            }
        }
    }
    let spans = calls.take();
    let said = answer.times;
    assert!([said.queue_ns, said.service_ns].iter().all(|ns| *ns >= 0 || *ns == NO_TIME));
    assert!(spans.len() <= MAX_CALLS && spans.is_sorted_by_key(|span| span.start_ns));
    assert!(answer.error.is_none_or(|error| is_bounded(&error)));
}

/// One document, and then the same again: what it says does not depend on where its bytes lie.
fn read(interpreter: &Interpreter, data: &[u8], answer: &mut Answer) {
    let before = answer.clone();
    let found = interpreter.read(data, answer);
    let mut again = before.clone();
    let copy = data.to_vec();
    assert_eq!((interpreter.read(&copy, &mut again), &again), (found, &*answer));
    if answer.malformed && !before.malformed {
        assert_eq!(found, Found::Nothing, "a document that is none has no content");
    }
    assert!(is_bounded(&message_of(data)));
}

fn is_bounded(text: &str) -> bool {
    text.chars().count() <= MAX_MESSAGE && !text.chars().any(char::is_control)
}
