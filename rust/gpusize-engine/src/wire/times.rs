//! How long a server says that a request waited in it and was served.

use http::{HeaderMap, HeaderName};
use sonic_rs::{JsonValueTrait, LazyValue};

use super::places::{Pointers, Values};
use crate::record::row::NO_TIME;
use crate::spec::{ResponseSpec, TimePlace};

/// Longer than this (about 146 years) is no duration.
const MOST_NS: f64 = (1_u64 << 62) as f64;

/// What a server said of one request, in nanoseconds; `NO_TIME` where it said nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimes {
    /// Before its turn came.
    pub queue_ns: i64,
    /// From its turn to its end.
    pub service_ns: i64,
}

impl Default for ServerTimes {
    fn default() -> Self {
        Self { queue_ns: NO_TIME, service_ns: NO_TIME }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Queue,
    Service,
}

impl ServerTimes {
    fn set(&mut self, kind: Kind, ns: i64) {
        match kind {
            Kind::Queue => self.queue_ns = ns,
            Kind::Service => self.service_ns = ns,
        }
    }

    /// Whether anything was said.
    pub fn is_none(&self) -> bool {
        self.queue_ns == NO_TIME && self.service_ns == NO_TIME
    }
}

/// The places in documents, compiled.
#[derive(Debug, Default)]
pub struct DocumentTimes(Vec<DocumentPlace>);

#[derive(Debug)]
struct DocumentPlace {
    kind: Kind,
    /// Their sum counts.
    paths: Vec<usize>,
    unit_ns: f64,
}

impl DocumentTimes {
    /// Put the pointers among the others. Of one kind the first place comes last, so that what is read later counts.
    pub fn new(spec: &ResponseSpec, pointers: &mut Pointers) -> Self {
        let mut places = Vec::new();
        for (kind, all) in [(Kind::Queue, &spec.server_queue), (Kind::Service, &spec.server_service)] {
            for place in all.iter().rev() {
                if let TimePlace::Document(document) = place {
                    let paths: Vec<_> = document.at.0.iter().map(|pointer| pointers.add(pointer)).collect();
                    if !paths.is_empty() {
                        places.push(DocumentPlace { kind, paths, unit_ns: document.unit.ns() });
                    }
                }
            }
        }
        Self(places)
    }

    /// What one document says replaces what was said before.
    pub fn read(&self, values: &Values<'_>, times: &mut ServerTimes) {
        for place in &self.0 {
            let mut sum = 0.0;
            let all = place.paths.iter().all(|path| {
                let number = values.get(*path).and_then(LazyValue::as_f64);
                number.inspect(|number| sum += number).is_some()
            });
            if all && let Some(ns) = duration(sum, place.unit_ns) {
                times.set(place.kind, ns);
            }
        }
    }
}

/// The places in the heads of answers, compiled; the first of a kind comes last, as above.
#[derive(Clone, Debug, Default)]
pub struct HeadTimes(Vec<HeadPlace>);

#[derive(Clone, Debug)]
struct HeadPlace {
    kind: Kind,
    name: HeaderName,
    unit_ns: f64,
}

impl HeadTimes {
    /// A name that no field can have is never found.
    pub fn new(spec: &ResponseSpec) -> Self {
        let mut places = Vec::new();
        for (kind, all) in [(Kind::Queue, &spec.server_queue), (Kind::Service, &spec.server_service)] {
            for place in all.iter().rev() {
                if let TimePlace::Field(field) = place
                    && let Ok(name) = field.header.parse()
                {
                    places.push(HeadPlace { kind, name, unit_ns: field.unit.ns() });
                }
            }
        }
        Self(places)
    }

