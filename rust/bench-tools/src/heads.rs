//! The head of an HTTP/2 request as JSON: the benchmarks compare what two clients send.

use std::fmt::Write;

use http::Request;

/// `{"method": .., "path": .., "headers": [[name, value], ..]}`.
pub fn head_as_json<B>(request: &Request<B>) -> String {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let mut text =
        format!("{{\"method\":{},\"path\":{},\"headers\":[", quoted(request.method().as_str()), quoted(path));
    for (index, (name, value)) in request.headers().iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let value = String::from_utf8_lossy(value.as_bytes());
        let _infallible = write!(text, "{comma}[{},{}]", quoted(name.as_str()), quoted(&value));
    }
    text.push_str("]}");
    text
}

fn quoted(text: &str) -> String {
    let mut found = String::from("\"");
    for each in text.chars() {
        match each {
            '"' | '\\' => found.extend(['\\', each]),
            each if each.is_control() => {
                let _infallible = write!(found, "\\u{:04x}", u32::from(each));
            }
            each => found.push(each),
        }
    }
    found.push('"');
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::head_as_json;
    use http::Request;

    #[test]
    fn values_are_escaped() {
        let request = Request::get("http://h/a?b").header("x", "say \"\\\"").header("y", "t\tt").body(()).unwrap();
        assert_eq!(
            head_as_json(&request),
            r#"{"method":"GET","path":"/a?b","headers":[["x","say \"\\\""],["y","t\u0009t"]]}"#
        );
    }
}
