//! What an answer says, read by JSON pointers that the API gave as data.

use sonic_rs::{JsonValueTrait, LazyValue};

use super::http1::Content;
use super::message::{bounded, message_of};
use super::places::{Pointers, Test, Values};
use crate::spec::{End, Framing, JsonRule, Place, Places, ResponseSpec};

/// Longest text of contents that is kept of one answer.
const MAX_TEXT: usize = 1 << 20;

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

/// One place and what stands there.
#[derive(Debug)]
struct Use {
    role: Role,
    path: usize,
    when: Option<Test>,
}

#[derive(Debug)]
enum Ends {
    Never,
    Text(Vec<u8>),
    Event(Test),
}

/// A `ResponseSpec`, compiled.
#[derive(Debug)]
pub struct Interpreter {
    pointers: Pointers,
    uses: Vec<Use>,
    ends: Ends,
    success_if: Option<Test>,
    framing: Framing,
    success: std::ops::RangeInclusive<u16>,
    json: JsonRule,
    keeps_text: bool,
}

/// What an event carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A role, usage, an end, a sign of life.
    Nothing,
    /// Reasoning and no other content.
    Reasoning,
    /// Content, with reasoning or without.
    Content,
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
    /// Whether some document said what a success has to say.
    pub satisfied: bool,
    /// The error that the answer carries.
    pub error: Option<String>,
    /// An event that is not JSON.
    pub malformed: bool,
    /// The contents as they stood in the JSON, one behind the other, where they are kept.
    pub text: Vec<u8>,
}

impl Interpreter {
    /// Compile the pointers.
    pub fn new(spec: &ResponseSpec) -> Self {
        let mut pointers = Pointers::default();
        let mut uses = Vec::new();
        let mut add = |places: &Places, role, last_first: bool| {
            let from = uses.len();
            uses.extend(places.0.iter().map(|place| {
                let (at, when) = match place {
                    Place::Always(at) => (at, None),
                    Place::When(place) => (&place.at, Some(Test::new(&place.when, &mut pointers))),
                };
                // Nearly every event has content; a count and an error have one in a stream.
                let is_usual = matches!(role, Role::Content | Role::Reasoning);
                Use { role, path: if is_usual { pointers.add_usual(at) } else { pointers.add(at) }, when }
            }));
            if last_first {
                uses[from..].reverse();
            }
        };
        add(&spec.content, Role::Content, false);
        add(&spec.reasoning, Role::Reasoning, false);
        // A later count overwrites an earlier one, of this event or of one before; so that the first place of a list
        // counts, it is read last.
        add(&spec.tokens_in, Role::TokensIn, true);
        add(&spec.tokens_out, Role::TokensOut, true);
        add(&spec.tokens_cached, Role::TokensCached, true);
        add(&spec.tokens_reasoning, Role::TokensReasoning, true);
        add(&spec.error, Role::Error, false);
        let ends = match &spec.end {
            None => Ends::Never,
            Some(End::Text(text)) => Ends::Text(text.clone().into_bytes()),
            Some(End::Event(condition)) => Ends::Event(Test::new(condition, &mut pointers)),
        };
        let success_if = spec.success_if.as_ref().map(|condition| Test::new(condition, &mut pointers));
        pointers.seal();
        Self {
            pointers,
            uses,
            ends,
            success_if,
            framing: spec.framing,
            success: spec.success.0..=spec.success.1,
            json: spec.json,
            keeps_text: false,
        }
    }

    /// Keep the text of contents; false when nobody has said where they stand.
    pub fn keep_text(&mut self) -> bool {
        self.keeps_text = self.uses.iter().any(|place| matches!(place.role, Role::Content));
        self.keeps_text
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
        !self.pointers.is_empty()
            && (self.json == JsonRule::Always || content == Content::Json || self.success_if.is_some())
    }

    /// Whether a success without a JSON document breaks the protocol.
    pub fn wants_json(&self) -> bool {
        self.json == JsonRule::Always
    }

    /// Whether a stream without its end marker is truncated.
    pub fn wants_end(&self) -> bool {
        !matches!(self.ends, Ends::Never)
    }

    /// Whether a success has to say something that `answer` has not said.
    pub fn lacks(&self, answer: &Answer) -> bool {
        self.success_if.is_some() && !answer.satisfied
    }

    /// Read one event or one whole body into `answer`; says what it carries.
    pub fn read(&self, data: &[u8], answer: &mut Answer) -> Found {
        if let Ends::Text(end) = &self.ends
            && end == data
        {
            answer.ended = true;
            return Found::Nothing;
        }
        let may_be_text = self.json == JsonRule::ByType && !data.trim_ascii_start().starts_with(b"{");
        if self.pointers.is_empty() || may_be_text {
            return if data.is_empty() { Found::Nothing } else { Found::Content };
        }
        match self.pointers.read(data) {
            Ok(values) => self.take(&values, answer),
            Err(_) if self.is_aside(data, answer) => Found::Nothing,
            Err(_) => {
                answer.malformed = true;
                Found::Nothing
            }
        }
    }

