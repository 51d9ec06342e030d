//! What an answer says, read by JSON pointers that the API gave as data.

use sonic_rs::{JsonValueTrait, LazyValue};

use super::http1::Content;
use super::message::{bounded, message_of};
use super::places::{Pointers, Test, Values};
use super::times::{DocumentTimes, ServerTimes};
use crate::spec::{End, Framing, JsonRule, Place, Places, ResponseSpec, Sign, Signs};

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

/// What ends a stream: any of these.
#[derive(Debug)]
struct Ends {
    texts: Vec<Vec<u8>>,
    events: Vec<Test>,
}

/// What a success has to bring: any of these.
#[derive(Debug)]
struct Needs {
    content: bool,
    tests: Vec<Test>,
    /// In words.
    said: String,
}

/// A `ResponseSpec`, compiled.
#[derive(Debug)]
pub struct Interpreter {
    pointers: Pointers,
    uses: Vec<Use>,
    times: DocumentTimes,
    ends: Ends,
    needs: Needs,
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
    /// How long the server says that it took.
    pub times: ServerTimes,
    /// Whether the end marker came.
    pub ended: bool,
    /// Whether some document brought what a success has to bring.
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
        let times = DocumentTimes::new(spec, &mut pointers);
        let mut ends = Ends { texts: Vec::new(), events: Vec::new() };
        for end in &spec.end.0 {
            match end {
                End::Text(text) => ends.texts.push(text.clone().into_bytes()),
                End::Event(condition) => ends.events.push(Test::new(condition, &mut pointers)),
            }
        }
        let needs = Needs::new(&spec.success_if, &mut pointers);
        pointers.seal();
        Self {
            pointers,
            uses,
            times,
            ends,
            needs,
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
            (Framing::Auto, Content::TextStream) if self.takes_text() => Framing::Text,
            (Framing::Auto, Content::Json | Content::TextStream | Content::Other) => Framing::Whole,
            (fixed, _) => fixed,
        }
    }

    /// Whether nothing has to be found in a text, so that it can be timed as it comes.
    fn takes_text(&self) -> bool {
        self.json == JsonRule::ByType && !self.needs.something() && !self.wants_end()
    }

    /// Whether this status is a success.
    pub fn success(&self, status: u16) -> bool {
        self.success.contains(&status)
    }

    /// Whether a whole body of this type has to be kept to be read.
    pub fn reads_bodies(&self, content: Content) -> bool {
        let is_json = self.json == JsonRule::Always || content == Content::Json;
        self.needs.something() || (is_json && !self.pointers.is_empty())
    }

    /// Whether a success without a JSON document breaks the protocol.
    pub fn wants_json(&self) -> bool {
        self.json == JsonRule::Always
    }

    /// Whether a stream without its end marker is truncated.
    pub fn wants_end(&self) -> bool {
        !self.ends.texts.is_empty() || !self.ends.events.is_empty()
    }

    /// What a success has to bring of which `answer` brought nothing, in words.
    pub fn lacks(&self, answer: &Answer) -> Option<&str> {
        (self.needs.something() && !answer.satisfied).then_some(&self.needs.said)
    }

    /// Content came that no document says: text, or a tensor.
    pub fn note_content(&self, answer: &mut Answer) {
        answer.satisfied |= self.needs.content;
    }

    /// Whether this is the event that ends a stream.
    pub fn is_end(&self, data: &[u8]) -> bool {
        let holds = |values: &Values<'_>| self.ends.events.iter().any(|test| test.holds(values));
        self.is_end_text(data)
            || (!self.ends.events.is_empty() && self.pointers.read(data).is_ok_and(|values| holds(&values)))
    }

    fn is_end_text(&self, data: &[u8]) -> bool {
        self.ends.texts.iter().any(|end| end == data)
    }

    /// Read one event or one whole body into `answer`; says what it carries.
    pub fn read(&self, data: &[u8], answer: &mut Answer) -> Found {
        if self.is_end_text(data) {
            answer.ended = true;
            return Found::Nothing;
        }
        let may_be_text = self.json == JsonRule::ByType && !data.trim_ascii_start().starts_with(b"{");
        if self.pointers.is_empty() || may_be_text {
            if data.is_empty() {
                return Found::Nothing;
            }
            self.note_content(answer);
            return Found::Content;
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
        data.trim_ascii().is_empty() || (answer.ended && self.ends.texts.is_empty())
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
        self.times.read(values, &mut answer.times);
        answer.ended = answer.ended || self.ends.events.iter().any(|test| test.holds(values));
        // Where nobody said what content is, every event is.
        if self.uses.is_empty() {
            found = Found::Content;
        }
        if !answer.satisfied {
            let has_content = self.needs.content && found != Found::Nothing;
            answer.satisfied = has_content || self.needs.tests.iter().any(|test| test.holds(values));
        }
        found
    }
}

impl Needs {
    fn new(signs: &Signs, pointers: &mut Pointers) -> Self {
        let mut needs = Self { content: false, tests: Vec::new(), said: String::new() };
        for sign in &signs.0 {
            let word = match sign {
                Sign::Content(_) => {
                    needs.content = true;
                    "content".to_owned()
                }
                Sign::Document(condition) => {
                    needs.tests.push(Test::new(condition, pointers));
                    condition.to_string()
                }
            };
            if !needs.said.is_empty() {
                needs.said.push_str(", or ");
            }
            needs.said.push_str(&word);
        }
        needs
    }

    fn something(&self) -> bool {
        self.content || !self.tests.is_empty()
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
mod tests;
