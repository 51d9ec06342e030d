//! The addresses behind a name. All of them take turns, one that failed comes last, and the name is resolved again.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use tokio::net::TcpStream;

use super::level::lock;
use super::outside::now_ns;
use super::sources::Sources;
use gpusize_base::error::{Error, Result};

/// An address has this much of a start on the next one, as RFC 8305 advises.
const HEAD_START_NS: i64 = 250_000_000;
/// An address whose connect failed comes last for so long.
const FAILED_NS: i64 = 10_000_000_000;
/// A name is not resolved more often, however much fails.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// Asks the system for the addresses of a host.
type Resolve = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// A connect under way.
type Attempt<'a> = Pin<Box<dyn Future<Output = io::Result<(TcpStream, Arc<Address>)>> + 'a>>;

/// One address of a target, and the connections to it.
#[derive(Debug)]
pub struct Address {
    pub socket: SocketAddr,
    opened: AtomicU64,
    closed: AtomicU64,
    /// Until when it comes last, because a connect failed.
    last_until_ns: AtomicI64,
}

/// A host name and what it was last resolved to.
#[derive(Debug)]
pub struct Name {
    host: String,
    port: u16,
    resolve: Resolve,
    found: Mutex<Vec<Arc<Address>>>,
    /// Those that are not found any more, and have been connected to.
    former: Mutex<Vec<Arc<Address>>>,
    turn: AtomicUsize,
    /// Whom to tell that a connect failed.
    resolver: Mutex<Option<SyncSender<()>>>,
}

/// How many connections an address had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddressUse {
    /// Number of the target's host.
    pub target: usize,
    /// Address and port.
    pub address: String,
    /// Connections that were open during the level, or opened.
    pub connections: u64,
}

/// Connections that were closed before a level began, by host and address.
pub type Before = HashMap<(usize, SocketAddr), u64>;

impl Address {
    fn new(socket: SocketAddr) -> Arc<Self> {
        let (opened, closed) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { socket, opened, closed, last_until_ns: AtomicI64::new(0) })
    }

    /// A connection to it is open.
    pub fn opened(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    /// It is not any more.
    pub fn closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }
}

impl Name {
    /// Resolve a host for the first time.
    pub fn new(host: &str, port: u16) -> Result<Self> {
        Self::by(host, port, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    fn by(host: &str, port: u16, resolve: Resolve) -> Result<Self> {
        let bad = |what: String| Error::target(what, format!("{host}:{port}"), "check the host name in the URL");
        let found = resolve(host, port).map_err(|e| bad(format!("unknown host: {e}")))?;
        if found.is_empty() {
            return Err(bad("unknown host: no address".into()));
        }
        let name = Self {
            host: host.to_owned(),
            port,
            resolve,
            found: Mutex::default(),
            former: Mutex::default(),
            turn: AtomicUsize::new(0),
            resolver: Mutex::default(),
        };
        name.set(&found);
        Ok(name)
    }

    /// Whether it stands for addresses that may change.
    fn is_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    /// Resolve it again; what cannot be resolved stays as it was.
    fn resolve_again(&self) {
        if let Ok(found) = (self.resolve)(&self.host, self.port)
            && !found.is_empty()
        {
            self.set(&found);
        }
    }

    fn set(&self, sockets: &[SocketAddr]) {
        let (mut found, mut former) = (lock(&self.found), lock(&self.former));
        let mut known: Vec<_> = found.drain(..).chain(former.drain(..)).collect();
        for socket in sockets {
            if found.iter().any(|address| address.socket == *socket) {
                continue;
            }
            let place = known.iter().position(|address| address.socket == *socket);
            found.push(place.map_or_else(|| Address::new(*socket), |place| known.swap_remove(place)));
        }
        known.retain(|address| address.opened.load(Relaxed) > 0);
        *former = known;
    }

    /// The address, where there is one: most hosts have no other.
    pub fn only(&self) -> Option<Arc<Address>> {
        let found = lock(&self.found);
        found.first().filter(|_| found.len() == 1).cloned()
    }

    /// All addresses, for one connection: each connection begins with the next one, and those that failed lately come last.
    fn in_turn(&self) -> Vec<Arc<Address>> {
        let (now, turn) = (now_ns(), self.turn.fetch_add(1, Relaxed));
        let is_well = |address: &Arc<Address>| address.last_until_ns.load(Relaxed) <= now;
        let (mut well, mut failing): (Vec<_>, Vec<_>) = lock(&self.found).iter().cloned().partition(is_well);
        for part in [&mut well, &mut failing] {
            let first = turn.checked_rem(part.len()).unwrap_or(0);
            part.rotate_left(first);
        }
        well.append(&mut failing);
        well
    }

    /// Connect to the first address that answers. Each has a head start on the next; one that fails has none. `sleep_until`
    /// waits for a time of the monotonic clock.
    pub async fn connect(
        &self,
        sources: &Sources,
        sleep_until: impl AsyncFn(i64),
    ) -> io::Result<(TcpStream, Arc<Address>)> {
        if let Some(address) = self.only() {
            return self.attempt(address, sources).await;
        }
        let mut order = self.in_turn().into_iter();
        let mut attempts: Vec<Attempt<'_>> = Vec::new();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        loop {
            if let Some(address) = order.next() {
                attempts.push(Box::pin(self.attempt(address, sources)));
            } else if attempts.is_empty() {
                return Err(last);
            }
            let mut head_start = std::pin::pin!(sleep_until(now_ns() + HEAD_START_NS));
            let ended = poll_fn(|cx| {
                for place in 0..attempts.len() {
                    if let Poll::Ready(result) = attempts[place].as_mut().poll(cx) {
                        drop(attempts.swap_remove(place));
                        return Poll::Ready(Some(result));
                    }
                }
                if order.len() > 0 { head_start.as_mut().poll(cx).map(|()| None) } else { Poll::Pending }
            })
            .await;
            match ended {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(e)) => last = e,
                None => {}
            }
        }
    }

