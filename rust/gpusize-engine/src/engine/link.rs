//! A connection of HTTP/2: its socket, its state, and whoever reads it.

use std::cell::{Cell, RefCell, RefMut};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::ReadBuf;

use super::download::{Arrivals, Download};
use super::failure::{self, Failure, Reach, plain};
use super::outside::now_ns;
use super::stream::Stream;
use super::worker::Worker;
use crate::outcome::Outcome;
use crate::record::columns::NO_TIME;
use crate::spec::TargetSpec;
use crate::wire::http2::{Client, Fatal, Gone, Request};

/// Pieces that go to the socket at once.
const SLICES: usize = 32;

/// See the module.
#[derive(Debug)]
pub struct Link {
    state: RefCell<State>,
    /// Who is to be called when there is something to send.
    driver: RefCell<Option<Waker>>,
    is_called: Cell<bool>,
    /// Nobody will use it again.
    is_closed: Cell<bool>,
    /// How often something has come.
    pub reads: Cell<u64>,
    lost: RefCell<Option<Lost>>,
}

#[derive(Debug)]
struct State {
    stream: Stream,
    client: Client<Rc<Download>>,
    /// When the last request was handed over, if it is sent at once: no need to look again.
    begun_ns: i64,
    /// TLS holds bytes that it has taken and the socket has not.
    is_held: bool,
}

/// Why a connection is over.
#[derive(Debug)]
enum Lost {
    /// The peer ended it.
    Closed,
    Io(String),
    Fatal(Fatal),
    /// The first that came is an answer of HTTP/1.
    Http1,
}

impl Lost {
    fn failure(&self) -> Failure {
        match self {
            Self::Closed => failure::ended("the server closed the connection"),
            Self::Io(e) => failure::ended(plain(&format!("the connection broke: {e}"))),
            Self::Fatal(Fatal { code, what }) => {
                Failure::new(Outcome::ProtocolError, format!("the server breaks HTTP/2: {what} ({code})"))
            }
            Self::Http1 => Failure::new(Outcome::ProtocolError, "the server answered in HTTP/1.1, not HTTP/2"),
        }
    }
}

impl State {
    /// Send what the socket takes.
    fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        // Only for what leaves at once: a request that waits for a stream is sent when it is.
        let mut begun_ns = std::mem::replace(&mut self.begun_ns, NO_TIME);
        while self.client.has_output() {
            let begun_ns = std::mem::replace(&mut begun_ns, NO_TIME);
            let now = if begun_ns != NO_TIME || !self.client.holds() { begun_ns } else { now_ns() };
            let written = if let Some(bytes) = self.client.output() {
                match self.stream.try_write(bytes) {
                    // Only a wait has to be told to the runtime.
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.stream.poll_write(cx, bytes),
                    written => Poll::Ready(written),
                }
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let n = self.client.fill(&mut slices);
                self.stream.poll_write_vectored(cx, &slices[..n])
            };
            match written {
                Poll::Pending => {
                    self.client.blocked = true;
                    break;
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => self.client.took(n, |request, part| request.left(part, now)),
                Poll::Ready(Err(e)) => return Err(e),
            }
            self.is_held = true;
        }
        // Also of what was written before: the runtime lets a busy task write no more than it reads, so that TLS may hold
        // the window that the server waits for.
        if self.is_held
            && let Poll::Ready(flushed) = self.stream.poll_flush(cx)
        {
            self.is_held = flushed.is_err();
            return flushed;
        }
        Ok(())
    }
}

impl Link {
    /// One on which nothing has been sent yet.
    pub fn new(target: &TargetSpec, stream: Stream) -> Rc<Self> {
        let client = Client::new(target.max_header_bytes, target.streams);
        Rc::new(Self {
            state: RefCell::new(State { stream, client, begun_ns: NO_TIME, is_held: false }),
            driver: RefCell::default(),
            is_called: Cell::new(false),
            is_closed: Cell::new(false),
            reads: Cell::new(0),
            lost: RefCell::default(),
        })
    }

