//! What the peer sends: frames, however their bytes arrive.

use super::super::frame::{self, Frame, setting};
use super::{Client, Code, End, FRAME_BYTES, Fatal, RELEASE_BYTES, Result, STREAM_WINDOW, Sink};
use crate::wire::http2::hpack::Fields;

/// Compressed fields of one head; longer ones are meant to hurt.
const LONGEST_BLOCK: usize = 4 << 20;
/// Frames that one head comes in; more are meant to hurt.
const MOST_CONTINUATIONS: u32 = 1_000;

/// Where the bytes stand that have come.
#[derive(Debug, Default)]
pub struct Inbound {
    /// The beginning of a frame that has not come whole.
    begun: Vec<u8>,
    /// The DATA frame whose payload comes.
    data: Option<Data>,
    /// The head that goes on in the next frame: its stream, whether its answer ends with it, and what has come.
    block: Option<Block>,
    /// The first frame has come.
    is_greeted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Data {
    stream: u32,
    left: usize,
    is_last: bool,
}

#[derive(Debug)]
struct Block {
    stream: u32,
    is_last: bool,
    bytes: Vec<u8>,
    frames: u32,
}

fn broken(what: &'static str) -> Fatal {
    Fatal::new(Code::PROTOCOL_ERROR, what)
}

fn wrong_length(what: &'static str) -> Fatal {
    Fatal::new(Code::FRAME_SIZE_ERROR, what)
}

/// Take all of `input`.
pub fn feed<T>(client: &mut Client<T>, mut input: &[u8], sink: &mut impl Sink<T>) -> Result<()> {
    while !input.is_empty() {
        if let Some(data) = client.inbound.data {
            input = payload(client, data, input, sink);
            continue;
        }
        if !client.inbound.begun.is_empty() {
            input = complete_begun(client, input, sink)?;
            continue;
        }
        let Some((head, rest)) = input.split_first_chunk() else {
            client.inbound.begun.extend_from_slice(input);
            return Ok(());
        };
        let frame = Frame::parse(*head);
        if begins(client, frame)? {
            input = rest;
            begin_data(client, frame, sink)?;
        } else if let Some((payload, after)) = rest.split_at_checked(frame.length) {
            input = after;
            whole(client, frame, payload, sink)?;
        } else {
            client.inbound.begun.extend_from_slice(input);
            return Ok(());
        }
    }
    Ok(())
}

/// More of a frame that has begun; what follows it is left.
#[cold]
fn complete_begun<'a, T>(client: &mut Client<T>, input: &'a [u8], sink: &mut impl Sink<T>) -> Result<&'a [u8]> {
    let mut begun = std::mem::take(&mut client.inbound.begun);
    let missing = frame::HEAD.saturating_sub(begun.len());
    let (more, mut input) = input.split_at(missing.min(input.len()));
    begun.extend_from_slice(more);
    if let Some(head) = begun.first_chunk().copied() {
        let frame = Frame::parse(head);
        if begins(client, frame)? {
            begin_data(client, frame, sink)?;
            return Ok(input);
        }
        let missing = frame::HEAD + frame.length - begun.len();
        let (more, after) = input.split_at(missing.min(input.len()));
        begun.extend_from_slice(more);
        input = after;
        if begun.len() == frame::HEAD + frame.length {
            whole(client, frame, &begun[frame::HEAD..], sink)?;
            return Ok(input);
        }
    }
    client.inbound.begun = begun;
    Ok(input)
}

/// Whether a frame that may come now is one of DATA that is read as it comes.
fn begins<T>(client: &mut Client<T>, frame: Frame) -> Result<bool> {
    if frame.length > FRAME_BYTES {
        return Err(wrong_length("a frame longer than was allowed"));
    }
    if !client.inbound.is_greeted {
        if frame.kind != frame::SETTINGS || frame.has(frame::ACK) {
            return Err(broken("a first frame other than SETTINGS"));
        }
        client.inbound.is_greeted = true;
    }
    if let Some(block) = &client.inbound.block
        && (frame.kind != frame::CONTINUATION || frame.stream != block.stream)
    {
        return Err(broken("another frame between the parts of a head"));
    }
    Ok(frame.kind == frame::DATA && !frame.has(frame::PADDED))
}

/// A frame of a stream that we never opened.
fn check_opened<T>(client: &Client<T>, stream: u32) -> Result<()> {
    if stream == 0 || stream.is_multiple_of(2) || stream >= client.next_stream {
        return Err(broken("a frame of a stream that was never opened"));
    }
    Ok(())
}

