//! Sends requests to the kernel over netlink. Reading needs no privilege.

use netlink_packet_core::{
    Emitable, ErrorBuffer, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader,
};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;

pub(crate) const RTM_GETLINK: u16 = 18;
/// The size of the buffer: the kernel's maximum for one datagram of a dump.
const BUFFER: usize = 32 * 1024;
/// The maximum number of datagrams of one dump. Each has some hundred routes, neighbours or connections.
const MAX_DATAGRAMS: usize = 4096;

/// A netlink socket for routing requests.
pub(crate) struct Netlink(pub(crate) OwnedFd);

impl Netlink {
    /// Opens a socket; without a protocol, one for links, routes and neighbours (rtnetlink).
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?))
    }

    /// Requests one object, or with `NLM_F_DUMP` all objects, and passes each to `see`. Some may be missing that
    /// change meanwhile.
    pub(crate) fn get(
        &self,
        kind: u16,
        flags: u16,
        request: &impl Emitable,
        mut see: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        let mut bytes = vec![0; header.buffer_len() + request.buffer_len()];
        header.length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        (header.message_type, header.flags) = (kind, NLM_F_REQUEST | flags);
        let (front, body) = bytes.split_at_mut(header.buffer_len());
        header.emit(front);
        request.emit(body);
        rustix::net::send(&self.0, &bytes, SendFlags::empty())?;
        let mut buffer = vec![0; BUFFER];
        for _ in 0..MAX_DATAGRAMS {
            // The answer is there: the kernel answers before `send` returns.
            let (read, _) = rustix::net::recv(&self.0, &mut *buffer, RecvFlags::empty())?;
            let complete = each(buffer.get(..read).unwrap_or(&[]), &mut see)?;
            if complete || flags & NLM_F_DUMP == 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("a dump without end"))
    }
}

/// Passes each object in a datagram to `see`. Returns true if the dump ends with it.
fn each(mut bytes: &[u8], see: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    let mut complete = false;
    while let Ok(message) = NetlinkBuffer::new_checked(bytes) {
        match message.message_type() {
            NLMSG_DONE => complete = true,
            NLMSG_ERROR => {
                let code = ErrorBuffer::new_checked(message.payload()).ok().and_then(|error| error.code());
                let code = code.map_or(0, |code| code.get().wrapping_neg());
                return Err(io::Error::from_raw_os_error(code));
            }
            _ => see(message.payload()),
        }
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_none_is_one_all_the_same() {
        for code in [0, 1, i32::MIN, -5000] {
            let mut datagram = 20_u32.to_ne_bytes().to_vec();
            datagram.extend(NLMSG_ERROR.to_ne_bytes());
            datagram.extend([0; 10]);
            datagram.extend(code.to_ne_bytes());
            let read = each(&datagram, &mut |_| panic!("an error is no answer"));
            assert!(read.is_err(), "{code}");
        }
    }
}
