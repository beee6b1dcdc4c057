//! The nameservers of the host, from its `/etc/resolv.conf`.

use crate::host_root::HostRoot;
use nodegate_readiness::AddressFamilies;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

const PATH: &str = "/etc/resolv.conf";
/// The maximum length of the file, far above that of any C library.
const MAX_FILE: u64 = 64 * 1024;
/// The number of nameservers in use: every C library, Go, and the kubelet ignore all after the third.
const MAX_NAMESERVERS: usize = 3;
const DNS_PORT: u16 = 53;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nameserver {
    ip: IpAddr,
    scope: Option<String>,
    /// True if the file has `options use-vc`: the resolver then uses TCP alone.
    pub(super) over_tcp: bool,
}

/// Reads the host's file, with its links: with systemd-resolved it is a link into `/run`. If it is not there,
/// the agent reads its own, which the kubelet made of the host's. A missing file is like an empty one.
pub(super) fn read(host: &HostRoot) -> io::Result<Vec<Nameserver>> {
    let or = |result: io::Result<_>, other: &dyn Fn() -> io::Result<_>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => other(),
        result => result,
    };
    or(or(read_below(host), &|| read_below(&HostRoot::default())), &|| Ok(parse(b"")))
}

fn read_below(host: &HostRoot) -> io::Result<Vec<Nameserver>> {
    host.read(PATH, MAX_FILE).map(|bytes| parse(&bytes))
}

/// Parses the nameservers, and skips malformed lines. If there is none, it is 127.0.0.1, as resolv.conf(5)
/// says.
pub(super) fn parse(bytes: &[u8]) -> Vec<Nameserver> {
    let (mut found, mut over_tcp): (Vec<Nameserver>, _) = (Vec::new(), false);
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let mut words = line.split_ascii_whitespace();
        let keyword = words.next();
        over_tcp |= keyword == Some("options") && words.clone().any(|option| option == "use-vc");
        let (Some("nameserver"), Some(address)) = (keyword, words.next()) else { continue };
        let (address, scope) = match address.split_once('%') {
            Some((address, scope)) => (address, Some(scope.to_owned())),
            None => (address, None),
        };
        let Ok(ip) = address.parse() else { continue };
        let nameserver = Nameserver { ip, scope, over_tcp: false };
        if found.len() < MAX_NAMESERVERS && !found.contains(&nameserver) {
            found.push(nameserver);
        }
    }
    if found.is_empty() {
        found.push(Nameserver { ip: Ipv4Addr::LOCALHOST.into(), scope: None, over_tcp: false });
    }
    for nameserver in &mut found {
        nameserver.over_tcp = over_tcp;
    }
    found
}

impl Nameserver {
    /// Returns true if a node with addresses of these families has a route to it.
    pub(super) fn is_within_reach(&self, of: AddressFamilies) -> bool {
        of.is_empty() || of.contains(self.ip) || self.ip.is_loopback()
    }

    /// Returns its socket address; `index` returns the number of an interface.
    pub(super) fn address(&self, index: impl FnOnce(&str) -> io::Result<u32>) -> io::Result<SocketAddr> {
        match (self.ip, &self.scope) {
            (IpAddr::V6(ip), Some(scope)) => {
                let index = scope.parse().or_else(|_| index(scope))?;
                Ok(SocketAddrV6::new(ip, DNS_PORT, 0, index).into())
            }
            (ip, _) => Ok(SocketAddr::new(ip, DNS_PORT)),
        }
    }
}

