//! The chat and completions APIs.

use std::rc::Rc;

use serde::Deserialize;

use super::super::Fault;
use super::body::Answer;
use super::connection::Fate;
use super::error::ApiError;
use super::openai_writer::{Content, Writer};
use super::routes::Reply;
use super::state::{Shared, Wish};
use super::text::{Extent, digest_of};

/// The text of every token.
pub(super) const TOKEN: &str = " token";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Chat,
    /// Chat as a workflow server has it: never streamed.
    WholeChat,
    Completions,
}

#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub model: Option<String>,
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
    #[serde(default)]
    tools: Option<Vec<Tool>>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    role: String,
    #[serde(default)]
    content: Extent,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Tool {
    #[serde(default)]
    function: Function,
}

#[derive(Debug, Default, Deserialize)]
struct Function {
    #[serde(default)]
    name: String,
}

/// Answer one request of either API.
pub(super) async fn answer(shared: &Rc<Shared>, fate: &Rc<Fate>, api: Api, body: &[u8]) -> Result<Reply, ApiError> {
    let request: Request = serde_json::from_slice(body).map_err(|error| ApiError::json(&error))?;
    let prompt_tokens = request.prompt_tokens(shared, api)?;
    let max_tokens = request.max_tokens()?;
    if request.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid("only one choice per request is served: n must be 1", Some("n")));
    }
    let streams = api != Api::WholeChat && request.stream.unwrap_or(false);
    let cached_tokens = request.cached_tokens(shared, api, prompt_tokens);
    let ignore_eos = request.ignore_eos;
    let submitted = shared.submit(Wish { prompt_tokens, cached_tokens, max_tokens, ignore_eos, streams });
    if submitted.ticket.is_ok() && api != Api::Completions {
        request.remember_answer(shared, submitted.service.output_tokens);
    }
    shared.thaw().await;
    let ticket = super::routes::admitted(&submitted)?;
    let tokens = submitted.service.output_tokens;
    let content = request.content(shared, api, tokens);
    let writer = Writer::new(shared, api, request.model.as_deref(), &submitted, content);
    let fault = submitted.service.fault;
    if streams {
        let include_usage = request.stream_options.unwrap_or_default().include_usage;
        let whole = fault != Some(Fault::Reset);
        let script = writer.script(include_usage, whole.then_some(tokens));
        let stream = Answer::stream(Rc::clone(shared), Rc::clone(fate), ticket, fault, tokens, script);
        return Ok(Reply::event_stream(stream, fault));
    }
    ticket.finished().await;
    shared.note_write(ticket.end_ns());
    Ok(Reply::json(Answer::whole(writer.whole(ticket.made()), fault, fate), fault))
}

impl Request {
    fn messages(&self) -> &[Message] {
        self.messages.as_deref().unwrap_or_default()
    }

    fn prompt_tokens(&self, shared: &Shared, api: Api) -> Result<u32, ApiError> {
        let extent = match api {
            Api::Chat | Api::WholeChat => {
                if self.messages.is_none() {
                    return Err(ApiError::invalid("the field messages is missing", Some("messages")));
                }
                if self.messages().is_empty() {
                    return Err(ApiError::invalid("messages is empty", Some("messages")));
                }
                let mut sum = Extent::default();
                self.messages().iter().for_each(|message| sum.add(message.content));
                sum
            }
            Api::Completions => match self.prompt {
                None => return Err(ApiError::invalid("the field prompt is missing", Some("prompt"))),
                Some(Extent { characters, parts, .. }) if parts > 1 && characters > 0 => {
                    return Err(ApiError::invalid("only one prompt per request is served", Some("prompt")));
                }
                Some(extent) => extent,
            },
        };
        Ok(shared.prompt_tokens(extent))
    }

    /// Tokens of the messages at the beginning that were served before, in whole blocks of the cache and never all.
    fn cached_tokens(&self, shared: &Shared, api: Api, prompt_tokens: u32) -> u32 {
        if !shared.config.prefix_cache || api == Api::Completions {
            return 0;
        }
        let digests = self.digests();
        let known = shared.prefixes.borrow_mut().meet(&digests);
        let mut extent = Extent::default();
        self.messages()[..known].iter().for_each(|message| extent.add(message.content));
        let tokens = if known == 0 { 0 } else { shared.prompt_tokens(extent).min(prompt_tokens - 1) };
        tokens - tokens % shared.config.kv_block_tokens
    }

    /// Stand for the first message, the first two, and so on.
    fn digests(&self) -> Vec<u64> {
        let of_next = |before: &mut u64, message: &Message| {
            *before = digest_of(&(*before, &message.role, message.content.digest));
            Some(*before)
        };
        self.messages().iter().scan(0, of_next).collect()
    }

    /// The next turn brings this answer back as a message.
    fn remember_answer(&self, shared: &Shared, tokens: u32) {
        if !shared.config.prefix_cache {
            return;
        }
        let text = TOKEN.repeat((tokens - reasoning_tokens(shared, tokens)) as usize);
        let mut digests = self.digests();
        let before = digests.last().copied().unwrap_or(0);
        digests.push(digest_of(&(before, "assistant", Extent::of_text(&text).digest)));
        shared.prefixes.borrow_mut().meet(&digests);
    }

    fn content(&self, shared: &Shared, api: Api, tokens: u32) -> Content {
        if api == Api::Completions {
            return Content::default();
        }
        let tool = self.tools.as_ref().and_then(|tools| tools.first()).filter(|_| shared.config.chat.tool_call);
        Content {
            reasoning_tokens: reasoning_tokens(shared, tokens),
            tool: tool.map(|tool| tool.function.name.clone()),
        }
    }

    fn max_tokens(&self) -> Result<Option<u32>, ApiError> {
        let (value, field) = match (self.max_completion_tokens, self.max_tokens) {
            (Some(value), _) => (Some(value), "max_completion_tokens"),
            (None, value) => (value, "max_tokens"),
        };
        checked_max_tokens(value, field)
    }
}

/// How many of an answer's tokens come first, as reasoning.
fn reasoning_tokens(shared: &Shared, tokens: u32) -> u32 {
    shared.config.chat.reasoning_tokens.min(tokens.saturating_sub(1))
}

/// A limit on the answer's length, if it is one.
pub(super) fn checked_max_tokens(value: Option<i64>, field: &'static str) -> Result<Option<u32>, ApiError> {
    let Some(value) = value else { return Ok(None) };
    match u32::try_from(value) {
        Ok(limit) if limit > 0 => Ok(Some(limit)),
        _ => Err(ApiError::invalid(format!("{field} must be between 1 and {}, not {value}", u32::MAX), Some(field))),
    }
}
