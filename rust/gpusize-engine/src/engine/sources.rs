//! The local addresses that connections come from.
#![allow(unsafe_code)] // neither std nor tokio has the option that lets connections share a port

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use tokio::net::{TcpSocket, TcpStream};

use gpusize_base::error::{Error, Result};

/// The source addresses of one worker, which take turns; without any the system chooses.
#[derive(Debug, Default)]
pub struct Sources {
    addresses: Vec<IpAddr>,
    next: Cell<usize>,
}

/// Refuse texts that are no addresses, and addresses that this machine does not have.
pub fn parse(texts: &[String]) -> Result<Vec<IpAddr>> {
    let bad = |what: String, todo: &str| Error::usage(what, "source_addresses", todo);
    let parse = |text: &String| {
        let address = text.parse().map_err(|_| bad(format!("{text} is no IP address"), "give one like 127.0.0.2"))?;
        std::net::UdpSocket::bind(SocketAddr::new(address, 0))
            .map_err(|e| bad(format!("{text}: {e}"), "give addresses of this machine"))?;
        Ok(address)
    };
    texts.iter().map(parse).collect()
}

impl Sources {
    /// Of worker `worker`: each begins with another one.
    pub fn new(addresses: &[IpAddr], worker: usize) -> Self {
        Self { addresses: addresses.to_vec(), next: Cell::new(worker) }
    }

    /// Connect to `peer` from the next address of its family.
    pub async fn connect(&self, peer: SocketAddr) -> io::Result<TcpStream> {
        match self.next(&peer) {
            None => TcpStream::connect(peer).await,
            Some(source) => {
                let socket = if peer.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                share_ports(&socket)?;
                socket.bind(SocketAddr::new(source, 0))?;
                socket.connect(peer).await
            }
        }
    }

    fn next(&self, peer: &SocketAddr) -> Option<IpAddr> {
        let fitting = || self.addresses.iter().filter(|address| address.is_ipv4() == peer.is_ipv4());
        let turn = self.next.get();
        self.next.set(turn + 1);
        fitting().nth(turn.checked_rem(fitting().count())?).copied()
    }
}

/// Choose the port when connecting and not when binding: then it need only differ from those to the same peer.
fn share_ports(socket: &TcpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the call, and `on` is a readable int of the size that is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Why a connect failed, and where the system's word for it says little, what to do.
pub fn reason(e: &io::Error) -> String {
    if e.raw_os_error() == Some(libc::EADDRNOTAVAIL) {
        let todo = "use fewer connections, more source addresses, or a wider net.ipv4.ip_local_port_range";
        return format!("no local port is left for another connection to this address ({e}): {todo}");
    }
    e.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_peers_family_take_turns() {
        let addresses = parse(&["127.0.0.1".into(), "127.0.0.2".into()]).expect("addresses of this machine");
        let sources = Sources::new(&addresses, 1);
        let (v4, v6) = (SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([0_u16; 8], 1)));
        let turns: Vec<_> = (0..3).filter_map(|_| sources.next(&v4)).map(|a| a.to_string()).collect();
        assert_eq!(turns, ["127.0.0.2", "127.0.0.1", "127.0.0.2"]);
        assert_eq!((sources.next(&v6), Sources::default().next(&v4)), (None, None));
        assert!(parse(&["nonsense".into()]).is_err() && parse(&["203.0.113.7".into()]).is_err());
    }

    #[test]
    fn a_lack_of_ports_is_said_as_that() {
        assert!(reason(&io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)).contains("no local port is left"));
        assert!(reason(&io::Error::from_raw_os_error(libc::ECONNREFUSED)).contains("refused"));
    }
}
