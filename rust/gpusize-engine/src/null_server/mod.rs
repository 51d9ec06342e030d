//! A server that answers every HTTP/1.1 request at once and with the same bytes: what a generator can do against it is
//! what the machine can generate.
//!
//! Each thread has a listener of its own on the same port (`SO_REUSEPORT`) and keeps the connections that it accepts.

mod requests;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};

use self::requests::RequestCounter;
use gpusize_base::owner::Owner;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n";
const BACKLOG: i32 = 4096;
const READ_BYTES: usize = 16 * 1024;
/// Answers that one write carries at most, to requests that came together.
const BATCH: usize = 64;
/// After a failed accept, which means that something has run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A running server. It stops when told to or when dropped.
#[derive(Debug)]
pub struct NullServer {
    local_addr: SocketAddr,
    /// Requests taken, by thread.
    answered: Vec<Arc<AtomicU64>>,
    stop: watch::Sender<bool>,
    owner: Owner,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl NullServer {
    /// Listen on `addr` (port 0: any free one) with so many threads, at least one.
    pub fn start(addr: SocketAddr, threads: usize) -> io::Result<Self> {
        let first = listen(addr)?;
        let local_addr = first.local_addr()?;
        let mut listeners = vec![first];
        while listeners.len() < threads {
            listeners.push(listen(local_addr)?);
        }
        let (stop, stopped) = watch::channel(false);
        let (owner, threads) = (Owner::here(), Mutex::new(Vec::new()));
        let mut server = Self { local_addr, answered: Vec::new(), stop, owner, threads };
        for listener in listeners {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let listener = {
                let _inside = runtime.enter();
                TcpListener::from_std(listener)?
            };
            let (answered, stopped) = (Arc::new(AtomicU64::new(0)), stopped.clone());
            server.answered.push(Arc::clone(&answered));
            let serve = move || LocalSet::new().block_on(&runtime, serve(listener, answered, stopped));
            let thread = thread::Builder::new().name("null".to_owned()).spawn(serve)?;
            server.threads().push(thread);
        }
        Ok(server)
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Requests taken so far, which are answered at once.
    pub fn requests(&self) -> u64 {
        self.answered.iter().map(|each| each.load(Ordering::Relaxed)).sum()
    }

    /// Close every connection and end the threads. A second call does nothing, nor does one in a forked child.
    pub fn stop(&self) {
        if !self.owner.is_here() {
            std::mem::forget(std::mem::take(&mut *self.threads()));
            return;
        }
        // Threads that have ended hear nothing, and that is fine.
        let _ = self.stop.send(true);
        for thread in self.threads().drain(..) {
            // One that panicked has said so on standard error; the others still have to end.
            let _ = thread.join();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listen(addr: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until stopped; the connections end with the thread's `LocalSet`.
async fn serve(listener: TcpListener, answered: Arc<AtomicU64>, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = stopped.changed() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    spawn_local(converse(stream, Arc::clone(&answered)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// Answers the requests of one connection until it ends, or until it cannot be understood.
async fn converse(mut stream: TcpStream, answered: Arc<AtomicU64>) {
    let mut buffer = vec![0; READ_BYTES];
    let mut counter = RequestCounter::default();
    let answers = ANSWER.repeat(BATCH);
    if stream.set_nodelay(true).is_err() {
        return;
    }
    loop {
        let Ok(length @ 1..) = stream.read(&mut buffer).await else { return };
        let Some(mut owed) = counter.feed(&buffer[..length]) else { return };
        // Before the write: who has an answer finds it counted.
        answered.fetch_add(owed as u64, Ordering::Relaxed);
        while owed > 0 {
            let batch = owed.min(BATCH);
            if stream.write_all(&answers[..batch * ANSWER.len()]).await.is_err() {
                return;
            }
            owed -= batch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream as StdStream};

    fn ask(addr: SocketAddr, requests: &[u8], answers: usize) -> StdStream {
        let mut stream = StdStream::connect(addr).unwrap();
        stream.write_all(requests).unwrap();
        let mut got = vec![0; answers * ANSWER.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, ANSWER.repeat(answers));
        stream
    }

    #[test]
    fn every_request_is_answered_on_every_thread_and_stopping_closes() {
        let server = NullServer::start((Ipv4Addr::LOCALHOST, 0).into(), 3).unwrap();
        let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi".repeat(200);
        let mut open: Vec<StdStream> = (0..8).map(|_| ask(server.local_addr(), &request, 200)).collect();
        assert_eq!(server.requests(), 1600);
        server.stop();
        for stream in &mut open {
            assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
        }
        server.stop();
    }

    #[test]
    fn a_port_in_use_by_others_is_refused() {
        let taken = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(NullServer::start(taken.local_addr().unwrap(), 1).is_err());
    }
}
