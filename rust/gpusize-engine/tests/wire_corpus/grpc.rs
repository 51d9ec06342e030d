//! gRPC messages, and what a `KServe` reply in one says.

use gpusize_engine::wire::kserve::{Reply, infer_response, stream_response};
use gpusize_kserve::messages::{ModelInferResponse, ModelStreamInferResponse};
use prost::Message;

use super::cases::{bytes, load, ways};
use super::readers::grpc::{Cut, cut};

#[test]
fn every_body_is_cut_as_expected_in_all_pieces() {
    let cases: Vec<_> = load("grpc").into_iter().filter(|case| case.get("reply").is_null()).collect();
    assert!(cases.len() > 15, "{} cases", cases.len());
    for case in cases {
        let want = case.get("want");
        let messages: Vec<Vec<u8>> = want["messages"].as_array().unwrap().iter().map(bytes).collect();
        let error = want["error"].as_str();
        for pieces in ways(&case.wire) {
            let lengths: Vec<usize> = pieces.iter().map(|p| p.len()).collect();
            let Cut { messages: cut, whole, error: said } = cut(&pieces);
            assert_eq!(cut, messages, "{} in pieces of {lengths:?}", case.name);
            match (error, said) {
                (Some(words), Some(said)) => assert!(said.contains(words), "{}: {said}", case.name),
                (None, None) => assert_eq!(whole, want["whole"].as_bool().unwrap_or(true), "{}", case.name),
                (want, said) => panic!("{}: {said:?} instead of {want:?}", case.name),
            }
        }
    }
}

#[test]
fn every_reply_says_what_is_expected_and_what_the_generated_messages_say() {
    let cases: Vec<_> = load("grpc").into_iter().filter(|case| !case.get("reply").is_null()).collect();
    assert!(cases.len() > 15, "{} cases", cases.len());
    for case in cases {
        let want = case.get("want");
        let wanted = (!want.is_null()).then(|| Reply {
            has_outputs: want["outputs"].as_bool().unwrap_or(false),
            error: want["error"].as_str().map(str::to_owned),
        });
        let (said, second) = match case.get("reply").as_str().unwrap() {
            "infer" => {
                (infer_response(&case.wire), ModelInferResponse::decode(&case.wire[..]).ok().map(|m| of_infer(&m)))
            }
            "stream" => (
                stream_response(&case.wire),
                ModelStreamInferResponse::decode(&case.wire[..]).ok().map(|m| of_stream(&m)),
            ),
            other => panic!("{}: no reply is called {other}", case.name),
        };
        assert_eq!(said, wanted, "{}", case.name);
        if !case.get("differs").as_bool().unwrap_or(false) {
            assert_eq!(second, wanted, "{}, as prost reads it", case.name);
        }
    }
}

fn of_infer(message: &ModelInferResponse) -> Reply {
    Reply { error: None, has_outputs: !message.outputs.is_empty() || !message.raw_output_contents.is_empty() }
}

fn of_stream(message: &ModelStreamInferResponse) -> Reply {
    Reply {
        error: (!message.error_message.is_empty()).then(|| message.error_message.clone()),
        has_outputs: message.infer_response.as_ref().is_some_and(|m| of_infer(m).has_outputs),
    }
}
