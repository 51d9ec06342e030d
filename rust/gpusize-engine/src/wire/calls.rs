//! Calls inside a request, from the intermediate steps that a server reports while it answers.

use sonic_rs::{JsonValueTrait, LazyValue};

use super::interpret::count;
use super::message::bounded;
use super::nested::Nested;
use super::places::is_string;
use crate::outcome::Outcome;
use crate::record::spans::{Domain, Span};
use crate::spec::CallsSpec;

/// More calls than this in one request are not kept.
const MAX_CALLS: usize = 65_536;
/// Longest id or name of a call that is kept.
const MAX_NAME: usize = 256;

/// A `CallsSpec`, compiled.
#[derive(Debug)]
pub struct CallReader {
    /// Kind, id, name, time, tokens in, tokens out.
    pointers: Nested,
    start: String,
    end: String,
    field: Option<Vec<u8>>,
}

/// The calls of one request so far.
#[derive(Debug, Default)]
pub struct Calls {
    /// From the server's wall clock to the clock of the records, as far as this host's two clocks tell.
    offset_ns: i64,
    spans: Vec<Span>,
    /// Ids of calls without an end, each with its span.
    open: Vec<(String, usize)>,
}

impl CallReader {
    /// Compile the pointers.
    pub fn new(spec: &CallsSpec) -> Self {
        let fixed = [&spec.kind, &spec.id, &spec.name, &spec.time_s].map(Some);
        let all = fixed.into_iter().chain([spec.tokens_in.as_ref(), spec.tokens_out.as_ref()]);
        let wanted: Vec<_> = all.enumerate().filter_map(|(place, p)| Some((place, p?.as_str()))).collect();
        let field = (spec.field != "data").then(|| spec.field.clone().into_bytes());
        Self { pointers: Nested::new(&wanted), start: spec.start.clone(), end: spec.end.clone(), field }
    }

    /// Field of an event stream that carries the steps, unless they come among the other events.
    pub fn field(&self) -> Option<&[u8]> {
        self.field.as_deref()
    }

    /// Take one step; says whether it was the start or end of a call. What a server sends as text that holds JSON is read
    /// as if it were the JSON.
    pub fn read(&self, step: &[u8], calls: &mut Calls) -> bool {
        let found = self.pointers.read(step, 6);
        let value = |place: usize| sonic_rs::from_str::<LazyValue<'_>>(found[place].as_deref()?).ok();
        let Some(kind) = value(0) else { return false };
        let (starts, ends) = (is_string(&kind, &self.start), is_string(&kind, &self.end));
        if !starts && !ends {
            return false;
        }
        let (Some(id), Some(at_ns)) = (value(1).as_ref().map(text), value(3).as_ref().and_then(nanoseconds)) else {
            return true;
        };
        let at_ns = at_ns.saturating_sub(calls.offset_ns);
        let name = value(2).as_ref().map(text).unwrap_or_default();
        let tokens = [4, 5].map(|place| value(place).as_ref().and_then(count));
        if starts {
            calls.start(id, name, at_ns, tokens);
        } else {
            calls.end(&id, name, at_ns, tokens);
        }
        true
    }
}

impl Calls {
    /// Ready for another request; `offset_ns`: this host's wall clock minus its monotonic clock.
    pub fn reset(&mut self, offset_ns: i64) {
        self.offset_ns = offset_ns;
        self.spans.clear();
        self.open.clear();
    }

    fn start(&mut self, id: String, name: String, at_ns: i64, tokens: [Option<u32>; 2]) {
        if self.spans.len() < MAX_CALLS {
            self.open.push((id, self.spans.len()));
            self.spans.push(Span {
                name,
                kind: "llm".to_owned(),
                start_ns: at_ns,
                end_ns: None,
                first_token_ns: None,
                tokens_in: tokens[0],
                tokens_out: tokens[1],
                outcome: Outcome::Truncated,
                domain: Domain::Server,
            });
        }
    }

    /// The end of the call with this id; without a start there is no call to speak of.
    fn end(&mut self, id: &str, name: String, at_ns: i64, tokens: [Option<u32>; 2]) {
        let Some(at) = self.open.iter().position(|(other, _)| other == id) else { return };
        let span = &mut self.spans[self.open.swap_remove(at).1];
        span.end_ns = Some(at_ns);
        span.outcome = Outcome::Ok;
        span.tokens_in = tokens[0].or(span.tokens_in);
        span.tokens_out = tokens[1].or(span.tokens_out);
        if span.name.is_empty() {
            span.name = name;
        }
    }

    /// The calls, by start.
    pub fn take(&mut self) -> Vec<Span> {
        self.open.clear();
        let mut spans = std::mem::take(&mut self.spans);
        spans.sort_by_key(|s| s.start_ns);
        spans
    }
}

fn text(value: &LazyValue<'_>) -> String {
    let whole = value.as_str().map_or_else(|| bounded(value.as_raw_str()), bounded);
    whole.chars().take(MAX_NAME).collect()
}

