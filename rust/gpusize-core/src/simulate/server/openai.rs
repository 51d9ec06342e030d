//! The chat and completions APIs.

use std::rc::Rc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::body::{Answer, Script};
use super::connection::Fate;
use super::error::ApiError;
use super::routes::Reply;
use super::state::{Shared, Submitted};
use super::text::Extent;

/// The text of every token.
const TOKEN: &str = " token";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Chat,
    Completions,
}

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    prompt: Option<Extent>,
    #[serde(default)]
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    #[serde(default)]
    ignore_eos: bool,
    n: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Extent,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Answer one request of either API.
pub(super) async fn answer(shared: &Rc<Shared>, fate: &Rc<Fate>, api: Api, body: &[u8]) -> Result<Reply, ApiError> {
    let request: Request = serde_json::from_slice(body).map_err(|error| ApiError::json(&error))?;
    let prompt_tokens = request.prompt_tokens(shared, api)?;
    let max_tokens = request.max_tokens()?;
    if request.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid("only one choice per request is served: n must be 1", Some("n")));
    }
    let streams = request.stream.unwrap_or(false);
    let submitted = shared.submit(prompt_tokens, max_tokens, request.ignore_eos, streams);
    shared.thaw().await?;
    let ticket = super::routes::admitted(&submitted)?;
    let writer = Writer::new(shared, api, &request, &submitted);
    let fault = submitted.service.fault;
    if streams {
        let include_usage = request.stream_options.unwrap_or_default().include_usage;
        let script = writer.script(include_usage);
        let tokens = submitted.service.output_tokens;
        let stream = Answer::stream(Rc::clone(shared), Rc::clone(fate), ticket, fault, tokens, script);
        return Ok(Reply::event_stream(stream, fault));
    }
    ticket.finished().await;
    shared.note_write(ticket.end_ns());
    Ok(Reply::json(Answer::whole(writer.whole(ticket.made()), fault, fate), fault))
}

impl Request {
    fn prompt_tokens(&self, shared: &Shared, api: Api) -> Result<u32, ApiError> {
        let extent = match api {
            Api::Chat => match self.messages.as_deref() {
                None => return Err(ApiError::invalid("the field messages is missing", Some("messages"))),
                Some([]) => return Err(ApiError::invalid("messages is empty", Some("messages"))),
                Some(messages) => Extent {
                    characters: messages.iter().map(|message| message.content.characters).sum(),
                    tokens: messages.iter().map(|message| message.content.tokens).sum(),
                    parts: 1,
                },
            },
            Api::Completions => match self.prompt {
                None => return Err(ApiError::invalid("the field prompt is missing", Some("prompt"))),
                Some(Extent { characters, parts, .. }) if parts > 1 && characters > 0 => {
                    return Err(ApiError::invalid("only one prompt per request is served", Some("prompt")));
                }
                Some(extent) => extent,
            },
        };
        if extent.tokens > 0 && extent.characters == 0 {
            return Ok(u32::try_from(extent.tokens).unwrap_or(u32::MAX));
        }
        Ok(shared.config.count_prompt_tokens(extent.characters))
    }

    fn max_tokens(&self) -> Result<Option<u32>, ApiError> {
        let (value, field) = match (self.max_completion_tokens, self.max_tokens) {
            (Some(value), _) => (Some(value), "max_completion_tokens"),
            (None, value) => (value, "max_tokens"),
        };
        checked_max_tokens(value, field)
    }
}

/// A limit on the answer's length, if it is one.
pub(super) fn checked_max_tokens(value: Option<i64>, field: &'static str) -> Result<Option<u32>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    match u32::try_from(value) {
        Ok(limit) if limit > 0 => Ok(Some(limit)),
        _ => Err(ApiError::invalid(format!("{field} must be between 1 and {}, not {value}", u32::MAX), Some(field))),
    }
}

