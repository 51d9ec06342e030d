//! What all workers of a session read: the target, its addresses, the requests, how answers are read.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::balance::Balancer;
use super::names::{Name, keep_resolving};
use super::response::ResponseFormat;
use super::sources;
use super::tags::Tags;
use crate::spec::{Mix, Segment, TargetSpec, TlsSpec, Transport};
use crate::wire::http2::Head;
use crate::wire::request::Requests;
use crate::wire::tls::Tls;
use gpusize_base::error::Result;
use gpusize_load::schedule::Sessions;

/// What all workers read.
#[derive(Debug)]
pub struct Context {
    pub target: TargetSpec,
    pub endpoints: Vec<Endpoint>,
    pub balancer: Balancer,
    pub requests: Requests,
    pub tags: Option<Arc<Tags>>,
    pub format: ResponseFormat,
    /// The dataset's conversations.
    pub sessions: Arc<Sessions>,
    /// What the dataset says of the pauses before its rows.
    pub recorded_ns: Option<Arc<Vec<i64>>>,
    /// Where connections come from; without any the system chooses.
    pub sources: Vec<IpAddr>,
}

/// One of the target's addresses.
#[derive(Debug)]
pub struct Endpoint {
    pub name: Arc<Name>,
    pub tls: Option<Tls>,
    /// In HTTP/2 the heads of its requests, one for each kind.
    pub heads: Vec<Arc<Head>>,
}

impl Context {
    /// Resolve all addresses and prepare the requests.
    pub fn new(target: TargetSpec, segments: Vec<Segment>, rows: Vec<Vec<Vec<u8>>>, mix: Option<Mix>) -> Result<Self> {
        target.check()?;
        let endpoints: Vec<Endpoint> = target
            .endpoints()
            .map(|(host, port, tls)| Endpoint::new(&target, mix.as_ref(), host, port, tls))
            .collect::<Result<_>>()?;
        let names: Vec<_> = endpoints.iter().map(|endpoint| endpoint.name.clone()).collect();
        keep_resolving(&names, Duration::from_nanos(target.resolve_every_ns.unsigned_abs()))?;
        let requests = Requests::new(&target, segments, rows, mix.as_ref())?;
        let (numbers, turns) = mix.as_ref().map_or((None, None), |m| (m.sessions.as_deref(), m.turns.as_deref()));
        let mut format = ResponseFormat::new(&target);
        if requests.captures() {
            format.keep_text()?;
        }
        Ok(Self {
            sessions: Arc::new(Sessions::new(requests.rows(), numbers, turns)?),
            recorded_ns: mix.as_ref().and_then(|m| m.think_ns.clone()).map(Arc::new),
            sources: sources::parse(&target.source_addresses)?,
            balancer: Balancer::new(target.balance, endpoints.len()),
            endpoints,
            requests,
            tags: mix.map(|mix| Arc::new(Tags::new(mix))),
            format,
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
            None => vec![Arc::new(head(target)?)],
            Some(mix) => {
                let numbered = |(number, request)| {
                    head(&Mix::target_of(request, target)).map(|head| Arc::new(head.numbered(number)))
                };
                mix.requests.iter().enumerate().map(numbered).collect::<Result<_>>()?
            }
        };
        Ok(Self { name: Arc::new(Name::new(host, port)?), tls: tls.map(|t| Tls::new(t, http2)).transpose()?, heads })
    }
}
