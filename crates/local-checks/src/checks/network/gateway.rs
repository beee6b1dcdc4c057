//! Whether the next hop of a default route answers.
//!
//! Two kinds of evidence, and neither needs a privilege. A router that *speaks* says that a UDP port is closed (ICMP), or
//! echoes a ping where the node lets everybody send one (`net.ipv4.ping_group_range`, which systemd opens). Many routers
//! never speak, clouds' above all; but each of them has a link-layer address, or no packet would leave the node. The
//! datagram makes the kernel ask for that one, and its neighbour table tells whether an answer came.

use super::netlink::{Link, Neighbour, Netlink};
use super::routes::DefaultRoute;
use futures::future::{Either, select};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::pin::pin;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout_at};

/// Where traceroute begins, because nothing listens there: the router has to say so.
const CLOSED_PORT: u16 = 33434;
/// How often it is addressed.
const AGAIN: Duration = Duration::from_millis(500);
/// How long one that never spoke is given to begin with it, if there is the time. A router that runs Linux tells the same
/// node once a second that a port is closed (`net.ipv4.icmp_ratelimit`), and its silence until then means nothing.
const LISTEN: Duration = Duration::from_millis(1200);

/// How a next hop answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// By IP.
    Spoke,
    /// By its link-layer address alone, or it can't be asked at all.
    Known,
}

/// Why a next hop counts as gone; the text goes into the reason.
#[derive(Debug)]
pub(super) enum Silent {
    /// The interface is not there.
    NoInterface,
    /// The interface is down, or nothing is at the other end of the cable.
    NoLink,
    /// Nobody answers for its address.
    NoNeighbour(IpAddr),
    /// Somebody answers for its address, and it used to speak.
    NoIp,
    /// The kernel would not say.
    Io(io::Error),
}

/// Asks the next hop of a route. One of which it is known that it `speaks` has to.
pub(super) async fn ask(route: &DefaultRoute, speaks: bool, until: Instant) -> Result<Answer, Silent> {
    let netlink = Netlink::open()?;
    let index = netlink.index(&route.interface).map_err(|_| Silent::NoInterface)?;
    let link = netlink.link(index)?;
    if !link.running {
        return Err(Silent::NoLink);
    }
    let Some(next_hop) = route.next_hop else { return Ok(Answer::Known) };
    let voice = Voice::open(next_hop, &route.interface, index)?;
    let listened = until.min(Instant::now() + LISTEN);
    loop {
        if timeout_at(until.min(Instant::now() + AGAIN), voice.exchange()).await.is_ok() {
            return Ok(Answer::Spoke);
        }
        let known = is_known(&netlink, link, next_hop, index)?;
        let now = Instant::now();
        if known && !speaks && now >= listened {
            return Ok(Answer::Known);
        }
        if now >= until {
            return Err(if known { Silent::NoIp } else { Silent::NoNeighbour(next_hop) });
        }
    }
}

fn is_known(netlink: &Netlink, link: Link, next_hop: IpAddr, index: u32) -> io::Result<bool> {
    Ok(!link.resolves || netlink.neighbour(next_hop, index)? != Neighbour::Unknown)
}

/// The sockets by which one next hop is addressed.
struct Voice {
    closed_port: UdpSocket,
    /// Only where the node lets everybody ping.
    echo: Option<UdpSocket>,
    echo_request: [u8; 8],
}

impl Voice {
    fn open(next_hop: IpAddr, interface: &str, index: u32) -> io::Result<Self> {
        let (domain, icmp, request_type) = match next_hop {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128),
        };
        let open = |protocol| {
            let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
            // With two default routes the kernel would choose; before 5.7 it keeps this to the privileged.
            let _ = socket.bind_device(Some(interface.as_bytes()));
            socket.set_nonblocking(true)?;
            socket.connect(&address(next_hop, CLOSED_PORT, index).into())?;
            UdpSocket::from_std(socket.into())
        };
        Ok(Self {
            closed_port: open(Protocol::UDP)?,
            echo: open(icmp).ok(),
            // Type, code, and checksum, identifier and sequence, of which the kernel fills in the first two.
            echo_request: [request_type, 0, 0, 0, 0, 0, 0, 1],
        })
    }

    /// Addresses the next hop and returns when it has spoken.
    async fn exchange(&self) {
        let closed_port = pin!(heard(&self.closed_port, &[0]));
        match &self.echo {
            Some(echo) => {
                let echo = pin!(heard(echo, &self.echo_request));
                let (Either::Left(_) | Either::Right(_)) = select(closed_port, echo).await;
            }
            None => closed_port.await,
        }
    }
}

/// Sends and waits for whatever can only come from the other side. That there is no way to it is said by our own kernel.
async fn heard(socket: &UdpSocket, bytes: &[u8]) {
    let is_answer = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if let Err(error) = socket.send(bytes).await
        && is_answer(&error)
    {
        return;
    }
    match socket.recv(&mut [0; 64]).await {
        Ok(_) => {}
        Err(error) if is_answer(&error) => {}
        Err(_) => pending().await,
    }
}

/// A link-local address is one only together with its interface.
fn address(ip: IpAddr, port: u16, index: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, port, 0, index).into(),
        ip => SocketAddr::new(ip, port),
    }
}

// === impl Silent ===

impl From<io::Error> for Silent {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface => f.write_str("no such interface"),
            Self::NoLink => f.write_str("link is down"),
            Self::NoNeighbour(IpAddr::V4(_)) => f.write_str("no answer to ARP"),
            Self::NoNeighbour(IpAddr::V6(_)) => f.write_str("no answer to NDP"),
            Self::NoIp => f.write_str("stopped answering"),
            Self::Io(error) => error.fmt(f),
        }
    }
}
