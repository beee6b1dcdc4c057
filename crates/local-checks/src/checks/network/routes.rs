//! The default routes, as the kernel lists them in `/proc/net/route` and `/proc/net/ipv6_route`.
//!
//! In the host's network namespace these are the node's own routes: `/proc/net` needs no mount and no
//! privilege. The IPv4 file shows the main table; the IPv6 file shows all tables. The module reads both line
//! by line, up to [`MAX_LINES`]: a router with a full table has a million routes, and IPv4's default comes
//! first.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum number of lines of a table. A node with a route for every node and pod block of a huge cluster
/// has some ten thousand.
const MAX_LINES: usize = 200_000;
/// The maximum length of a line; those of IPv6 have 150 bytes.
const MAX_LINE: u64 = 1024;

/// Flags from `linux/route.h` and `linux/ipv6_route.h`.
const RTF_UP: u32 = 0x0001;
const RTF_REJECT: u32 = 0x0200;
const RTF_CACHE: u32 = 0x0100_0000;

/// A default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DefaultRoute {
    /// The router; `None` if all addresses are on the link itself, as on a point-to-point link.
    pub(super) next_hop: Option<IpAddr>,
    pub(super) interface: String,
    pub(super) metric: u32,
}

impl fmt::Display for DefaultRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.next_hop {
            Some(next_hop) => write!(f, "{next_hop} on {}", self.interface),
            None => f.write_str(&self.interface),
        }
    }
}

/// Returns the default routes of IPv4 with the lowest metric, which are those in use.
pub(super) fn ipv4(table: impl Read) -> io::Result<Vec<DefaultRoute>> {
    best(table, ipv4_line)
}

/// Returns the default routes of IPv6 with the lowest metric.
pub(super) fn ipv6(table: impl Read) -> io::Result<Vec<DefaultRoute>> {
    best(table, ipv6_line)
}

fn best(table: impl Read, parse: fn(&str) -> Option<DefaultRoute>) -> io::Result<Vec<DefaultRoute>> {
    let mut best: Vec<DefaultRoute> = Vec::new();
    let mut reader = io::BufReader::new(table);
    let mut line = Vec::new();
    for _ in 0..MAX_LINES {
        line.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Some(route) = std::str::from_utf8(&line).ok().and_then(parse) else { continue };
        let lowest = best.first().map_or(u32::MAX, |other| other.metric);
        if route.metric < lowest {
            best.clear();
        }
        if route.metric <= lowest && !best.contains(&route) {
            best.push(route);
        }
    }
    Ok(best)
}

/// Parses `Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT`, with addresses in the
/// machine's byte order.
fn ipv4_line(line: &str) -> Option<DefaultRoute> {
    let mut fields = line.split_ascii_whitespace();
    let interface = fields.next()?;
    let destination = u32::from_str_radix(fields.next()?, 16).ok()?;
    let gateway = u32::from_str_radix(fields.next()?, 16).ok()?;
    let flags = u32::from_str_radix(fields.next()?, 16).ok()?;
    let metric = fields.nth(2)?.parse().ok()?;
    let mask = u32::from_str_radix(fields.next()?, 16).ok()?;
    let gateway = Ipv4Addr::from(gateway.to_ne_bytes());
    let next_hop = (!gateway.is_unspecified()).then_some(IpAddr::V4(gateway));
    (destination == 0 && mask == 0).then_some(())?;
    route(next_hop, interface, metric, flags)
}

/// Parses `destination length source length gateway metric references use flags interface`, all hexadecimal.
fn ipv6_line(line: &str) -> Option<DefaultRoute> {
    let mut fields = line.split_ascii_whitespace();
    let destination = u128::from_str_radix(fields.next()?, 16).ok()?;
    let length = fields.next()?;
    let (source, source_length) = (fields.next()?, fields.next()?);
    let gateway = Ipv6Addr::from(u128::from_str_radix(fields.next()?, 16).ok()?);
    let metric = u32::from_str_radix(fields.next()?, 16).ok()?;
    let flags = u32::from_str_radix(fields.nth(2)?, 16).ok()?;
    let interface = fields.next()?;
    let from_anywhere = source_length == "00" && source.bytes().all(|digit| digit == b'0');
    let next_hop = (!gateway.is_unspecified()).then_some(IpAddr::V6(gateway));
    (destination == 0 && length == "00" && from_anywhere).then_some(())?;
    route(next_hop, interface, metric, flags)
}

/// Returns the route unless it is unusable: every kernel has an `unreachable default` of IPv6 on `lo`.
fn route(next_hop: Option<IpAddr>, interface: &str, metric: u32, flags: u32) -> Option<DefaultRoute> {
    let leads = flags & RTF_UP != 0 && flags & (RTF_REJECT | RTF_CACHE) == 0 && interface != "lo";
    leads.then(|| DefaultRoute { next_hop, interface: interface.to_owned(), metric })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0
wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
";

    const V6: &str = "\
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000002 00000400 00000001 00000000 00450003     eth0
20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    fn hop(address: &str, interface: &str, metric: u32) -> DefaultRoute {
        let next_hop = Some(address.parse().unwrap());
        DefaultRoute { next_hop, interface: interface.to_owned(), metric }
    }

    #[test]
    fn the_routes_in_use_are_found() {
        assert_eq!(ipv4(V4.as_bytes()).unwrap(), [hop("10.0.0.1", "eth0", 100)]);
        let both = [hop("fe80::1", "eth0", 0x400), hop("fe80::2", "eth0", 0x400)];
        assert_eq!(ipv6(V6.as_bytes()).unwrap(), both);
    }

    #[test]
    fn the_order_of_the_lines_does_not_matter() {
        let mut lines: Vec<&str> = V4.lines().collect();
        lines.reverse();
        assert_eq!(ipv4(lines.join("\n").as_bytes()).unwrap(), [hop("10.0.0.1", "eth0", 100)]);
    }

    #[test]
    fn an_interface_alone_is_a_way_too() {
        let line = "ppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n";
        let expected = DefaultRoute { next_hop: None, interface: "ppp0".to_owned(), metric: 0 };
        assert_eq!(ipv4(line.as_bytes()).unwrap(), [expected]);
    }

    #[test]
    fn what_leads_nowhere_is_left_out() {
        let unreachable = "*\t00000000\t00000000\t0200\t0\t0\t0\t00000000\t0\t0\t0\n";
        let down = "eth0\t00000000\t0100000A\t0002\t0\t0\t0\t00000000\t0\t0\t0\n";
        let half = "tun0\t00000000\t0100000A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n";
        for line in [unreachable, down, half, "", "\n", "eth0\n"] {
            assert_eq!(ipv4(line.as_bytes()).unwrap(), [], "{line:?}");
        }
        assert_eq!(ipv6(V6.lines().last().unwrap().as_bytes()).unwrap(), []);
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let endless = io::repeat(b'a').take(100 * 1024 * 1024);
        assert_eq!(ipv4(endless).unwrap(), []);
    }

    proptest! {
        #[test]
        fn any_table_is_read(bytes in prop::collection::vec(any::<u8>(), 0..2000), text in "([0-9a-fA-F]{0,34}[ \t\n]){0,60}") {
            let _ = (ipv4(&bytes[..]), ipv6(&bytes[..]), ipv4(text.as_bytes()), ipv6(text.as_bytes()));
        }
    }
}
