//! How an answer is read, as data.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::times::TimePlace;

/// How an answer is cut into events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// By the response's content type.
    #[default]
    Auto,
    /// The body is one document.
    Whole,
    /// Server-sent events.
    Sse,
    /// One JSON document a line.
    Ndjson,
    /// Text: what one read brings is an event.
    Text,
    /// One `ModelInferResponse` per gRPC message.
    Kserve,
    /// One `ModelStreamInferResponse` per gRPC message.
    KserveStream,
}

/// Which bodies are read as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonRule {
    /// All: a body that is not JSON breaks the protocol.
    #[default]
    Always,
    /// Those whose content type says so; text in an event stream is content.
    ByType,
}

/// A plain value that a condition compares with.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Literal {
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

/// Whether a document has, at one pointer, a certain value.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// JSON pointer.
    pub at: String,
    /// Any of these; none: anything present but null and false.
    #[serde(default)]
    pub is: Option<Vec<Literal>>,
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at)?;
        for (number, literal) in self.is.iter().flatten().enumerate() {
            write!(f, "{}{literal}", if number == 0 { " that is " } else { " or " })?;
        }
        Ok(())
    }
}

/// Where in a document something stands.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Place {
    /// At this pointer.
    Always(String),
    /// At this pointer of those documents that satisfy a condition.
    When(ConditionalPlace),
}

/// A place in some documents only.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionalPlace {
    /// JSON pointer.
    pub at: String,
    /// Which documents.
    #[serde(rename = "if")]
    pub when: Condition,
}

/// Any number of places; in JSON null, one place, or a list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(from = "Option<OneOrMany<Place>>", into = "Vec<Place>")]
pub struct Places(pub Vec<Place>);

/// What stands in JSON by itself or in a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn all(given: Option<Self>) -> Vec<T> {
        match given {
            None => Vec::new(),
            Some(Self::One(one)) => vec![one],
            Some(Self::Many(many)) => many,
        }
    }
}

impl From<Option<OneOrMany<Place>>> for Places {
    fn from(given: Option<OneOrMany<Place>>) -> Self {
        Self(OneOrMany::all(given))
    }
}

impl From<Places> for Vec<Place> {
    fn from(places: Places) -> Self {
        places.0
    }
}

impl From<&str> for Places {
    fn from(pointer: &str) -> Self {
        Self(vec![Place::Always(pointer.to_owned())])
    }
}

/// What a successful answer has to bring.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Sign {
    /// Some content, wherever it stands.
    Content(ContentSign),
    /// A document that satisfies this.
    Document(Condition),
}

/// The word for content among signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentSign {
    /// See `Sign::Content`.
    Content,
}

/// Signs of which a successful answer brings at least one; without any, every answer will do. In JSON null, one, or a list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(from = "Option<OneOrMany<Sign>>", into = "Vec<Sign>")]
pub struct Signs(pub Vec<Sign>);

impl From<Option<OneOrMany<Sign>>> for Signs {
    fn from(given: Option<OneOrMany<Sign>>) -> Self {
        Self(OneOrMany::all(given))
    }
}

impl From<Signs> for Vec<Sign> {
    fn from(signs: Signs) -> Self {
        signs.0
    }
}

/// What ends a stream.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum End {
    /// An event with exactly this text.
    Text(String),
    /// An event that satisfies this.
    Event(Condition),
}

/// Ends of which any one ends a stream; without any, it ends with its body. In JSON null, one, or a list.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(from = "Option<OneOrMany<End>>", into = "Vec<End>")]
pub struct Endings(pub Vec<End>);

impl From<Option<OneOrMany<End>>> for Endings {
    fn from(given: Option<OneOrMany<End>>) -> Self {
        Self(OneOrMany::all(given))
    }
}

impl From<Endings> for Vec<End> {
    fn from(ends: Endings) -> Self {
        ends.0
    }
}

/// How the intermediate steps that a server reports become calls inside a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CallsSpec {
    /// Field of the event stream that carries steps; `data`: they come among the other events.
    pub field: String,
    /// Where a step says what it is.
    pub kind: String,
    /// What the start of a call says there.
    pub start: String,
    /// What its end says there.
    pub end: String,
    /// What start and end of one call have in common.
    pub id: String,
    /// Who or what was called.
    pub name: String,
    /// When, in seconds since 1970 on the server's clock.
    pub time_s: String,
    /// Prompt tokens of the call.
    #[serde(default)]
    pub tokens_in: Option<String>,
    /// Generated tokens of the call.
    #[serde(default)]
    pub tokens_out: Option<String>,
}

