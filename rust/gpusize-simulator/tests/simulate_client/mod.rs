//! A plain HTTP/1.1 client and a quick cluster for the tests of the server.
#![allow(dead_code)] // each test file uses its own part

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use gpusize_simulator::{ClusterConfig, Length, SimServer};
use serde_json::{Value, json};

/// Quick, and with lengths that are easy to check.
pub fn quick() -> ClusterConfig {
    ClusterConfig {
        iteration_base_s: 0.000_2,
        iteration_per_sequence_s: 0.000_01,
        prefill_per_token_s: 0.0,
        output_tokens: Length::Fixed { tokens: 10 },
        ..ClusterConfig::default()
    }
}

pub fn start(config: ClusterConfig) -> SimServer {
    SimServer::start(config, "127.0.0.1:0".parse().expect("an address")).expect("a server")
}

pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The JSON of every `data:` event but the end marker.
    pub fn events(&self) -> Vec<Value> {
        let data = self.text().split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }
}

pub fn send(server: &SimServer, method: &str, path: &str, body: &str) -> io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(server.local_addr())?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    Ok(BufReader::new(stream))
}

/// The same with further header lines, each with its end, and any bytes.
pub fn post_bytes(server: &SimServer, path: &str, headers: &str, body: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(server.local_addr()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\nHost: h\r\n{headers}Content-Length: {length}\r\n\r\n").expect("a head");
    stream.write_all(body).expect("a body");
    read(BufReader::new(stream)).expect("an answer")
}

pub fn read(mut stream: BufReader<TcpStream>) -> io::Result<Reply> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(ErrorKind::InvalidData)?;
    let head = head.to_lowercase();
    let mut body = Vec::new();
    if head.contains("transfer-encoding: chunked") {
        read_chunks(&mut stream, &mut body)?;
    } else if let Some(length) = head.split("\r\ncontent-length: ").nth(1) {
        let length =
            length.split("\r\n").next().and_then(|length| length.parse().ok()).ok_or(ErrorKind::InvalidData)?;
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
    }
    Ok(Reply { status, head, body })
}

fn read_chunks(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut size = String::new();
        stream.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim_end(), 16).map_err(|_| ErrorKind::InvalidData)?;
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk)?;
        if size == 0 {
            return Ok(());
        }
        body.extend_from_slice(&chunk[..size]);
    }
}

pub fn call(server: &SimServer, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    read(send(server, method, path, &body).expect("a connection")).expect("an answer")
}

pub fn post(server: &SimServer, path: &str, body: &Value) -> Reply {
    call(server, "POST", path, body)
}

pub fn chat(extra: &Value) -> Value {
    let mut body = json!({"model": "m \"1\"", "messages": [{"role": "user", "content": "twelve chars"}]});
    for (key, value) in extra.as_object().expect("an object") {
        body[key] = value.clone();
    }
    body
}

pub fn stats(server: &SimServer) -> Value {
    serde_json::from_str(&server.stats_json().expect("statistics")).expect("JSON")
}
