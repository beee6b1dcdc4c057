//! Counts, in the background, the clients' connections to ports of this host.

use crate::netlink::Netlink;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SOCK_DIAG_BY_FAMILY};
use nodegate_program::start_thread;
use rustix::net::netlink::SOCK_DIAG;
use std::time::Duration;
use std::{io, thread};

/// The interval of the counts. A client that waits for the last connection polls about as often.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Counts the established connections to some ports from now on, on a thread of its own. Calls `report` with each
/// number, or with the reason why it is not known.
pub fn count_sessions(
    ports: Vec<u16>,
    report: impl Fn(Result<u64, String>) + Send + 'static,
) -> io::Result<()> {
    let count = move || {
        let netlink = Netlink::open(Some(SOCK_DIAG))?;
        ports.iter().map(|port| established(&netlink, *port)).sum::<io::Result<u64>>()
    };
    let body = move || loop {
        report(count().map_err(|error| error.to_string()));
        thread::sleep(COUNT_EVERY);
    };
    start_thread("sessions", Box::new(body))
}

fn established(netlink: &Netlink, port: u16) -> io::Result<u64> {
    let mut count = 0;
    // A dual-stack socket's connections belong to IPv6 whatever they run over, so none counts twice.
    for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::empty(),
            states: StateFlags::ESTABLISHED,
            socket_id: SocketId { source_port: port, ..any },
        };
        netlink.get(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &request, |_| count += 1)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_are_counted_by_the_port_at_this_end() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let count = || established(&Netlink::open(Some(SOCK_DIAG)).unwrap(), port).unwrap();
            assert_eq!(count(), 0, "one that listens is no connection");
            let connect = || {
                let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
                (client, listener.accept().unwrap().0)
            };
            let mut open: Vec<_> = (0..600).map(|_| connect()).collect();
            assert_eq!(count(), 600, "{address}");
            open.truncate(2);
            drop(open.remove(0).0);
            assert_eq!(count(), 1, "one whose client has gone does not count");
        }
    }
}