/// The head of a DATA frame has come, of so many bytes with its padding.
fn begin_data<T>(client: &mut Client<T>, frame: Frame, sink: &mut impl Sink<T>) -> Result<()> {
    let data = Data { stream: frame.stream, left: frame.length, is_last: frame.has(frame::END_STREAM) };
    count_data(client, frame, frame.length, sink)?;
    if data.left > 0 {
        client.inbound.data = Some(data);
    } else if data.is_last {
        finish(client, data.stream, sink);
    }
    Ok(())
}

/// Count a DATA frame against the windows, and what is between its padding against the answer's length. One of a stream
/// that is over is read and forgotten.
fn count_data<T>(client: &mut Client<T>, frame: Frame, unpadded: usize, sink: &mut impl Sink<T>) -> Result<()> {
    check_opened(client, frame.stream)?;
    client.receive(frame.length)?;
    let Some(stream) = client.streams.get(frame.stream) else { return Ok(()) };
    stream.receive_window -= frame.length as i64;
    if stream.receive_window < 0 {
        client.stop(frame.stream, Code::FLOW_CONTROL_ERROR, End::Malformed("more than the stream's window"), sink);
        return Ok(());
    }
    if !stream.has_head {
        client.stop(frame.stream, Code::PROTOCOL_ERROR, End::Malformed("a body before its head"), sink);
        return Ok(());
    }
    // By the frame, not by the bytes that have come: how the network cut it changes nothing that is told.
    if let Some(left) = &mut stream.length_left {
        let Some(after) = left.checked_sub(unpadded as u64) else {
            let end = End::Malformed("a body longer than its content-length");
            client.stop(frame.stream, Code::PROTOCOL_ERROR, end, sink);
            return Ok(());
        };
        *left = after;
    }
    stream.unreleased += frame.length as u32;
    if stream.unreleased >= RELEASE_BYTES && !frame.has(frame::END_STREAM) {
        let bytes = std::mem::take(&mut stream.unreleased);
        stream.receive_window = (stream.receive_window + i64::from(bytes)).min(i64::from(STREAM_WINDOW));
        client.raise(frame.stream, bytes);
    }
    Ok(())
}

/// Some of a DATA frame's payload has come; what follows it is left.
fn payload<'a, T>(client: &mut Client<T>, data: Data, input: &'a [u8], sink: &mut impl Sink<T>) -> &'a [u8] {
    let (bytes, rest) = input.split_at(data.left.min(input.len()));
    let left = data.left - bytes.len();
    client.inbound.data = (left > 0).then_some(Data { left, ..data });
    body(client, data.stream, bytes, data.is_last && left == 0, sink);
    rest
}

fn body<T>(client: &mut Client<T>, id: u32, bytes: &[u8], is_last: bool, sink: &mut impl Sink<T>) {
    let Some(stream) = client.streams.get(id) else { return };
    if !sink.data(&stream.to, bytes) {
        client.stop(id, Code::CANCEL, End::Stopped, sink);
    } else if is_last {
        finish(client, id, sink);
    }
}

/// The server has said all of an answer.
fn finish<T>(client: &mut Client<T>, id: u32, sink: &mut impl Sink<T>) {
    let Some(stream) = client.streams.get(id) else { return };
    if stream.length_left.is_some_and(|left| left > 0) {
        let end = End::Malformed("a body shorter than its content-length");
        client.stop(id, Code::PROTOCOL_ERROR, end, sink);
    } else {
        client.complete(id, sink);
    }
}

/// A frame has come whole.
fn whole<T>(client: &mut Client<T>, frame: Frame, payload: &[u8], sink: &mut impl Sink<T>) -> Result<()> {
    match frame.kind {
        frame::HEADERS => headers(client, frame, payload, sink),
        frame::CONTINUATION => continuation(client, frame, payload, sink),
        frame::DATA => {
            let inner = unpadded(frame, payload)?;
            count_data(client, frame, inner.len(), sink)?;
            body(client, frame.stream, inner, frame.has(frame::END_STREAM), sink);
            Ok(())
        }
        frame::SETTINGS => settings(client, frame, payload),
        frame::PING => ping(client, frame, payload),
        frame::WINDOW_UPDATE => window_update(client, frame, payload, sink),
        frame::RST_STREAM => rst_stream(client, frame, payload, sink),
        frame::GOAWAY => go_away(client, frame, payload, sink),
        frame::PUSH_PROMISE => Err(broken("a push, though none was allowed")),
        frame::PRIORITY if frame.length != 5 => Err(wrong_length("PRIORITY of a wrong length")),
        // What nobody knows means nothing (section 4.1).
        _ => Ok(()),
    }
}

