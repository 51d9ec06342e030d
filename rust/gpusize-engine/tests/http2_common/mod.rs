//! A server of HTTP/2 by the h2 crate, whose every answer a test decides.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part; a failed helper is a failed test

use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

pub const CERTIFICATE: &str = "tests/fixtures/localhost.cert.pem";
const KEY: &str = "tests/fixtures/localhost.key.pem";

/// The request with its body, and where its answer goes.
pub struct Call {
    /// How many requests came before it, to any connection.
    pub number: usize,
    pub request: Request<()>,
    pub body: Vec<u8>,
    pub respond: SendResponse<Bytes>,
}

type Answer = Arc<dyn Fn(Call) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// How connections behave.
#[derive(Clone, Default)]
pub struct Rules {
    /// Protocols to agree to over TLS; none: plain TCP.
    pub alpn: Option<Vec<&'static str>>,
    pub max_streams: Option<u32>,
    /// Say GOAWAY after this many requests of one connection.
    pub goaway_after: Option<usize>,
    /// Break a connection off after this many of its requests.
    pub cut_after: Option<usize>,
    /// Ping a connection when told to, after its first answer, and say when the ping is answered.
    pub ping: Option<(Arc<Notify>, std::sync::mpsc::Sender<()>)>,
}

pub struct Server {
    pub port: u16,
    pub requests: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
}

/// Serve until the test ends; each request gets `answer`.
pub fn serve<F>(rules: Rules, answer: impl Fn(Call) -> F + Send + Sync + 'static) -> Server
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = Server { port, requests: requests.clone(), connections: connections.clone() };
    let answer: Answer = Arc::new(move |call| Box::pin(answer(call)));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                tcp.set_nodelay(true).unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (rules, answer, requests) = (rules.clone(), answer.clone(), requests.clone());
                tokio::spawn(async move {
                    match &rules.alpn {
                        None => speak(tcp, &rules, &answer, &requests).await,
                        Some(protocols) => {
                            if let Ok(tls) = acceptor(protocols).accept(tcp).await {
                                speak(tls, &rules, &answer, &requests).await;
                            }
                        }
                    }
                });
            }
        });
    });
    server
}

async fn speak<T: AsyncRead + AsyncWrite + Unpin>(io: T, rules: &Rules, answer: &Answer, requests: &AtomicUsize) {
    let mut builder = Builder::new();
    if let Some(max) = rules.max_streams {
        builder.max_concurrent_streams(max);
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(io).await else { return };
    let mut seen = 0;
    let mut pings = rules.ping.clone().zip(connection.ping_pong());
    while let Some(Ok((request, respond))) = connection.accept().await {
        seen += 1;
        let number = requests.fetch_add(1, Ordering::SeqCst);
        let (answer, ping) = (answer.clone(), pings.take());
        tokio::spawn(async move {
            let (parts, mut stream) = request.into_parts();
            let body = read(&mut stream).await;
            answer(Call { number, request: Request::from_parts(parts, ()), body, respond }).await;
            if let Some(((told, answered), mut ping)) = ping {
                told.notified().await;
                if ping.ping(h2::Ping::opaque()).await.is_ok() {
                    let _ = answered.send(());
                }
            }
        });
        if rules.cut_after == Some(seen) {
            return;
        }
        if rules.goaway_after == Some(seen) {
            connection.graceful_shutdown();
        }
    }
}

async fn read(stream: &mut RecvStream) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(Ok(bytes)) = stream.data().await {
        stream.flow_control().release_capacity(bytes.len()).unwrap();
        body.extend_from_slice(&bytes);
    }
    body
}

fn acceptor(protocols: &[&str]) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let certificates = vec![CertificateDer::from_pem_file(CERTIFICATE).unwrap()];
    let key = PrivateKeyDer::from_pem_file(KEY).unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(certificates, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

impl Call {
    /// Begin the answer.
    pub fn head(&mut self, status: u16, kind: &str) -> SendStream<Bytes> {
        let head = Response::builder().status(status).header("content-type", kind).body(()).unwrap();
        self.respond.send_response(head, false).unwrap()
    }

    /// The whole answer.
    pub fn say(mut self, status: u16, kind: &str, body: impl Into<Bytes>) {
        let head = Response::builder().status(status).header("content-type", kind).body(()).unwrap();
        // The client may be gone.
        if let Ok(mut stream) = self.respond.send_response(head, false) {
            let _ = stream.send_data(body.into(), true);
        }
    }
}