    /// Not JSON and not meant to be: an empty event that keeps the connection alive, or text after the end.
    fn is_aside(&self, data: &[u8], answer: &Answer) -> bool {
        data.trim_ascii().is_empty() || (answer.ended && matches!(self.ends, Ends::Event(_)))
    }

    fn take(&self, values: &Values<'_>, answer: &mut Answer) -> Found {
        let mut found = Found::Nothing;
        for place in &self.uses {
            if let Some(value) = values.get(place.path)
                && place.when.as_ref().is_none_or(|test| test.holds(values))
            {
                match place.role {
                    Role::Content if is_text(value) => {
                        found = Found::Content;
                        if self.keeps_text {
                            keep(value.as_raw_str(), &mut answer.text);
                        }
                    }
                    Role::Reasoning if found == Found::Nothing && is_text(value) => found = Found::Reasoning,
                    role => apply(role, value, answer),
                }
            }
        }
        if let Ends::Event(test) = &self.ends {
            answer.ended |= test.holds(values);
        }
        if let Some(test) = &self.success_if {
            answer.satisfied |= test.holds(values);
        }
        // Where nobody said what content is, every event is.
        if self.uses.is_empty() { Found::Content } else { found }
    }
}

/// Add what stands between the quotes of a text to `kept`, as far as there is room.
#[cold]
fn keep(quoted: &str, kept: &mut Vec<u8>) {
    let text = &quoted[1..quoted.len() - 1];
    let room = MAX_TEXT.saturating_sub(kept.len());
    let mut end = text.len();
    if end > room {
        end = cut(text, room);
    }
    kept.extend_from_slice(&text.as_bytes()[..end]);
}

/// Where to cut a text of JSON so that at most `room` bytes are left: not in the middle of a character or of an escape,
/// nor between the two escapes that make one character.
fn cut(text: &str, room: usize) -> usize {
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let head = &text.as_bytes()[..end];
    let escape = head.iter().rposition(|b| *b == b'\\').filter(|at| end - at < 6);
    let end = escape.map_or(end, |at| at - head[..at].iter().rev().take_while(|b| **b == b'\\').count());
    let is_half = |escape: &[u8]| {
        escape.starts_with(b"\\u") && matches!(escape[2..4].to_ascii_lowercase()[..], [b'd', b'8'..=b'9' | b'a'..=b'b'])
    };
    match end.checked_sub(6) {
        Some(before) if is_half(&head[before..end]) => before,
        _ => end,
    }
}

/// Take one value into the answer.
fn apply(role: Role, value: &LazyValue<'_>, answer: &mut Answer) {
    match role {
        Role::TokensIn => answer.tokens_in = count(value).or(answer.tokens_in),
        Role::TokensOut => answer.tokens_out = count(value).or(answer.tokens_out),
        Role::TokensCached => answer.tokens_cached = count(value).or(answer.tokens_cached),
        Role::TokensReasoning => answer.tokens_reasoning = count(value).or(answer.tokens_reasoning),
        Role::Error if !value.is_null() && answer.error.is_none() => {
            answer.error = Some(value.as_str().map_or_else(|| message_of(value.as_raw_str().as_bytes()), bounded));
        }
        Role::Error | Role::Content | Role::Reasoning => {}
    }
}

fn is_text(value: &LazyValue<'_>) -> bool {
    let raw = value.as_raw_str();
    raw.starts_with('"') && raw.len() > 2
}

/// A whole number that a record can hold.
pub fn count(value: &LazyValue<'_>) -> Option<u32> {
    let whole = |x: &f64| (0.0..f64::from(u32::MAX)).contains(x) && x.fract() == 0.0;
    value.as_u64().or_else(|| value.as_f64().filter(whole).map(|x| x as u64)).and_then(|n| u32::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
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
            end: Some(End::Text("[DONE]".into())),
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
        assert!(
            i.reads_bodies(Content::Json) && !i.reads_bodies(Content::Other) && chat().reads_bodies(Content::Other)
        );
        let mut a = Answer::default();
        for (text, want) in [
            (&b"plain words"[..], Found::Content),
            (br#" {"c":"x"}"#, Found::Content),
            (br#"{"d":"x"}"#, Found::Nothing),
        ] {
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
            assert!(i.lacks(&a));
        }
        assert_eq!(i.read(br#"{"status":"ok"}"#, &mut a), Found::Content);
        assert!(!i.lacks(&a) && !chat().lacks(&Answer::default()));
    }
}
