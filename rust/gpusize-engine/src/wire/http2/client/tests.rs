use super::*;
use crate::spec::TargetSpec;

/// What was told, in words.
#[derive(Default)]
struct Told(Vec<String>);

impl Sink<u32> for Told {
    fn head(&mut self, request: &u32, fields: &Fields) -> bool {
        self.0.push(format!("{request} head {}", fields.head.status));
        true
    }

    fn data(&mut self, request: &u32, bytes: &[u8]) -> bool {
        // However a body is cut, it is one line.
        let text = String::from_utf8_lossy(bytes);
        match self.0.last_mut() {
            Some(last) if last.starts_with(&format!("{request} data")) => last.push_str(&text),
            _ => self.0.push(format!("{request} data {text}")),
        }
        !bytes.contains(&b'!')
    }

    fn trailers(&mut self, request: &u32, fields: &Fields) {
        self.0.push(format!("{request} trailers {}", fields.fields.len()));
    }

    fn end(&mut self, request: u32, end: End) {
        self.0.push(format!("{request} {end:?}"));
    }
}

/// Takes everything and looks at nothing.
struct Deaf;

impl Sink<u32> for Deaf {
    fn head(&mut self, _: &u32, _: &Fields) -> bool {
        true
    }

    fn data(&mut self, _: &u32, _: &[u8]) -> bool {
        true
    }

    fn trailers(&mut self, _: &u32, _: &Fields) {}

    fn end(&mut self, _: u32, _: End) {}
}

fn head(more: &str) -> Arc<Head> {
    let json = format!(r#"{{"host":"h","port":80,"path":"/p","transport":"http2"{more}}}"#);
    let target: TargetSpec = serde_json::from_str(&json).unwrap();
    Arc::new(Head::new(&target, "h", 80, None).unwrap())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&Frame { length: payload.len(), kind, flags, stream }.bytes()[..], payload].concat()
}

/// All that is to be sent, as frames.
fn sent(client: &mut Client<u32>) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut bytes = Vec::new();
    while client.has_output() {
        let n = if let Some(piece) = client.output() {
            bytes.extend_from_slice(piece);
            piece.len()
        } else {
            let mut slices = [IoSlice::new(&[]); 4];
            let n = client.fill(&mut slices);
            slices[..n].iter().for_each(|slice| bytes.extend_from_slice(slice));
            slices[..n].iter().map(|slice| slice.len()).sum()
        };
        client.took(n, |_, _| {});
    }
    let mut rest = bytes.strip_prefix(frame::PREFACE).unwrap_or(&bytes);
    let mut frames = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk() {
        let Frame { length, kind, flags, stream } = Frame::parse(*head);
        frames.push((kind, flags, stream, after[..length].to_vec()));
        rest = &after[length..];
    }
    assert!(rest.is_empty());
    frames
}

/// A client whose greeting has been answered.
fn greeted(settings: &[(u16, u32)]) -> Client<u32> {
    let mut client = Client::new(4_096, 100);
    let payload: Vec<u8> =
        settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    client.feed(&frame(frame::SETTINGS, 0, 0, &payload), &mut Told::default()).unwrap();
    sent(&mut client);
    client
}

fn ask(client: &mut Client<u32>, to: u32, body: &[u8]) {
    let request = Request { head: &head(""), body: Bytes::copy_from_slice(body), trace: None, to };
    assert!(client.begin(request));
}

/// A whole exchange of two requests, as a server sends it.
fn conversation() -> Vec<u8> {
    [
        frame(frame::SETTINGS, 0, 0, &[]),
        frame(frame::HEADERS, frame::END_HEADERS, 3, &[0x88]),
        frame(frame::DATA, 0, 3, b"some "),
        frame(frame::PING, 0, 0, &[7; 8]),
        frame(frame::HEADERS, 0, 1, &[0x08, 0x03]),
        frame(frame::CONTINUATION, frame::END_HEADERS, 1, b"404"),
        frame(frame::DATA, frame::PADDED, 1, b"\x03abc\0\0\0"),
        frame(0xee, 0xff, 9, b"whatever"),
        frame(frame::DATA, frame::END_STREAM, 3, b"text"),
        frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, b"\0\x01x\x01y"),
    ]
    .concat()
}

