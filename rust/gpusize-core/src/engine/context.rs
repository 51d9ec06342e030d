//! What all workers of a session read: the target, its addresses, the requests, how answers are read.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use super::answer::Reading;
use super::balance::Balancer;
use super::tags::Tags;
use crate::error::{Error, Result};
use crate::spec::{Mix, Segment, TargetSpec, TlsSpec, Transport};
use crate::wire::http2::Head;
use crate::wire::request::Requests;
use crate::wire::tls::Tls;

/// What all workers read.
#[derive(Debug)]
pub struct Context {
    pub target: TargetSpec,
    pub endpoints: Vec<Endpoint>,
    pub balancer: Balancer,
    pub requests: Requests,
    pub tags: Option<Arc<Tags>>,
    pub reading: Reading,
}

/// One of the target's addresses.
#[derive(Debug)]
pub struct Endpoint {
    pub addresses: Vec<SocketAddr>,
    pub tls: Option<Tls>,
    /// In HTTP/2 the heads of its requests, one for each kind.
    pub heads: Vec<Head>,
}

impl Context {
    /// Resolve all addresses and prepare the requests.
    pub fn new(target: TargetSpec, segments: Vec<Segment>, rows: Vec<Vec<Vec<u8>>>, mix: Option<Mix>) -> Result<Self> {
        target.check()?;
        let endpoints: Vec<Endpoint> = target
            .endpoints()
            .map(|(host, port, tls)| Endpoint::new(&target, mix.as_ref(), host, port, tls))
            .collect::<Result<_>>()?;
        Ok(Self {
            balancer: Balancer::new(target.balance, endpoints.len()),
            endpoints,
            requests: Requests::new(&target, segments, rows, mix.as_ref())?,
            tags: mix.map(|mix| Arc::new(Tags::new(mix))),
            reading: Reading::new(&target),
            target,
        })
    }

    /// What is said of a request that took too long.
    pub fn late(&self) -> String {
        format!("no complete response within {} s", self.target.timeout_ns as f64 / 1e9)
    }
}

impl Endpoint {
    /// Resolve the name and prepare the handshake.
    pub fn new(target: &TargetSpec, mix: Option<&Mix>, host: &str, port: u16, tls: Option<&TlsSpec>) -> Result<Self> {
        let http2 = target.transport != Transport::Http1;
        let head = |kind: &TargetSpec| Head::new(kind, host, port, tls);
        let heads = match mix {
            _ if !http2 => Vec::new(),
            None => vec![head(target)?],
            Some(mix) => mix.requests.iter().map(|r| head(&Mix::target_of(r, target))).collect::<Result<_>>()?,
        };
        Ok(Self { addresses: resolve(host, port)?, tls: tls.map(|t| Tls::new(t, http2)).transpose()?, heads })
    }
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let place = format!("{host}:{port}");
    let found: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|e| Error::target(format!("unknown host: {e}"), &place, "check the host name in the URL"))?
        .collect();
    if found.is_empty() {
        return Err(Error::target("unknown host: no address", place, "check the host name in the URL"));
    }
    Ok(found)
}