impl fmt::Display for Nameserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip.fmt(f)?;
        self.scope.iter().try_for_each(|scope| write!(f, "%{scope}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn shown(text: &str) -> Vec<String> {
        parse(text.as_bytes()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nameservers_are_found_in_order() {
        let text = "# by hand\nsearch corp.example\nnameserver 10.0.0.2\n; old: nameserver 9.9.9.9\n\tnameserver\t2001:db8::53 # second\n\
                    options edns0 trust-ad\nnameserver fe80::1%eth0\nnameserver 10.0.0.2\nnameserver 10.0.0.9\n";
        assert_eq!(shown(text), ["10.0.0.2", "2001:db8::53", "fe80::1%eth0"]);
        assert_eq!(shown("nameserver 127.0.0.53\r\noptions edns0\r\n"), ["127.0.0.53"]);
    }

    #[test]
    fn an_option_asks_for_tcp_alone() {
        let over_tcp = |text: &str| parse(text.as_bytes()).iter().all(|nameserver| nameserver.over_tcp);
        assert!(over_tcp("nameserver 10.0.0.2\noptions edns0 use-vc\nnameserver 10.0.0.3"));
        assert!(!over_tcp("nameserver 10.0.0.2\noptions edns0 # use-vcr\nsearch use-vc"));
    }

    #[test]
    fn what_is_no_address_is_left_out() {
        assert_eq!(
            shown("nameserver\nnameserver dns.example\nnameservers 10.0.0.1\nnameserver 10.0.0.3"),
            ["10.0.0.3"]
        );
        for none in ["", "# nameserver 10.0.0.1\noptions edns0\n", "nameserver\nnameserver dns.example\n"] {
            assert_eq!(shown(none), ["127.0.0.1"], "{none:?}");
        }
        assert_eq!(parse(b"nameserver 10.0.0.1\n\xff\xfe\nnameserver 10.0.0.2").len(), 2);
    }

    #[test]
    fn a_link_local_address_needs_its_interface() {
        let of = |text: &str| parse(text.as_bytes()).remove(0);
        let index = |name: &str| if name == "eth0" { Ok(7) } else { Err(io::ErrorKind::NotFound.into()) };
        let named = of("nameserver fe80::1%eth0").address(index).unwrap();
        assert_eq!(named, "[fe80::1%7]:53".parse().unwrap());
        assert_eq!(of("nameserver fe80::1%7").address(index).unwrap(), named);
        assert!(of("nameserver fe80::1%eth9").address(index).is_err());
        assert_eq!(of("nameserver 10.0.0.1").address(index).unwrap(), "10.0.0.1:53".parse().unwrap());
    }

    #[test]
    fn a_nameserver_is_within_reach_by_a_family_of_the_nodes_or_on_the_node_itself() {
        let reached = |text: &str, ipv4, ipv6| {
            parse(format!("nameserver {text}").as_bytes())
                .remove(0)
                .is_within_reach(AddressFamilies { ipv4, ipv6 })
        };
        for address in ["10.0.0.1", "2001:db8::53", "fe80::1%eth0", "127.0.0.53", "::1"] {
            assert!(reached(address, true, true) && reached(address, false, false), "{address}");
            let is_loopback = ["127.0.0.53", "::1"].contains(&address);
            assert_eq!(reached(address, false, true), is_loopback || address.contains(':'), "{address}");
            assert_eq!(reached(address, true, false), is_loopback || address.contains('.'), "{address}");
        }
    }

    #[test]
    fn the_file_is_the_hosts_whatever_it_links_to() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("etc")).unwrap();
        let host = HostRoot::new(root).unwrap();
        assert_eq!(read_below(&host).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(&host).ok(), read_below(&HostRoot::default()).ok(), "the agent's own");
        fs::create_dir_all(root.join("run/systemd/resolve")).unwrap();
        fs::write(root.join("run/systemd/resolve/stub-resolv.conf"), "nameserver 127.0.0.53\n").unwrap();
        // An absolute link leads out of the host's root, unless it is resolved below that root.
        std::os::unix::fs::symlink("/run/systemd/resolve/stub-resolv.conf", root.join("etc/resolv.conf"))
            .unwrap();
        assert_eq!(read(&host).unwrap().len(), 1);
        fs::remove_file(root.join("etc/resolv.conf")).unwrap();
        fs::create_dir(root.join("etc/resolv.conf")).unwrap();
        assert!(read(&host).is_err());
    }
}