#[test]
fn an_exchange_is_told_alike_however_its_bytes_come() {
    let wire = conversation();
    for step in 1..=wire.len() {
        let (mut client, mut told) = (Client::new(4_096, 100), Told::default());
        ask(&mut client, 10, b"a");
        ask(&mut client, 30, b"");
        for piece in wire.chunks(step) {
            client.feed(piece, &mut told).unwrap();
        }
        let want = [
            "30 head 200",
            "30 data some ",
            "10 head 404",
            "10 data abc",
            "30 data text",
            "30 Complete",
            "10 trailers 1",
            "10 Complete",
        ];
        assert_eq!(told.0, want, "in steps of {step}");
        let frames = sent(&mut client);
        let kinds: Vec<_> = frames.iter().map(|(kind, flags, stream, _)| (*kind, *flags, *stream)).collect();
        let want = [
            (frame::SETTINGS, 0, 0),
            (frame::WINDOW_UPDATE, 0, 0),
            (frame::HEADERS, frame::END_HEADERS, 1),
            (frame::DATA, frame::END_STREAM, 1),
            (frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 3),
            (frame::SETTINGS, frame::ACK, 0),
            (frame::PING, frame::ACK, 0),
        ];
        assert_eq!(kinds, want);
        assert_eq!(frames[6].3, [7; 8]);
    }
}

#[test]
fn bodies_go_as_far_as_every_window_and_frame_allows() {
    let mut client = greeted(&[(setting::INITIAL_WINDOW_SIZE, 10)]);
    ask(&mut client, 1, &[b'a'; 25]);
    ask(&mut client, 2, &[b'b'; 5]);
    let data = |client: &mut Client<u32>| -> Vec<_> {
        let frames = sent(client).into_iter().filter(|f| f.0 == frame::DATA);
        frames.map(|(_, flags, stream, payload)| (stream, payload.len(), flags)).collect()
    };
    assert_eq!(data(&mut client), [(1, 10, 0), (3, 5, frame::END_STREAM)]);
    let raise = |stream, bytes: u32| frame(frame::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    client.feed(&raise(1, 4), &mut Told::default()).unwrap();
    assert_eq!(data(&mut client), [(1, 4, 0)]);
    // A smaller window for all: this stream owes the server some.
    let smaller = frame(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 2]);
    client.feed(&[smaller, raise(1, 8)].concat(), &mut Told::default()).unwrap();
    assert_eq!(data(&mut client), []);
    client.feed(&raise(1, 100), &mut Told::default()).unwrap();
    assert_eq!(data(&mut client), [(1, 11, frame::END_STREAM)]);
    // The connection's window is shared, and large bodies take turns.
    let mut client = greeted(&[(setting::INITIAL_WINDOW_SIZE, 1 << 20)]);
    ask(&mut client, 1, &vec![0; 50_000]);
    ask(&mut client, 2, &vec![0; 50_000]);
    let sent = data(&mut client);
    assert_eq!(sent.iter().map(|(_, n, _)| *n as i64).sum::<i64>(), frame::FIRST_WINDOW);
    assert!(sent.iter().all(|(_, n, _)| *n <= frame::FIRST_FRAME_BYTES));
    client.feed(&raise(0, 1 << 20), &mut Told::default()).unwrap();
    let rest = data(&mut client);
    assert_eq!(sent.iter().chain(&rest).map(|(_, n, _)| n).sum::<usize>(), 100_000);
    assert_eq!(sent.iter().chain(&rest).filter(|(_, _, flags)| *flags == frame::END_STREAM).count(), 2);
}

#[test]
fn requests_wait_for_a_stream_and_can_be_taken_back_meanwhile() {
    let mut client = greeted(&[(setting::MAX_CONCURRENT_STREAMS, 1)]);
    assert_eq!(client.limit(), 1);
    (1..=3).for_each(|to| ask(&mut client, to, b""));
    assert_eq!(sent(&mut client).len(), 1);
    assert_eq!(client.give_up(|to| *to == 2), Gone::Whole);
    let answer = frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &[0x88]);
    let mut told = Told::default();
    client.feed(&answer, &mut told).unwrap();
    assert_eq!(told.0, ["1 head 200", "1 Complete"]);
    assert_eq!(client.give_up(|to| *to == 3), Gone::Later, "it has been put into the buffer");
    ask(&mut client, 4, b"");
    let frames = sent(&mut client);
    assert_eq!(frames.iter().map(|f| f.0).collect::<Vec<_>>(), [frame::HEADERS, frame::RST_STREAM, frame::HEADERS]);
    assert_eq!(client.give_up(|to| *to == 4), Gone::Told);
    // A full socket: nothing is begun that could not be taken back.
    client.blocked = true;
    ask(&mut client, 5, b"");
    assert!(client.holds() && client.give_up(|to| *to == 5) == Gone::Whole);
}

#[test]
fn a_server_that_leaves_says_which_requests_it_has_not_looked_at() {
    let mut client = greeted(&[(setting::MAX_CONCURRENT_STREAMS, 2)]);
    (1..=3).for_each(|to| ask(&mut client, to, b""));
    let mut told = Told::default();
    client.feed(&frame(frame::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]), &mut told).unwrap();
    assert_eq!(told.0, ["2 Refused(NO_ERROR)", "3 Unsent"]);
    let request = Request { head: &head(""), body: Bytes::new(), trace: None, to: 4 };
    assert!(client.is_leaving() && !client.begin(request));
    assert_eq!(client.drain().collect::<Vec<_>>(), [1]);
}

