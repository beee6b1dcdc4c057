//! Binds listeners; a port that can't be bound is a start-up error.

use super::reuseport::{ReuseportSlot, steer};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

/// The length of the accept queue; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// The kernel's buffer for one connection in each direction, in bytes; the kernel doubles it for its
/// bookkeeping. A head has 8 KiB at most, and longer answers are sent in pieces. By default Linux grows a
/// buffer to 4 MiB. A client that asks a lot and reads nothing then uses half a MiB on each connection within
/// seconds, and the pod is charged for it.
const BUFFER: usize = 8 * 1024;

/// A bound, listening socket.
#[derive(Debug)]
pub struct Listener(TcpListener);

/// An address that could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {error}")]
pub struct BindError {
    /// The address that was refused.
    pub address: SocketAddr,
    /// The cause.
    #[source]
    pub error: io::Error,
}

/// Listens on `address`, or on all addresses of both families if it is `None` (only IPv4 on a host without
/// IPv6). Port 0 takes any free port.
pub fn bind(address: Option<IpAddr>, port: u16) -> Result<Listener, BindError> {
    let listen_on = |ip: IpAddr| {
        let address = SocketAddr::new(ip, port);
        listen(address).map(Listener).map_err(|error| BindError { address, error })
    };
    match address {
        Some(ip) => listen_on(ip),
        None => match listen_on(Ipv6Addr::UNSPECIFIED.into()) {
            Err(refused) if lacks_ipv6(&refused.error) => listen_on(Ipv4Addr::UNSPECIFIED.into()),
            other => other,
        },
    }
}

/// Returns true if the host lacks IPv6. With `ipv6.disable=1` there is no such address family; with the
/// sysctl `disable_ipv6` there is the family but no address.
fn lacks_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL | Errno::PROTONOSUPPORT))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // The new pod of a surge upgrade binds while the old one still answers.
    socket.set_reuse_port(true)?;
    // Linux copies this option to accepted sockets: one system call here instead of one for each connection.
    socket.set_tcp_nodelay(true)?;
    // Linux copies these, too. The window offered to clients depends on them, so they are set before
    // `listen`.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = socket.into();
    // The predecessor may be a version that does not steer. By the time it ends, no handshake with it is in
    // flight any more. And the new pod must answer the kubelet's probes of the new pod.
    steer(&listener, ReuseportSlot::Second);
    Ok(listener)
}

impl Listener {
    /// Returns the bound address, with the chosen port instead of port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    pub(super) fn into_inner(self) -> TcpListener {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn both_families_reach_one_socket_and_a_second_binds_beside_it() {
        let listener = bind(None, 0).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        if listener.local_addr().unwrap().is_ipv6() && bind(Some(Ipv6Addr::LOCALHOST.into()), 0).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        }
        bind(None, port).unwrap();
    }

    /// Returns the number of connections that each listener gets from clients at `ip`.
    fn answers(listeners: &[&Listener], ip: IpAddr) -> Vec<usize> {
        let port = listeners[0].local_addr().unwrap().port();
        let clients: Vec<_> = (0..32).map(|_| TcpStream::connect((ip, port)).unwrap()).collect();
        let count = |listener: &&Listener| {
            listener.0.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| listener.0.accept().ok()).count()
        };
        let counts = listeners.iter().map(count).collect();
        drop(clients);
        counts
    }

    #[test]
    fn of_two_listeners_the_newer_gets_every_connection_and_the_one_left_too() {
        for address in [Some(Ipv4Addr::LOCALHOST.into()), Some(Ipv6Addr::LOCALHOST.into()), None] {
            let Ok(mut old) = bind(address, 0) else { continue };
            let port = old.local_addr().unwrap().port();
            let families = match address {
                Some(ip) => vec![ip],
                None => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            };
            for _ in 0..3 {
                let new = bind(address, port).unwrap();
                for ip in families.clone() {
                    assert_eq!(answers(&[&old, &new], ip), [0, 32], "{ip} of {address:?}");
                }
                old = new;
                assert_eq!(answers(&[&old], families[0]), [32]);
            }
        }
    }

    /// An undone rollout ends the newer of two listeners.
    #[test]
    fn a_newer_listener_gives_the_connections_back() {
        let old = bind(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
        let new = bind(Some(Ipv4Addr::LOCALHOST.into()), old.local_addr().unwrap().port()).unwrap();
        steer(&new.0, ReuseportSlot::First);
        assert_eq!(answers(&[&old, &new], Ipv4Addr::LOCALHOST.into()), [32, 0]);
        drop(new);
        assert_eq!(answers(&[&old], Ipv4Addr::LOCALHOST.into()), [32]);
    }

    #[test]
    fn an_error_names_the_address() {
        // TEST-NET-1 is on no interface.
        let refused = bind(Some(Ipv4Addr::new(192, 0, 2, 1).into()), 80).unwrap_err();
        assert!(refused.to_string().starts_with("can't listen on 192.0.2.1:80: "), "{refused}");
    }

    #[test]
    fn accepted_sockets_send_at_once_and_hold_little() {
        let listener = bind(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let listener = listener.into_inner();
        let (server, _) = listener.accept().unwrap();
        assert!(server.nodelay().unwrap());
        let server = socket2::SockRef::from(&server);
        for size in [server.recv_buffer_size().unwrap(), server.send_buffer_size().unwrap()] {
            assert!(size <= 2 * BUFFER, "{size}");
        }
        drop(client);
    }
}
