//! What the engine's tests share: a small HTTP server of plain threads, plans, and columns.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part; a failed helper is a failed test

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use gpusize_engine::engine::{Level, LevelOutcome, Session};
use gpusize_engine::spec::{LevelPlan, TargetSpec};
use tokio::net::TcpSocket;

pub const LONG: Duration = Duration::from_secs(60);

/// A server that answers each request by `answer`; the count is of requests seen.
pub fn serve(answer: impl Fn(usize, &mut TcpStream) -> bool + Send + Sync + 'static) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(AtomicUsize::new(0));
    let (count, answer) = (seen.clone(), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), count, answer) = (stream, count.clone(), answer.clone()) else { return };
            std::thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let mut held = Vec::new();
                let mut buffer = [0; 4096];
                loop {
                    if let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") {
                        held.drain(..end + 4);
                        if !answer(count.fetch_add(1, Ordering::SeqCst), &mut stream) {
                            return;
                        }
                        continue;
                    }
                    match stream.read(&mut buffer) {
                        Ok(n) if n > 0 => held.extend_from_slice(&buffer[..n]),
                        _ => return,
                    }
                }
            });
        }
    });
    (port, seen)
}

pub fn hello(_: usize, stream: &mut TcpStream) -> bool {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_ok()
}

/// A port that nobody listens on, nor is given to anybody else while the socket is kept.
pub fn nowhere() -> (u16, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (socket.local_addr().unwrap().port(), socket)
}

pub fn target(port: u16, more: &str) -> TargetSpec {
    serde_json::from_str(&format!(r#"{{"host":"127.0.0.1","port":{port},"method":"GET","path":"/"{more}}}"#)).unwrap()
}

pub fn plan(load: &str, stop: &str) -> LevelPlan {
    serde_json::from_str(&format!(r#"{{"visit":0,"load":{load},"stop":{stop}}}"#)).unwrap()
}

/// An open loop of one stream at one rate; `more` are further members, each with a comma before it.
pub fn at_rate(rate: u32, process: &str, more: &str) -> String {
    let rate = format!(r#"{{"phases":[{{"from":{rate},"to":{rate}}}],"process":"{process}"}}"#);
    format!(r#"{{"open":{{"streams":[{{"arrivals":{{"rate":{rate}}}}}]{more}}}}}"#)
}

pub fn open(port: u16, workers: usize) -> Session {
    Session::open(target(port, ""), vec![], vec![vec![], vec![], vec![]], workers).unwrap()
}

pub fn finish(level: &Level) -> (LevelOutcome, Vec<RecordBatch>) {
    assert!(level.wait(LONG), "the level ended");
    (level.outcome().unwrap(), level.rows().unwrap())
}

pub fn column<T: arrow_array::types::ArrowPrimitiveType>(rows: &[RecordBatch], name: &str) -> Vec<T::Native> {
    rows.iter().flat_map(|b| b.column_by_name(name).unwrap().as_primitive::<T>().values().to_vec()).collect()
}
