//! Accepts connections from the kernel.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, getsockname};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use tokio::io::Interest;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// A listening socket on the runtime.
///
/// tokio's own listener registers each socket that it accepts with the reactor. This costs two system calls,
/// and most connections never wait. So the listening socket is registered as if it were a stream: to the
/// reactor both are descriptors that become readable.
pub(crate) struct Acceptor(pub(crate) tokio::net::TcpStream);

impl Acceptor {
    pub(crate) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let descriptor = TcpStream::from(OwnedFd::from(listener));
        Ok(Self(tokio::net::TcpStream::from_std(descriptor)?))
    }

    /// Waits until the accept queue may hold a connection.
    pub(crate) async fn readable(&self) {
        // The next accept has the error.
        let _ = self.0.readable().await;
    }

    /// Accepts the next connection if one is in the queue.
    pub(crate) fn accept_queued(&self) -> Option<io::Result<(TcpStream, IpAddr)>> {
        match self.0.try_io(Interest::READABLE, || Ok(acceptfrom_with(&self.0, FLAGS)?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(error)),
            // A client that has already reset its connection may have no address.
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let peer = peer.ok_or_else(|| Errno::CONNABORTED.into());
                Some(peer.map(|peer| (socket.into(), peer.ip())))
            }
        }
    }

    /// Returns true if the accept queue holds a connection.
    pub(crate) fn has_queued_connection(&self) -> bool {
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&Timespec::default()))
            .is_ok_and(|ready| ready > 0)
    }

    /// Makes the next [`readable`](Self::readable) wait for a new connection.
    pub(crate) fn wait_for_next(&self) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // The error is the point.
        let _ = self.0.try_io(Interest::READABLE, nothing);
    }
}

/// Returns true if the client is on this node: its address is a loopback address or the address that it
/// connected to. The latter is true for the kubelet's probes of a pod on the host network. No other host
/// completes a handshake from such an address, because packets to a node's own address never leave the node.
pub(crate) fn is_on_this_node(peer: IpAddr, socket: &TcpStream) -> bool {
    let local = || SocketAddr::try_from(getsockname(socket).ok()?).ok().map(|local| local.ip());
    peer.to_canonical().is_loopback() || local() == Some(peer)
}