/// Renders the answers of one request.
struct Writer {
    api: Api,
    id: String,
    created: u64,
    /// The model's name as JSON, quotes included.
    model: String,
    prompt_tokens: u32,
    finish_reason: &'static str,
}

impl Writer {
    fn new(shared: &Shared, api: Api, request: &Request, submitted: &Submitted) -> Self {
        let model = request.model.as_deref().unwrap_or(&shared.config.model);
        let prefix = if api == Api::Chat { "chatcmpl" } else { "cmpl" };
        Self {
            api,
            id: format!("{prefix}-sim-{}", submitted.index),
            created: shared.wall_s(submitted.arrived_ns) as u64,
            model: json!(model).to_string(),
            prompt_tokens: submitted.prompt_tokens,
            finish_reason: if submitted.service.cut { "length" } else { "stop" },
        }
    }

    fn usage(&self, tokens: u32) -> serde_json::Value {
        let total = u64::from(self.prompt_tokens) + u64::from(tokens);
        json!({"prompt_tokens": self.prompt_tokens, "completion_tokens": tokens, "total_tokens": total})
    }

    fn whole(&self, tokens: u32) -> Bytes {
        let text = TOKEN.repeat(tokens as usize);
        let (object, content) = match self.api {
            Api::Chat => ("chat.completion", format!(r#""message":{{"role":"assistant","content":"{text}"}}"#)),
            Api::Completions => ("text_completion", format!(r#""text":"{text}""#)),
        };
        let reason = self.finish_reason;
        let choice = format!(r#"{{"index":0,{content},"logprobs":null,"finish_reason":"{reason}"}}"#);
        let usage = self.usage(tokens);
        let (id, created, model) = (&self.id, self.created, &self.model);
        Bytes::from(format!(
            r#"{{"id":"{id}","object":"{object}","created":{created},"model":{model},"choices":[{choice}],"usage":{usage}}}"#
        ))
    }

    /// One event; `choices` and `usage` are JSON.
    fn event(&self, choices: &str, usage: Option<&str>) -> String {
        let object = if self.api == Api::Chat { "chat.completion.chunk" } else { "text_completion" };
        let (id, created, model) = (&self.id, self.created, &self.model);
        let usage = usage.map(|usage| format!(r#","usage":{usage}"#)).unwrap_or_default();
        format!(
            "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created},\"model\":{model},\"choices\":[{choices}]{usage}}}\n\n"
        )
    }

    fn choice(&self, content: &str, finish_reason: Option<&str>) -> String {
        let finish_reason = json!(finish_reason);
        match self.api {
            Api::Chat => {
                format!(r#"{{"index":0,"delta":{content},"logprobs":null,"finish_reason":{finish_reason}}}"#)
            }
            Api::Completions => {
                format!(r#"{{"index":0,"text":{content},"logprobs":null,"finish_reason":{finish_reason}}}"#)
            }
        }
    }

    fn script(self, include_usage: bool) -> Script {
        // With usage asked for, the API says null in every event but the one that has it.
        let usage = include_usage.then_some("null");
        let (first, token, last) = match self.api {
            Api::Chat => {
                let role = self.choice(r#"{"role":"assistant","content":""}"#, None);
                (self.event(&role, usage), format!(r#"{{"content":"{TOKEN}"}}"#), "{}")
            }
            Api::Completions => (String::new(), format!(r#""{TOKEN}""#), r#""""#),
        };
        let token = self.event(&self.choice(&token, None), usage);
        let end = self.event(&self.choice(last, Some(self.finish_reason)), usage);
        let tail = move |tokens: u32| {
            let mut tail = end;
            if include_usage {
                tail.push_str(&self.event("", Some(&self.usage(tokens).to_string())));
            }
            tail.push_str("data: [DONE]\n\n");
            Bytes::from(tail)
        };
        Script { opening: Bytes::new(), first: Bytes::from(first), token: Bytes::from(token), tail: Box::new(tail) }
    }
}