    /// Whether no head has to be looked at.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a head of HTTP/1.1 says.
    pub fn of_lines(&self, lines: &[httparse::Header<'_>]) -> ServerTimes {
        self.find(|name| lines.iter().find(|line| line.name.eq_ignore_ascii_case(name.as_str())).map(|line| line.value))
    }

    /// What a head of HTTP/2 says.
    pub fn of_fields(&self, fields: &HeaderMap) -> ServerTimes {
        self.find(|name| fields.get(name).map(http::HeaderValue::as_bytes))
    }

    fn find<'a>(&self, value: impl Fn(&HeaderName) -> Option<&'a [u8]>) -> ServerTimes {
        let mut times = ServerTimes::default();
        for place in &self.0 {
            let text = value(&place.name).and_then(|bytes| std::str::from_utf8(bytes.trim_ascii()).ok());
            if let Some(ns) = text.and_then(|text| duration(text.parse().ok()?, place.unit_ns)) {
                times.set(place.kind, ns);
            }
        }
        times
    }
}

/// Nanoseconds, where a number can be a duration.
fn duration(number: f64, unit_ns: f64) -> Option<i64> {
    let ns = number * unit_ns;
    (0.0..MOST_NS).contains(&ns).then(|| ns.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> ResponseSpec {
        serde_json::from_str(json).unwrap()
    }

    fn said(spec: &ResponseSpec, documents: &[&str]) -> (Option<i64>, Option<i64>) {
        let mut pointers = Pointers::default();
        let places = DocumentTimes::new(spec, &mut pointers);
        pointers.seal();
        let mut times = ServerTimes::default();
        for document in documents {
            places.read(&pointers.read(document.as_bytes()).unwrap(), &mut times);
        }
        plain(times)
    }

    fn plain(times: ServerTimes) -> (Option<i64>, Option<i64>) {
        let some = |ns| (ns != NO_TIME).then_some(ns);
        (some(times.queue_ns), some(times.service_ns))
    }

    #[test]
    fn documents_say_times_in_their_own_units_and_sums() {
        let spec = spec(
            r#"{"server_queue":[{"at":"/m/q","unit":"ms"},{"at":"/u/q","unit":"s"}],
                "server_service":[{"at":["/m/a","/m/b"],"unit":"ms"},{"at":"/u/s","unit":"us"}]}"#,
        );
        for (documents, want) in [
            (&[r#"{"m":{"q":1.5,"a":2,"b":0.25}}"#][..], (Some(1_500_000), Some(2_250_000))),
            (&[r#"{"u":{"q":0.5,"s":3}}"#], (Some(500_000_000), Some(3_000))),
            // The first place of the list counts.
            (&[r#"{"u":{"q":9,"s":9},"m":{"q":1,"a":1,"b":1}}"#], (Some(1_000_000), Some(2_000_000))),
            // Half of a sum is no sum.
            (&[r#"{"m":{"q":1,"a":2,"b":null}}"#], (Some(1_000_000), None)),
            (&[r#"{"m":{"q":"1","a":-5,"b":1}}"#], (None, None)),
            (&[r#"{"m":{"q":1e300}}"#], (None, None)),
            (&[r#"{"m":null}"#, r#"{"c":[]}"#, "{}"], (None, None)),
            // What comes later counts; what says nothing replaces nothing.
            (&[r#"{"m":{"q":1}}"#, r#"{"m":{"q":2}}"#, r#"{"m":null}"#], (Some(2_000_000), None)),
        ] {
            assert_eq!(said(&spec, documents), want, "{documents:?}");
        }
    }

    #[test]
    fn heads_say_times_whatever_their_case() {
        let spec = spec(
            r#"{"server_queue":[{"header":"X-Queue-Time","unit":"ms"}],
                "server_service":[{"header":"x-inference-time","unit":"ms"},{"header":"x-other","unit":"s"}]}"#,
        );
        let places = HeadTimes::new(&spec);
        let line = |name, value: &'static str| httparse::Header { name, value: value.as_bytes() };
        for (lines, want) in [
            (&[line("x-QUEUE-time", " 12 "), line("X-Other", "0.5")][..], (Some(12_000_000), Some(500_000_000))),
            (&[line("X-Other", "1"), line("x-inference-time", "3.5")], (None, Some(3_500_000))),
            (&[line("x-queue-time", "soon"), line("x-inference-time", "-1")], (None, None)),
            (&[], (None, None)),
        ] {
            assert_eq!(plain(places.of_lines(lines)), want);
            let mut fields = HeaderMap::new();
            for line in lines {
                fields.insert(line.name.parse::<HeaderName>().unwrap(), line.value.try_into().unwrap());
            }
            assert_eq!(plain(places.of_fields(&fields)), want);
        }
    }
}
