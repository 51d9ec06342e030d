//! `/generate`: any JSON in, JSON out; and `/generate/full`: the stream of a workflow server with its intermediate steps.

use std::rc::Rc;

use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{Answer, Script, Token};
use super::connection::Fate;
use super::error::ApiError;
use super::openai::checked_max_tokens;
use super::routes::{Reply, admitted};
use super::state::{Shared, Submitted, Wish};
use super::text::Extent;
use super::workflow_calls;

/// What both take beside any other fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wishes {
    prompt_tokens: Option<u32>,
    max_tokens: Option<i64>,
    ignore_eos: bool,
    pub(super) input_message: Option<Value>,
}

/// Answer `POST /generate`. The prompt is all text of the body, unless `prompt_tokens` says how long it is.
pub(super) async fn generate(shared: &Rc<Shared>, fate: &Rc<Fate>, body: &[u8]) -> Result<Reply, ApiError> {
    let (submitted, _) = submit(shared, body)?;
    shared.thaw().await;
    let ticket = admitted(&submitted)?;
    ticket.finished().await;
    shared.note_write(ticket.end_ns());
    let answer = json!({
        "value": value(ticket.made()),
        "prompt_tokens": submitted.prompt_tokens,
        "completion_tokens": ticket.made(),
    });
    let fault = submitted.service.fault;
    Ok(Reply::json(Answer::whole(Bytes::from(answer.to_string()), fault, fate), fault))
}

/// Answer `POST /generate/full`: `intermediate_data:` lines with the start and the end of the one LLM call, stamped by the server, then
/// `data:` with the answer. Like the server it stands for, it wants an `input_message`.
pub(super) async fn generate_full(shared: &Rc<Shared>, fate: &Rc<Fate>, body: &[u8]) -> Result<Reply, ApiError> {
    let (submitted, wishes) = submit_workflow(shared, body)?;
    shared.thaw().await;
    let ticket = admitted(&submitted)?;
    if shared.config.workflow.llm_calls > 1 {
        let fault = submitted.service.fault;
        return Ok(Reply::event_stream(workflow_calls::answer(shared, fate, wishes, submitted, ticket), fault));
    }
    let call = Call::new(shared, &submitted, wishes.input_message.unwrap_or_default());
    let opening = call.start();
    let end = Rc::clone(&ticket);
    let script = Script {
        opening: Bytes::from(opening),
        first: Bytes::new(),
        token: Token::Same(Bytes::new()),
        tail: Box::new(move |tokens| call.end(end.end_ns(), tokens)),
    };
    let fault = submitted.service.fault;
    let tokens = submitted.service.output_tokens;
    let stream = Answer::stream(Rc::clone(shared), Rc::clone(fate), ticket, fault, tokens, script);
    Ok(Reply::event_stream(stream, fault))
}

fn submit(shared: &Shared, body: &[u8]) -> Result<(Submitted, Wishes), ApiError> {
    let extent: Extent = serde_json::from_slice(body).map_err(|error| ApiError::json(&error))?;
    // Anything that is JSON is fine; only an object can have wishes.
    let wishes = if body.trim_ascii_start().starts_with(b"{") {
        serde_json::from_slice(body).map_err(|error| ApiError::json(&error))?
    } else {
        Wishes::default()
    };
    Ok((submit_wishes(shared, extent, &wishes)?, wishes))
}

fn submit_workflow(shared: &Shared, body: &[u8]) -> Result<(Submitted, Wishes), ApiError> {
    let wishes: Wishes = serde_json::from_slice(body).map_err(|error| ApiError::json(&error))?;
    let Some(input) = &wishes.input_message else {
        let message = "the field input_message is missing";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_request_error", message));
    };
    let extent = Extent::deserialize(input).map_err(|error| ApiError::json(&error))?;
    Ok((submit_wishes(shared, extent, &wishes)?, wishes))
}

/// One more call of the same workflow.
pub(super) fn submit_again(shared: &Shared, wishes: &Wishes) -> Result<Submitted, ApiError> {
    let input = wishes.input_message.clone().unwrap_or_default();
    let extent = Extent::deserialize(input).map_err(|error| ApiError::json(&error))?;
    submit_wishes(shared, extent, wishes)
}

fn submit_wishes(shared: &Shared, extent: Extent, wishes: &Wishes) -> Result<Submitted, ApiError> {
    let counted = || shared.config.count_prompt_tokens(extent.characters);
    let prompt_tokens = match wishes.prompt_tokens {
        Some(0) => return Err(ApiError::invalid("prompt_tokens must be at least 1", Some("prompt_tokens"))),
        said => said.unwrap_or_else(counted),
    };
    let max_tokens = checked_max_tokens(wishes.max_tokens, "max_tokens")?;
    let ignore_eos = wishes.ignore_eos;
    Ok(shared.submit(Wish { prompt_tokens, max_tokens, ignore_eos, ..Wish::default() }))
}

/// The workflow's answer.
pub(super) fn answer_line(tokens: u32) -> String {
    format!("data: {}\n\n", json!({ "value": value(tokens) }))
}

fn value(tokens: u32) -> String {
    vec!["token"; tokens as usize].join(" ")
}

/// An identifier in the form of a UUID, from the request's number.
fn call_id(submitted: &Submitted) -> String {
    format!("00000000-0000-4000-8000-{:012x}", submitted.index)
}

/// The LLM call of one workflow.
pub(super) struct Call {
    shared: Rc<Shared>,
    id: String,
    start_s: f64,
    input: Value,
    prompt_tokens: u32,
}

impl Call {
    pub(super) fn new(shared: &Rc<Shared>, submitted: &Submitted, input: Value) -> Self {
        Self {
            shared: Rc::clone(shared),
            id: call_id(submitted),
            start_s: shared.wall_s(submitted.arrived_ns),
            input,
            prompt_tokens: submitted.prompt_tokens,
        }
    }

    pub(super) fn start(&self) -> String {
        self.step(&json!({
            "event_type": "LLM_START",
            "event_timestamp": self.start_s,
            "span_event_timestamp": null,
            "framework": null,
            "name": self.shared.config.model,
            "tags": null,
            "metadata": null,
            "data": {"input": self.input, "output": null, "chunk": null},
            "usage_info": null,
            "UUID": self.id,
        }))
    }

    /// The end of the call and the answer behind it.
    fn end(&self, end_ns: i64, tokens: u32) -> Bytes {
        Bytes::from(format!("{}{}", self.end_step(end_ns, tokens), answer_line(tokens)))
    }

    pub(super) fn end_step(&self, end_ns: i64, tokens: u32) -> String {
        let value = value(tokens);
        let total = u64::from(self.prompt_tokens) + u64::from(tokens);
        let usage = json!({"prompt_tokens": self.prompt_tokens, "completion_tokens": tokens, "total_tokens": total});
        self.step(&json!({
            "event_type": "LLM_END",
            "event_timestamp": self.shared.wall_s(end_ns),
            "span_event_timestamp": self.start_s,
            "framework": null,
            "name": self.shared.config.model,
            "tags": null,
            "metadata": null,
            "data": {"input": self.input, "output": value, "chunk": null},
            "usage_info": {"token_usage": usage, "num_llm_calls": 1, "seconds_between_calls": 0},
            "UUID": self.id,
        }))
    }

    fn step(&self, payload: &Value) -> String {
        let step = json!({
            "id": self.id,
            "parent_id": "root",
            "type": "markdown",
            "name": self.shared.config.model,
            "payload": payload.to_string(),
        });
        format!("intermediate_data: {step}\n\n")
    }
}
