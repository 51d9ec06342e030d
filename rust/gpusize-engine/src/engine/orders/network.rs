//! Connections in memory, and a server behind them whose temper a test chooses. It keeps a log of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;

use super::dice::Dice;
use super::world::{World, here};

const MS: i64 = 1_000_000;
const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

thread_local! {
    static SERVER: RefCell<Option<Rc<Server>>> = const { RefCell::new(None) };
}

/// How the server is disposed.
#[derive(Clone, Copy, Debug)]
pub struct Temper {
    /// So many of 16 requests go wrong, in one way or another.
    pub faults: u64,
    /// So many of 16 connects do.
    pub refusals: u64,
    /// Connects take up to so long.
    pub connect_ns: i64,
    /// Answers take up to so long.
    pub service_ns: i64,
}

/// See the module.
#[derive(Debug)]
pub struct Server {
    temper: Temper,
    dice: Dice,
    /// The requests that came, by what their headers say: visit, stream, number.
    pub log: RefCell<Vec<(u32, u16, u64)>>,
    /// Connections that are open at the client's end, and how many have been.
    pub open: Cell<u64>,
    pub opened: Cell<u64>,
}

/// What comes to the client, and when.
#[derive(Debug)]
enum Coming {
    Bytes(VecDeque<u8>),
    End,
    Reset,
}

#[derive(Debug)]
struct Wire {
    server: Rc<Server>,
    coming: VecDeque<(i64, Coming)>,
    begun: Vec<u8>,
    /// The server reads and says no more.
    is_over: bool,
    /// The socket's buffer is full until then.
    full_until_ns: i64,
    reader: Option<Waker>,
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct Pipe(RefCell<Wire>);

impl Server {
    /// Put a server into the world of this thread, in place of the one before.
    pub fn start(temper: Temper, dice: Dice) -> Rc<Self> {
        let server = Rc::new(Self { temper, dice, log: RefCell::default(), open: Cell::new(0), opened: Cell::new(0) });
        SERVER.set(Some(server.clone()));
        server
    }

    pub fn stop() {
        SERVER.take();
    }

    fn up_to(&self, ns: i64) -> i64 {
        // On a grid, so that many things happen at one instant, in any order.
        self.dice.below((ns / MS) as u64 + 1) as i64 * MS
    }

    /// What becomes of a request.
    fn answer(&self, now: i64, wire: &mut VecDeque<(i64, Coming)>) -> bool {
        let at = now + MS + self.up_to(self.temper.service_ns);
        let bytes = |bytes: &[u8]| Coming::Bytes(bytes.iter().copied().collect());
        if self.dice.below(16) >= self.temper.faults {
            if self.dice.below(4) == 0 {
                let (head, rest) = HELLO.split_at(1 + self.dice.below(HELLO.len() as u64 - 1) as usize);
                wire.extend([(at, bytes(head)), (at + self.up_to(MS), bytes(rest))]);
            } else {
                wire.push_back((at, bytes(HELLO)));
            }
            return true;
        }
        match self.dice.below(7) {
            0 => wire.push_back((at, bytes(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno"))),
            1 => wire.push_back((at, Coming::Reset)),
            2 => wire.extend([(at, bytes(&HELLO[..20])), (at, Coming::End)]),
            3 => wire.extend([(at, bytes(HELLO)), (at + self.up_to(MS), Coming::End)]),
            4 => wire.push_back((now, Coming::End)),
            5 => wire.push_back((at, bytes(b"nonsense\r\n\r\n"))),
            // Not a word.
            _ => {}
        }
        false
    }
}

/// Connect to the server of this thread's world; none where there is no world.
pub async fn connect() -> Option<io::Result<Pipe>> {
    let (world, server) = (here()?, SERVER.with_borrow(Clone::clone)?);
    let refusal = (server.dice.below(16) < server.temper.refusals).then(|| server.dice.below(3));
    world.sleep_until(world.now_ns() + server.up_to(server.temper.connect_ns)).await;
    match refusal {
        Some(0 | 1) => return Some(Err(io::ErrorKind::ConnectionRefused.into())),
        Some(_) => std::future::pending().await,
        None => {}
    }
    server.open.set(server.open.get() + 1);
    server.opened.set(server.opened.get() + 1);
    Some(Ok(Pipe(RefCell::new(Wire {
        server,
        coming: VecDeque::new(),
        begun: Vec::new(),
        is_over: false,
        full_until_ns: 0,
        reader: None,
    }))))
}

fn world() -> io::Result<Rc<World>> {
    here().ok_or_else(|| io::Error::other("the world has ended"))
}

impl Pipe {
    /// Whether something is there that nobody asked for.
    pub fn is_stale(&self) -> bool {
        let wire = self.0.borrow();
        here().is_none_or(|world| wire.coming.front().is_some_and(|(at, _)| *at <= world.now_ns()))
    }

    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let world = world()?;
        let mut wire = self.0.borrow_mut();
        match wire.coming.front_mut() {
            Some((at, coming)) if *at <= world.now_ns() => match coming {
                Coming::Bytes(bytes) => {
                    let n = bytes.len().min(buf.remaining());
                    bytes.drain(..n).for_each(|byte| buf.put_slice(&[byte]));
                    if bytes.is_empty() {
                        wire.coming.pop_front();
                    }
                    Poll::Ready(Ok(()))
                }
                Coming::End => Poll::Ready(Ok(())),
                Coming::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            },
            Some((at, _)) => {
                world.ring(*at, cx.waker().clone());
                Poll::Pending
            }
            None => {
                wire.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Take as much as there is room for; now and then there is little.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let world = world()?;
        let mut wire = self.0.borrow_mut();
        if wire.full_until_ns > world.now_ns() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let server = wire.server.clone();
        if wire.is_over && server.dice.below(2) == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let is_short = server.dice.below(12) == 0;
        let n = if is_short { server.dice.below(bytes.len() as u64) as usize } else { bytes.len() };
        if is_short {
            wire.full_until_ns = world.now_ns() + MS;
        }
        if n == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wire.take(&bytes[..n], world.now_ns());
        Ok(n)
    }

    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.try_write(bytes);
        if written.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
            world()?.ring(self.0.borrow().full_until_ns, cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(written)
    }
}

impl Wire {
    fn take(&mut self, bytes: &[u8], now: i64) {
        self.begun.extend_from_slice(bytes);
        let Some(end) = self.begun.windows(4).position(|w| w == b"\r\n\r\n").filter(|_| !self.is_over) else { return };
        let head: Vec<u8> = self.begun.drain(..end + 4).collect();
        self.server.log.borrow_mut().extend(which(&String::from_utf8_lossy(&head)));
        self.is_over = !self.server.clone().answer(now, &mut self.coming);
        if let (Some(waker), Some(world), Some((at, _))) = (self.reader.take(), here(), self.coming.front()) {
            world.ring(*at, waker);
        }
    }
}

/// Which request it is, by its `traceparent`.
fn which(head: &str) -> Option<(u32, u16, u64)> {
    let value = head.lines().find_map(|line| line.strip_prefix("traceparent: 00-6770"))?;
    Some((
        u32::from_str_radix(&value[..8], 16).ok()?,
        u16::from_str_radix(&value[8..12], 16).ok()?,
        u64::from_str_radix(&value[12..28], 16).ok()?,
    ))
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let server = &self.0.borrow().server;
        server.open.set(server.open.get() - 1);
    }
}
