//! A listener on loopback with its open connections, for servers of one thread and one epoll set.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use crate::sys::Epoll;

/// The listener, and what the server keeps of each connection.
#[derive(Debug)]
pub struct Connections<C> {
    listener: TcpListener,
    /// By file descriptor.
    open: Vec<Option<C>>,
    accepted: u64,
}

impl<C> Connections<C> {
    /// Listens on loopback; port 0 is any free one.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, open: Vec::new(), accepted: 0 })
    }

    /// The port that it listens on.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Whether this is the listener's descriptor, to be watched for connections that wait.
    pub fn is_listener(&self, fd: RawFd) -> bool {
        fd == self.listener.as_raw_fd()
    }

    /// Watches the listener.
    pub fn listen(&self, epoll: &Epoll) -> io::Result<()> {
        epoll.add(self.listener.as_raw_fd())
    }

    /// Takes all connections that wait, watches them for reading and keeps what `make` makes of each.
    pub fn accept(&mut self, epoll: &Epoll, make: impl Fn(TcpStream) -> C) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let fd = stream.as_raw_fd();
            epoll.add(fd)?;
            let slot = slot(fd);
            if self.open.len() <= slot {
                self.open.resize_with(slot + 1, || None);
            }
            self.open[slot] = Some(make(stream));
            self.accepted += 1;
        }
    }

    /// The connection of a descriptor, while it is open.
    pub fn get_mut(&mut self, fd: RawFd) -> Option<&mut C> {
        self.open.get_mut(slot(fd))?.as_mut()
    }

    /// Closes a connection.
    pub fn close(&mut self, fd: RawFd) {
        if let Some(connection) = self.open.get_mut(slot(fd)) {
            *connection = None;
        }
    }

    /// Connections that were ever taken.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }
}

fn slot(fd: RawFd) -> usize {
    usize::try_from(fd).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Connections;
    use crate::sys::Epoll;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn connections_are_found_by_their_descriptors_until_they_are_closed() {
        let mut epoll = Epoll::new().unwrap();
        let mut server: Connections<TcpStream> = Connections::bind(0).unwrap();
        server.listen(&epoll).unwrap();
        let mut clients: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, server.port().unwrap())).unwrap()).collect();
        let ready: Vec<_> = epoll.wait().unwrap().collect();
        assert!(ready.len() == 1 && server.is_listener(ready[0].fd));
        server.accept(&epoll, |stream| stream).unwrap();
        server.accept(&epoll, |stream| stream).unwrap();
        assert_eq!(server.accepted(), 3);
        let of_client = |server: &mut Connections<TcpStream>, client: &TcpStream| {
            let address = client.local_addr().unwrap();
            (0..1_000).find(|fd| server.get_mut(*fd).is_some_and(|c| c.peer_addr().unwrap() == address)).unwrap()
        };
        let fd = of_client(&mut server, &clients[1]);
        assert_eq!(server.get_mut(fd).unwrap().as_raw_fd(), fd);
        server.close(fd);
        server.close(-1);
        assert!(server.get_mut(fd).is_none() && server.get_mut(100_000).is_none());
        assert_eq!(clients[1].read(&mut [0]).unwrap(), 0, "closed for its client, too");
        of_client(&mut server, &clients[0]);
    }
}
