//! One exchange over HTTP/2: hand over the request, wait for its answer, which is read where its connection is.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::connections::Counted;
use super::context::Context as Shared;
use super::download::Download;
use super::failure::{Failure, Reach};
use super::link::Link;
use super::outside::spawn_local;
use super::pool::{Connected, Member};
use super::slot::{Abort, Slot};
use super::stream::Stream;
use super::worker::Worker;
use crate::outcome::Outcome;
use crate::wire::http2::{Gone, Request};

/// A slot's access to a connection.
#[derive(Debug)]
pub struct Channel {
    link: Rc<Link>,
    driving: Driving,
}

/// Who moves the connection's frames.
#[derive(Debug)]
enum Driving {
    /// The slot itself, whose connection nobody else uses: no other task has to be woken. The socket wakes it, whoever polls.
    Own(Waker),
    /// A task that all its slots share.
    Shared(Member),
}

impl Channel {
    /// A connection of this slot alone; the server's settings are not waited for.
    pub async fn own(worker: &Worker, stream: Stream) -> Self {
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let channel = Self { link: Link::new(&worker.context.target, stream), driving: Driving::Own(waker) };
        let _ended = channel.drive(worker, || false);
        channel
    }

    /// A connection for several slots, and the task that drives it.
    pub async fn shared(
        worker: &Rc<Worker>,
        stream: Stream,
        number: u32,
        retired: Rc<Cell<bool>>,
        counted: Counted,
    ) -> Result<Connected, Failure> {
        let link = Link::new(&worker.context.target, stream);
        // How many streams the server allows stands in its first frame.
        let has_come = || link.reads.get() > 0;
        poll_fn(|cx| match link.poll(worker, cx, has_come) {
            Poll::Ready(()) => Poll::Ready(Err(link.failure())),
            Poll::Pending if has_come() => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let (driven, driver) = (link.clone(), worker.clone());
        spawn_local(async move {
            poll_fn(|cx| driven.poll_drive(&driver, cx)).await;
            retired.set(true);
            drop(counted);
        });
        Ok(Connected { link, number })
    }

    /// A place on a connected link.
    pub fn join(member: Member, open: &Connected) -> Self {
        Self { link: open.link.clone(), driving: Driving::Shared(member) }
    }

    /// Whether it takes no further request now.
    pub fn is_spent(&self) -> bool {
        matches!(&self.driving, Driving::Shared(member) if member.0.retired.get() || member.0.is_full())
    }

    /// Whether the peer has ended a connection that lay idle. What a server asks meanwhile is answered.
    pub fn is_stale(&self, worker: &Worker) -> bool {
        match &self.driving {
            Driving::Own(_) => self.drive(worker, || false).is_ready(),
            Driving::Shared(member) => member.0.retired.get(),
        }
    }

    /// Move the frames of a connection of our own, until `enough`; ready when it has ended.
    fn drive(&self, worker: &Worker, enough: impl Fn() -> bool) -> Poll<()> {
        match &self.driving {
            Driving::Own(waker) => self.link.poll(worker, &mut Context::from_waker(waker), enough),
            Driving::Shared(_) => Poll::Pending,
        }
    }

    /// Let no slot use the connection for another request.
    pub fn retire(&self) {
        if let Driving::Shared(member) = &self.driving {
            member.0.retired.set(true);
        }
    }

    /// Whether all that can wake the slot is its socket.
    pub fn is_own(&self) -> bool {
        matches!(self.driving, Driving::Own(_))
    }

    /// Hand over one request; `now` says when that was.
    pub fn begin(&self, request: Request<'_, Rc<Download>>, now: impl FnOnce() -> i64) -> Result<(), Failure> {
        if !self.link.begin(request) {
            let message = "the server takes no more requests on the connection";
            return Err(Failure { reach: Reach::Unsent, ..Failure::new(Outcome::Truncated, message) });
        }
        let now = now();
        if self.is_own() {
            self.link.begun_at(now);
        } else {
            self.link.call();
        }
        Ok(())
    }

    /// Wait for the answer to a request with a body of `length` bytes.
    pub async fn finish(
        &self,
        download: &Rc<Download>,
        length: usize,
        slot: &Slot,
        worker: &Worker,
    ) -> Result<(), Failure> {
        let reads = self.link.reads.get();
        let _under_way = match &self.driving {
            Driving::Own(_) => None,
            Driving::Shared(member) => Some(member.begin()),
        };
        let ended = poll_fn(|_| {
            if let Some(abort) = slot.abort.get() {
                return Poll::Ready(Err(abort));
            }
            let _ended = self.drive(worker, || download.is_over());
            download.take_result().map_or(Poll::Pending, |result| Poll::Ready(Ok(result)))
        });
        match ended.await {
            Ok(result) => result,
            Err(abort) => Err(self.give_up(abort, download, length, reads, worker)),
        }
    }

    /// The slot is told to give up: the server is told so.
    #[cold]
    fn give_up(&self, abort: Abort, download: &Rc<Download>, length: usize, reads: u64, worker: &Worker) -> Failure {
        let held_up = self.held_up(download, length);
        let gone = self.link.give_up(download);
        if self.is_own() {
            let _ended = self.drive(worker, || false);
        } else {
            self.link.call();
        }
        let context: &Shared = &worker.context;
        let mut failure = Failure::given_up(abort, &|| context.late() + &held_up);
        // What is held must not leave later, when its record says that it never did.
        let answers = abort == Abort::Cancelled || self.link.reads.get() > reads;
        failure.keeps_connection = answers && gone != Gone::Later;
        failure
    }

    /// What a request that is given up has waited for, where that was not the answer.
    fn held_up(&self, download: &Download, length: usize) -> String {
        let blocked = self.link.is_blocked();
        match download.body() {
            _ if download.is_held() && blocked => ": it was not sent, the server reads nothing".to_owned(),
            _ if download.is_held() => {
                let most = self.link.limit();
                format!(": it was not sent, the server allows {most} requests at a time on a connection")
            }
            sent if sent < length as u64 => {
                let why = if blocked { "the server reads no more" } else { "the server's window is full" };
                format!(": {sent} of the {length} bytes of its body were sent, {why}")
            }
            _ => String::new(),
        }
    }
}
