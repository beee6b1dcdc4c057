//! Who listens on this host's TCP ports, by the kernel's own table: for ports that we may not try ourselves.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Listening sockets come first in the table, and connections of a busy host fill megabytes behind them.
const MAX_BYTES: u64 = 1 << 20;
/// `TCP_LISTEN` of the kernel's `include/net/tcp_states.h`.
const LISTEN: &str = "0A";

/// All listening sockets of our network namespace; none if the table can't be read.
pub(crate) fn now() -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let mut text = Vec::new();
        if File::open(table).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text)).is_ok() {
            all.extend(parse(&String::from_utf8_lossy(&text)));
        }
    }
    all
}

/// Whether a socket that listens keeps another from being bound. One for all IPv6 addresses counts as one for all of
/// both families: the table does not tell, and most are.
pub(crate) fn is_in_the_way(listening: SocketAddr, wanted: SocketAddr) -> bool {
    let (there, here) = (listening.ip().to_canonical(), wanted.ip().to_canonical());
    let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    listening.port() == wanted.port() && (there == here || covers(there, here) || covers(here, there))
}

/// Reads `/proc/net/tcp` or `/proc/net/tcp6`; lines that are not understood are left out.
fn parse(table: &str) -> Vec<SocketAddr> {
    let listening = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        (state == LISTEN).then(|| address(local)).flatten()
    };
    table.lines().filter_map(listening).collect()
}

/// Each word of an address is a number as this machine has it in memory; the port is one as people write it.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn listening_sockets_of_both_tables_are_read() {
        let four = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0\n\
            \x20  1: 0100007F:0050 0200007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0\n";
        assert_eq!(parse(four), ["127.0.0.1:22".parse().unwrap()]);
        let six = "   0: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A 0\n\
            \x20  1: B80D0120000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0\n";
        assert_eq!(parse(six), ["[::]:443".parse().unwrap(), "[2001:db8::1]:80".parse().unwrap()]);
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
            prop_assert!(parse(&text).len() <= text.lines().count());
        }

        #[test]
        fn any_address_is_read_or_not(text in any::<String>()) {
            address(&text);
            address(&format!("{text}:0050"));
        }
    }
}
