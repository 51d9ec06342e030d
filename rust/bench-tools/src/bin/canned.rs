//! One thread, one epoll set, one response: the cheapest honest HTTP/1.1 server to load.
//!
//! `canned --port 0 [--body-bytes N | --sse-events N] [--stall-at-s T --stall-for-s S]` answers every request on loopback with the same
//! body, 13 bytes unless told otherwise, or an LLM's stream of so many events in one write, and keeps connections alive.
//! With a stall, the whole server sleeps once, T seconds after its first request: what arrives meanwhile is answered after it.
//! Lines of JSON on stdout: the port, the stall's times on `CLOCK_MONOTONIC`, and at SIGTERM what was served.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;

use bench_tools::args::Args;
use bench_tools::connections::Connections;
use bench_tools::lines::say;
use bench_tools::requests::RequestCounter;
use bench_tools::sse::one_each;
use bench_tools::sys::{Epoll, Ready, end_with_parent, monotonic_ns, termination_fd};

const BODY: &[u8] = b"Hello, World!";
/// Responses that one write can carry, if they are small.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 65_536;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("canned: {message}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> Result<(), String> {
    let args =
        Args::parse(std::env::args().skip(1), &["port", "body-bytes", "sse-events", "stall-at-s", "stall-for-s"])?;
    let stall = Stall::from_args(&args)?;
    let port = args.get("port", 0_u16)?;
    let response = match args.get("sse-events", 0_usize)? {
        0 => response(args.get("body-bytes", BODY.len())?),
        events => one_each(events, "").concat(),
    };
    let run = || -> io::Result<()> {
        end_with_parent()?;
        let mut server = Server::bind(port, &response, stall)?;
        say(&format!("{{\"port\":{}}}", server.connections.port()?))?;
        server.run()?;
        say(&format!("{{\"requests\":{},\"connections\":{}}}", server.requests, server.connections.accepted()))
    };
    run().map_err(|error| error.to_string())
}

fn response(body_bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {body_bytes}\r\n\r\n");
    head.into_bytes().into_iter().chain(BODY.iter().copied().cycle().take(body_bytes)).collect()
}

/// A pause of the whole server, once.
#[derive(Debug, Clone, Copy)]
struct Stall {
    at_ns: i64,
    length: Duration,
}

impl Stall {
    fn from_args(args: &Args) -> Result<Option<Self>, String> {
        if !args.has("stall-for-s") {
            return Ok(None);
        }
        let (at_s, for_s): (f64, f64) = (args.get("stall-at-s", 1.0)?, args.get("stall-for-s", 1.0)?);
        let length = Duration::try_from_secs_f64(for_s).map_err(|error| format!("--stall-for-s: {error}"))?;
        Ok(Some(Self { at_ns: (at_s * 1e9) as i64, length }))
    }
}

struct Connection {
    stream: TcpStream,
    counter: RequestCounter,
    /// Bytes of responses not yet written; the stream of responses repeats, so a number is enough.
    owed: usize,
    waits_for_room: bool,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, counter: RequestCounter::default(), owed: 0, waits_for_room: false }
    }

    /// Reads once and counts; Ok(None) when the peer has closed or cannot be understood.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.read(buffer) {
            Ok(0) => Ok(None),
            Ok(length) => Ok(self.counter.feed(&buffer[..length]).ok()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, batch: &[u8], each: usize) -> io::Result<()> {
        while self.owed > 0 {
            let from = (each - self.owed % each) % each;
            let until = batch.len().min(from + self.owed);
            match self.stream.write(&batch[from..until]) {
                Ok(written) => self.owed -= written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

struct Server {
    connections: Connections<Connection>,
    batch: Vec<u8>,
    /// Bytes of one response.
    each: usize,
    buffer: Vec<u8>,
    stall: Option<Stall>,
    first_request_ns: Option<i64>,
    requests: u64,
}

impl Server {
    fn bind(port: u16, response: &[u8], stall: Option<Stall>) -> io::Result<Self> {
        Ok(Self {
            connections: Connections::bind(port)?,
            batch: response.repeat((BATCH_BYTES / response.len()).clamp(1, BATCH)),
            each: response.len(),
            buffer: vec![0; 64 * 1024],
            stall,
            first_request_ns: None,
            requests: 0,
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
            ready.extend(epoll.wait()?);
            for event in &ready {
                if event.fd == signals.as_raw_fd() {
                    return Ok(());
                } else if self.connections.is_listener(event.fd) {
                    self.connections.accept(&epoll, Connection::new)?;
                } else {
                    self.exchange(&epoll, *event)?;
                }
            }
            self.stall_when_due()?;
        }
    }

    fn exchange(&mut self, epoll: &Epoll, event: Ready) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(event.fd) else { return Ok(()) };
        let mut alive = true;
        if event.read {
            match connection.read(&mut self.buffer) {
                Ok(Some(requests)) => {
                    connection.owed += requests * self.each;
                    self.requests += requests as u64;
                }
                Ok(None) | Err(_) => alive = false,
            }
        }
        alive = alive && connection.write(&self.batch, self.each).is_ok();
        if !alive {
            self.connections.close(event.fd);
            return Ok(());
        }
        let waits_for_room = connection.owed > 0;
        if waits_for_room != connection.waits_for_room {
            connection.waits_for_room = waits_for_room;
            epoll.watch(event.fd, waits_for_room)?;
        }
        Ok(())
    }

    fn stall_when_due(&mut self) -> io::Result<()> {
        let Some(stall) = self.stall else { return Ok(()) };
        if self.requests == 0 {
            return Ok(());
        }
        let now_ns = monotonic_ns();
        let first_ns = *self.first_request_ns.get_or_insert(now_ns);
        if now_ns - first_ns < stall.at_ns {
            return Ok(());
        }
        self.stall = None;
        std::thread::sleep(stall.length);
        say(&format!("{{\"stall_start_ns\":{now_ns},\"stall_end_ns\":{}}}", monotonic_ns()))
    }
}
