//! Heads of HTTP/2 requests: checked and taken apart before the start.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TE};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};

use super::hpack::{Encoder, passing};
use crate::spec::{TargetSpec, TlsSpec, Transport};
use crate::wire::request::authority;
use crate::wire::trace;
use gpusize_base::error::{Error, Result};

/// Fields that belong to a connection of HTTP/1.1 and that RFC 9113 (section 8.2.2) forbids.
const OF_HTTP1: [&str; 6] = ["connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// The head of every request of one kind to one address.
#[derive(Clone, Debug)]
pub struct Head {
    request: Request<()>,
    /// Its number among the kinds.
    pub number: usize,
    /// Its fields, those before the others that RFC 9113 wants there.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether an empty body's length is said; none: no length is.
    says_zero: Option<bool>,
}

impl Head {
    /// Check and build; `length` is said where the method may have a body. gRPC says none: its messages carry their own.
    pub fn new(target: &TargetSpec, host: &str, port: u16, tls: Option<&TlsSpec>) -> Result<Self> {
        let is_grpc = target.transport == Transport::Grpc;
        let bad = |what: &str, place: &str| Error::usage(what, place, "correct it, or use HTTP/1.1");
        let path = if target.path.is_empty() { "/" } else { &target.path };
        let uri = Uri::builder()
            .scheme(if tls.is_some() { "https" } else { "http" })
            .authority(authority(host, port, tls))
            .path_and_query(path)
            .build()
            .map_err(|e| bad(&format!("not a URL: {e}"), path))?;
        let method = if is_grpc { "POST" } else { target.method.as_str() };
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad("not a method", method))?;
        if method == Method::CONNECT {
            return Err(bad("CONNECT opens a tunnel, it is not a request", "method"));
        }
        let says_zero = !matches!(method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS);
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut(), *request.version_mut()) = (method, uri, Version::HTTP_2);
        let fields = request.headers_mut();
        for (name, value) in &target.headers {
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("not a header's name", name))?;
            if OF_HTTP1.contains(&key.as_str()) {
                return Err(bad("a header of HTTP/1.1 that HTTP/2 forbids", name));
            }
            let value = HeaderValue::from_str(value).or_else(|_| HeaderValue::from_bytes(value.as_bytes()));
            fields.append(key, value.map_err(|_| bad("a control character in the request head", name))?);
        }
        if is_grpc {
            fields.insert(TE, HeaderValue::from_static("trailers"));
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        }
        Ok(Self { number: 0, fields: fields_of(&request), request, says_zero: (!is_grpc).then_some(says_zero) })
    }

    /// The same, with a number of its own among the kinds.
    #[must_use]
    pub fn numbered(self, number: usize) -> Self {
        Self { number, ..self }
    }

    /// Whether the answer has no body, whatever its fields say.
    pub fn asks_for_no_body(&self) -> bool {
        self.request.method() == Method::HEAD
    }

    /// Append the fields of a request with a body of `length` bytes, compressed; `trace` says which request it is.
    pub fn encode(&self, length: usize, trace: Option<&trace::Value>, encoder: &mut Encoder, out: &mut Vec<u8>) {
        encoder.encode(self, out);
        if self.says_zero.is_some_and(|says_zero| length > 0 || says_zero) {
            let mut digits = [0; 20];
            passing(CONTENT_LENGTH.as_str().as_bytes(), decimal(length, &mut digits), false, out);
        }
        if let Some(value) = trace {
            // It never comes again: nobody on the way should remember it.
            passing(trace::NAME.as_bytes(), value, true, out);
        }
    }

    /// The head of a request with a body of `length` bytes, as the h2 crate takes it.
    pub fn request(&self, length: usize) -> Request<()> {
        let mut request = self.request.clone();
        if self.says_zero.is_some_and(|says_zero| length > 0 || says_zero) {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        request
    }
}

fn fields_of(request: &Request<()>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let uri = request.uri();
    let first = [
        (":method", request.method().as_str()),
        (":scheme", uri.scheme_str().unwrap_or_default()),
        (":authority", uri.authority().map_or("", |authority| authority.as_str())),
        (":path", uri.path_and_query().map_or("/", |path| path.as_str())),
    ];
    let first = first.into_iter().map(|(name, value)| (name.into(), value.into()));
    let others = request.headers().iter().map(|(name, value)| (name.as_str().into(), value.as_bytes().into()));
    first.chain(others).collect()
}

fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[from..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hpack::Decoder;
    use super::*;

    fn head(more: &str) -> Result<Head> {
        let mut json: serde_json::Value = serde_json::from_str(r#"{"host":"::1","port":80,"path":"/p?q"}"#).unwrap();
        let more: serde_json::Value = serde_json::from_str(&format!("{{{more}}}")).unwrap();
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let target: TargetSpec = serde_json::from_value(json).unwrap();
        Head::new(&target, &target.host, target.port, None)
    }

    /// What a peer reads of some requests of a connection.
    fn sent(head: &Head, requests: &[(usize, Option<trace::Value>)]) -> Vec<Vec<String>> {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(10_000));
        let read = |(length, trace): &(usize, Option<trace::Value>)| {
            let mut block = Vec::new();
            head.encode(*length, trace.as_ref(), &mut encoder, &mut block);
            decoder.said(&block)
        };
        requests.iter().map(read).collect()
    }

    #[test]
    fn lengths_follow_the_body() {
        let post = head(r#""headers":[["X-A","1"],["x-a","2"]]"#).unwrap();
        let lengths = [0, 7, 7, 12, 1_234_567_890];
        for (length, said) in lengths.iter().zip(sent(&post, &lengths.map(|length| (length, None)))) {
            let want = [":method: POST", ":scheme: http", ":authority: [::1]", ":path: /p?q", "x-a: 1", "x-a: 2"];
            assert_eq!(said, [&want[..], &[&format!("content-length: {length}")]].concat());
            let request = post.request(*length);
            assert_eq!(request.headers()["content-length"], length.to_string());
            assert_eq!(request.uri().to_string(), "http://[::1]/p?q");
        }
        let get = head(r#""method":"GET""#).unwrap();
        let said = sent(&get, &[(3, None), (0, None)]);
        assert!(said[0].contains(&"content-length: 3".to_owned()) && said[1].len() == 4, "{said:?}");
        let grpc = head(r#""transport":"grpc","method":"GET","headers":[["Content-Type","x"]]"#).unwrap();
        let said = &sent(&grpc, &[(9, None)])[0];
        assert!(said.contains(&":method: POST".to_owned()) && said.contains(&"te: trailers".to_owned()), "{said:?}");
        assert!(said.contains(&"content-type: application/grpc".to_owned()) && said.len() == 6, "{said:?}");
    }

    #[test]
    fn each_request_has_a_trace_of_its_own() {
        let head = head(r#""headers":[["X-A","1"]]"#).unwrap();
        let values = [0, 1, 1, 9].map(|seq| trace::value(5, 2, seq));
        for (value, said) in values.iter().zip(sent(&head, &values.map(|value| (7, Some(value))))) {
            assert_eq!(said[6], format!("traceparent: {}", String::from_utf8_lossy(value)));
            assert_eq!(said.len(), 7);
        }
    }

    #[test]
    fn a_head_is_a_few_bytes_from_its_second_time_on() {
        let head = head(r#""headers":[["X-A","1"],["Authorization","Bearer of a long token"]]"#).unwrap();
        let mut encoder = Encoder::default();
        let mut length = || {
            let mut block = Vec::new();
            head.encode(0, None, &mut encoder, &mut block);
            block.len()
        };
        let lengths = [length(), length(), length()];
        assert!(lengths[0] > 40 && lengths[1..] == [10, 10], "{lengths:?}");
        encoder.resize(100);
        let mut block = Vec::new();
        head.encode(0, None, &mut encoder, &mut block);
        assert!(block[0] == 0x20 && block.len() > 40, "a peer with a smaller table: all is said");
    }

    #[test]
    fn what_http2_forbids_is_refused() {
        for more in [
            r#""headers":[["Connection","close"]]"#,
            r#""headers":[["Host","h"]]"#,
            r#""headers":[["a b","c"]]"#,
            r#""headers":[["a","c\nd"]]"#,
            r#""method":"GE T""#,
            r#""method":"CONNECT""#,
            r#""path":"/a b""#,
        ] {
            assert!(matches!(head(more), Err(Error::Usage { .. })), "{more}");
        }
    }
}
