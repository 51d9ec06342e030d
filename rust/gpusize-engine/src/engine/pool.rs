//! Connections of HTTP/2 that several slots of one worker share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::OnceCell;

use super::link::Link as Http2;

/// The shared connections of one worker, by address.
#[derive(Debug)]
pub struct Pool {
    streams: usize,
    links: RefCell<Vec<Vec<Rc<Link>>>>,
}

/// One shared connection, opened by the first slot that needs it.
#[derive(Debug, Default)]
pub struct Link {
    /// Set once it is open; slots that come meanwhile wait, and the next one tries if the first gives up.
    pub open: OnceCell<Connected>,
    /// Slots that use it.
    members: Cell<usize>,
    /// Requests under way on it.
    under_way: Cell<usize>,
    /// It takes no new request: its connection has ended, or does not answer.
    pub retired: Rc<Cell<bool>>,
}

/// A connection that is open; its driver ends when nobody holds this any more.
#[derive(Debug)]
pub struct Connected {
    pub link: Rc<Http2>,
    pub number: u32,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// A slot's place on a link.
#[derive(Debug)]
pub struct Member(pub Rc<Link>);

/// A request that counts as under way until this is dropped.
#[derive(Debug)]
pub struct UnderWay(Rc<Link>);

impl Pool {
    pub fn new(streams: u32, endpoints: usize) -> Self {
        Self { streams: streams as usize, links: RefCell::new(vec![Vec::new(); endpoints]) }
    }

    /// A place on the first link to the address that has one, or on a new link.
    pub fn join(&self, endpoint: usize) -> Member {
        let links = &mut self.links.borrow_mut()[endpoint];
        links.retain(|l| !l.retired.get() && l.members.get() > 0);
        if let Some(link) = links.iter().find(|l| l.members.get() < self.streams.min(l.limit())) {
            return Member::new(link.clone());
        }
        let link = Rc::new(Link::default());
        links.push(link.clone());
        Member::new(link)
    }
}

impl Link {
    /// Streams that the server allows, as far as it has said so.
    fn limit(&self) -> usize {
        self.open.get().map_or(usize::MAX, |o| o.link.limit())
    }

    /// Whether another request would have to wait for one of the others to end.
    pub fn is_full(&self) -> bool {
        self.under_way.get() >= self.limit()
    }
}

impl Member {
    fn new(link: Rc<Link>) -> Self {
        link.members.set(link.members.get() + 1);
        Self(link)
    }

    /// Count a request.
    pub fn begin(&self) -> UnderWay {
        self.0.under_way.set(self.0.under_way.get() + 1);
        UnderWay(self.0.clone())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.members.set(self.0.members.get() - 1);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}
