//! What an answer says, read by JSON pointers that the API gave as data.

use sonic_rs::{JsonValueTrait, LazyValue, PointerNode, PointerTree};

use super::http1::Content;
use crate::spec::{Framing, JsonRule, ResponseSpec};

/// Longest error text kept of an answer.
pub const MAX_MESSAGE: usize = 2_048;

/// Deepest nesting that is read: what `serde_json` takes too, and far beyond any API's.
const MAX_DEPTH: usize = 128;

#[derive(Clone, Copy, Debug)]
enum Role {
    Content,
    Reasoning,
    TokensIn,
    TokensOut,
    TokensCached,
    TokensReasoning,
    Error,
}

/// A `ResponseSpec`, compiled.
#[derive(Debug)]
pub struct Interpreter {
    tree: PointerTree,
    roles: Vec<(Role, Vec<PointerNode>)>,
    end: Option<Vec<u8>>,
    framing: Framing,
    success: std::ops::RangeInclusive<u16>,
    json: JsonRule,
}

/// What has been read of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Token counts as the server reported them.
    pub tokens_in: Option<u32>,
    /// Generated tokens.
    pub tokens_out: Option<u32>,
    /// Prompt tokens from the server's cache.
    pub tokens_cached: Option<u32>,
    /// Reasoning tokens.
    pub tokens_reasoning: Option<u32>,
    /// Whether the end marker came.
    pub ended: bool,
    /// The error that the answer carries.
    pub error: Option<String>,
    /// An event that is not JSON.
    pub malformed: bool,
}

impl Interpreter {
    /// Compile the pointers.
    pub fn new(spec: &ResponseSpec) -> Self {
        let mut tree = PointerTree::new();
        let mut roles = Vec::new();
        let mut add = |pointer: &str, role| {
            let path = nodes(pointer);
            tree.add_path(path.iter());
            roles.push((role, path));
        };
        spec.content.iter().for_each(|p| add(p, Role::Content));
        spec.reasoning.iter().for_each(|p| add(p, Role::Reasoning));
        for (pointer, role) in [
            (&spec.tokens_in, Role::TokensIn),
            (&spec.tokens_out, Role::TokensOut),
            (&spec.tokens_cached, Role::TokensCached),
            (&spec.tokens_reasoning, Role::TokensReasoning),
            (&spec.error, Role::Error),
        ] {
            if let Some(pointer) = pointer {
                add(pointer, role);
            }
        }
        Self {
            tree,
            roles,
            end: spec.end.as_ref().map(|e| e.clone().into_bytes()),
            framing: spec.framing,
            success: spec.success.0..=spec.success.1,
            json: spec.json,
        }
    }

    /// How a body of this content type is cut.
    pub fn framing(&self, content: Content) -> Framing {
        match (self.framing, content) {
            (Framing::Auto, Content::EventStream) => Framing::Sse,
            (Framing::Auto, Content::Ndjson) => Framing::Ndjson,
            (Framing::Auto, Content::Json | Content::Other) => Framing::Whole,
            (fixed, _) => fixed,
        }
    }

    /// Whether this status is a success.
    pub fn success(&self, status: u16) -> bool {
        self.success.contains(&status)
    }

    /// Whether a whole body of this type has to be kept to be read.
    pub fn reads_bodies(&self, content: Content) -> bool {
        !self.roles.is_empty() && (self.json == JsonRule::Always || content == Content::Json)
    }

    /// Whether a success without a JSON document breaks the protocol.
    pub fn wants_json(&self) -> bool {
        self.json == JsonRule::Always
    }

    /// Whether a stream without its end marker is truncated.
    pub fn wants_end(&self) -> bool {
        self.end.is_some()
    }