#[test]
fn what_breaks_one_answer_leaves_the_others_alone() {
    let answer = |fields: &[u8]| frame(frame::HEADERS, frame::END_HEADERS, 1, fields);
    let length = |n: u8| answer(&[0x88, 0x0f, 0x0d, 1, b'0' + n]);
    let cases = [
        (answer(&[0x40, 1, b'x', 1, b'y']), "without :status", frame::RST_STREAM),
        (answer(b"\x88\x00\x01X\x01y"), "lower case", frame::RST_STREAM),
        (frame(frame::DATA, 0, 1, b"x"), "before its head", frame::RST_STREAM),
        ([length(2), frame(frame::DATA, 0, 1, b"xyz")].concat(), "longer than its", frame::RST_STREAM),
        ([length(2), frame(frame::DATA, frame::END_STREAM, 1, b"x")].concat(), "shorter than its", frame::RST_STREAM),
        ([answer(&[0x88]), answer(&[0x88])].concat(), "second head", frame::RST_STREAM),
        ([answer(&[0x88]), answer(b"\0\x01x\x01y")].concat(), "end nothing", frame::RST_STREAM),
        (frame(frame::WINDOW_UPDATE, 0, 1, &[0; 4]), "raised by 0", frame::RST_STREAM),
        (frame(frame::WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]), "2^31", frame::RST_STREAM),
        (answer(&[&b"\x88\0\x01x\x7f\xa2\x1f"[..], &[b'x'; 4_129]].concat()), "TooLong", frame::RST_STREAM),
        ([answer(&[0x88]), frame(frame::DATA, 0, 1, b"stop!")].concat(), "Stopped", frame::RST_STREAM),
        (frame(frame::RST_STREAM, 0, 1, &[0, 0, 0, 2]), "Reset(INTERNAL_ERROR)", frame::PING),
    ];
    for (bytes, words, kind) in cases {
        let (mut client, mut told) = (greeted(&[]), Told::default());
        ask(&mut client, 1, b"");
        ask(&mut client, 2, b"");
        sent(&mut client);
        client.feed(&[bytes, frame(frame::PING, 0, 0, &[0; 8])].concat(), &mut told).unwrap();
        let last = told.0.last().cloned().unwrap_or_default();
        assert!(last.starts_with("1 ") && last.contains(words), "{words}: {:?}", told.0);
        assert_eq!(sent(&mut client)[0].0, kind, "{words}");
        // What still comes of it is read and forgotten.
        let rest = [
            frame(frame::DATA, frame::END_STREAM, 1, b"more"),
            frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 3, &[0x88]),
        ];
        client.feed(&rest.concat(), &mut told).unwrap();
        assert_eq!(told.0.last().unwrap(), "2 Complete", "{words}");
    }
}

/// Found by fuzzing: what of a body was told before the fault depended on how the network had cut it.
#[test]
fn a_frame_too_long_for_its_answer_is_told_alike_however_it_comes() {
    for flags in [0, frame::PADDED] {
        let wire = [
            frame(frame::HEADERS, frame::END_HEADERS, 1, &[0x88, 0x0f, 0x0d, 1, b'3']),
            frame(frame::DATA, 0, 1, b"ab"),
            frame(frame::DATA, flags, 1, if flags == 0 { b"cde" } else { b"\x01cde\0" }),
        ]
        .concat();
        for step in 1..=wire.len() {
            let (mut client, mut told) = (greeted(&[]), Told::default());
            ask(&mut client, 1, b"");
            for piece in wire.chunks(step) {
                client.feed(piece, &mut told).unwrap();
            }
            let end = r#"1 Malformed("a body longer than its content-length")"#;
            assert_eq!(told.0, ["1 head 200", "1 data ab", end], "in steps of {step}, flags {flags}");
        }
    }
}

