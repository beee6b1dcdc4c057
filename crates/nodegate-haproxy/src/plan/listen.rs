//! HAProxy's sockets for a port.

use std::net::{IpAddr, SocketAddr};

/// The port and the addresses of one Service port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Returns true if a socket on one address prevents one on the other. All of `IPv6` includes all of `IPv4`.
pub(crate) fn overlap(one: IpAddr, two: IpAddr) -> bool {
    let (one, two) = (one.to_canonical(), two.to_canonical());
    let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one == two || covers(one, two) || covers(two, one)
}

impl Listen {
    /// Returns true if one of these addresses prevents a socket on one of its own.
    pub(crate) fn meets(&self, others: &[IpAddr]) -> bool {
        self.addresses.iter().any(|one| others.iter().any(|two| overlap(*one, *two)))
    }

    /// Returns the sockets as HAProxy's `bind` takes them.
    pub(crate) fn binds(&self) -> impl Iterator<Item = String> {
        let (port, is_one) = (self.port, self.addresses.len() == 1);
        self.addresses.iter().map(move |ip| match ip {
            IpAddr::V6(ip) if ip.is_unspecified() && is_one => format!(":::{port} v4v6"),
            ip => SocketAddr::new(*ip, port).to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_addresses_meet_if_one_covers_the_other() {
        for (one, two, meets) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0", "10.0.0.2", true),
            ("::", "10.0.0.2", true),
            ("0.0.0.0", "fd00::1", false),
            ("::ffff:10.0.0.2", "10.0.0.2", true),
        ] {
            let [one, two]: [IpAddr; 2] = [one, two].map(|text| text.parse().unwrap());
            assert_eq!((overlap(one, two), overlap(two, one)), (meets, meets), "{one} {two}");
        }
    }
}
