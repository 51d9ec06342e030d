//! The engine over TLS, against rustls on plain threads.
#![allow(clippy::unwrap_used)] // a failed helper is a failed test

mod engine_common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use engine_common::{finish, plan, target};
use gpusize_engine::engine::{LevelOutcome, Session};
use gpusize_engine::spec::{Segment, TargetSpec};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const CERTIFICATE: &str = "tests/fixtures/localhost.cert.pem";
const KEY: &str = "tests/fixtures/localhost.key.pem";

/// A server that answers `answers` requests on each connection and then hangs up, with or without a farewell.
fn serve_tls(answers: usize, polite: bool) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let certificates = vec![CertificateDer::from_pem_file(CERTIFICATE).unwrap()];
    let key = PrivateKeyDer::from_pem_file(KEY).unwrap();
    let config = Arc::new(builder.with_no_client_auth().with_single_cert(certificates, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let (Ok(tcp), config) = (tcp, config.clone()) else { return };
            std::thread::spawn(move || {
                let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), tcp);
                for _ in 0..answers {
                    let mut held = Vec::new();
                    let mut buffer = [0; 16_384];
                    // The body ends with the only '!'.
                    while held.last() != Some(&b'!') {
                        match stream.read(&mut buffer) {
                            Ok(n) if n > 0 => held.extend_from_slice(&buffer[..n]),
                            _ => return,
                        }
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
                    let _ = stream.flush();
                }
                if polite {
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
            });
        }
    });
    port
}

fn run(port: u16, tls: &str, body: usize) -> LevelOutcome {
    let target = TargetSpec { method: "POST".into(), ..target(port, &format!(r#","tls":{tls}"#)) };
    let segments = vec![Segment::Static("x".repeat(body) + "!")];
    let session = Session::open(target, segments, vec![vec![]], 1).unwrap();
    finish(&session.level(plan(r#"{"closed":{"concurrency":2}}"#, r#"{"count":30}"#)).unwrap()).0
}

fn trusting(name: &str) -> String {
    format!(r#"{{"server_name":"{name}","ca_file":"{CERTIFICATE}"}}"#)
}

#[test]
fn requests_of_any_size_go_over_tls_and_connections_are_replaced() {
    for (answers, polite, body) in [(usize::MAX, true, 10), (1, true, 10), (3, false, 10), (usize::MAX, true, 700_000)]
    {
        let outcome = run(serve_tls(answers, polite), &trusting("localhost"), body);
        assert_eq!(outcome.outcomes, [("ok", 30)].into(), "{answers} {polite} {body}: {:?}", outcome.errors);
        let least = if answers == usize::MAX { 2 } else { 30 / answers as u64 };
        assert!(outcome.connects >= least && outcome.reconnects == outcome.connects - 2);
    }
}

#[test]
fn certificates_are_judged_unless_told_otherwise() {
    let port = serve_tls(usize::MAX, true);
    assert_eq!(run(port, &trusting("example.org"), 1).outcomes, [("tls_error", 30)].into());
    assert_eq!(run(port, r#"{"server_name":"example.org","insecure":true}"#, 1).outcomes, [("ok", 30)].into());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let no_tls = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Speak plainly\r\n\r\n");
        }
    });
    assert_eq!(run(no_tls, &trusting("localhost"), 1).outcomes, [("tls_error", 30)].into());
}