    /// Read one event or one whole body into `answer`; says whether it carries content.
    pub fn read(&self, data: &[u8], answer: &mut Answer) -> bool {
        if self.end.as_deref() == Some(data) {
            answer.ended = true;
            return false;
        }
        let may_be_text = self.json == JsonRule::ByType && !data.trim_ascii_start().starts_with(b"{");
        if self.roles.is_empty() || may_be_text {
            return !data.is_empty();
        }
        if too_deep(data) {
            answer.malformed = true;
            return false;
        }
        if let Ok(values) = sonic_rs::get_many(data, &self.tree) {
            return values
                .iter()
                .zip(&self.roles)
                .fold(false, |c, (v, (role, _))| c | apply(*role, v.as_ref(), answer));
        }
        // One walk for all pointers fails as a whole where a single path meets an empty array or a null: ask one by one.
        if serde_json::from_slice::<serde::de::IgnoredAny>(data).is_err() {
            answer.malformed = true;
            return false;
        }
        self.roles.iter().fold(false, |content, (role, path)| {
            let value = sonic_rs::get(data, path).ok();
            content | apply(*role, value.as_ref(), answer)
        })
    }
}

/// Take one value into the answer; says whether it is content.
fn apply(role: Role, value: Option<&LazyValue<'_>>, answer: &mut Answer) -> bool {
    let Some(value) = value else { return false };
    match role {
        Role::Content | Role::Reasoning => return is_text(value),
        Role::TokensIn => answer.tokens_in = count(value).or(answer.tokens_in),
        Role::TokensOut => answer.tokens_out = count(value).or(answer.tokens_out),
        Role::TokensCached => answer.tokens_cached = count(value).or(answer.tokens_cached),
        Role::TokensReasoning => answer.tokens_reasoning = count(value).or(answer.tokens_reasoning),
        Role::Error if !value.is_null() => {
            answer.error = Some(value.as_str().map_or_else(|| message_of(value.as_raw_str().as_bytes()), bounded));
        }
        Role::Error => {}
    }
    false
}

