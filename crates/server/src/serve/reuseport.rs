//! Chooses which listener of one port gets new connections.
//!
//! Listeners of one port and UID are a group, and the kernel spreads new connections over it by a hash. When
//! a listener closes, the kernel resets all connections that it has not accepted, even a handshake in flight,
//! so a predecessor that gets connections until its end must lose some. Hence a program of the group
//! (socket(7), `SO_ATTACH_REUSEPORT_CBPF`) gives all new connections to one listener. The program stays when
//! the socket that attached it closes. If it names a socket that does not exist, as it does while there is
//! only one, the hash decides.

use nix::libc::{sock_filter, sock_fprog};
use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};
use std::net::TcpListener;
use std::sync::Once;

/// `BPF_RET | BPF_K`: returns a constant, here a socket's place in the group.
const RETURN: u16 = 0x06;

/// A kernel may lack it; a sandbox or an emulator that stands for one does.
const WITHOUT: &str = "SO_ATTACH_REUSEPORT_CBPF is not to be had: while an agent replaces another, new connections go to either, \
                       and some may be reset";

/// There are several listeners, and each is steered several times.
static SAID: Once = Once::new();

/// A socket's place in its group: the kernel appends whoever begins to listen, and the last takes the place of one that
/// goes. Of two the older is at 0 and the newer at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReuseportSlot {
    First = 0,
    Second = 1,
}

/// Gives new connections of the listener's group to one socket of it.
pub(super) fn steer(listener: &TcpListener, to: ReuseportSlot) {
    let mut program = [sock_filter { code: RETURN, jt: 0, jf: 0, k: to as u32 }];
    let program = sock_fprog { len: 1, filter: program.as_mut_ptr() };
    if let Err(error) = setsockopt(listener, AttachReusePortCbpf, &program) {
        SAID.call_once(|| tracing::warn!(%error, "{WITHOUT}"));
    }
}