    async fn attempt(&self, address: Arc<Address>, sources: &Sources) -> io::Result<(TcpStream, Arc<Address>)> {
        let result = sources.connect(address.socket).await;
        let last_until_ns = if result.is_ok() { 0 } else { now_ns() + FAILED_NS };
        address.last_until_ns.store(last_until_ns, Relaxed);
        if result.is_err()
            && let Some(resolver) = &*lock(&self.resolver)
        {
            // One that has been told already will look.
            let _ = resolver.try_send(());
        }
        result.map(|stream| (stream, address))
    }

    /// What of its connections is over.
    pub fn before(&self, target: usize) -> Before {
        let all = self.all();
        all.iter().map(|address| ((target, address.socket), address.closed.load(Relaxed))).collect()
    }

    /// How it was used since then: addresses that it stands for now, or that there were connections to.
    pub fn used(&self, target: usize, before: &Before) -> Vec<AddressUse> {
        let now = lock(&self.found).len();
        let mut used = Vec::new();
        for (place, address) in self.all().iter().enumerate() {
            let over = before.get(&(target, address.socket)).copied().unwrap_or(0);
            let connections = address.opened.load(Relaxed).saturating_sub(over);
            if place < now || connections > 0 {
                used.push(AddressUse { target, address: address.socket.to_string(), connections });
            }
        }
        used
    }

    fn all(&self) -> Vec<Arc<Address>> {
        lock(&self.found).iter().chain(lock(&self.former).iter()).cloned().collect()
    }
}

/// Resolve names again: `every` so often, unless that is nothing, and after connects that failed. Ends with its sender, which
/// the names have: with them.
pub fn keep_resolving(names: &[Arc<Name>], every: Duration) -> Result<()> {
    let names: Vec<_> = names.iter().filter(|name| name.is_name()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let (sender, asked) = sync_channel(1);
    let weak: Vec<_> = names.iter().map(|name| Arc::downgrade(name)).collect();
    let resolve_all = move || weak.iter().filter_map(std::sync::Weak::upgrade).for_each(|name| name.resolve_again());
    std::thread::Builder::new()
        .name("gpusize-names".into())
        .spawn(move || resolve_when_asked(&asked, every, resolve_all))
        .map_err(|e| Error::environment(e.to_string(), "threads", "free some threads"))?;
    for name in names {
        *lock(&name.resolver) = Some(sender.clone());
    }
    Ok(())
}

fn resolve_when_asked(asked: &Receiver<()>, every: Duration, resolve_all: impl Fn()) {
    let every = if every.is_zero() { Duration::MAX } else { every };
    loop {
        match asked.recv_timeout(every) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => resolve_all(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // What fails meanwhile is seen to afterwards. A session that is over is not held up: nobody waits for this thread.
        match asked.recv_timeout(LEAST_PAUSE) {
            Ok(()) => std::thread::sleep(LEAST_PAUSE),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        resolve_all();
    }
}

#[cfg(test)]
mod tests;
