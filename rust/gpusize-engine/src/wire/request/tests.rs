use super::*;

fn whole(message: &Message<'_>) -> Vec<u8> {
    let mut out = message.bytes.to_vec();
    message.rest.iter().for_each(|piece| out.extend_from_slice(piece));
    assert_eq!(out.len(), message.len());
    out
}

fn target(method: &str) -> TargetSpec {
    let json = format!(r#"{{"host":"::1","port":80,"method":"{method}","path":"/p?q","headers":[["A","b"]]}}"#);
    serde_json::from_str(&json).unwrap()
}

fn plan(seed: u64) -> LevelPlan {
    serde_json::from_str(&format!(
        r#"{{"visit":3,"seed":{seed},"load":{{"closed":{{"concurrency":1}}}},"stop":{{"count":1}}}}"#
    ))
    .unwrap()
}

fn body(bytes: &[u8]) -> (String, String) {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn rendered_rows_carry_their_own_bytes() {
    let rows = vec![vec![b"one".to_vec()], vec![b"three".to_vec()]];
    let r = Requests::new(&target("POST"), vec![Segment::Static("<".into()), Segment::Field(0)], rows, None).unwrap();
    let mut buffer = Buffers::default();
    let (head, text) = body(&whole(&r.message(0, 1, 0, &plan(0), &mut buffer)));
    assert_eq!(text, "<three");
    assert!(head.starts_with("POST /p?q HTTP/1.1\r\nHost: [::1]\r\nA: b\r\nContent-Length: "), "{head}");
    assert!(head.ends_with(": 6"), "{head}");
    assert_eq!(body(&whole(&r.message(0, 0, 9, &plan(9), &mut buffer))).1, "<one");
}

#[test]
fn drawn_bodies_depend_on_seed_and_sequence_only() {
    let segments = vec![
        Segment::Counter { start: 5 },
        Segment::Static(" ".into()),
        Segment::Random { purpose: 1, low: 3, high: 9 },
    ];
    let r = Requests::new(&target("POST"), segments, vec![vec![]], None).unwrap();
    let (mut a, mut b) = (Buffers::default(), Buffers::default());
    assert_eq!(whole(&r.message(0, 0, 2, &plan(7), &mut a)), whole(&r.message(0, 0, 2, &plan(7), &mut b)));
    let values: std::collections::HashSet<_> =
        (0..100).map(|s| body(&whole(&r.message(0, 0, s, &plan(7), &mut a))).1).collect();
    assert_eq!(values.len(), 100, "the counter makes each body its own");
    assert!(values.iter().all(|v| (3..=9).contains(&v.split_once(' ').unwrap().1.parse::<u64>().unwrap())));
}

#[test]
fn a_request_without_segments_has_no_body() {
    let r = Requests::new(&target("GET"), vec![], vec![vec![]], None).unwrap();
    let mut buffer = Buffers::default();
    assert_eq!(whole(&r.message(0, 0, 0, &plan(0), &mut buffer)), b"GET /p?q HTTP/1.1\r\nHost: [::1]\r\nA: b\r\n\r\n");
}

#[test]
fn each_address_has_its_own_head_and_http2_sends_bodies_alone() {
    let mut t = target("POST");
    t.replicas = serde_json::from_str(r#"[{"host": "b", "port": 443, "tls": {"server_name": "b"}}]"#).unwrap();
    let rows = || vec![vec![b"one".to_vec()], vec![b"three".to_vec()]];
    let mut buffer = Buffers::default();
    let r = Requests::new(&t, vec![Segment::Field(0)], rows(), None).unwrap();
    let heads = [0, 1].map(|e| body(&whole(&r.message(e, 1, 0, &plan(0), &mut buffer))).0);
    assert!(heads[0].contains("\r\nHost: [::1]\r\n") && heads[1].contains("\r\nHost: b\r\n"), "{heads:?}");
    for (transport, want) in [(Transport::Http2, &b"three"[..]), (Transport::Grpc, b"\0\0\0\0\x05three")] {
        t.transport = transport;
        for more in [vec![], vec![Segment::Counter { start: 7 }]] {
            let drawn = !more.is_empty();
            let r = Requests::new(&t, [vec![Segment::Field(0)], more].concat(), rows(), None).unwrap();
            let bytes = r.body(1, 0, 0, &mut buffer);
            assert!(if drawn { bytes.ends_with(b"three7") } else { bytes == want }, "{bytes:?}");
        }
    }
}

#[test]
fn traced_requests_differ_in_one_line_of_their_head() {
    let mut t = target("POST");
    let large = vec![b'x'; COPIED];
    let rows = || vec![vec![b"small".to_vec()], vec![large.clone()]];
    let plain = Requests::new(&t, vec![Segment::Field(0)], rows(), None).unwrap();
    t.trace = true;
    for more in [vec![], vec![Segment::Static(String::new()), Segment::Counter { start: 10 }]] {
        let drawn = !more.is_empty();
        let r = Requests::new(&t, [vec![Segment::Field(0)], more].concat(), rows(), None).unwrap();
        let (mut a, mut b) = (Buffers::default(), Buffers::default());
        for (row, seq) in [(0, 0), (1, 1), (0, 2), (1, 0x00ab_cdef)] {
            let message = r.message(0, row, seq, &plan(0), &mut a);
            assert_eq!(message.rest.len(), if row == 0 { 0 } else { 1 + 2 * usize::from(drawn) });
            let (head, text) = body(&whole(&message));
            let line = format!("\r\ntraceparent: 00-6770000000030000{seq:016x}-{:016x}-01", seq + 1);
            assert_eq!(head.matches("traceparent").count(), 1, "{head}");
            assert!(head.ends_with(&format!("{line}\r\nContent-Length: {}", text.len())), "{head}");
            if !drawn {
                let without = body(&whole(&plain.message(0, row, seq, &plan(0), &mut b)));
                assert_eq!((head.replace(&line, ""), text), without);
            }
        }
    }
}

#[test]
fn a_traceparent_of_the_users_own_is_refused_beside_ours() {
    let mix = r#"{"requests":[{"path":"/a","segments":[],"headers":[["TraceParent","x"]]}],"of_row":[0]}"#;
    let mix: Mix = serde_json::from_str(mix).unwrap();
    let mut t = target("POST");
    for (traced, transport) in
        [(false, Transport::Http1), (true, Transport::Http1), (true, Transport::Http2), (true, Transport::Grpc)]
    {
        (t.trace, t.transport) = (traced, transport);
        let made = Requests::new(&t, vec![], vec![vec![]], Some(&mix));
        assert_eq!(made.is_err(), traced, "{transport:?}");
        assert!(t.check().is_ok());
        let mut own = t.clone();
        own.headers.push(("TRACEPARENT".into(), "x".into()));
        assert_eq!(own.check().is_err(), traced, "{transport:?}");
    }
}

#[test]
fn what_cannot_be_sent_is_refused() {
    assert!(Requests::new(&target("GET"), vec![Segment::Field(1)], vec![vec![vec![]]], None).is_err());
    assert!(Requests::new(&target("GET"), vec![], vec![], None).is_err());
    let mut t = target("GET");
    t.headers.push(("X".into(), "a\r\nB: c".into()));
    assert!(Requests::new(&t, vec![], vec![vec![]], None).is_err());
}

#[test]
fn a_large_body_is_sent_from_where_it_lies() {
    let field = vec![b'x'; COPIED];
    let segments = vec![
        Segment::Static("{".into()),
        Segment::Counter { start: 7 },
        Segment::Field(0),
        Segment::Random { purpose: 1, low: 5, high: 5 },
    ];
    let rows = vec![vec![field.clone()], vec![b"small".to_vec()]];
    let r = Requests::new(&target("POST"), segments, rows, None).unwrap();
    let mut buffers = Buffers::default();
    let message = r.message(0, 0, 3, &plan(0), &mut buffers);
    assert_eq!(message.rest.len(), 4);
    let (head, text) = body(&whole(&message));
    assert!(head.ends_with(&format!("Content-Length: {}", text.len())), "{head}");
    assert_eq!(text, format!("{{10{}5", String::from_utf8(field).unwrap()));
    let pointer = message.rest[2].as_ptr();
    assert_eq!(pointer, r.rows[0][0].as_ptr());
    let message = r.message(0, 1, 4, &plan(0), &mut buffers);
    assert!(message.rest.is_empty());
    assert_eq!(body(&whole(&message)).1, "{11small5");
}

#[test]
fn a_mix_has_paths_headers_and_bodies_of_its_own() {
    let mix = r#"{"requests":[{"path":"/a","segments":[{"field":0}],"headers":[["M","a"]],"model":0},
                              {"path":"/b","segments":[{"static":"b"}],"model":1}],"of_row":[1,0,1]}"#;
    let mix: Mix = serde_json::from_str(mix).unwrap();
    let rows = vec![vec![], vec![b"one".to_vec()], vec![]];
    let r = Requests::new(&target("POST"), vec![], rows.clone(), Some(&mix)).unwrap();
    let mut buffers = Buffers::default();
    let texts: Vec<_> = (0..3).map(|row| body(&whole(&r.message(0, row, 0, &plan(0), &mut buffers)))).collect();
    assert!(texts[0].0.starts_with("POST /b HTTP/1.1\r\nHost: [::1]\r\nA: b\r\nContent-Length: 1"), "{texts:?}");
    assert!(texts[1].0.starts_with("POST /a HTTP/1.1\r\nHost: [::1]\r\nA: b\r\nM: a\r\n"), "{texts:?}");
    assert_eq!(texts.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(), ["b", "one", "b"]);
    for wrong in [
        Mix { of_row: vec![0, 1], ..mix.clone() },
        Mix { of_row: vec![0, 1, 2], ..mix.clone() },
        Mix { of_row: vec![0, 0, 0], ..mix.clone() },
        Mix { sessions: Some(vec![1]), ..mix.clone() },
        Mix { turns: Some(vec![0, 1]), ..mix.clone() },
    ] {
        assert!(Requests::new(&target("POST"), vec![], rows.clone(), Some(&wrong)).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_grpc_message_that_its_prefix_cannot_say_is_refused_before_the_load() {
    let target: TargetSpec =
        serde_json::from_str(r#"{"host":"::1","port":80,"path":"/p","transport":"grpc"}"#).unwrap();
    // 4 GiB of one MiB: nothing is rendered to find that out.
    let with = |last: Vec<u8>, more: Vec<Segment>| {
        let segments = std::iter::repeat_n(Segment::Field(0), 4095).chain([Segment::Field(1)]).chain(more).collect();
        Requests::new(&target, segments, vec![vec![vec![b'x'; 1 << 20], last]], None)
    };
    assert!(with(vec![b'x'; (1 << 20) - 1], vec![]).is_ok(), "as much as 32 bits can say");
    for (last, more) in [(1 << 20, vec![]), ((1 << 20) - 1, vec![Segment::Counter { start: 0 }])] {
        let Err(Error::Usage { what, .. }) = with(vec![b'x'; last], more) else { panic!("accepted") };
        assert!(what.contains("4 GiB"), "{what}");
    }
}
