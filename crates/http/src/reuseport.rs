//! Chooses which listener of one port gets new connections.
//!
//! Listeners of one port and UID are a group, and the kernel spreads new connections over it by a hash. When
//! a listener closes, the kernel resets all connections that it has not accepted, even a handshake in flight.
//! So a predecessor that gets connections until its end must lose some. Hence a program of the group
//! (socket(7), `SO_ATTACH_REUSEPORT_CBPF`) sends all new connections to one listener. The program stays when
//! the socket that attached it closes. If it names a socket that does not exist, as with a single listener,
//! the hash decides.

use nix::libc::{sock_filter, sock_fprog};
use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};
use std::os::fd::AsFd;
use std::sync::Once;

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
pub(crate) enum ReuseportSlot {
    First = 0,
    Second = 1,
}

/// Sends new connections of the listener's group to one socket in it.
pub(crate) fn steer(listener: impl AsFd, to: ReuseportSlot) {
    let mut program = [sock_filter { code: RETURN, jt: 0, jf: 0, k: to as u32 }];
    let program = sock_fprog { len: 1, filter: program.as_mut_ptr() };
    if let Err(error) = setsockopt(&listener, AttachReusePortCbpf, &program) {
        WARNED.call_once(|| tracing::warn!(%error, "{UNSUPPORTED}"));
    }
}
