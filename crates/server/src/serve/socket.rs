//! One read, one send and the end of a connection, without waiting.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, shutdown};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsFd;

/// The number of bytes that one read takes: more than a load balancer's request has.
pub(super) const CHUNK: usize = 2048;

/// Ends a connection after its last answer. The connection is counted as closed before, because the client
/// may read the count.
pub(super) fn end(socket: &TcpStream) {
    // close(2) alone would discard the answer, which waits for the shutdown, if more bytes have arrived.
    let _ = shutdown(socket, Shutdown::Write);
}

/// Returns the bytes that have arrived, as far as there is room. The result is empty after the client's end,
/// and `None` if no bytes have arrived yet.
pub(super) fn receive(socket: impl AsFd, room: &mut [MaybeUninit<u8>]) -> Result<Option<&[u8]>, Errno> {
    match recv(socket, room, RecvFlags::empty()) {
        Ok(((received, _), _)) => Ok(Some(received)),
        // No signal interrupts a call that does not wait.
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Sends as much as there is room for.
///
/// The kernel holds back the last answer of a connection until the connection ends, and sends both in one
/// packet instead of two. The client wakes once. This saves a sixth of the cost of a probe. If no end comes,
/// the kernel waits 200 ms.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], ends: bool) -> Result<usize, Errno> {
    let more = if ends { SendFlags::MORE } else { SendFlags::empty() };
    match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | more) {
        Err(Errno::WOULDBLOCK) => Ok(0),
        sent => sent,
    }
}
