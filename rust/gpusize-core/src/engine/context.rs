//! What all workers of a session read: the target, its addresses, the requests, how answers are read.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use super::answer::Reading;
use super::tags::Tags;
use crate::error::{Error, Result};
use crate::spec::{Mix, Segment, TargetSpec};
use crate::wire::request::Requests;
use crate::wire::tls::Tls;

/// What all workers read.
#[derive(Debug)]
pub struct Context {
    pub target: TargetSpec,
    pub addresses: Vec<SocketAddr>,
    pub tls: Option<Tls>,
    pub requests: Requests,
    pub tags: Option<Arc<Tags>>,
    pub reading: Reading,
}

impl Context {
    /// Resolve the target and prepare the requests.
    pub fn new(target: TargetSpec, segments: Vec<Segment>, rows: Vec<Vec<Vec<u8>>>, mix: Option<Mix>) -> Result<Self> {
        Ok(Self {
            addresses: resolve(&target)?,
            tls: target.tls.as_ref().map(Tls::new).transpose()?,
            requests: Requests::new(&target, segments, rows, mix.as_ref())?,
            tags: mix.map(|mix| Arc::new(Tags::new(mix))),
            reading: Reading::new(&target),
            target,
        })
    }
}

fn resolve(target: &TargetSpec) -> Result<Vec<SocketAddr>> {
    let place = format!("{}:{}", target.host, target.port);
    let found: Vec<SocketAddr> = (target.host.as_str(), target.port)
        .to_socket_addrs()
        .map_err(|e| Error::target(format!("unknown host: {e}"), &place, "check the host name in the URL"))?
        .collect();
    if found.is_empty() {
        return Err(Error::target("unknown host: no address", place, "check the host name in the URL"));
    }
    Ok(found)
}