#[test]
fn what_breaks_the_connection_is_told_to_the_server() {
    let opened = 1;
    for (bytes, code, words) in [
        (frame(frame::DATA, 0, 0, b"x"), Code::PROTOCOL_ERROR, "never opened"),
        (frame(frame::HEADERS, frame::END_HEADERS, 2, &[0x88]), Code::PROTOCOL_ERROR, "never opened"),
        (frame(frame::RST_STREAM, 0, 5, &[0; 4]), Code::PROTOCOL_ERROR, "never opened"),
        (frame(frame::HEADERS, frame::END_HEADERS, opened, &[0xff; 6]), Code::COMPRESSION_ERROR, "decompressed"),
        (frame(frame::SETTINGS, 0, 0, b"abc"), Code::FRAME_SIZE_ERROR, "wrong length"),
        (frame(frame::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1]), Code::PROTOCOL_ERROR, "pushes"),
        (frame(frame::SETTINGS, 0, 0, &[0, 4, 0xff, 0, 0, 1]), Code::FLOW_CONTROL_ERROR, "2^31"),
        (frame(frame::SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]), Code::PROTOCOL_ERROR, "nobody may allow"),
        (frame(frame::PING, 0, 0, b"abc"), Code::FRAME_SIZE_ERROR, "PING"),
        (frame(frame::WINDOW_UPDATE, 0, 0, &[0; 4]), Code::PROTOCOL_ERROR, "raised by 0"),
        (frame(frame::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), Code::FLOW_CONTROL_ERROR, "2^31"),
        (frame(frame::PUSH_PROMISE, 4, opened, &[0; 5]), Code::PROTOCOL_ERROR, "push"),
        (frame(frame::CONTINUATION, 4, opened, &[0x88]), Code::PROTOCOL_ERROR, "of nothing"),
        (frame(frame::DATA, frame::PADDED, opened, b"\x04abc"), Code::PROTOCOL_ERROR, "padding"),
        (frame(frame::GOAWAY, 0, 0, b"abc"), Code::FRAME_SIZE_ERROR, "GOAWAY"),
        (
            Frame { length: FRAME_BYTES + 1, kind: 0, flags: 0, stream: 1 }.bytes().to_vec(),
            Code::FRAME_SIZE_ERROR,
            "longer",
        ),
        (
            [frame(frame::HEADERS, 0, opened, &[0x88]), frame(frame::PING, 0, 0, &[0; 8])].concat(),
            Code::PROTOCOL_ERROR,
            "between",
        ),
    ] {
        for step in [1, 1 << 20] {
            let mut client = greeted(&[]);
            ask(&mut client, 1, b"");
            sent(&mut client);
            let fatal = bytes.chunks(step).find_map(|part| client.feed(part, &mut Told::default()).err());
            assert!(fatal.is_some_and(|f| f.code == code && f.what.contains(words)), "{words}: {fatal:?}");
            let last = sent(&mut client).pop().unwrap();
            assert_eq!((last.0, &last.3[4..]), (frame::GOAWAY, &code.0.to_be_bytes()[..]), "{words}");
        }
    }
    let mut client = Client::<u32>::new(4_096, 1);
    let early = client.feed(&frame(frame::PING, 0, 0, &[0; 8]), &mut Told::default());
    assert!(early.is_err_and(|fatal| fatal.what.contains("first frame")));
}

#[test]
fn heads_longer_than_a_frame_go_in_several() {
    let mut client = greeted(&[]);
    let long = head(&format!(r#","headers":[["x-a","{}"],["x-b","1"]]"#, "y".repeat(40_000)));
    assert!(client.begin(Request { head: &long, body: Bytes::new(), trace: None, to: 1 }));
    let frames = sent(&mut client);
    let shape: Vec<_> = frames.iter().map(|(kind, flags, _, payload)| (*kind, *flags, payload.len())).collect();
    assert_eq!(shape[0], (frame::HEADERS, frame::END_STREAM, 16_384));
    assert_eq!(shape[1], (frame::CONTINUATION, 0, 16_384));
    assert_eq!((shape[2].0, shape[2].1, shape.len()), (frame::CONTINUATION, frame::END_HEADERS, 3));
    let block: Vec<u8> = frames.into_iter().flat_map(|f| f.3).collect();
    assert_eq!(Decoder::new(100_000).said(&block).pop().unwrap(), "content-length: 0");
}

#[test]
fn windows_are_given_back_in_portions() {
    let mut client = greeted(&[]);
    ask(&mut client, 1, b"");
    sent(&mut client);
    client.feed(&frame(frame::HEADERS, frame::END_HEADERS, 1, &[0x88]), &mut Told::default()).unwrap();
    let data = frame(frame::DATA, 0, 1, &vec![b'x'; 1 << 18]);
    let mut raised = [0_u64; 2];
    for _ in 0..2_000 {
        client.feed(&data, &mut Deaf).unwrap();
        for (kind, _, stream, payload) in sent(&mut client) {
            assert_eq!(kind, frame::WINDOW_UPDATE);
            raised[stream as usize] += u64::from(u32::from_be_bytes(payload.try_into().unwrap()));
        }
    }
    assert_eq!(raised, [256 << 20, 2_000 << 18]);
    // A server that sends more than it may.
    let mut client = greeted(&[]);
    ask(&mut client, 1, b"");
    client.streams.get(1).unwrap().receive_window = 10;
    let mut told = Told::default();
    let head = frame(frame::HEADERS, frame::END_HEADERS, 1, &[0x88]);
    client.feed(&[head, frame(frame::DATA, 0, 1, b"eleven bytes")].concat(), &mut told).unwrap();
    assert!(told.0.last().unwrap().contains("stream's window"), "{:?}", told.0);
}
