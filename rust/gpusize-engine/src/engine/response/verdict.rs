//! Whether an answer that has come whole is a success.

use super::{Reader, ResponseFormat, counts, line};
use crate::outcome::Outcome;
use crate::record::Row;
use crate::spec::Framing;
use crate::wire::interpret::Interpreter;
use crate::wire::message::{message_of, stated_message};

/// How a complete response ended, and the message if it failed; `has_body`: the method lets an answer have a body.
pub fn verdict(
    format: &ResponseFormat,
    reader: &mut Reader,
    has_body: bool,
    row: &mut Row,
) -> (Outcome, Option<String>) {
    let interpreter = &format.interpreter;
    if !interpreter.success(row.status) {
        let message = message_of(&reader.text);
        return (Outcome::HttpError, Some(message));
    }
    if reader.is_stream() {
        take_end(reader, format, row);
        // A last line without its newline is still a line.
        if reader.framing == Some(Framing::Ndjson) && !reader.text.is_empty() {
            let rest = std::mem::take(&mut reader.text);
            let now = row.end_ns;
            line(&rest, &mut |data| reader.content.event(data, now, format, row));
        }
    } else if reader.reads_whole {
        let has_text = !reader.text.trim_ascii().is_empty();
        if has_text {
            interpreter.read(&reader.text, &mut reader.content.answer);
        } else if has_body && !matches!(row.status, 204 | 205) && interpreter.wants_json() {
            reader.content.answer.malformed = true;
        }
    }
    counts(format, reader, row);
    judge(interpreter, reader, has_body)
}

/// Servers leave out the empty line after the event that ends a stream, and end the body there.
fn take_end(reader: &mut Reader, format: &ResponseFormat, row: &mut Row) {
    let Reader { events, content, .. } = reader;
    if reader.framing == Some(Framing::Sse) && format.interpreter.wants_end() && !content.answer.ended {
        let now = row.end_ns;
        events.finish(&mut |data| {
            if format.interpreter.is_end(data) {
                content.event(data, now, format, row);
            }
        });
    }
}

/// The same for the end of a gRPC call that its status calls a success.
pub fn verdict_of_call(format: &ResponseFormat, reader: &Reader) -> (Outcome, Option<String>) {
    match format.interpreter.lacks(&reader.content.answer) {
        Some(_) => (Outcome::ApiError, Some(lacking("outputs", None))),
        None => (Outcome::Ok, None),
    }
}

fn lacking(missing: &str, stated: Option<String>) -> String {
    let said = stated.map_or_else(String::new, |message| format!("; it says: {message}"));
    format!("the answer lacks what makes it a success (success_if): {missing}{said}")
}

/// Whether an answer with a successful status is a success.
fn judge(interpreter: &Interpreter, reader: &mut Reader, has_body: bool) -> (Outcome, Option<String>) {
    if let Some(message) = reader.content.answer.error.take() {
        return (Outcome::ApiError, Some(message));
    }
    let answer = &reader.content.answer;
    if answer.malformed {
        return (Outcome::ProtocolError, Some("the answer is not JSON".to_owned()));
    }
    if reader.is_stream() && interpreter.wants_end() && !answer.ended {
        return (Outcome::Truncated, Some("the stream ended without its end marker".to_owned()));
    }
    if has_body && let Some(missing) = interpreter.lacks(answer) {
        let stated = if reader.is_stream() { None } else { stated_message(&reader.text) };
        return (Outcome::ApiError, Some(lacking(missing, stated)));
    }
    (Outcome::Ok, None)
}
