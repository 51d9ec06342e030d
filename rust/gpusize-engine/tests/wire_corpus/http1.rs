//! HTTP/1.1 responses.

use gpusize_engine::wire::http1::Content;

use super::cases::{Case, bytes, load, ways};
use super::readers::http1::{Broken, Read, read};

fn wanted(case: &Case) -> Result<Read, Broken> {
    let want = case.get("want");
    match want["error"].as_str() {
        Some("protocol") => return Err(Broken::Protocol),
        Some("truncated") => return Err(Broken::Truncated),
        Some(other) => panic!("{}: no error is called {other}", case.name),
        None => {}
    }
    let content = match want["content"].as_str() {
        None => Content::Other,
        Some("event_stream") => Content::EventStream,
        Some("ndjson") => Content::Ndjson,
        Some("json") => Content::Json,
        Some(other) => panic!("{}: no content is called {other}", case.name),
    };
    Ok(Read {
        status: want["status"].as_u64().unwrap() as u16,
        keep_alive: want["keep_alive"].as_bool().unwrap_or(true),
        content,
        body: if want["body"].is_null() { Vec::new() } else { bytes(&want["body"]) },
        taken: case.wire.len() - want["surplus"].as_u64().unwrap_or(0) as usize,
    })
}

#[test]
fn every_response_is_read_as_expected_in_all_pieces() {
    let cases = load("http1");
    assert!(cases.len() > 100, "{} cases", cases.len());
    for case in cases {
        let head_request = case.get("head").as_bool().unwrap_or(false);
        let want = wanted(&case);
        for pieces in ways(&case.wire) {
            let lengths: Vec<usize> = pieces.iter().map(|p| p.len()).collect();
            assert_eq!(read(&pieces, head_request), want, "{} in pieces of {lengths:?}", case.name);
        }
    }
}
