//! Listening TCP sockets of this host, from the kernel's table. They tell about ports that nodegate-haproxy
//! may not bind.

use procfs::net::{TcpNetEntries, TcpState};
use procfs::prelude::FromBufReadSI;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

/// The maximum size of a table. Listening sockets come first; the connections of a busy host fill megabytes
/// after them.
const MAX_BYTES: u64 = 1 << 20;

/// Returns all listening sockets of this network namespace. A table that can't be read counts as empty.
pub(crate) fn now() -> Vec<SocketAddr> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(|table| {
        let mut bytes = Vec::new();
        let read = File::open(table).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
        read.map(|_| listening(&bytes)).unwrap_or_default()
    });
    tables.concat()
}

/// Returns true if a listening socket keeps another one from being bound. A socket on all `IPv6` addresses
/// counts as one on all addresses of both families, because the table does not tell and most are.
pub(crate) fn is_in_the_way(listening: SocketAddr, wanted: SocketAddr) -> bool {
    let (there, here) = (listening.ip().to_canonical(), wanted.ip().to_canonical());
    let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    listening.port() == wanted.port() && (there == here || covers(there, here) || covers(here, there))
}

/// Parses the complete lines of `/proc/net/tcp` or `/proc/net/tcp6`. The last line may be cut off.
fn listening(table: &[u8]) -> Vec<SocketAddr> {
    let end = table.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let whole = table.get(..end).unwrap_or_default();
    let Ok(entries) = TcpNetEntries::from_buf_read(whole, procfs::current_system_info()) else {
        return Vec::new();
    };
    let listens = entries.0.into_iter().filter(|entry| entry.state == TcpState::Listen);
    listens.map(|entry| entry.local_address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        \x20  0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0\n\
        \x20  1: 0100007F:0050 0200007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0\n";

    #[cfg(target_endian = "little")]
    #[test]
    fn what_listens_is_read_also_from_a_table_that_was_cut() {
        let cut = format!("{TABLE}   2: 0100007F:0017 000");
        assert_eq!(listening(cut.as_bytes()), ["127.0.0.1:22".parse().unwrap()]);
    }

    #[test]
    fn the_kernels_table_has_what_listens_here() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = std::net::TcpListener::bind(address).unwrap();
            let address = listener.local_addr().unwrap();
            assert!(now().contains(&address), "{address}");
            drop(listener);
            assert!(!now().contains(&address), "{address}");
        }
    }

    #[test]
    fn an_address_is_in_the_way_of_itself_and_of_all_that_include_it() {
        let in_the_way = |there: &str, here: &str| {
            let socket = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 80);
            is_in_the_way(socket(there), socket(here))
        };
        for (there, here) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("0.0.0.0", "10.0.0.1"),
            ("::", "10.0.0.1"),
            ("::", "fd00::1"),
            ("10.0.0.1", "::"),
            ("fd00::1", "::"),
            ("10.0.0.1", "0.0.0.0"),
            ("::", "0.0.0.0"),
        ] {
            assert!(in_the_way(there, here), "{there} {here}");
        }
        for (there, here) in [("10.0.0.1", "10.0.0.2"), ("0.0.0.0", "fd00::1"), ("fd00::1", "0.0.0.0")] {
            assert!(!in_the_way(there, here), "{there} {here}");
        }
        assert!(!is_in_the_way("[::]:80".parse().unwrap(), "[::]:81".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn any_table_is_read(text in "([0-9A-Fé:]{0,40}[ \n]){0,50}") {
            prop_assert!(listening(text.as_bytes()).len() <= text.lines().count());
        }
    }
}
