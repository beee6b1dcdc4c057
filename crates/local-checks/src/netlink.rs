//! Reads links and neighbours from the kernel over rtnetlink, and connections over `sock_diag`. Reading needs
//! no privilege.
//!
//! The checks need three requests of fixed form and at most one field of each answer, so this module reads
//! and writes the bytes itself (rtnetlink(7), `sock_diag(7)`, `linux/neighbour.h`, `linux/if_link.h`,
//! `linux/inet_diag.h`).

use rustix::fd::OwnedFd;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::IpAddr;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_GETLINK: u16 = 18;
const RTM_GETNEIGH: u16 = 30;
const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_DUMP: u16 = 0x300;
const NDA_DST: u16 = 1;
const NDA_IFINDEX: u16 = 8;
const IFF_UP: u32 = 0x01;
const IFF_RUNNING: u32 = 0x40;
const IFF_NOARP: u32 = 0x80;
const NUD_REACHABLE: u16 = 0x02;
const NUD_STALE: u16 = 0x04;
const NUD_DELAY: u16 = 0x08;
const NUD_PROBE: u16 = 0x10;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u32 = 1;
const HEADER: usize = 16;
/// The size of the buffer: the kernel's maximum for one message of a dump.
const BUFFER: usize = 32 * 1024;
/// The maximum number of messages of one dump: neighbour tables end at some thousand entries, and each
/// message has some hundred connections.
const MAX_MESSAGES: usize = 1024;

/// A netlink socket.
pub(crate) struct Netlink(OwnedFd);

/// A network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// True if it is up and has a carrier.
    pub(crate) running: bool,
    /// True if neighbours on it need address resolution, unlike on tunnels and point-to-point links.
    pub(crate) resolves: bool,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        // No protocol means `NETLINK_ROUTE`.
        Self::open_to(None)
    }

    /// Opens a socket for `sock_diag`.
    pub(crate) fn open_diag() -> io::Result<Self> {
        Self::open_to(Some(rustix::net::netlink::SOCK_DIAG))
    }

    fn open_to(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?))
    }

    /// Returns the number of established TCP connections with this local port. The kernel filters them.
    pub(crate) fn established(&self, port: u16) -> io::Result<u64> {
        let mut count = 0;
        // The connections of a dual-stack socket belong to an IPv6 socket whatever they run over, so none
        // counts twice.
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let family = u8::try_from(family.as_raw()).map_err(io::Error::other)?;
            let mut body = vec![family, IPPROTO_TCP, 0, 0];
            body.extend((1_u32 << TCP_ESTABLISHED).to_ne_bytes());
            // All other parts of the socket's identity are left open.
            body.extend(port.to_be_bytes());
            body.extend([0; 46]);
            self.ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &body, |_| count += 1)?;
        }
        Ok(count)
    }

    /// Returns the number of an interface.
    pub(crate) fn index(&self, interface: &str) -> io::Result<u32> {
        Ok(name_to_index(&self.0, interface)?)
    }

    /// Returns the link of the interface with this number.
    pub(crate) fn link(&self, index: u32) -> io::Result<Link> {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend([0; 8]);
        let mut found = None;
        self.ask(RTM_GETLINK, 0, &body, |body| found = found.or(u32_at(body, 8)))?;
        let flags = found.ok_or(io::ErrorKind::NotFound)?;
        let up = IFF_UP | IFF_RUNNING;
        Ok(Link { running: flags & up == up, resolves: flags & IFF_NOARP == 0 })
    }

    /// Returns true if the kernel has a link-layer address for this neighbour on the interface with this
    /// number.
    pub(crate) fn knows_neighbour(&self, address: IpAddr, index: u32) -> io::Result<bool> {
        let (family, address) = match address {
            IpAddr::V4(ip) => (AddressFamily::INET, ip.octets().to_vec()),
            IpAddr::V6(ip) => (AddressFamily::INET6, ip.octets().to_vec()),
        };
        let mut body = vec![0; 12];
        if let (Some(first), Ok(family)) = (body.first_mut(), u8::try_from(family.as_raw())) {
            *first = family;
        }
        // This excludes the thousands on the interfaces of Pods. Kernels without this filter return all,
        // which are filtered here.
        body.extend(8u16.to_ne_bytes());
        body.extend(NDA_IFINDEX.to_ne_bytes());
        body.extend(index.to_ne_bytes());
        let mut known = false;
        self.ask(RTM_GETNEIGH, NLM_F_DUMP, &body, |body| {
            if u32_at(body, 4) == Some(index)
                && attribute(body.get(12..).unwrap_or(&[]), NDA_DST) == Some(&address)
            {
                known = u16_at(body, 8).map_or(known, is_known);
            }
        })?;
        Ok(known)
    }

    /// Sends one request and passes the body of each answer to `see`.
    fn ask(&self, kind: u16, flags: u16, body: &[u8], mut see: impl FnMut(&[u8])) -> io::Result<()> {
        let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
        let mut request = length.to_ne_bytes().to_vec();
        request.extend(kind.to_ne_bytes());
        request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend([0; 8]);
        request.extend_from_slice(body);
        rustix::net::send(&self.0, &request, SendFlags::empty())?;
        let mut buffer = vec![0; BUFFER];
        for _ in 0..MAX_MESSAGES {
            // The kernel has answered before `send` returns, or prepares the next part when one is read.
            let (read, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let complete = each(buffer.get(..read).unwrap_or(&[]), &mut see)?;
            if complete || flags & NLM_F_DUMP == 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("a dump without end"))
    }
}

