//! Binds the port of a listener. A port that an outgoing connection has is free soon: the listener waits for
//! it. A port that another listener has is a start-up error.

use nix::libc::{sock_filter, sock_fprog};
use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Once;
use std::time::Duration;
use tokio::time::sleep;

/// The length of the accept queue; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The kernel's buffer for one connection in each direction, in bytes; the kernel doubles it for its
/// bookkeeping. A head has 8 KiB at most, and longer answers are sent in pieces. By default Linux grows a
/// buffer to 4 MiB. A client that asks a lot and reads nothing then uses half a MiB on each connection within
/// seconds, and the pod is charged for it.
const BUFFER: usize = 8 * 1024;

/// The delays between two attempts to bind a port that an outgoing connection has.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Tells who else may listen on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSharing {
    /// No other process may listen.
    Exclusive,
    /// The process that replaces this one, or that this one replaces: same user, same options.
    WithSuccessor,
}

/// A listening socket, or the port that it waits for.
#[derive(Debug)]
pub struct Listener {
    socket: Option<TcpListener>,
    address: SocketAddr,
    sharing: PortSharing,
}

/// An address that could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {}", why(.error))]
pub struct BindError {
    /// The address that was refused.
    pub address: SocketAddr,
    /// The error of the operating system.
    #[source]
    pub error: io::Error,
}

fn why(error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program has this port, perhaps another nodegate: ss -ltnp names it. Stop it, or set another port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this host has this address; ip address lists them"
        }
        io::ErrorKind::PermissionDenied => "it takes a port from 1024 on, or the capability NET_BIND_SERVICE",
        _ => return error.to_string(),
    };
    why.to_owned()
}

/// Listens on `address`, or on all addresses of both families if it is unspecified IPv6 (only IPv4 on a host
/// without IPv6). Port 0 takes any free port.
pub fn bind(address: SocketAddr, sharing: PortSharing) -> Result<Listener, BindError> {
    match listen_or_wait(address, sharing) {
        Err(refused) if address.ip() == Ipv6Addr::UNSPECIFIED && lacks_ipv6(&refused.error) => {
            listen_or_wait(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()), sharing)
        }
        other => other,
    }
}

fn listen_or_wait(address: SocketAddr, sharing: PortSharing) -> Result<Listener, BindError> {
    let error = match listen(address, sharing) {
        Ok(socket) => {
            let address = socket.local_addr().unwrap_or(address);
            return Ok(Listener { socket: Some(socket), address, sharing });
        }
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::AddrInUse || has_listener(address.port()) {
        return Err(BindError { address, error });
    }
    tracing::warn!(%address, "an outgoing connection has this port; waiting until it ends");
    Ok(Listener { socket: None, address, sharing })
}

/// Returns true if a socket listens on this port, by the tables of this network namespace, or if there are none. They are
/// read line by line: they hold every connection of the host.
fn has_listener(port: u16) -> bool {
    let Ok(ipv4) = File::open("/proc/self/net/tcp") else { return true };
    let tables = std::iter::once(ipv4).chain(File::open("/proc/self/net/tcp6"));
    let mut lines = tables.flat_map(|table| BufReader::new(table).lines().map_while(Result::ok));
    // The remote end of a socket that listens is empty, and its state is 0A.
    let local = format!(":{port:04X} ");
    lines.any(|line| line.split_once(&local).is_some_and(|(_, rest)| rest.contains(":0000 0A ")))
}

/// Returns true if the host lacks IPv6. With `ipv6.disable=1` there is no such address family; with the
/// sysctl `disable_ipv6` there is the family but no address.
fn lacks_ipv6(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL | Errno::PROTONOSUPPORT)
    )
}

fn listen(address: SocketAddr, sharing: PortSharing) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // The new pod of a surge upgrade binds while the old one still answers.
    socket.set_reuse_port(sharing == PortSharing::WithSuccessor)?;
    // Linux copies this option to accepted sockets: one system call here instead of one for each connection.
    socket.set_tcp_nodelay(true)?;
    // Linux copies these, too. The window offered to clients depends on them, so they are set before
    // `listen`.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = socket.into();
    if sharing == PortSharing::WithSuccessor {
        // The predecessor may be a version that does not steer. By the time it ends, no handshake with it is in
        // flight any more. And the new pod must answer the kubelet's probes of the new pod.
        steer(&listener, SocketIndex::Newer);
    }
    Ok(listener)
}

/// `BPF_RET | BPF_K`: returns a constant, here a socket's place in the group.
const RETURN: u16 = 0x06;

/// The log line for a kernel without it, or for a sandbox or an emulator in place of a kernel.
const UNSUPPORTED: &str =
    "the kernel does not support SO_ATTACH_REUSEPORT_CBPF; some connections may be reset during an upgrade";

/// Logs the line once: there are several listeners, and each is steered several times.
static WARNED: Once = Once::new();

/// A socket's index in its group. The kernel appends a new listener, and the last one takes the index of a
/// listener that closes. Of two, the older has index 0 and the newer has 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketIndex {
    Older = 0,
    Newer = 1,
}

