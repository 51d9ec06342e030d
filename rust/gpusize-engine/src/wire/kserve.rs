//! What a `KServe` v2 reply says, read off the protobuf wire format by field number, without building the message.

/// What of a reply matters while load runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Text of the error that a stream's reply carries in place of a result.
    pub error: Option<String>,
    /// Whether it carries output tensors.
    pub has_outputs: bool,
}

/// Longest error text kept.
const MAX_TEXT: usize = 2_048;

const RESPONSE_OUTPUTS: u32 = 5;
const RESPONSE_RAW_OUTPUTS: u32 = 6;
const STREAM_ERROR: u32 = 1;
const STREAM_RESPONSE: u32 = 2;

/// Read a `ModelInferResponse`; none: the bytes are no protobuf message.
pub fn infer_response(bytes: &[u8]) -> Option<Reply> {
    let mut reply = Reply::default();
    fields(bytes, |number, content| {
        reply.has_outputs |= content.is_some() && matches!(number, RESPONSE_OUTPUTS | RESPONSE_RAW_OUTPUTS);
        Some(())
    })?;
    Some(reply)
}

/// Read a `ModelStreamInferResponse`; none: the bytes are no protobuf message.
pub fn stream_response(bytes: &[u8]) -> Option<Reply> {
    let mut reply = Reply::default();
    fields(bytes, |number, content| {
        match (number, content) {
            // As protobuf has it, the last one stands, also where it is empty.
            (STREAM_ERROR, Some(text)) => {
                let text = String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]);
                let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                reply.error = Some(text).filter(|text| !text.is_empty());
            }
            (STREAM_RESPONSE, Some(inner)) => reply.has_outputs |= infer_response(inner)?.has_outputs,
            _ => {}
        }
        Some(())
    })?;
    Some(reply)
}

/// Give each field's number, and its bytes where it has a length; none where the bytes end inside a field, or `take` says so.
fn fields<'a>(mut bytes: &'a [u8], mut take: impl FnMut(u32, Option<&'a [u8]>) -> Option<()>) -> Option<()> {
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let number = u32::try_from(key >> 3).ok().filter(|n| *n > 0)?;
        match key & 7 {
            0 => {
                varint(&mut bytes)?;
                take(number, None)?;
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (content, rest) = bytes.split_at_checked(length)?;
                take(number, Some(content))?;
                bytes = rest;
            }
            kind @ (1 | 5) => {
                bytes = bytes.get(if kind == 1 { 8 } else { 4 }..)?;
                take(number, None)?;
            }
            // Groups are not part of proto3.
            _ => return None,
        }
    }
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        // The tenth byte has room for one bit.
        if place == 9 && *byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *bytes = &bytes[place + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8][..], content].concat()
    }

    #[test]
    fn outputs_and_errors_are_found_among_other_fields() {
        let named = [field(1, b"model"), field(3, b"id"), vec![0x40, 0x96, 0x01]].concat();
        assert_eq!(infer_response(&named), Some(Reply::default()));
        for number in [5, 6] {
            let reply = [named.clone(), field(number, b"\x0a\x01x")].concat();
            assert!(infer_response(&reply).unwrap().has_outputs);
            assert!(stream_response(&field(2, &reply)).unwrap().has_outputs);
            assert!(!stream_response(&field(1, b"")).unwrap().has_outputs);
        }
        let failed = stream_response(&[field(1, b"no\nroom"), field(2, &named)].concat()).unwrap();
        assert_eq!((failed.error.as_deref(), failed.has_outputs), (Some("no room"), false));
        assert_eq!(infer_response(b""), Some(Reply::default()));
    }

    #[test]
    fn every_prefix_of_a_message_that_cuts_a_field_is_refused() {
        let whole = [field(1, b"model"), field(5, b"abc"), vec![0x41], vec![7; 8], vec![0x45], vec![7; 4]].concat();
        let ends = [0, 7, 12, 21, 26];
        for end in 0..=whole.len() {
            assert_eq!(infer_response(&whole[..end]).is_some(), ends.contains(&end), "{end}");
        }
        let broken =
            [&b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], b"\x0b\x00", b"\x00\x00", b"\x0f", b"{\"a\":1}"];
        for bytes in broken {
            assert_eq!(infer_response(bytes), None, "{bytes:?}");
            assert_eq!(stream_response(&field(2, bytes)), None, "{bytes:?}");
        }
    }
}
