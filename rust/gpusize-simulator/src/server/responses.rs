//! The responses API. Nothing is kept, so that every request brings its whole conversation.

use std::rc::Rc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{Answer, Script, Token};
use super::connection::Fate;
use super::error::ApiError;
use super::openai::{TOKEN, checked_max_tokens};
use super::routes::{Reply, admitted};
use super::state::{Shared, Submitted, Wish};
use super::text::Extent;

/// Events before the first token: `created`, `in_progress`, `output_item.added`, `content_part.added`.
const EVENTS_BEFORE: u32 = 4;

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    input: Option<Extent>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    max_output_tokens: Option<i64>,
    #[serde(default)]
    ignore_eos: bool,
    previous_response_id: Option<String>,
}

/// Answer one request.
pub(super) async fn answer(shared: &Rc<Shared>, fate: &Rc<Fate>, body: &[u8]) -> Result<Reply, ApiError> {
    let request: Request = serde_json::from_slice(body).map_err(|error| ApiError::json(&error))?;
    if request.previous_response_id.is_some() {
        let message =
            "previous_response_id is not served, as nothing is kept here: send the whole conversation as input";
        return Err(ApiError::invalid(message, Some("previous_response_id")));
    }
    let Some(mut extent) = request.input.filter(|input| input.characters + input.tokens > 0) else {
        return Err(ApiError::invalid("the field input is missing or empty", Some("input")));
    };
    if let Some(instructions) = &request.instructions {
        extent.add(Extent::of_text(instructions));
    }
    let max_tokens = checked_max_tokens(request.max_output_tokens, "max_output_tokens")?;
    let streams = request.stream.unwrap_or(false);
    let submitted = shared.submit(Wish {
        prompt_tokens: shared.prompt_tokens(extent),
        max_tokens,
        ignore_eos: request.ignore_eos,
        streams,
        ..Wish::default()
    });
    shared.thaw().await;
    let ticket = admitted(&submitted)?;
    let writer = Writer::new(shared, &request, &submitted);
    let fault = submitted.service.fault;
    if streams {
        let tokens = submitted.service.output_tokens;
        let stream = Answer::stream(Rc::clone(shared), Rc::clone(fate), ticket, fault, tokens, writer.script());
        return Ok(Reply::event_stream(stream, fault));
    }
    ticket.finished().await;
    shared.note_write(ticket.end_ns());
    let answer = Bytes::from(writer.finished(ticket.made()).to_string());
    Ok(Reply::json(Answer::whole(answer, fault, fate), fault))
}

/// Renders the answers of one request.
struct Writer {
    index: u64,
    created_at: u64,
    model: String,
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    prompt_tokens: u32,
    cut: bool,
    /// What it says of its times.
    metrics: Option<Box<dyn Fn() -> Value>>,
}

impl Writer {
    fn new(shared: &Shared, request: &Request, submitted: &Submitted) -> Self {
        Self {
            index: submitted.index,
            created_at: shared.wall_s(submitted.arrived_ns) as u64,
            model: request.model.clone().unwrap_or_else(|| shared.config.model.clone()),
            instructions: request.instructions.clone(),
            max_output_tokens: request.max_output_tokens,
            prompt_tokens: submitted.prompt_tokens,
            cut: submitted.service.cut,
            metrics: submitted.metrics(&shared.config).map(|metrics| Box::new(metrics) as Box<dyn Fn() -> Value>),
        }
    }

    /// The response object before its end.
    fn response(&self, status: &str) -> Value {
        json!({
            "id": format!("resp_sim_{}", self.index),
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": {},
            "model": self.model,
            "output": [],
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": null,
        })
    }

    fn status(&self) -> &'static str {
        if self.cut { "incomplete" } else { "completed" }
    }

    fn finished(&self, tokens: u32) -> Value {
        let mut response = self.response(self.status());
        if self.cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["output"] = json!([self.item(self.status(), &[part(&text(tokens))])]);
        response["usage"] = json!({
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": u64::from(self.prompt_tokens) + u64::from(tokens),
        });
        if let Some(metrics) = &self.metrics {
            response["metrics"] = metrics();
        }
        response
    }

    fn item(&self, status: &str, content: &[Value]) -> Value {
        json!({"id": self.item_id(), "type": "message", "status": status, "role": "assistant", "content": content})
    }

    fn item_id(&self) -> String {
        format!("msg_sim_{}", self.index)
    }

    /// An event that says where in the response it belongs.
    fn of_part(&self, kind: &str, number: u32, extra: &[(&str, Value)]) -> String {
        let mut data = json!({"item_id": self.item_id(), "output_index": 0, "content_index": 0});
        for (key, value) in extra {
            data[key] = value.clone();
        }
        event(kind, number, data)
    }

    /// The event of a token but its number: the text before and behind it.
    fn delta(&self) -> (String, String) {
        let extra = [("delta", json!(TOKEN)), ("logprobs", json!([]))];
        let event = self.of_part("response.output_text.delta", 0, &extra);
        let (before, behind) = event.split_once("\"sequence_number\":0").unwrap_or((&event, ""));
        (format!("{before}\"sequence_number\":"), behind.to_owned())
    }

    fn script(self) -> Script {
        let writer = self;
        let started = writer.response("in_progress");
        let opening = event("response.created", 0, json!({ "response": started }))
            + &event("response.in_progress", 1, json!({ "response": started }));
        let item = writer.item("in_progress", &[]);
        let first = event("response.output_item.added", 2, json!({"output_index": 0, "item": item}))
            + &writer.of_part("response.content_part.added", 3, &[("part", part(""))]);
        let (before, behind) = writer.delta();
        Script {
            opening: Bytes::from(opening),
            first: Bytes::from(first),
            token: Token::Each(Box::new(move |token| format!("{before}{}{behind}", EVENTS_BEFORE + token).into())),
            tail: Box::new(move |tokens| Bytes::from(writer.tail(tokens))),
        }
    }

    fn tail(&self, tokens: u32) -> String {
        let number = EVENTS_BEFORE + tokens;
        let text = text(tokens);
        let said = [("text", json!(text)), ("logprobs", json!([]))];
        let item = self.item(self.status(), &[part(&text)]);
        let last = format!("response.{}", self.status());
        self.of_part("response.output_text.done", number, &said)
            + &self.of_part("response.content_part.done", number + 1, &[("part", part(&text))])
            + &event("response.output_item.done", number + 2, json!({"output_index": 0, "item": item}))
            + &event(&last, number + 3, json!({"response": self.finished(tokens)}))
    }
}

fn text(tokens: u32) -> String {
    TOKEN.repeat(tokens as usize)
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn event(kind: &str, number: u32, mut data: Value) -> String {
    data["type"] = json!(kind);
    data["sequence_number"] = json!(number);
    format!("event: {kind}\ndata: {data}\n\n")
}