/// Sends new connections of the listener's group to one socket in it, by a program of the kernel (socket(7),
/// `SO_ATTACH_REUSEPORT_CBPF`): a listener that closes resets the handshakes in flight.
pub(crate) fn steer(listener: impl AsFd, to: SocketIndex) {
    let mut program = [sock_filter { code: RETURN, jt: 0, jf: 0, k: to as u32 }];
    let program = sock_fprog { len: 1, filter: program.as_mut_ptr() };
    if let Err(error) = setsockopt(&listener, AttachReusePortCbpf, &program) {
        WARNED.call_once(|| tracing::warn!(%error, "{UNSUPPORTED}"));
    }
}

impl Listener {
    /// Returns the bound address, with the chosen port instead of port 0, or the address that is waited for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the socket, once the port is free, and true if the port is shared.
    pub(crate) async fn bound(self) -> io::Result<(TcpListener, bool)> {
        let Self { socket, address, sharing } = self;
        let is_shared = sharing == PortSharing::WithSuccessor;
        if let Some(socket) = socket {
            return Ok((socket, is_shared));
        }
        let mut delay = FIRST_DELAY;
        loop {
            sleep(delay).await;
            match listen(address, sharing) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                Err(_) => delay = (delay * 2).min(MAX_DELAY),
                Ok(socket) => {
                    tracing::info!(%address, "the port is free; listening");
                    return Ok((socket, is_shared));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, TcpStream};

    const V4: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

    fn at(address: Option<IpAddr>, port: u16) -> SocketAddr {
        SocketAddr::new(address.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), port)
    }

    fn shared(address: Option<IpAddr>, port: u16) -> Result<Listener, BindError> {
        bind(at(address, port), PortSharing::WithSuccessor)
    }

    #[test]
    fn both_families_reach_one_socket_and_a_second_binds_beside_it() {
        let listener = shared(None, 0).unwrap();
        let port = listener.local_addr().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        if listener.local_addr().is_ipv6() && shared(Some(Ipv6Addr::LOCALHOST.into()), 0).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        }
        shared(None, port).unwrap();
        bind(at(None, port), PortSharing::Exclusive).unwrap_err();
    }

    fn answers(listeners: &[&Listener], ip: IpAddr) -> Vec<usize> {
        let port = listeners[0].local_addr().port();
        let clients: Vec<_> = (0..32).map(|_| TcpStream::connect((ip, port)).unwrap()).collect();
        let count = |listener: &&Listener| {
            let socket = listener.socket.as_ref().unwrap();
            socket.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| socket.accept().ok()).count()
        };
        let counts = listeners.iter().map(count).collect();
        drop(clients);
        counts
    }

    #[test]
    fn of_two_listeners_the_newer_gets_every_connection_and_the_one_left_too() {
        for address in [V4, Some(Ipv6Addr::LOCALHOST.into()), None] {
            let Ok(mut old) = shared(address, 0) else { continue };
            let port = old.local_addr().port();
            let families = match address {
                Some(ip) => vec![ip],
                None => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            };
            for _ in 0..3 {
                let new = shared(address, port).unwrap();
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
        let old = shared(V4, 0).unwrap();
        let new = shared(V4, old.local_addr().port()).unwrap();
        steer(new.socket.as_ref().unwrap(), SocketIndex::Older);
        assert_eq!(answers(&[&old, &new], Ipv4Addr::LOCALHOST.into()), [32, 0]);
        drop(new);
        assert_eq!(answers(&[&old], Ipv4Addr::LOCALHOST.into()), [32]);
    }

    #[test]
    fn accepted_sockets_send_at_once_and_hold_little() {
        let listener = shared(V4, 0).unwrap();
        let client = TcpStream::connect(listener.local_addr()).unwrap();
        let (server, _) = listener.socket.unwrap().accept().unwrap();
        assert!(server.nodelay().unwrap());
        let server = socket2::SockRef::from(&server);
        for size in [server.recv_buffer_size().unwrap(), server.send_buffer_size().unwrap()] {
            assert!(size <= 2 * BUFFER, "{size}");
        }
        drop(client);
    }

    #[tokio::test]
    async fn a_port_of_an_outgoing_connection_is_waited_for_and_that_of_a_listener_is_not() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let outgoing = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let port = outgoing.local_addr().unwrap().port();
        for (address, sharing) in [(V4, PortSharing::WithSuccessor), (None, PortSharing::Exclusive)] {
            let listener = bind(at(address, port), sharing).unwrap();
            assert!(listener.socket.is_none() && listener.local_addr().port() == port);
        }
        let waits = tokio::spawn(shared(V4, port).unwrap().bound());
        assert!(!waits.is_finished());
        // The other side closes first, so that no TIME_WAIT keeps the port.
        drop(other.accept().unwrap());
        drop(outgoing);
        let (socket, _) =
            tokio::time::timeout(Duration::from_mins(1), waits).await.unwrap().unwrap().unwrap();
        assert_eq!(socket.local_addr().unwrap().port(), port);

        let taken = other.local_addr().unwrap().port();
        let _client = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        let refused = shared(V4, taken).unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::AddrInUse);
    }
}
