//! gRPC bodies, and what `KServe` replies in them say.

use gpusize_engine::wire::kserve::{infer_response, stream_response};
use gpusize_kserve::messages::{ModelInferResponse, ModelStreamInferResponse};
use prost::Message;

use crate::input::Input;
use crate::readers::grpc::cut;

/// Longest error text of a reply.
const MAX_TEXT: usize = 2_048;

/// A body is cut alike whole and in pieces; its messages, and the whole input taken for one, say what prost reads in them.
pub fn grpc(bytes: &[u8]) {
    let Some(input) = Input::new(bytes) else { return };
    let whole = cut(&input.whole());
    let pieces = cut(&input.pieces());
    // After an error nothing is fed, so only its pieces tell how far the reader was.
    assert_eq!((&pieces.messages, &pieces.error), (&whole.messages, &whole.error), "in pieces, and whole");
    assert!(whole.error.is_some() || pieces.whole == whole.whole);
    let held: usize = whole.messages.iter().map(|message| message.len() + 5).sum();
    assert!(held <= input.message.len(), "messages longer than the body");
    for message in whole.messages.iter().map(Vec::as_slice).chain([input.message]) {
        infer(message);
        stream(message);
    }
}

fn infer(message: &[u8]) {
    let said = infer_response(message);
    let Ok(second) = ModelInferResponse::decode(message) else { return };
    let has_outputs = has_outputs(&second);
    // For a map prost does not look at the wire type and may take other fields for an entry.
    if let Some(said) = said.filter(|_| second.parameters.is_empty()) {
        assert_eq!((said.has_outputs, said.error), (has_outputs, None));
    }
    // What prost skips may be a group, which is refused here; what it writes has none.
    let plain = infer_response(&second.encode_to_vec()).expect("a message of prost");
    assert_eq!(plain.has_outputs, has_outputs);
}

fn stream(message: &[u8]) {
    let said = stream_response(message);
    assert!(said.as_ref().is_none_or(|s| s.error.as_ref().is_none_or(|e| e.chars().count() <= MAX_TEXT)));
    let Ok(second) = ModelStreamInferResponse::decode(message) else { return };
    let has_outputs = second.infer_response.as_ref().is_some_and(has_outputs);
    let has_map = second.infer_response.as_ref().is_some_and(|inner| !inner.parameters.is_empty());
    for reply in said.filter(|_| !has_map).into_iter().chain(stream_response(&second.encode_to_vec())) {
        assert_eq!((reply.has_outputs, reply.error.is_some()), (has_outputs, !second.error_message.is_empty()));
    }
}

fn has_outputs(message: &ModelInferResponse) -> bool {
    !message.outputs.is_empty() || !message.raw_output_contents.is_empty()
}
