//! One thread that answers every HTTP/2 request over plain TCP (prior knowledge) in the same way.
//!
//! `canned-h2 --port 0` answers with a text of 13 bytes. `canned-h2 --port 0 --message FILE` answers as gRPC does: the file as the one
//! message, and trailers that say OK. Requests are read to their end, streams of a connection answered as they come.
//! Lines of JSON on stdout: the port, the first request's head, and at SIGTERM what was served.

use std::cell::Cell;
use std::io;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::rc::Rc;

use bench_tools::args::Args;
use bench_tools::heads::head_as_json;
use bench_tools::lines::say;
use bench_tools::sys::{awaited_termination, end_with_parent};
use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

const BODY: &[u8] = b"Hello, World!";
/// Larger than any number of streams or bytes that a benchmark asks for: flow control never waits.
const STREAMS: u32 = 10_000;
const WINDOW: u32 = 1 << 30;

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("canned-h2: {message}");
            ExitCode::from(2)
        }
    }
}

fn serve() -> Result<(), String> {
    let args = Args::parse(std::env::args().skip(1), &["port", "message"])?;
    let (port, message): (u16, String) = (args.get("port", 0)?, args.get("message", String::new())?);
    let run = || -> io::Result<()> {
        end_with_parent()?;
        let answer = if message.is_empty() { Answer::plain() } else { Answer::grpc(&std::fs::read(&message)?) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        LocalSet::new().block_on(&runtime, listen(port, answer))
    };
    run().map_err(|error| error.to_string())
}

/// What every request is answered with.
struct Answer {
    head: Response<()>,
    body: Bytes,
    trailers: Option<HeaderMap>,
    requests: Cell<u64>,
    broken: Cell<u64>,
}

impl Answer {
    fn plain() -> Self {
        let mut head = Response::new(());
        head.headers_mut().insert("content-type", HeaderValue::from_static("text/plain"));
        head.headers_mut().insert("content-length", HeaderValue::from(BODY.len()));
        Self::new(head, Bytes::from_static(BODY), None)
    }

    /// A message behind its five bytes, then the status.
    fn grpc(message: &[u8]) -> Self {
        let mut head = Response::new(());
        head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        let mut body = vec![0];
        body.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend_from_slice(message);
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Self::new(head, Bytes::from(body), Some(trailers))
    }

    fn new(head: Response<()>, body: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { head, body, trailers, requests: Cell::new(0), broken: Cell::new(0) }
    }

    /// Gives it; a stream that its client has reset is counted.
    fn reply(&self, to: SendResponse<Bytes>) {
        if self.give(to).is_err() {
            self.count_broken();
        }
    }

    fn count_broken(&self) {
        self.broken.set(self.broken.get() + 1);
    }

    fn give(&self, mut to: SendResponse<Bytes>) -> Result<(), h2::Error> {
        let mut stream = to.send_response(self.head.clone(), false)?;
        stream.send_data(self.body.clone(), self.trailers.is_none())?;
        if let Some(trailers) = &self.trailers {
            stream.send_trailers(trailers.clone())?;
        }
        Ok(())
    }
}

async fn listen(port: u16, answer: Answer) -> io::Result<()> {
    let answer = Rc::new(answer);
    let signals = awaited_termination()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    say(&format!("{{\"port\":{}}}", listener.local_addr()?.port()))?;
    loop {
        tokio::select! {
            readable = signals.readable() => {
                readable?.retain_ready();
                return say(&format!("{{\"requests\":{},\"broken\":{}}}", answer.requests.get(), answer.broken.get()));
            }
            accepted = listener.accept() => {
                let stream = accepted?.0;
                stream.set_nodelay(true)?;
                spawn_local(connection(stream, answer.clone()));
            }
        }
    }
}

async fn connection(stream: TcpStream, answer: Rc<Answer>) {
    let mut builder = Builder::new();
    builder.max_concurrent_streams(STREAMS).initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let Ok(mut requests) = builder.handshake::<_, Bytes>(stream).await else {
        return answer.count_broken();
    };
    // A connection that ends, in whichever way, is the client's business.
    while let Some(Ok((request, to))) = requests.accept().await {
        if answer.requests.replace(answer.requests.get() + 1) == 0 {
            let _unread = say(&head_as_json(&request));
        }
        if request.body().is_end_stream() {
            answer.reply(to);
        } else {
            spawn_local(read_and_give(request, to, answer.clone()));
        }
    }
}

async fn read_and_give(mut request: Request<h2::RecvStream>, to: SendResponse<Bytes>, answer: Rc<Answer>) {
    while let Some(data) = request.body_mut().data().await {
        let Ok(data) = data else { return answer.count_broken() };
        let _closed = request.body_mut().flow_control().release_capacity(data.len());
    }
    answer.reply(to);
}
