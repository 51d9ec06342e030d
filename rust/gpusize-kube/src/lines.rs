//! The lines of a watch, into the book.

use serde::Deserialize;

use crate::book::Book;
use crate::managed::without_managed_fields;
use crate::object::Object;
use crate::text::Text;

/// The annotation of the bookmark that ends the objects a watch list begins with.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// What some lines said.
#[derive(Debug, Default)]
pub struct Told {
    /// How many lines were taken.
    pub count: u64,
    /// The version of the last of them.
    pub version: Option<String>,
    /// Whether the next line is still one of those in a list's place.
    pub initial: bool,
    /// What the line after them was, where it was none to go on from; nothing after it was looked at.
    pub ended: Option<Ended>,
}

/// A line that ends a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server says so.
    Error {
        /// As those of HTTP.
        code: i64,
        /// In one word.
        reason: String,
        /// In more.
        message: String,
    },
    /// It is no line of a watch; what was found wrong.
    NoObject(String),
}

/// Where a watch is.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// When the lines were read, by our clock.
    pub received_ns: i64,
    /// Whether they are those that a watch list begins with.
    pub initial: bool,
    /// Whether they come later than they might have.
    pub late: bool,
}

/// Write down what the lines of a kind's watch say, until one that ends it. Empty lines are no lines.
pub fn take_lines(book: &mut Book, kind: &str, lines: &[u8], at: At) -> Told {
    let mut told = Told { initial: at.initial, ..Told::default() };
    let mut begin = 0;
    for end in memchr::memchr_iter(b'\n', lines).chain([lines.len()]) {
        let line = lines.get(begin..end).unwrap_or_default();
        begin = end + 1;
        if !line.is_empty() {
            // All of it at once: to look at each string by itself takes several times as long.
            match std::str::from_utf8(line) {
                Ok(line) => told.take_line(book, kind, line, at),
                Err(problem) => told.ended = Some(Ended::NoObject(problem.to_string())),
            }
        }
        if told.ended.is_some() {
            break;
        }
    }
    told
}

impl Told {
    fn take_line(&mut self, book: &mut Book, kind: &str, line: &str, at: At) {
        let short = (kind == "Pod").then(|| without_managed_fields(line)).flatten();
        if let Some(Ok((what, object))) = short.as_deref().map(|short| Object::of_line(kind, short))
            && *what != *"ERROR"
        {
            self.take(book, kind, &what, &object, at);
            return;
        }
        match Object::of_line(kind, line) {
            Ok((what, object)) if *what != *"ERROR" => self.take(book, kind, &what, &object, at),
            Ok(_) => self.ended = Some(error(line)),
            // What an ERROR has for its object need not have a kind's shape.
            Err(_) if is_error(line) => self.ended = Some(error(line)),
            Err(problem) => self.ended = Some(Ended::NoObject(problem.to_string())),
        }
    }

    fn take(&mut self, book: &mut Book, kind: &str, what: &str, object: &Object<'_>, at: At) {
        let metadata = object.metadata();
        self.count += 1;
        self.version = Some(metadata.resource_version.to_string());
        if what == "BOOKMARK" {
            let notes = metadata.annotations.as_ref();
            self.initial &= notes.and_then(|notes| notes.get(INITIAL_END)) != Some("true");
            return;
        }
        let (uid, reported) = (&*metadata.uid, !self.initial && !at.late);
        if what != "DELETED" {
            book.there_mut(kind).see(uid, &metadata.resource_version);
            book.take(kind, object, at.received_ns, reported);
            return;
        }
        book.there_mut(kind).delete(uid);
        // An Event that is deleted was forgotten; that is no moment of anything.
        if kind != "Event" {
            book.take(kind, object, at.received_ns, reported);
            book.gone(uid, at.received_ns, reported);
        }
    }
}

fn is_error(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        r#type: Text<'a>,
    }
    serde_json::from_str::<Line<'_>>(line).is_ok_and(|line| *line.r#type == *"ERROR")
}

/// The `Status` of an ERROR line.
fn error(line: &str) -> Ended {
    #[derive(Deserialize)]
    struct Line {
        object: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        code: i64,
        reason: String,
        message: String,
    }
    match serde_json::from_str::<Line>(line) {
        Ok(Line { object: Status { code, reason, message } }) => Ended::Error { code, reason, message },
        Err(problem) => Ended::NoObject(problem.to_string()),
    }
}