/// How to read an answer, as data. Pointers are JSON pointers (RFC 6901).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseSpec {
    /// How the body is cut into events.
    pub framing: Framing,
    /// A non-empty string at any of these is content.
    pub content: Places,
    /// A non-empty string at any of these is reasoning, which is content too.
    pub reasoning: Places,
    /// Where the server reports prompt tokens; the first place that holds a count.
    pub tokens_in: Places,
    /// Where the server reports generated tokens.
    pub tokens_out: Places,
    /// Where the server reports prompt tokens served from its cache.
    pub tokens_cached: Places,
    /// Where the server reports reasoning tokens.
    pub tokens_reasoning: Places,
    /// Where the server says how long a request waited in it; the first place that holds a number.
    pub server_queue: Vec<TimePlace>,
    /// Where it says how long it served the request, from its turn to its end.
    pub server_service: Vec<TimePlace>,
    /// Present and not null at any of these: the answer is an error whatever its status.
    pub error: Places,
    /// What ends a stream; one without any of these is truncated.
    pub end: Endings,
    /// Inclusive range of statuses that are a success.
    pub success: (u16, u16),
    /// What a successful answer, or some event of it, has to bring.
    pub success_if: Signs,
    /// Which bodies are read as JSON.
    pub json: JsonRule,
    /// Intermediate steps.
    pub calls: Option<CallsSpec>,
}

impl Default for ResponseSpec {
    fn default() -> Self {
        Self {
            framing: Framing::Auto,
            content: Places::default(),
            reasoning: Places::default(),
            tokens_in: Places::default(),
            tokens_out: Places::default(),
            tokens_cached: Places::default(),
            tokens_reasoning: Places::default(),
            server_queue: Vec::new(),
            server_service: Vec::new(),
            error: Places::default(),
            end: Endings::default(),
            success: (200, 299),
            success_if: Signs::default(),
            json: JsonRule::Always,
            calls: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_nothing_one_or_several() {
        let signs = |json: &str| serde_json::from_str::<ResponseSpec>(json).unwrap().success_if.0;
        assert_eq!(signs("{}"), signs(r#"{"success_if":null}"#));
        let found = Condition { at: "/choices/0".into(), is: None };
        let both = [Sign::Content(ContentSign::Content), Sign::Document(found)];
        assert_eq!(signs(r#"{"success_if":{"at":"/choices/0"}}"#), both[1..]);
        assert_eq!(signs(r#"{"success_if":["content",{"at":"/choices/0","is":null}]}"#), both);
    }

    #[test]
    fn places_are_nothing_one_or_several() {
        let spec: ResponseSpec = serde_json::from_str(
            r#"{"content":[{"at":"/delta","if":{"at":"/type","is":["a",1,true]}}],"tokens_in":"/n","tokens_out":["/a","/b"],
                "error":null,"end":{"at":"/type","is":["done"]},"success_if":{"at":"/ok"},"framing":"kserve_stream"}"#,
        )
        .unwrap();
        assert_eq!(spec.tokens_in, "/n".into());
        assert_eq!((spec.tokens_out.0.len(), spec.error.0.len()), (2, 0));
        let Place::When(place) = &spec.content.0[0] else { panic!("{:?}", spec.content) };
        let is = [Literal::Text("a".into()), Literal::Number(1.0), Literal::Bool(true)];
        assert_eq!(place.when.is.as_deref(), Some(&is[..]));
        assert!(matches!(spec.end.0[..], [End::Event(_)]));
        assert_eq!(spec.framing, Framing::KserveStream);
        let again: ResponseSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!((again.content, again.success_if, again.end), (spec.content, spec.success_if, spec.end));
        for wrong in [
            r#"{"content":[{"at":"/x","when":1}]}"#,
            r#"{"end":{"is":["x"]}}"#,
            r#"{"calls":{"field":"x"}}"#,
            r#"{"success_if":"contents"}"#,
        ] {
            assert!(serde_json::from_str::<ResponseSpec>(wrong).is_err(), "{wrong}");
        }
    }
}