/// Passes each answer in a datagram to `see`; returns true if the dump ends with it.
pub(crate) fn each(mut bytes: &[u8], see: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(body) = bytes.get(HEADER..length) else { break };
        match kind {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = u32_at(body, 0).unwrap_or(0).cast_signed();
                // rustix's `Errno` is not used, because it assumes that the error exists.
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            _ => see(body),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(false)
}

/// Returns true if the kernel considers the address valid. A neighbour that answered once counts for as long
/// as the kernel keeps it: the kernel checks again when it needs the address.
fn is_known(state: u16) -> bool {
    state & (NUD_REACHABLE | NUD_NOARP | NUD_PERMANENT | NUD_STALE | NUD_DELAY | NUD_PROBE) != 0
}

/// Returns the value of the first attribute of this kind.
pub(crate) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let (Some(length), Some(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) {
        let length = usize::from(length);
        let value = bytes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    None
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::io::Errno;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn an_error_that_is_none_is_one_all_the_same() {
        for code in [0, 1, i32::MIN, -5000] {
            let mut datagram = 20_u32.to_ne_bytes().to_vec();
            datagram.extend(NLMSG_ERROR.to_ne_bytes());
            datagram.extend([0; 10]);
            datagram.extend(code.to_ne_bytes());
            assert!(each(&datagram, &mut |_| panic!("an error is no answer")).is_err(), "{code}");
        }
    }

    #[test]
    fn the_kernel_answers() {
        let netlink = Netlink::open().unwrap();
        let loopback = netlink.index("lo").unwrap();
        assert!(netlink.link(loopback).unwrap().running);
        assert_eq!(netlink.link(u32::MAX / 2).unwrap_err().raw_os_error(), Some(Errno::NODEV.raw_os_error()));
        assert!(netlink.index("no-such-link").is_err());
        for nobody in ["192.0.2.1", "2001:db8::1"] {
            assert!(!netlink.knows_neighbour(nobody.parse().unwrap(), loopback).unwrap(), "{nobody}");
        }
    }

    #[test]
    fn connections_are_counted_by_the_port_at_this_end() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let count = || Netlink::open_diag().unwrap().established(port).unwrap();
            assert_eq!(count(), 0, "one that listens is no connection");
            let connect = || {
                let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
                (client, listener.accept().unwrap().0)
            };
            let mut open: Vec<_> = (0..600).map(|_| connect()).collect();
            assert_eq!(count(), 600, "{address}");
            open.truncate(2);
            assert_eq!(count(), 2);
            let (client, _server) = open.pop().unwrap();
            drop(client);
            assert_eq!(count(), 1, "one whose client has gone");
        }
    }

    #[test]
    fn states_are_what_they_say() {
        let (incomplete, failed) = (0x01, 0x20);
        for (state, known) in [
            (NUD_REACHABLE, true),
            (NUD_PERMANENT, true),
            (NUD_STALE, true),
            (NUD_PROBE, true),
            (incomplete, false),
            (failed, false),
            (0, false),
        ] {
            assert_eq!(is_known(state), known, "{state:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read(bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(4), Just(16), any::<u8>()], 0..400)) {
            let _ = each(&bytes, &mut |body| { attribute(body, NDA_DST); });
            let _ = (attribute(&bytes, 0), attribute(&bytes, NDA_DST));
        }
    }
}
