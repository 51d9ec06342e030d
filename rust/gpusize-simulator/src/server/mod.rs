//! The cluster in real time: an HTTP/1.1 server with its own thread, which works to absolute due times.
//!
//! The ends of iterations are instants of the model. A late wake-up delays what is written, never the model, and the delay is published.

mod admin;
mod body;
mod busy;
mod connection;
mod drive;
mod embeddings;
mod error;
mod exposition;
mod kserve;
mod metrics;
mod openai;
mod openai_writer;
mod prefix;
mod report;
mod responses;
mod routes;
mod state;
mod text;
mod ticket;
mod workflow;
mod workflow_calls;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use self::connection::{Connection, Fate};
use self::state::Shared;
use super::{ClusterConfig, SimError};
use gpusize_base::owner::Owner;

/// Connections that may wait to be accepted; a burst of a level's start must fit.
const BACKLOG: i32 = 4096;
/// After a failed accept, which means that something has run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A running server. It stops when told to or when dropped.
#[derive(Debug)]
pub struct SimServer {
    local_addr: SocketAddr,
    grpc_addr: SocketAddr,
    commands: mpsc::UnboundedSender<Command>,
    owner: Owner,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Running(JoinHandle<io::Result<String>>),
    /// With the last statistics.
    Stopped(String),
}

#[derive(Debug)]
enum Command {
    Stats(std_mpsc::Sender<String>),
    Stop,
}

impl SimServer {
    /// Listen on `addr` (port 0: any free one), for gRPC on any free port beside it, and serve until stopped.
    pub fn start(config: ClusterConfig, addr: SocketAddr) -> Result<Self, SimError> {
        Self::start_with_grpc(config, addr, 0)
    }

    /// The same, with gRPC on `grpc_port` of the same address.
    pub fn start_with_grpc(config: ClusterConfig, addr: SocketAddr, grpc_port: u16) -> Result<Self, SimError> {
        config.validate()?;
        let listen = |addr| listen(addr).map_err(|source| SimError::Bind { addr, source });
        let listeners = Listeners { http: listen(addr)?, grpc: listen(SocketAddr::new(addr.ip(), grpc_port))? };
        let (local_addr, grpc_addr) = (listeners.http.local_addr()?, listeners.grpc.local_addr()?);
        let (commands, inbox) = mpsc::unbounded_channel();
        let (ready, started) = std_mpsc::channel();
        let thread = thread::Builder::new().name("simulate".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            LocalSet::new().block_on(&runtime, serve(config, listeners, inbox, ready))
        })?;
        match started.recv() {
            Ok(()) => {
                let (owner, state) = (Owner::here(), Mutex::new(State::Running(thread)));
                Ok(Self { local_addr, grpc_addr, commands, owner, state })
            }
            Err(std_mpsc::RecvError) => Err(match join(thread) {
                Err(source) => SimError::Server { source },
                Ok(_) => SimError::Server { source: io::Error::other("ended before it began") },
            }),
        }
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address that it listens on for gRPC.
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc_addr
    }

    /// Statistics as JSON: those of now, or the last ones of a stopped server.
    pub fn stats_json(&self) -> Result<String, SimError> {
        self.check_owner()?;
        let (reply, stats) = std_mpsc::channel();
        if self.commands.send(Command::Stats(reply)).is_ok()
            && let Ok(stats) = stats.recv()
        {
            return Ok(stats);
        }
        self.stop()
    }

    /// In a forked child there is no server: its thread is the parent's.
    fn check_owner(&self) -> Result<(), SimError> {
        if self.owner.is_here() {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(std::mem::replace(&mut *state, State::Stopped(String::new())));
        Err(SimError::Server { source: io::Error::other("it belongs to the process that this one was forked from") })
    }

    /// Close every connection and end the thread; the last statistics. A second call gives the same.
    pub fn stop(&self) -> Result<String, SimError> {
        self.check_owner()?;
        // A server that has ended already hears nothing, and that is fine.
        let _ = self.commands.send(Command::Stop);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = match std::mem::replace(&mut *state, State::Stopped(String::new())) {
            State::Running(thread) => join(thread)?,
            State::Stopped(stats) => stats,
        };
        *state = State::Stopped(stats.clone());
        Ok(stats)
    }
}

impl Drop for SimServer {
    fn drop(&mut self) {
        // Nobody is left to be told of an error.
        let _ = self.stop();
    }
}

fn join(thread: JoinHandle<io::Result<String>>) -> io::Result<String> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the server's thread panicked")))
}

fn listen(addr: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

struct Listeners {
    http: StdListener,
    grpc: StdListener,
}

async fn serve(
    config: ClusterConfig,
    listeners: Listeners,
    mut inbox: mpsc::UnboundedReceiver<Command>,
    ready: std_mpsc::Sender<()>,
) -> io::Result<String> {
    let http = TcpListener::from_std(listeners.http)?;
    let grpc = TcpListener::from_std(listeners.grpc)?;
    let shared = Rc::new(Shared::new(config)?);
    // Nobody waits any more when the starter has gone.
    let _ = ready.send(());
    let cluster = Rc::clone(&shared);
    let mut cluster = tokio::task::spawn_local(async move { cluster.run_cluster().await });
    loop {
        tokio::select! {
            biased;
            // It only ends when its timer fails.
            ended = &mut cluster => return Err(ended.unwrap_or_else(io::Error::other)),
            command = inbox.recv() => match command {
                Some(Command::Stats(reply)) => {
                    // Whoever asked may have gone.
                    let _ = reply.send(report::stats(&shared).to_string());
                }
                Some(Command::Stop) | None => return Ok(report::stats(&shared).to_string()),
            },
            accepted = http.accept() => match accepted {
                Ok((stream, _)) => accept(&shared, stream),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            accepted = grpc.accept() => match accepted {
                Ok((stream, _)) => kserve::grpc::accept(&shared, stream),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

fn accept(shared: &Rc<Shared>, stream: TcpStream) {
    // Without this every token would wait for the acknowledgement of the one before; a stream that refuses is closed already.
    let _ = stream.set_nodelay(true);
    shared.metrics.borrow_mut().connections += 1;
    let fate = Rc::new(Fate::default());
    let connection = Connection::new(stream, Rc::clone(&fate));
    let shared = Rc::clone(shared);
    let service = service_fn(move |request| routes::serve(Rc::clone(&shared), Rc::clone(&fate), request));
    tokio::task::spawn_local(async move {
        // Idle connections stay open as long as their clients like, and how they end is the clients' affair.
        let _ = http1::Builder::new().header_read_timeout(None).serve_connection(connection, service).await;
    });
}
