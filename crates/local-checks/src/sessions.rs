//! Counts, in the background, the clients' connections to ports of this host.

use crate::netlink::Netlink;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SOCK_DIAG_BY_FAMILY};
use nodegate_program::start_thread;
use rustix::net::netlink::SOCK_DIAG;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The interval of the counts. A client that waits for the last connection polls about as often.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Counts the established connections to some ports, on a thread of its own.
#[derive(Debug)]
pub struct Sessions {
    ports: Vec<u16>,
    last: Mutex<Option<Counted>>,
}

/// The last count of sessions, and its time.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The time of the count.
    pub at: Instant,
    /// The number of connections, or the reason why it is not known.
    pub established: Result<u64, String>,
}

impl Sessions {
    /// Starts to count. It ends when the returned value is dropped.
    pub fn start(ports: Vec<u16>) -> io::Result<Arc<Self>> {
        let sessions = Arc::new(Self { ports, last: Mutex::new(None) });
        let counted = Arc::downgrade(&sessions);
        let count = move || {
            while let Some(sessions) = counted.upgrade() {
                sessions.count();
                drop(sessions);
                thread::sleep(COUNT_EVERY);
            }
        };
        start_thread("sessions", Box::new(count))?;
        Ok(sessions)
    }

    /// Returns the ports whose sessions are counted.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns the last count; `None` before the first one.
    pub fn last(&self) -> Option<Counted> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self) {
        let count = || {
            let netlink = Netlink::open(Some(SOCK_DIAG))?;
            self.ports.iter().map(|port| established(&netlink, *port)).sum::<io::Result<u64>>()
        };
        let established = count().map_err(|error| error.to_string());
        let counted = Counted { at: nodegate_clock::now(), established };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
    }
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
            assert_eq!(count(), 2);
            let (client, _server) = open.pop().unwrap();
            drop(client);
            assert_eq!(count(), 1, "one whose client has gone");
        }
    }
}
