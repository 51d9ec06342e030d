//! What a server of HTTP/2 says, frame by frame, and compressed fields by another implementation.

use std::path::Path;

use gpusize_engine::wire::http2::{Decoder, End};
use serde_json::Value;

use super::cases::{load, ways};
use super::readers::http2::{Heard, Said, hear};

/// How an answer ended, as the corpus spells it.
fn end(said: &Said) -> Option<String> {
    said.end.as_ref().map(|end| match end {
        End::Malformed(why) => format!("Malformed: {why}"),
        end => format!("{end:?}"),
    })
}

fn check(name: &str, want: &Value, heard: &Heard) {
    if let Some(words) = want["fatal"].as_str() {
        assert!(heard.fatal.is_some_and(|what| what.contains(words)), "{name}: {:?}", heard.fatal);
        return;
    }
    assert_eq!(heard.fatal, None, "{name}");
    for (k, said) in heard.said.iter().enumerate() {
        match (want["ends"][k].as_str(), end(said)) {
            (Some(words), Some(end)) => {
                let (kind, rest) = words.split_once(": ").unwrap_or((words, ""));
                assert!(end.starts_with(kind) && end.contains(rest), "{name}: {k} ends with {end}");
            }
            (want, end) => assert_eq!(want.map(str::to_owned), end, "{name}: {k}"),
        }
        if let Some(status) = want["statuses"][k].as_u64() {
            assert_eq!(u64::from(said.status), status, "{name}: {k}");
        }
        if let Some(body) = want["bodies"][k].as_str() {
            assert_eq!(said.body, body.as_bytes(), "{name}: {k}");
        }
        if let Some(fields) = want["trailers"][k].as_array() {
            let texts = |field: &Value| (field[0].as_str().unwrap().into(), field[1].as_str().unwrap().into());
            let fields: Vec<(String, Vec<u8>)> = fields.iter().map(texts).collect();
            assert_eq!(said.trailers.as_ref(), Some(&fields), "{name}: {k}");
        }
    }
}

#[test]
fn every_connection_is_heard_as_expected_in_all_pieces() {
    let cases = load("http2");
    assert!(cases.len() > 40, "{} cases", cases.len());
    for case in cases {
        for pieces in ways(&case.wire) {
            check(&case.name, case.get("want"), &hear(&pieces));
        }
    }
}

/// The blocks of one connection, in their order, by the Python package hpack.
#[test]
fn fields_compressed_by_another_implementation_are_read() {
    let file = Path::new("tests/corpus/hpack/answers.json");
    let blocks: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(blocks.len() > 50);
    let mut decoder = Decoder::new(65_536);
    for (k, block) in blocks.iter().enumerate() {
        let digits: Vec<u8> = block["wire"].as_str().unwrap().chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        let fields = decoder.decode(&bytes).unwrap();
        let status = fields.status.map(|status| (":status".to_owned(), status.to_string()));
        let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
        let rest = fields.fields.iter().map(|(name, value)| (name.to_string(), text(value)));
        let mut read: Vec<_> = status.into_iter().chain(rest).collect();
        let texts = |field: &Value| (field[0].as_str().unwrap().to_owned(), field[1].as_str().unwrap().to_owned());
        let mut want: Vec<(String, String)> = block["want"].as_array().unwrap().iter().map(texts).collect();
        read.sort();
        want.sort();
        assert_eq!(read, want, "block {k}");
        assert_eq!(fields.malformed, None, "block {k}");
    }
}
