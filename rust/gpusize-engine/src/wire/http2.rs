//! Heads of HTTP/2 requests: built before the start, cloned for each request.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TE};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};

use super::request::authority;
use super::trace;
use crate::spec::{TargetSpec, TlsSpec, Transport};
use gpusize_base::error::{Error, Result};

/// Fields that belong to a connection of HTTP/1.1 and that RFC 9113 (section 8.2.2) forbids.
const OF_HTTP1: [&str; 6] = ["connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// The head of every request to one address.
#[derive(Clone, Debug)]
pub struct Head {
    request: Request<()>,
    /// The length that the head says at present.
    length: Option<usize>,
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
        Ok(Self { request, length: None, says_zero: (!is_grpc).then_some(says_zero) })
    }

    /// Say which request the next one is, in place of the one before.
    pub fn trace(&mut self, visit: u32, stream: u16, seq: u64) {
        let Ok(mut value) = HeaderValue::from_bytes(&trace::value(visit, stream, seq)) else { return };
        // It never comes again: kept out of the compression's table, it drives nothing out that does.
        value.set_sensitive(true);
        self.request.headers_mut().insert(trace::NAME, value);
    }

    /// The head of a request with a body of `length` bytes.
    pub fn of(&mut self, length: usize) -> Request<()> {
        if self.length != Some(length) {
            self.length = Some(length);
            let fields = self.request.headers_mut();
            if self.says_zero.is_some_and(|says_zero| length > 0 || says_zero) {
                fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
            } else {
                fields.remove(CONTENT_LENGTH);
            }
        }
        self.request.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(more: &str) -> Result<Head> {
        let mut json: serde_json::Value = serde_json::from_str(r#"{"host":"::1","port":80,"path":"/p?q"}"#).unwrap();
        let more: serde_json::Value = serde_json::from_str(&format!("{{{more}}}")).unwrap();
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let target: TargetSpec = serde_json::from_value(json).unwrap();
        Head::new(&target, &target.host, target.port, None)
    }

    #[test]
    fn lengths_follow_the_body() {
        let mut post = head(r#""headers":[["X-A","1"],["x-a","2"]]"#).unwrap();
        for length in [0, 7, 7, 12] {
            let request = post.of(length);
            assert_eq!(request.headers()["content-length"], length.to_string());
            assert_eq!(request.headers().get_all("x-a").iter().count(), 2);
            assert_eq!(request.uri().to_string(), "http://[::1]/p?q");
        }
        let mut get = head(r#""method":"GET""#).unwrap();
        assert!(get.of(3).headers().contains_key("content-length") && get.of(0).headers().is_empty());
        let grpc = head(r#""transport":"grpc","method":"GET","headers":[["Content-Type","x"]]"#).unwrap().of(9);
        assert_eq!(
            (grpc.method(), &grpc.headers()["content-type"]),
            (&Method::POST, &HeaderValue::from_static("application/grpc"))
        );
        assert!(!grpc.headers().contains_key("content-length"));
    }

    #[test]
    fn each_request_has_a_trace_of_its_own() {
        let mut head = head(r#""headers":[["X-A","1"]]"#).unwrap();
        assert!(!head.of(7).headers().contains_key(trace::NAME));
        for seq in [0, 1, 1, 9] {
            head.trace(5, 2, seq);
            let request = head.of(7);
            let values: Vec<_> = request.headers().get_all(trace::NAME).iter().collect();
            assert_eq!(values, [&HeaderValue::from_bytes(&trace::value(5, 2, seq)).unwrap()]);
            assert_eq!(request.headers().len(), 3);
        }
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