/// Seconds, as a number or as text, in nanoseconds: digit by digit, for a double is good for a quarter of a microsecond only.
fn nanoseconds(value: &LazyValue<'_>) -> Option<i64> {
    let raw = value.as_str().unwrap_or_else(|| value.as_raw_str());
    let (whole, fraction) = raw.split_once('.').unwrap_or((raw, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        let seconds: f64 = raw.parse().ok()?;
        return (seconds.abs() < 9e9).then(|| (seconds * 1e9).round() as i64);
    }
    let nanos = format!("{fraction:0<9}");
    whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos.get(..9)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> CallReader {
        CallReader::new(
            &serde_json::from_str(
                r#"{"field":"intermediate_data","kind":"/payload/event_type","start":"LLM_START","end":"LLM_END",
                    "id":"/payload/UUID","name":"/payload/name","time_s":"/payload/event_timestamp",
                    "tokens_in":"/payload/usage/in","tokens_out":"/payload/usage/out"}"#,
            )
            .unwrap(),
        )
    }

    fn step(kind: &str, id: &str, time: &str, more: &str) -> String {
        format!(
            r#"{{"payload":{{"event_type":"{kind}","UUID":"{id}","name":"m-{id}","event_timestamp":{time}{more}}}}}"#
        )
    }

    #[test]
    fn calls_that_overlap_are_paired_by_id() {
        let (r, mut calls) = (reader(), Calls::default());
        calls.reset(1_700_000_000_000_000_000);
        for (text, taken) in [
            (step("LLM_START", "a", "1700000000.000000001", ""), true),
            (step("TOOL_START", "t", "1700000000.1", ""), false),
            (step("LLM_START", "b", "1700000000.25", ""), true),
            (step("LLM_END", "a", "1700000001", r#","usage":{"in":7,"out":2}"#), true),
            (step("LLM_END", "x", "1700000001", ""), true),
            (step("LLM_START", "c", "1700000002", ""), true),
            (step("LLM_END", "b", "1.7000000015e9", ""), true),
            ("not json".to_owned(), false),
        ] {
            assert_eq!(r.read(text.as_bytes(), &mut calls), taken, "{text}");
        }
        let spans = calls.take();
        let seen: Vec<_> = spans.iter().map(|s| (s.name.as_str(), s.start_ns, s.end_ns, s.outcome)).collect();
        assert_eq!(
            seen,
            [
                ("m-a", 1, Some(1_000_000_000), Outcome::Ok),
                ("m-b", 250_000_000, Some(1_500_000_000), Outcome::Ok),
                ("m-c", 2_000_000_000, None, Outcome::Truncated),
            ]
        );
        assert_eq!((spans[0].tokens_in, spans[0].tokens_out, spans[1].tokens_in), (Some(7), Some(2), None));
        assert!(spans.iter().all(|s| s.kind == "llm" && s.domain == Domain::Server));
        assert!(calls.take().is_empty());
    }

    /// As servers do that send a payload as text.
    fn as_text(step: &str) -> String {
        let whole: serde_json::Value = serde_json::from_str(step).unwrap();
        serde_json::json!({"id": "s", "payload": whole["payload"].to_string(), "name": "outer"}).to_string()
    }

    #[test]
    fn payloads_that_are_text_read_like_objects() {
        let steps = [
            step("LLM_START", "a", "1.25", ""),
            step("TOOL_START", "t", "1.5", ""),
            step("LLM_START", "b", "\"2.000000001\"", ""),
            step("LLM_END", "a", "3", r#","usage":{"in":7,"out":2}"#),
            step("LLM_END", "b", "4", r#","usage":null"#),
        ];
        let r = reader();
        let read = |steps: &[String]| {
            let mut calls = Calls::default();
            let taken: Vec<bool> = steps.iter().map(|s| r.read(s.as_bytes(), &mut calls)).collect();
            (taken, format!("{:?}", calls.take()))
        };
        let texts: Vec<_> = steps.iter().map(|s| as_text(s)).collect();
        assert_eq!(read(&texts), read(&steps));
        assert_eq!(read(&texts).0, [true, false, true, true, true]);
        assert!(read(&texts).1.contains("start_ns: 2000000001"));
    }

    #[test]
    fn the_same_id_may_come_again() {
        let (r, mut calls) = (reader(), Calls::default());
        for (kind, time) in [("LLM_START", "1"), ("LLM_END", "2"), ("LLM_START", "3"), ("LLM_END", "\"4.5\"")] {
            r.read(step(kind, "a", time, "").as_bytes(), &mut calls);
        }
        let ends: Vec<_> = calls.take().iter().map(|s| s.end_ns).collect();
        assert_eq!(ends, [Some(2_000_000_000), Some(4_500_000_000)]);
    }

    #[test]
    fn hostile_times_and_names_are_bounded() {
        let (r, mut calls) = (reader(), Calls::default());
        for time in ["null", "1e300", "99999999999999999999", "\"x\"", "{}"] {
            r.read(step("LLM_START", "a", time, "").as_bytes(), &mut calls);
        }
        assert!(calls.take().is_empty());
        r.read(step("LLM_START", &"n".repeat(10_000), "1", "").as_bytes(), &mut calls);
        assert_eq!(calls.take()[0].name.chars().count(), MAX_NAME);
    }
}
