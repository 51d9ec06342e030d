//! A server of HTTP/2 frame by frame: it counts every request whose head it has read and does to it what a test says.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part; a failed helper is a failed test

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

pub const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PREFACE: usize = 24;

pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

pub const NO_ERROR: u32 = 0;
pub const INTERNAL_ERROR: u32 = 2;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// One request that has come whole.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// How many came whole before it, to any connection.
    pub number: usize,
    /// How many of its own connection did.
    pub of_connection: usize,
    pub stream: u32,
}

/// A connection to answer on; what cannot be written is for the test to notice at the other end.
#[derive(Debug)]
pub struct Wire {
    tcp: TcpStream,
    /// Nothing more is said on it, but what comes is still read and counted.
    pub silent: bool,
}

#[derive(Debug, Default)]
pub struct Server {
    pub port: u16,
    /// Requests whose head has been read.
    pub heads: Arc<AtomicUsize>,
    /// Bytes of their bodies.
    pub bodies: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
    /// Of these, those that have been read to their end.
    pub ended: Arc<AtomicUsize>,
}

impl Server {
    /// Requests whose head has been read, once the client has gone and everything has been read; `expected` may be on
    /// their way still.
    pub fn heads(&self, expected: u64) -> u64 {
        self.settled(&self.heads, expected)
    }

    /// Bytes of their bodies, likewise.
    pub fn bodies(&self, expected: u64) -> u64 {
        self.settled(&self.bodies, expected)
    }

    fn settled(&self, count: &AtomicUsize, expected: u64) -> u64 {
        let [connections, ended] = [&self.connections, &self.ended];
        let open = || ended.load(Ordering::SeqCst) < connections.load(Ordering::SeqCst);
        let begun = Instant::now();
        while (open() || (count.load(Ordering::SeqCst) as u64) < expected) && begun.elapsed().as_secs() < 20 {
            thread::sleep(Duration::from_millis(1));
        }
        count.load(Ordering::SeqCst) as u64
    }
}

/// Serve until the test ends. Each connection begins with `settings`; `begun` may say more, and is told of no request.
pub fn serve(settings: &[(u16, u32)], answer: impl Fn(&mut Wire, Request) + Send + Sync + 'static) -> Server {
    serve_from(settings, |_| {}, answer)
}

pub fn serve_from(
    settings: &[(u16, u32)],
    begun: impl Fn(&mut Wire) + Send + Sync + 'static,
    answer: impl Fn(&mut Wire, Request) + Send + Sync + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server { port: listener.local_addr().unwrap().port(), ..Server::default() };
    let (heads, bodies) = (server.heads.clone(), server.bodies.clone());
    let (connections, ended) = (server.connections.clone(), server.ended.clone());
    let settings: Vec<u8> =
        settings.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    let shared = Arc::new((settings, begun, answer, AtomicUsize::new(0)));
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let Ok(tcp) = tcp else { return };
            connections.fetch_add(1, Ordering::SeqCst);
            let (shared, heads, bodies, ended) = (shared.clone(), heads.clone(), bodies.clone(), ended.clone());
            thread::spawn(move || {
                let (settings, begun, answer, wholes) = &*shared;
                tcp.set_nodelay(true).unwrap();
                let mut wire = Wire { tcp, silent: false };
                wire.frame(SETTINGS, 0, 0, settings);
                begun(&mut wire);
                let _gone = wire.speak([&heads, &bodies, wholes], answer);
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    server
}

impl Wire {
    /// Read frames until the client goes.
    fn speak(
        &mut self,
        [heads, bodies, wholes]: [&AtomicUsize; 3],
        answer: &impl Fn(&mut Self, Request),
    ) -> std::io::Result<()> {
        self.tcp.read_exact(&mut [0; PREFACE])?;
        let mut of_connection = 0;
        loop {
            let mut head = [0; 9];
            self.tcp.read_exact(&mut head)?;
            let [a, b, c, kind, flags, rest @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.tcp.read_exact(&mut payload)?;
            let stream = u32::from_be_bytes(rest);
            match kind {
                SETTINGS | PING if flags & ACK == 0 => {
                    self.frame(kind, ACK, 0, if kind == PING { &payload } else { &[] });
                }
                HEADERS => drop(heads.fetch_add(1, Ordering::SeqCst)),
                DATA => drop(bodies.fetch_add(payload.len(), Ordering::SeqCst)),
                _ => {}
            }
            if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
                let number = wholes.fetch_add(1, Ordering::SeqCst);
                answer(self, Request { number, of_connection, stream });
                of_connection += 1;
            }
        }
    }

    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        if self.silent {
            return;
        }
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        let whole = [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat();
        match self.tcp.write_all(&whole) {
            Err(e) if !matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => panic!("{e}"),
            _ => {}
        }
    }

    /// A status of 200 and these fields, as literals.
    pub fn head(&mut self, stream: u32, fields: &[(&str, &str)], end: bool) {
        self.fields(stream, &[0x88], fields, end);
    }

    pub fn trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        self.fields(stream, &[], fields, true);
    }

    fn fields(&mut self, stream: u32, first: &[u8], fields: &[(&str, &str)], end: bool) {
        let mut block = first.to_vec();
        for (name, value) in fields {
            block.extend([&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat());
        }
        self.frame(HEADERS, END_HEADERS | u8::from(end), stream, &block);
    }

    pub fn data(&mut self, stream: u32, bytes: &[u8], end: bool) {
        self.frame(DATA, u8::from(end), stream, bytes);
    }

    /// A whole good answer.
    pub fn say(&mut self, stream: u32) {
        self.head(stream, &[("content-type", "application/json")], false);
        self.data(stream, b"{\"a\":1}", true);
    }

    pub fn reset(&mut self, stream: u32, reason: u32) {
        self.frame(RST_STREAM, 0, stream, &reason.to_be_bytes());
    }

    pub fn go_away(&mut self, last: u32, reason: u32) {
        self.frame(GOAWAY, 0, 0, &[last.to_be_bytes(), reason.to_be_bytes()].concat());
    }

    /// Say this again and again until the client takes no more: not a byte in several waits.
    pub fn flood(&mut self, kind: u8, payload: &[u8]) {
        self.tcp.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        let many = [&[a, b, c, kind, 0, 0, 0, 0, 0][..], payload].concat().repeat(1_000);
        let (mut at, mut waits) = (0, 0);
        while waits < 8 {
            match self.tcp.write(&many[at..]) {
                Ok(n) => (at, waits) = ((at + n) % many.len(), 0),
                Err(_) => waits += 1,
            }
        }
    }

    /// End the connection in order; requests that are on their way are still read, so that they are counted.
    pub fn hang_up(&mut self) {
        let _ = self.tcp.shutdown(Shutdown::Write);
        self.silent = true;
    }
}