    fn client(&self) -> RefMut<'_, Client<Rc<Download>>> {
        RefMut::map(self.state.borrow_mut(), |state| &mut state.client)
    }

    /// Requests that may be under way, as far as the server has said so.
    pub fn limit(&self) -> usize {
        self.state.borrow().client.limit()
    }

    /// Whether the socket takes nothing at present.
    pub fn is_blocked(&self) -> bool {
        self.state.borrow().client.blocked
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.lost.borrow().is_some()
    }

    /// Why it has ended.
    pub fn failure(&self) -> Failure {
        self.lost.borrow().as_ref().map_or_else(|| Lost::Closed.failure(), Lost::failure)
    }

    /// Hand over one request; false: it takes no more, and nothing was sent.
    pub fn begin(&self, request: Request<'_, Rc<Download>>) -> bool {
        if self.is_over() {
            return false;
        }
        self.client().begin(request)
    }

    /// What was begun just now is sent at once.
    pub fn begun_at(&self, now: i64) {
        self.state.borrow_mut().begun_ns = now;
    }

    /// Forget a request.
    pub fn give_up(&self, request: &Rc<Download>) -> Gone {
        self.client().give_up(|other| Rc::ptr_eq(other, request))
    }

    /// Have the driver look at it.
    pub fn call(&self) {
        if !self.is_called.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    /// Nobody will use it again.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.call();
    }

    /// Drive it until it has ended, or nobody needs it.
    pub fn poll_drive(&self, worker: &Worker, cx: &mut Context<'_>) -> Poll<()> {
        self.is_called.set(false);
        if self.driver.borrow().is_none() {
            *self.driver.borrow_mut() = Some(cx.waker().clone());
        }
        if self.is_closed.get() {
            return Poll::Ready(());
        }
        self.poll(worker, cx, || false)
    }

    /// Send and read what there is, or until `enough`; ready when it has ended, of which all its requests have then been told.
    pub fn poll(&self, worker: &Worker, cx: &mut Context<'_>, enough: impl Fn() -> bool) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        let state = &mut *self.state.borrow_mut();
        let lost = ready!(self.poll_state(state, worker, cx, enough));
        let is_leaving = state.client.is_leaving() && !matches!(lost, Lost::Fatal(_));
        for request in state.client.drain() {
            let failure = lost.failure();
            let reach = match failure.reach {
                _ if request.is_held() => Reach::Unsent,
                // It may have looked at every request that it did not name as left out.
                Reach::Cut if is_leaving => Reach::Taken,
                reach => reach,
            };
            request.finish(Err(Failure { reach, ..failure }));
        }
        *self.lost.borrow_mut() = Some(lost);
        Poll::Ready(())
    }

    fn poll_state(
        &self,
        state: &mut State,
        worker: &Worker,
        cx: &mut Context<'_>,
        enough: impl Fn() -> bool,
    ) -> Poll<Lost> {
        loop {
            // What the server has said by the time at which nothing can be sent may still be read.
            let sent = state.flush(cx);
            if sent.is_ok() && state.client.is_stuffed() {
                return Poll::Pending;
            }
            let mut buffer = worker.read_buffer();
            let mut room = ReadBuf::new(&mut buffer);
            let read = state.stream.poll_read(cx, &mut room);
            let bytes = match (read, sent) {
                (Poll::Pending, Ok(())) => return Poll::Pending,
                (Poll::Pending, Err(e)) | (Poll::Ready(Err(e)), _) => return Poll::Ready(Lost::Io(e.to_string())),
                (Poll::Ready(Ok(())), _) => room.filled(),
            };
            if bytes.is_empty() {
                return Poll::Ready(Lost::Closed);
            }
            let reads = self.reads.get();
            self.reads.set(reads + 1);
            if reads == 0 && bytes.starts_with(b"HTTP/1") {
                return Poll::Ready(Lost::Http1);
            }
            if let Err(fatal) = state.client.feed(bytes, &mut Arrivals::new(&worker.context)) {
                let _told = state.flush(cx);
                return Poll::Ready(Lost::Fatal(fatal));
            }
            if enough() {
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed helper is a failed test
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::pin::pin;
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use tokio::task::coop::consume_budget;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::wire::tls::Tls;

    const CERTIFICATE: &str = "tests/fixtures/localhost.cert.pem";
    const KEY: &str = "tests/fixtures/localhost.key.pem";
    const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    /// A server that says what it read first, on the thread that is returned.
    fn listens() -> (u16, std::thread::JoinHandle<io::Result<Vec<u8>>>) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let certificates = vec![CertificateDer::from_pem_file(CERTIFICATE).unwrap()];
        let key = PrivateKeyDer::from_pem_file(KEY).unwrap();
        let config = Arc::new(builder.with_no_client_auth().with_single_cert(certificates, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let tcp = listener.accept()?.0;
            tcp.set_read_timeout(Some(Duration::from_secs(10)))?;
            let mut stream = StreamOwned::new(ServerConnection::new(config).map_err(io::Error::other)?, tcp);
            let mut greeting = vec![0; GREETING.len()];
            stream.read_exact(&mut greeting)?;
            Ok(greeting)
        });
        (port, thread)
    }

    /// A task that has read as much as the runtime lets it in one turn may not write then either.
    #[test]
    fn what_tls_holds_is_sent_in_the_next_turn() {
        let (port, server) = listens();
        let spec = serde_json::from_str(&format!(r#"{{"server_name":"localhost","ca_file":"{CERTIFICATE}"}}"#));
        let tls = Tls::new(&spec.unwrap(), false).unwrap();
        let target: TargetSpec =
            serde_json::from_str(r#"{"host":"localhost","port":80,"path":"/","transport":"http2"}"#).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tcp = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let stream = TlsConnector::from(tls.config.clone()).connect(tls.name.clone(), tcp).await.unwrap();
            let link = Link::new(&target, Stream::Tls(Box::new(stream)));
            let mut turns = 0;
            std::future::poll_fn(|cx| {
                turns += 1;
                while turns == 1 && pin!(consume_budget()).poll(cx).is_ready() {}
                let state = &mut *link.state.borrow_mut();
                state.flush(cx).unwrap();
                if turns == 1 {
                    assert!(state.is_held && !state.client.has_output());
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
            assert_eq!(server.join().unwrap().unwrap(), GREETING);
        });
    }
}
