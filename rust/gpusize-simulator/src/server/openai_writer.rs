//! The answers of the chat and completions APIs, whole and as events.

use bytes::Bytes;
use serde_json::{Value, json};

use super::body::{Script, Token};
use super::openai::{Api, TOKEN};
use super::state::{Shared, Submitted};

/// The text of every token of reasoning.
const THOUGHT: &str = " thought";
/// Around the tokens of a tool's arguments, so that they are JSON.
const ARGUMENTS: (&str, &str) = ("{\"text\":\"", "\"}");

/// What an answer consists of, beside plain text.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Tokens of reasoning before everything else.
    pub reasoning_tokens: u32,
    /// The tool that is called instead of an answer in text.
    pub tool: Option<String>,
}

/// Renders the answers of one request.
pub(super) struct Writer {
    is_chat: bool,
    id: String,
    created: u64,
    /// The model's name as JSON, quotes included.
    model: String,
    prompt_tokens: u32,
    /// With a prefix cache.
    cached_tokens: Option<u32>,
    finish_reason: &'static str,
    content: Content,
    /// What it says of its times.
    metrics: Option<Box<dyn Fn() -> Value>>,
}

impl Writer {
    pub(super) fn new(shared: &Shared, api: Api, model: Option<&str>, submitted: &Submitted, content: Content) -> Self {
        let is_chat = api != Api::Completions;
        let prefix = if is_chat { "chatcmpl" } else { "cmpl" };
        let calls_tool = content.tool.is_some();
        Self {
            is_chat,
            id: format!("{prefix}-sim-{}", submitted.index),
            created: shared.wall_s(submitted.arrived_ns) as u64,
            model: json!(model.unwrap_or(&shared.config.model)).to_string(),
            prompt_tokens: submitted.prompt_tokens,
            cached_tokens: shared.config.prefix_cache.then_some(submitted.cached_tokens),
            finish_reason: match (submitted.service.cut, calls_tool) {
                (true, _) => "length",
                (false, true) => "tool_calls",
                (false, false) => "stop",
            },
            content,
            metrics: submitted.metrics(&shared.config).map(|metrics| Box::new(metrics) as Box<dyn Fn() -> Value>),
        }
    }

