//! Answers in the form of an LLM's stream of server-sent events, in chunked coding.

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// One event with content; `more` stands at its end.
fn event(number: usize, more: &str) -> String {
    let delta = format!(r#"{{"index":0,"delta":{{"content":" token{number:03}"}},"finish_reason":null}}"#);
    let body = format!(
        r#"{{"id":"chatcmpl-0001","object":"chat.completion.chunk","created":1763683200,"model":"m","choices":[{delta}]{more}}}"#
    );
    chunk(&format!("data: {body}\n\n"))
}

/// The usage, the end marker and the last chunk.
fn tail(events: usize) -> String {
    let usage = format!(r#"{{"prompt_tokens":8,"completion_tokens":{events},"total_tokens":{}}}"#, events + 8);
    chunk(&format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n")) + "0\r\n\r\n"
}

/// An answer as one piece for each event; the head goes with the first, the end with the last.
pub fn one_each(events: usize, more: &str) -> Vec<Vec<u8>> {
    let mut pieces: Vec<String> = (0..events).map(|number| event(number, more)).collect();
    if let Some(first) = pieces.first_mut() {
        first.insert_str(0, HEAD);
    }
    if let Some(last) = pieces.last_mut() {
        last.push_str(&tail(events));
    }
    pieces.into_iter().map(String::into_bytes).collect()
}

/// An answer in so many pieces of about the same length, wherever that cuts it.
pub fn parts(events: usize, count: usize, more: &str) -> Vec<Vec<u8>> {
    let whole = one_each(events, more).concat();
    let length = whole.len().div_ceil(count.max(1));
    whole.chunks(length).map(<[u8]>::to_vec).collect()
}
