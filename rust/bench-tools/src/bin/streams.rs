//! One thread that answers every POST with a stream of server-sent events, in the form of an LLM's.
//!
//! `streams --port 0 --events 16 --parts 4` writes each answer in four parts, all connections in turn, as fast as it can.
//! With `--nulls true` every event says `"usage":null`, as servers do that were asked for the usage of a stream.
//! `streams --port 0 --events 200 --rate 20 --log FILE` writes one event at a time, 20 a second in each stream, and notes when each
//! write had returned. The request's body is a number; at SIGTERM the log gets, for each answer, that number (u64), the
//! count of its events (u64) and the times on `CLOCK_MONOTONIC` (i64 each), all little-endian.
//! Lines of JSON on stdout: the port, and at SIGTERM what was served.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;

use bench_tools::args::Args;
use bench_tools::connections::Connections;
use bench_tools::lines::say;
use bench_tools::sse::{one_each, parts};
use bench_tools::sys::{Epoll, Ready, end_with_parent, monotonic_ns, termination_fd};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("streams: {message}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> Result<(), String> {
    let args = Args::parse(std::env::args().skip(1), &["port", "events", "parts", "rate", "log", "nulls"])?;
    let rate: f64 = args.get("rate", 0.0)?;
    let events: usize = args.get("events", 16)?;
    let gap_ns = if rate > 0.0 { Some((1e9 / rate) as i64) } else { None };
    let more = if args.get("nulls", false)? { r#","usage":null"# } else { "" };
    let pieces = if gap_ns.is_some() { one_each(events, more) } else { parts(events, args.get("parts", 4)?, more) };
    let (port, log) = (args.get("port", 0_u16)?, args.get("log", String::new())?);
    let run = || -> io::Result<()> {
        end_with_parent()?;
        let mut server = Server::bind(port, pieces, gap_ns)?;
        say(&format!("{{\"port\":{}}}", server.connections.port()?))?;
        server.run()?;
        if !log.is_empty() {
            std::fs::write(&log, server.written.concat())?;
        }
        say(&format!("{{\"requests\":{},\"broken\":{}}}", server.requests, server.broken))
    };
    run().map_err(|error| error.to_string())
}

struct Connection {
    stream: TcpStream,
    /// What has come of a request that is not whole.
    partial: Vec<u8>,
    number: u64,
    next: usize,
    answering: bool,
    stamps: Vec<i64>,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, partial: Vec::new(), number: 0, next: 0, answering: false, stamps: Vec::new() }
    }
}

struct Server {
    connections: Connections<Connection>,
    pieces: Vec<Vec<u8>>,
    gap_ns: Option<i64>,
    /// Connections with a piece to write, when nothing paces them.
    ready: VecDeque<RawFd>,
    due: BinaryHeap<Reverse<(i64, RawFd)>>,
    written: Vec<Vec<u8>>,
    requests: u64,
    broken: u64,
}

impl Server {
    fn bind(port: u16, pieces: Vec<Vec<u8>>, gap_ns: Option<i64>) -> io::Result<Self> {
        Ok(Self {
            connections: Connections::bind(port)?,
            pieces,
            gap_ns,
            ready: VecDeque::new(),
            due: BinaryHeap::new(),
            written: Vec::new(),
            requests: 0,
            broken: 0,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut epoll = Epoll::new()?;
        let signals = termination_fd()?;
        epoll.add(signals.as_raw_fd())?;
        self.connections.listen(&epoll)?;
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            ready.clear();
            ready.extend(epoll.wait_ns(self.patience_ns())?);
            for event in &ready {
                if event.fd == signals.as_raw_fd() {
                    return Ok(());
                } else if self.connections.is_listener(event.fd) {
                    self.connections.accept(&epoll, Connection::new)?;
                } else if event.read {
                    self.read(event.fd);
                }
            }
            // One piece of each connection in turn: the rest of an answer comes in later reads of its client.
            for _ in 0..self.ready.len() {
                if let Some(fd) = self.ready.pop_front() {
                    self.write(fd, 0);
                }
            }
            let now_ns = monotonic_ns();
            while let Some(&Reverse((due_ns, fd))) = self.due.peek()
                && due_ns <= now_ns
            {
                self.due.pop();
                self.write(fd, due_ns);
            }
        }
    }

    /// How long there is nothing to do unless something arrives; negative for ever.
    fn patience_ns(&self) -> i64 {
        if !self.ready.is_empty() {
            return 0;
        }
        self.due.peek().map_or(-1, |Reverse((due_ns, _))| (due_ns - monotonic_ns()).max(0))
    }

    /// A request, in one read or several; anything else closes the connection.
    fn read(&mut self, fd: RawFd) {
        let Some(connection) = self.connections.get_mut(fd) else { return };
        let mut buffer = [0_u8; 16_384];
        let number = match connection.stream.read(&mut buffer) {
            Ok(length) if length > 0 && !connection.answering => {
                connection.partial.extend_from_slice(&buffer[..length]);
                match body_number(&connection.partial) {
                    Request::Partial => return,
                    Request::Whole(number) => {
                        connection.partial.clear();
                        Some(number)
                    }
                    Request::Broken => None,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            _ => None,
        };
        let Some(number) = number else {
            self.broken += u64::from(connection.answering);
            self.connections.close(fd);
            return;
        };
        (connection.number, connection.next, connection.answering) = (number, 0, true);
        self.requests += 1;
        match self.gap_ns {
            None => self.ready.push_back(fd),
            Some(_) => self.due.push(Reverse((monotonic_ns(), fd))),
        }
    }

    /// The next piece, which was due at `due_ns` if pieces are paced. Each is due a gap after the one before it was due and not
    /// after it went out: streams that one delay of this server brought together would stay together for ever.
    fn write(&mut self, fd: RawFd, due_ns: i64) {
        let Some(connection) = self.connections.get_mut(fd).filter(|c| c.answering) else { return };
        let piece = &self.pieces[connection.next];
        if !matches!(connection.stream.write(piece), Ok(length) if length == piece.len()) {
            self.broken += 1;
            self.connections.close(fd);
            return;
        }
        if let Some(gap_ns) = self.gap_ns {
            connection.stamps.push(monotonic_ns());
            if connection.next + 1 < self.pieces.len() {
                self.due.push(Reverse((due_ns + gap_ns, fd)));
            }
        } else if connection.next + 1 < self.pieces.len() {
            self.ready.push_back(fd);
        }
        connection.next += 1;
        if connection.next == self.pieces.len() {
            connection.answering = false;
            if self.gap_ns.is_some() {
                let mut entry = Vec::with_capacity(16 + 8 * connection.stamps.len());
                entry.extend_from_slice(&connection.number.to_le_bytes());
                entry.extend_from_slice(&(connection.stamps.len() as u64).to_le_bytes());
                connection.stamps.drain(..).for_each(|ns| entry.extend_from_slice(&ns.to_le_bytes()));
                self.written.push(entry);
            }
        }
    }
}

enum Request {
    Partial,
    /// The number that its body is, 0 for an empty one.
    Whole(u64),
    Broken,
}

fn body_number(request: &[u8]) -> Request {
    let Ok(text) = std::str::from_utf8(request) else { return Request::Broken };
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Request::Partial };
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0);
    if body.len() < length {
        return Request::Partial;
    }
    if body.is_empty() { Request::Whole(0) } else { body.trim().parse().map_or(Request::Broken, Request::Whole) }
}
