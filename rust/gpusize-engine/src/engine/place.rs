//! What a slot has of one address: a connection of its own, or its part of a shared one.

use std::rc::Rc;

use super::connections::Counted;
use super::failure::Failure;
use super::http2::Channel;
use super::stream::{Stream, Took};
use super::worker::Worker;
use crate::spec::Transport;

/// What a slot has of one address.
#[derive(Debug)]
pub struct Place {
    pub conn: Option<Conn>,
    /// A further connection stands for one that was closed.
    pub had_one: bool,
}

#[derive(Debug)]
pub struct Conn {
    pub carrier: Carrier,
    pub number: u32,
    /// It has carried an answer of this slot before.
    pub used: bool,
    /// It may carry another request after the present one.
    pub reusable: bool,
    pub last_end_ns: i64,
    /// Counted while it is open; a shared one where it is driven.
    pub _counted: Option<Counted>,
}

#[derive(Debug)]
pub enum Carrier {
    Http1(Stream),
    Http2(Channel),
}

impl Place {
    pub fn hang_up(&mut self) {
        if let Some(Conn { carrier: Carrier::Http2(channel), .. }) = &self.conn {
            channel.retire();
        }
        self.conn = None;
    }
}

impl Conn {
    pub fn is_stale(&mut self, worker: &Worker) -> bool {
        match &mut self.carrier {
            Carrier::Http1(stream) => stream.is_stale(),
            Carrier::Http2(channel) => channel.is_stale(worker),
        }
    }

    pub fn is_spent(&self) -> bool {
        matches!(&self.carrier, Carrier::Http2(channel) if channel.is_spent())
    }
}

/// Open a connection, or join one; `took` is set where one was opened.
pub async fn open(worker: &Rc<Worker>, endpoint: usize, took: &mut Option<Took>) -> Result<(Carrier, u32), Failure> {
    let target = &worker.context.target;
    let stream = async |took: &mut Option<Took>| {
        let endpoint = &worker.context.endpoints[endpoint];
        let sleep_until = async |due_ns| worker.alarms.sleep_until(due_ns).await;
        let (stream, times) =
            Stream::connect(&endpoint.name, endpoint.tls.as_ref(), worker.connections.sources(), sleep_until)
                .await
                .map_err(|refused| Failure::new(refused.outcome, refused.message))?;
        let address = times.address.clone();
        *took = Some(times);
        Ok::<_, Failure>((stream, address))
    };
    if target.transport == Transport::Http1 {
        return Ok((Carrier::Http1(stream(took).await?.0), worker.connections.next_number()));
    }
    if target.streams == 1 {
        let channel = Channel::own(worker, stream(took).await?.0).await;
        return Ok((Carrier::Http2(channel), worker.connections.next_number()));
    }
    let member = worker.connections.join(endpoint);
    let link = member.0.clone();
    let open = link
        .open
        .get_or_try_init(async || {
            let (stream, address) = stream(took).await?;
            let counted = worker.connections.count(address);
            Channel::shared(worker, stream, worker.connections.next_number(), link.retired.clone(), counted).await
        })
        .await?;
    let number = open.number;
    Ok((Carrier::Http2(Channel::join(member, open)), number))
}
