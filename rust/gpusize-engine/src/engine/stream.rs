//! A connected byte stream, plain or TLS, without dynamic dispatch.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::names::{Address, Name};
#[cfg(test)]
use super::orders::network::{self, Pipe};
use super::outside::now_ns;
use super::sources::{self, Sources};
use crate::outcome::Outcome;
use crate::wire::lowat;
use crate::wire::tls::Tls;

/// One connection's bytes.
#[derive(Debug)]
pub enum Stream {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
    /// The memory of a test.
    #[cfg(test)]
    Memory(Pipe),
}

/// Why there is no connection.
#[derive(Debug)]
pub struct Refused {
    /// `ConnectError` or `TlsError`.
    pub outcome: Outcome,
    /// What the system or the TLS library said.
    pub message: String,
}

/// How long the parts of connecting took, and where to it was.
#[derive(Clone, Debug)]
pub struct Took {
    /// TCP connect.
    pub connect_ns: i64,
    /// TLS handshake, when there is one.
    pub tls_ns: Option<i64>,
    /// The address that answered.
    pub address: Arc<Address>,
}

impl Stream {
    /// Connect to the first address of a name that answers; `sleep_until` as for the name.
    pub async fn connect(
        name: &Name,
        tls: Option<&Tls>,
        sources: &Sources,
        sleep_until: impl AsyncFn(i64),
    ) -> Result<(Self, Took), Refused> {
        let refused = |outcome, message: String| Refused { outcome, message };
        let start = now_ns();
        #[cfg(test)]
        if let Some(connected) = network::connect().await {
            let stream = connected.map_err(|e| refused(Outcome::ConnectError, sources::reason(&e)))?;
            let address = name.only().ok_or_else(|| refused(Outcome::ConnectError, "no address".into()))?;
            return Ok((Self::Memory(stream), Took { connect_ns: now_ns() - start, tls_ns: None, address }));
        }
        let connected = name.connect(sources, sleep_until).await;
        let (tcp, address) = connected.map_err(|e| refused(Outcome::ConnectError, sources::reason(&e)))?;
        tcp.set_nodelay(true).map_err(|e| refused(Outcome::ConnectError, e.to_string()))?;
        let connected = now_ns();
        let connect_ns = connected - start;
        let Some(tls) = tls else {
            return Ok((Self::Plain(tcp), Took { connect_ns, tls_ns: None, address }));
        };
        let stream = TlsConnector::from(tls.config.clone())
            .connect(tls.name.clone(), tcp)
            .await
            .map_err(|e| refused(Outcome::TlsError, e.to_string()))?;
        check_protocol(tls, stream.get_ref().1.alpn_protocol()).map_err(|e| refused(Outcome::TlsError, e))?;
        Ok((Self::Tls(Box::new(stream)), Took { connect_ns, tls_ns: Some(now_ns() - connected), address }))
    }

    /// Whether the peer has closed a connection that lay idle. Costs no system call unless something has arrived.
    pub fn is_stale(&self) -> bool {
        #[cfg(test)]
        if let Self::Memory(pipe) = self {
            return pipe.is_stale();
        }
        let Self::Plain(tcp) = self else { return false };
        match tcp.try_read(&mut [0_u8; 1]) {
            Err(e) => e.kind() != io::ErrorKind::WouldBlock,
            // An end of stream, or bytes that nobody asked for.
            Ok(_) => true,
        }
    }

    /// Read some bytes.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(s) => Pin::new(s).poll_read(cx, buf),
            Self::Tls(s) => Pin::new(s.as_mut()).poll_read(cx, buf),
            #[cfg(test)]
            Self::Memory(pipe) => pipe.poll_read(cx, buf),
        }
    }

    /// Throw away at most `bytes` of what comes; none where bytes have to be read to get past them.
    pub fn poll_discard(&self, cx: &mut Context<'_>, bytes: usize) -> Option<Poll<io::Result<usize>>> {
        let Self::Plain(tcp) = self else { return None };
        Some(loop {
            match tcp.poll_read_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => break Poll::Ready(Err(e)),
                Poll::Pending => break Poll::Pending,
            }
            let mut gone = 0;
            let done = tcp.try_io(Interest::READABLE, || {
                gone = lowat::discard(tcp, bytes)?;
                // Fewer than there could be: the next are announced, and need not be asked for in vain.
                if gone > 0 && gone < bytes { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match done {
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => break Poll::Ready(Err(e)),
                Err(_) if gone == 0 => {}
                _ => break Poll::Ready(Ok(gone)),
            }
        })
    }

    /// Write what the socket takes at once; the rest has to wait its turn with `poll_write`.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(s) => s.try_write(bytes),
            Self::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
            #[cfg(test)]
            Self::Memory(pipe) => pipe.try_write(bytes),
        }
    }

    /// As `try_write`, for several pieces.
    pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(s) => s.try_write_vectored(pieces),
            Self::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
            #[cfg(test)]
            Self::Memory(pipe) => pieces.first().map_or(Ok(0), |piece| pipe.try_write(piece)),
        }
    }

    /// Wake a reader only when this much has arrived, or all that will: large answers in few reads. 1 is the usual.
    pub fn set_low_water(&self, bytes: usize) {
        if let Self::Plain(s) = self {
            lowat::set(s, bytes);
        }
    }

    /// Write some bytes.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(s) => Pin::new(s).poll_write(cx, bytes),
            Self::Tls(s) => Pin::new(s.as_mut()).poll_write(cx, bytes),
            #[cfg(test)]
            Self::Memory(pipe) => pipe.poll_write(cx, bytes),
        }
    }

    /// Write some bytes of several pieces.
    pub fn poll_write_vectored(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(s) => Pin::new(s).poll_write_vectored(cx, parts),
            Self::Tls(s) => Pin::new(s.as_mut()).poll_write_vectored(cx, parts),
            #[cfg(test)]
            Self::Memory(pipe) => parts.first().map_or(Poll::Ready(Ok(0)), |part| pipe.poll_write(cx, part)),
        }
    }

    /// Say that nothing more is sent.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Self::Tls(s) => Pin::new(s.as_mut()).poll_shutdown(cx),
            #[cfg(test)]
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Send what TLS still holds; nothing to do for plain TCP.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(s) => Pin::new(s.as_mut()).poll_flush(cx),
            #[cfg(test)]
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }
}

/// Whether the server agreed to what was offered: one that knows no ALPN answers in HTTP/1.1.
fn check_protocol(tls: &Tls, agreed: Option<&[u8]>) -> Result<(), String> {
    match (tls.config.alpn_protocols.first(), agreed) {
        (Some(offered), agreed) if agreed != Some(offered) => {
            let offered = String::from_utf8_lossy(offered);
            Err(format!("the server did not agree to {offered} (ALPN), so it speaks HTTP/1.1 only"))
        }
        _ => Ok(()),
    }
}
