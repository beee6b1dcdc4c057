//! Connections that a test can silence.

use crate::observed::Observed;
use socket2::{SockFilter, Socket};
use std::io;
use tokio::net::TcpStream;

/// `BPF_RET | BPF_K` with 0: the kernel drops every packet before TCP sees it. It acknowledges nothing and
/// keep-alives go unanswered, as behind a firewall that forgot the flow.
const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];

#[derive(Debug)]
pub(crate) struct Switch {
    is_off: Observed<bool>,
    socket: Socket,
}

impl Switch {
    /// Returns a switch over a second handle of the connection's socket.
    pub(crate) fn new(stream: &TcpStream) -> io::Result<Self> {
        Ok(Switch { is_off: Observed::default(), socket: socket2::SockRef::from(stream).try_clone()? })
    }

    /// Stops reading and writing. With `vanish` the kernel drops packets; else it acknowledges them.
    pub(crate) fn turn_off(&self, vanish: bool) {
        self.is_off.modify(|is_off| *is_off = true);
        if vanish && let Err(error) = self.socket.attach_filter(&DROP_ALL) {
            tracing::warn!(%error, "packets are not dropped, only unread");
        }
    }

    pub(crate) fn turn_on(&self) {
        let _ = self.socket.detach_filter();
        self.is_off.modify(|is_off| *is_off = false);
    }

    /// Makes the close that follows a reset rather than an orderly end.
    pub(crate) fn reset_on_close(&self) {
        let _ = self.socket.detach_filter();
        let _ = self.socket.set_linger(Some(std::time::Duration::ZERO));
    }

    /// Runs the connection, which neither reads nor writes while it is turned off.
    pub(crate) async fn run(&self, connection: impl Future<Output = ()>) {
        self.is_off.run_while(|is_off| !is_off, connection).await;
    }
}

/// Drops every packet to a listening socket, so that connecting times out, or lets them through again.
pub(crate) fn filter_listener(listener: &tokio::net::TcpListener, on: bool) -> io::Result<()> {
    let socket = socket2::SockRef::from(listener);
    if on { socket.attach_filter(&DROP_ALL) } else { socket.detach_filter() }
}
