//! What a server of HTTP/2 says to a connection with three requests under way.

use std::sync::Arc;

use bytes::Bytes;
use gpusize_engine::spec::TargetSpec;
use gpusize_engine::wire::http2::{Client, End, Fields, Head, Request, Sink};

/// Fields of one answer take at most so many bytes.
pub const HEADER_BYTES: usize = 2_048;
/// The requests: of streams 1, 3 and 5.
pub const METHODS: [&str; 3] = ["GET", "POST", "HEAD"];
/// The body of a POST.
pub const BODY: &[u8] = b"question";

/// What was said to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub status: u16,
    /// The final head's fields, in their order.
    pub fields: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub trailers: Option<Vec<(String, Vec<u8>)>>,
    /// None: it is still open.
    pub end: Option<End>,
}

/// What was said to all of them, and why the connection cannot go on, where it cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub said: [Said; 3],
    pub fatal: Option<&'static str>,
}

impl Sink<usize> for Heard {
    fn head(&mut self, request: &usize, fields: &Fields) -> bool {
        self.said[*request].status = fields.head.status;
        self.said[*request].fields = list(fields);
        true
    }

    fn data(&mut self, request: &usize, bytes: &[u8]) -> bool {
        self.said[*request].body.extend_from_slice(bytes);
        true
    }

    fn trailers(&mut self, request: &usize, fields: &Fields) {
        self.said[*request].trailers = Some(list(fields));
    }

    fn end(&mut self, request: usize, end: End) {
        assert!(self.said[request].end.replace(end).is_none(), "a request ends once");
    }
}

fn list(fields: &Fields) -> Vec<(String, Vec<u8>)> {
    fields.fields.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

/// A connection with the requests under way, of which nothing is left to be sent.
pub fn client() -> Client<usize> {
    let mut client = Client::new(HEADER_BYTES, 100);
    for (to, method) in METHODS.into_iter().enumerate() {
        let json = format!(r#"{{"host":"h","port":80,"path":"/","transport":"http2","method":"{method}"}}"#);
        let target: TargetSpec = serde_json::from_str(&json).expect("a target");
        let head = Arc::new(Head::new(&target, "h", 80, None).expect("a head").numbered(to));
        let body = if method == "POST" { Bytes::from_static(BODY) } else { Bytes::new() };
        assert!(client.begin(Request { head: &head, body, trace: None, to }));
    }
    send(&mut client);
    client
}

/// Send all there is; the bytes.
pub fn send(client: &mut Client<usize>) -> Vec<u8> {
    let mut sent = Vec::new();
    while client.has_output() {
        let bytes = client.output().expect("small bodies, in one piece").to_vec();
        client.took(bytes.len(), |_, _| {});
        sent.extend_from_slice(&bytes);
    }
    sent
}

/// What is heard of a server that says these pieces.
pub fn hear(pieces: &[&[u8]]) -> Heard {
    let (mut client, mut heard) = (client(), Heard::default());
    for piece in pieces {
        if let Err(fatal) = client.feed(piece, &mut heard) {
            heard.fatal = Some(fatal.what);
            break;
        }
        send(&mut client);
    }
    heard
}
