//! Chooses which listener of one port gets new connections, for `listener`.

// A listener that closes resets the handshakes in flight, so a program of the kernel (socket(7),
// `SO_ATTACH_REUSEPORT_CBPF`) sends them to another one before.

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