/// What stands between a frame's padding.
fn unpadded(frame: Frame, payload: &[u8]) -> Result<&[u8]> {
    if !frame.has(frame::PADDED) {
        return Ok(payload);
    }
    let inner = payload.split_first().and_then(|(n, rest)| rest.get(..rest.len().checked_sub(usize::from(*n))?));
    inner.ok_or(broken("padding longer than its frame"))
}

fn headers<T>(client: &mut Client<T>, frame: Frame, payload: &[u8], sink: &mut impl Sink<T>) -> Result<()> {
    check_opened(client, frame.stream)?;
    let mut block = unpadded(frame, payload)?;
    if frame.has(frame::WITH_PRIORITY) {
        block = block.get(5..).ok_or(wrong_length("HEADERS too short for their priority"))?;
    }
    let is_last = frame.has(frame::END_STREAM);
    if frame.has(frame::END_HEADERS) {
        let fields = client.fields(block)?;
        take_fields(client, frame.stream, is_last, &fields, sink);
    } else {
        client.inbound.block = Some(Block { stream: frame.stream, is_last, bytes: block.to_vec(), frames: 0 });
    }
    Ok(())
}

fn continuation<T>(client: &mut Client<T>, frame: Frame, payload: &[u8], sink: &mut impl Sink<T>) -> Result<()> {
    let Some(mut block) = client.inbound.block.take() else { return Err(broken("CONTINUATION of nothing")) };
    block.bytes.extend_from_slice(payload);
    block.frames += 1;
    if block.bytes.len() > LONGEST_BLOCK || block.frames > MOST_CONTINUATIONS {
        return Err(Fatal::new(Code::ENHANCE_YOUR_CALM, "a head without end"));
    }
    if frame.has(frame::END_HEADERS) {
        let fields = client.fields(&block.bytes)?;
        take_fields(client, block.stream, block.is_last, &fields, sink);
    } else {
        client.inbound.block = Some(block);
    }
    Ok(())
}

/// A head or trailers have come.
fn take_fields<T>(client: &mut Client<T>, id: u32, is_last: bool, fields: &Fields, sink: &mut impl Sink<T>) {
    let Some(stream) = client.streams.get(id) else { return };
    let wrong = if fields.is_too_long {
        Some(End::TooLong)
    } else if let Some(why) = fields.malformed {
        Some(End::Malformed(why))
    } else if stream.has_head {
        let why = match () {
            () if fields.status.is_some() => Some("a second head"),
            () if !is_last => Some("trailers that end nothing"),
            () => None,
        };
        why.map(End::Malformed)
    } else {
        match fields.status {
            None => Some(End::Malformed("a head without :status")),
            Some(101) => Some(End::Malformed("101 Switching Protocols, which HTTP/2 has not")),
            Some(100..=199) if is_last => Some(End::Malformed("an answer that only announces one")),
            Some(100..=599) => None,
            Some(_) => Some(End::Malformed("a status beyond 599")),
        }
    };
    if let Some(end) = wrong {
        client.stop(id, Code::PROTOCOL_ERROR, end, sink);
        return;
    }
    if stream.has_head {
        sink.trailers(&stream.to, fields);
        finish(client, id, sink);
        return;
    }
    let status = fields.status.unwrap_or(0);
    if status < 200 {
        return;
    }
    stream.has_head = true;
    let has_body = !stream.has_no_body && status != 204 && status != 304;
    stream.length_left = if has_body { fields.content_length } else { Some(0) };
    if !sink.head(&stream.to, fields) {
        client.stop(id, Code::CANCEL, End::Stopped, sink);
    } else if is_last {
        finish(client, id, sink);
    }
}

fn settings<T>(client: &mut Client<T>, frame: Frame, payload: &[u8]) -> Result<()> {
    if frame.stream != 0 {
        return Err(broken("SETTINGS of a stream"));
    }
    if frame.has(frame::ACK) {
        return if payload.is_empty() { Ok(()) } else { Err(wrong_length("an acknowledgement with a payload")) };
    }
    if !payload.len().is_multiple_of(6) {
        return Err(wrong_length("SETTINGS of a wrong length"));
    }
    for one in payload.chunks_exact(6) {
        let (id, value) = (u16::from_be_bytes([one[0], one[1]]), u32::from_be_bytes([one[2], one[3], one[4], one[5]]));
        match id {
            setting::HEADER_TABLE_SIZE => client.encoder.resize(value as usize),
            setting::ENABLE_PUSH if value > 0 => return Err(broken("a server that asks for pushes")),
            setting::MAX_CONCURRENT_STREAMS => client.peer.max_streams = Some(value),
            setting::INITIAL_WINDOW_SIZE => {
                let value = i64::from(value);
                if value >= frame::WINDOW_LIMIT {
                    return Err(Fatal::new(Code::FLOW_CONTROL_ERROR, "a window beyond 2^31 - 1"));
                }
                let more = value - std::mem::replace(&mut client.peer.window, value);
                change_windows(client, more)?;
            }
            setting::MAX_FRAME_SIZE => {
                if !(frame::FIRST_FRAME_BYTES..=frame::LARGEST_FRAME_BYTES).contains(&(value as usize)) {
                    return Err(broken("a length of frames that nobody may allow"));
                }
                client.peer.frame_bytes = value as usize;
            }
            _ => {}
        }
    }
    // A peer that says nothing of it allows any number.
    client.peer.max_streams.get_or_insert(u32::MAX);
    client.say(frame::SETTINGS, frame::ACK, 0, &[]);
    client.upload();
    client.open_waiting();
    Ok(())
}

