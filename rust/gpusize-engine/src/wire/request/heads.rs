//! What stands around a body: heads of HTTP/1.1, the length of a gRPC message.

use std::io::Write;

use crate::spec::{TargetSpec, TlsSpec, Transport};
use gpusize_base::error::{Error, Result};

/// What stands around a body in one buffer.
#[derive(Debug)]
pub enum Around {
    /// An HTTP/1.1 head, which names the address: one for each.
    Heads(Vec<Vec<u8>>),
    /// Nothing: HTTP/2 sends heads apart.
    Nothing,
    /// The length of a gRPC message.
    Length,
}

impl Around {
    /// Of a target's requests.
    pub fn new(target: &TargetSpec) -> Result<Self> {
        Ok(match target.transport {
            Transport::Http1 => Self::Heads(
                target.endpoints().map(|(host, port, tls)| head(target, host, port, tls)).collect::<Result<_>>()?,
            ),
            Transport::Http2 => Self::Nothing,
            Transport::Grpc => Self::Length,
        })
    }
}

/// Host and port as `Host` and `:authority` name them.
pub fn authority(host: &str, port: u16, tls: Option<&TlsSpec>) -> String {
    let default = if tls.is_some() { 443 } else { 80 };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default { host } else { format!("{host}:{port}") }
}

/// Request line and headers, without the blank line and without the length.
fn head(target: &TargetSpec, host: &str, port: u16, tls: Option<&TlsSpec>) -> Result<Vec<u8>> {
    let clean = |text: &str, place: &str| {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(Error::usage("a control character in the request head", place, "remove it"));
        }
        Ok(())
    };
    clean(&target.method, "method")?;
    clean(&target.path, "path")?;
    let mut out = Vec::new();
    let path = if target.path.is_empty() { "/" } else { &target.path };
    let _ = write!(out, "{} {path} HTTP/1.1\r\nHost: {}\r\n", target.method, authority(host, port, tls));
    for (name, value) in &target.headers {
        clean(name, name)?;
        clean(value, name)?;
        let _ = write!(out, "{name}: {value}\r\n");
    }
    Ok(out)
}