    /// With the usage, as JSON: what the answer says of its times, once it has ended.
    fn usage_and_metrics(&self, tokens: u32) -> String {
        let metrics = self.metrics.as_ref().map(|metrics| format!(r#","metrics":{}"#, metrics()));
        format!("{}{}", self.usage(tokens), metrics.unwrap_or_default())
    }

    fn usage(&self, tokens: u32) -> Value {
        let total = u64::from(self.prompt_tokens) + u64::from(tokens);
        let mut usage =
            json!({"prompt_tokens": self.prompt_tokens, "completion_tokens": tokens, "total_tokens": total});
        if let Some(cached_tokens) = self.cached_tokens {
            usage["prompt_tokens_details"] = json!({"cached_tokens": cached_tokens});
        }
        if self.content.reasoning_tokens > 0 {
            let reasoning_tokens = self.content.reasoning_tokens.min(tokens);
            usage["completion_tokens_details"] = json!({"reasoning_tokens": reasoning_tokens});
        }
        usage
    }

    pub(super) fn whole(&self, tokens: u32) -> Bytes {
        let (object, content) = if self.is_chat {
            ("chat.completion", format!(r#""message":{}"#, self.message(tokens)))
        } else {
            ("text_completion", format!(r#""text":"{}""#, TOKEN.repeat(tokens as usize)))
        };
        let reason = self.finish_reason;
        let choice = format!(r#"{{"index":0,{content},"logprobs":null,"finish_reason":"{reason}"}}"#);
        let usage = self.usage_and_metrics(tokens);
        let (id, created, model) = (&self.id, self.created, &self.model);
        Bytes::from(format!(
            r#"{{"id":"{id}","object":"{object}","created":{created},"model":{model},"choices":[{choice}],"usage":{usage}}}"#
        ))
    }

    fn message(&self, tokens: u32) -> Value {
        let reasoning = self.content.reasoning_tokens.min(tokens);
        let text = TOKEN.repeat((tokens - reasoning) as usize);
        let mut message = json!({"role": "assistant", "content": text});
        if let Some(name) = &self.content.tool {
            let arguments = format!("{}{text}{}", ARGUMENTS.0, ARGUMENTS.1);
            message["content"] = Value::Null;
            message["tool_calls"] = json!([self.tool_call(name, &arguments)]);
        }
        if reasoning > 0 {
            message["reasoning_content"] = json!(THOUGHT.repeat(reasoning as usize));
        }
        message
    }

    fn tool_call(&self, name: &str, arguments: &str) -> Value {
        let id = format!("call_{}", self.id);
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }

    /// One event; `choices` and `usage` are JSON.
    fn event(&self, choices: &str, usage: Option<&str>) -> String {
        let object = if self.is_chat { "chat.completion.chunk" } else { "text_completion" };
        let (id, created, model) = (&self.id, self.created, &self.model);
        let usage = usage.map(|usage| format!(r#","usage":{usage}"#)).unwrap_or_default();
        format!(
            "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created},\"model\":{model},\"choices\":[{choices}]{usage}}}\n\n"
        )
    }

    fn choice(&self, content: &str, finish_reason: Option<&str>) -> String {
        let finish_reason = json!(finish_reason);
        let field = if self.is_chat { "delta" } else { "text" };
        format!(r#"{{"index":0,"{field}":{content},"logprobs":null,"finish_reason":{finish_reason}}}"#)
    }

    /// What a delta says of a token of the answer itself, or of the text around those of a tool's arguments.
    fn delta(&self, text: &str) -> String {
        match (self.is_chat, &self.content.tool) {
            (true, Some(_)) => json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}).to_string(),
            (true, None) => json!({"content": text}).to_string(),
            (false, _) => json!(text).to_string(),
        }
    }

    /// What is said of each token; of the last one, where it is named, also why the answer ends.
    fn token(&self, usage: Option<&str>, last: Option<u32>) -> Token {
        let event = |delta: &str, reason| Bytes::from(self.event(&self.choice(delta, reason), usage));
        let token = event(&self.delta(TOKEN), None);
        let reasoning_tokens = self.content.reasoning_tokens;
        let thought = event(&json!({"reasoning_content": THOUGHT}).to_string(), None);
        let end = event(&self.delta(TOKEN), Some(self.finish_reason));
        Token::Each(Box::new(move |number| {
            if last == Some(number) {
                end.clone()
            } else if number < reasoning_tokens {
                thought.clone()
            } else {
                token.clone()
            }
        }))
    }

    fn opening_delta(&self) -> String {
        let Some(name) = &self.content.tool else { return r#"{"role":"assistant","content":""}"#.to_owned() };
        let mut call = self.tool_call(name, ARGUMENTS.0);
        call["index"] = json!(0);
        json!({"role": "assistant", "content": null, "tool_calls": [call]}).to_string()
    }

    /// A stream, as vLLM sends it: why it ends stands in the event of the last token, and the usage in an event without
    /// a choice. Clients that count every event with a choice as a token then count right.
    ///
    /// `tokens` are those of the whole answer; None where it does not come to its end.
    pub(super) fn script(self, include_usage: bool, tokens: Option<u32>) -> Script {
        // With usage asked for, the API says null in every event but the one that has it.
        let usage = include_usage.then_some("null");
        let first =
            if self.is_chat { self.event(&self.choice(&self.opening_delta(), None), usage) } else { String::new() };
        let calls_tool = self.content.tool.is_some();
        let last = tokens.filter(|_| !calls_tool).and_then(|tokens| tokens.checked_sub(1));
        let token = self.token(usage, last);
        let tail = move |made: u32| {
            let mut tail = String::new();
            if calls_tool {
                tail = self.event(&self.choice(&self.delta(ARGUMENTS.1), Some(self.finish_reason)), usage);
            } else if last.is_none_or(|last| made <= last) {
                let nothing = if self.is_chat { "{}" } else { r#""""# };
                tail = self.event(&self.choice(nothing, Some(self.finish_reason)), usage);
            }
            if include_usage {
                tail.push_str(&self.event("", Some(&self.usage_and_metrics(made))));
            }
            tail.push_str("data: [DONE]\n\n");
            Bytes::from(tail)
        };
        Script { opening: Bytes::new(), first: Bytes::from(first), token, tail: Box::new(tail) }
    }
}