/// All streams' windows change by so much, below zero too (section 6.9.2).
fn change_windows<T>(client: &mut Client<T>, more: i64) -> Result<()> {
    for stream in client.streams.each() {
        stream.send_window += more;
        if stream.send_window >= frame::WINDOW_LIMIT {
            return Err(Fatal::new(Code::FLOW_CONTROL_ERROR, "a window beyond 2^31 - 1"));
        }
        if more > 0 && !stream.body.is_empty() && !client.uploads.contains(&stream.id) {
            client.uploads.push_back(stream.id);
        }
    }
    Ok(())
}

fn ping<T>(client: &mut Client<T>, frame: Frame, payload: &[u8]) -> Result<()> {
    if payload.len() != 8 {
        return Err(wrong_length("PING of a wrong length"));
    }
    if frame.stream != 0 {
        return Err(broken("PING of a stream"));
    }
    if !frame.has(frame::ACK) {
        client.say(frame::PING, frame::ACK, 0, payload);
    }
    Ok(())
}

fn window_update<T>(client: &mut Client<T>, frame: Frame, payload: &[u8], sink: &mut impl Sink<T>) -> Result<()> {
    let Ok(bytes) = payload.try_into() else { return Err(wrong_length("WINDOW_UPDATE of a wrong length")) };
    let more = i64::from(u32::from_be_bytes(bytes) & (u32::MAX >> 1));
    if frame.stream == 0 {
        client.send_window += more;
        if more == 0 {
            return Err(broken("a window raised by 0"));
        }
        if client.send_window >= frame::WINDOW_LIMIT {
            return Err(Fatal::new(Code::FLOW_CONTROL_ERROR, "a window beyond 2^31 - 1"));
        }
    } else {
        check_opened(client, frame.stream)?;
        let Some(stream) = client.streams.get(frame.stream) else { return Ok(()) };
        stream.send_window += more;
        if more == 0 {
            client.stop(frame.stream, Code::PROTOCOL_ERROR, End::Malformed("a window raised by 0"), sink);
        } else if stream.send_window >= frame::WINDOW_LIMIT {
            let end = End::Malformed("a window beyond 2^31 - 1");
            client.stop(frame.stream, Code::FLOW_CONTROL_ERROR, end, sink);
        } else if !stream.body.is_empty() && !client.uploads.contains(&frame.stream) {
            client.uploads.push_back(frame.stream);
        }
    }
    client.upload();
    Ok(())
}

fn rst_stream<T>(client: &mut Client<T>, frame: Frame, payload: &[u8], sink: &mut impl Sink<T>) -> Result<()> {
    let Ok(bytes) = payload.try_into() else { return Err(wrong_length("RST_STREAM of a wrong length")) };
    check_opened(client, frame.stream)?;
    if let Some(stream) = client.streams.remove(frame.stream) {
        sink.end(stream.to, End::Reset(Code(u32::from_be_bytes(bytes))));
    }
    client.open_waiting();
    Ok(())
}

fn go_away<T>(client: &mut Client<T>, frame: Frame, payload: &[u8], sink: &mut impl Sink<T>) -> Result<()> {
    if frame.stream != 0 {
        return Err(broken("GOAWAY of a stream"));
    }
    let Some(([a, b, c, d, code @ ..], _)) = payload.split_first_chunk::<8>() else {
        return Err(wrong_length("GOAWAY too short"));
    };
    let last = u32::from_be_bytes([*a, *b, *c, *d]) & (u32::MAX >> 1);
    let code = Code(u32::from_be_bytes(*code));
    client.leaving = true;
    for stream in client.streams.take_after(last) {
        sink.end(stream.to, End::Refused(code));
    }
    for request in std::mem::take(&mut client.waiting) {
        sink.end(request.to, End::Unsent);
    }
    Ok(())
}