/// Whether a document is nested so deep that a recursive parser could overflow its stack: its sender is not trusted.
fn too_deep(data: &[u8]) -> bool {
    // The number of opening brackets bounds the depth, and counting them is nearly free.
    if data.len() <= MAX_DEPTH || memchr::memchr2_iter(b'[', b'{', data).nth(MAX_DEPTH).is_none() {
        return false;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in data {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

/// The message that an error document carries, or its text; bounded.
pub fn message_of(body: &[u8]) -> String {
    if too_deep(body) {
        return bounded(&String::from_utf8_lossy(&body[..body.len().min(MAX_MESSAGE)]));
    }
    for path in [&["error", "message"][..], &["message"], &["error"], &["detail"]] {
        if let Ok(value) = sonic_rs::get(body, path)
            && let Some(text) = value.as_str()
        {
            return bounded(text);
        }
    }
    bounded(&String::from_utf8_lossy(&body[..body.len().min(MAX_MESSAGE * 2)]))
}

fn bounded(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_MESSAGE).collect();
    clean.trim().to_owned()
}

fn is_text(value: &LazyValue<'_>) -> bool {
    let raw = value.as_raw_str();
    raw.starts_with('"') && raw.len() > 2
}

fn count(value: &LazyValue<'_>) -> Option<u32> {
    let whole = |x: &f64| (0.0..f64::from(u32::MAX)).contains(x) && x.fract() == 0.0;
    value.as_u64().or_else(|| value.as_f64().filter(whole).map(|x| x as u64)).and_then(|n| u32::try_from(n).ok())
}

fn nodes(pointer: &str) -> Vec<PointerNode> {
    let parts = pointer.strip_prefix('/').unwrap_or(pointer);
    parts
        .split('/')
        .map(|part| match part.parse::<usize>() {
            // RFC 6901: an index is written without sign and leading zeros; all else is a name.
            Ok(index) if index.to_string() == part => PointerNode::Index(index),
            _ => PointerNode::Key(part.replace("~1", "/").replace("~0", "~").into()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat() -> Interpreter {
        Interpreter::new(&ResponseSpec {
            content: vec!["/choices/0/delta/content".into()],
            reasoning: vec!["/choices/0/delta/reasoning_content".into()],
            tokens_in: Some("/usage/prompt_tokens".into()),
            tokens_out: Some("/usage/completion_tokens".into()),
            tokens_cached: Some("/usage/prompt_tokens_details/cached_tokens".into()),
            error: Some("/error".into()),
            end: Some("[DONE]".into()),
            ..ResponseSpec::default()
        })
    }

    #[test]
    fn content_is_told_from_role_usage_and_end() {
        let mut a = Answer::default();
        let i = chat();
        assert!(!i.read(br#"{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}"#, &mut a));
        assert!(!i.read(br#"{"choices":[{"delta":{"role":"assistant"}}]}"#, &mut a));
        assert!(i.read(br#"{"id":"x","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#, &mut a));
        assert!(i.read(br#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#, &mut a));
        assert!(!i.read(br#"{"choices":[{"delta":{"content":null}}],"usage":null}"#, &mut a));
        assert_eq!(a, Answer::default());
        let usage = br#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}"#;
        assert!(!i.read(usage, &mut a));
        assert_eq!((a.tokens_in, a.tokens_out, a.tokens_cached, a.ended), (Some(7), Some(2), Some(3), false));
        assert!(!i.read(b"[DONE]", &mut a));
        assert!(a.ended && !a.malformed && a.error.is_none());
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
            assert!(!i.read(open.repeat(200_000).as_bytes(), &mut a));
            assert!(a.malformed);
            for times in [MAX_DEPTH + 1, 200_000] {
                assert!(message_of(open.repeat(times).as_bytes()).len() <= MAX_MESSAGE);
            }
        }
        let text = format!(r#"{{"choices":[{{"delta":{{"content":"{}\\\" [["}}}}]}}"#, "[{".repeat(2_000));
        let mut a = Answer::default();
        assert!(i.read(text.as_bytes(), &mut a) && !a.malformed);
    }

    #[test]
    fn pointers_reach_numbers_indices_and_escaped_names() {
        let spec = ResponseSpec {
            content: vec!["/a~1b/1/~01".into()],
            tokens_in: Some("/usage/in".into()),
            tokens_out: Some("/usage/out".into()),
            tokens_cached: Some("/usage/+1".into()),
            error: Some("/error".into()),
            ..ResponseSpec::default()
        };
        let i = Interpreter::new(&spec);
        let mut a = Answer::default();
        assert!(i.read(br#"{"a/b":[{},{"~1":"x"}],"usage":{"in":7.0,"out":2.5e1,"+1":3}}"#, &mut a));
        assert_eq!((a.tokens_in, a.tokens_out, a.tokens_cached), (Some(7), Some(25), Some(3)));
        assert!(!i.read(br#"{"usage":{"in":null,"out":-1,"+1":0.5}}"#, &mut a));
        assert_eq!((a.tokens_in, a.tokens_out, a.tokens_cached), (Some(7), Some(25), Some(3)), "what was said stays");
        i.read(br#"{"error":"no room"}"#, &mut a);
        assert_eq!(a.error.as_deref(), Some("no room"));
    }

    #[test]
    fn text_is_read_as_json_only_where_it_says_so() {
        let spec = ResponseSpec { content: vec!["/c".into()], json: JsonRule::ByType, ..ResponseSpec::default() };
        let i = Interpreter::new(&spec);
        assert!(
            i.reads_bodies(Content::Json) && !i.reads_bodies(Content::Other) && chat().reads_bodies(Content::Other)
        );
        let mut a = Answer::default();
        assert!(i.read(b"plain words", &mut a) && i.read(br#" {"c":"x"}"#, &mut a) && !i.read(br#"{"d":"x"}"#, &mut a));
        assert!(!a.malformed);
    }

    #[test]
    fn messages_are_bounded_and_plain() {
        assert_eq!(message_of(b"{\"detail\":\"no \\u001b[31mmodel\"}"), "no  [31mmodel");
        assert_eq!(message_of(&[b'x'; 9000]).len(), MAX_MESSAGE);
    }
}
