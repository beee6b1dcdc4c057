//! The nameservers of the host, from its `/etc/resolv.conf`.

use crate::host_root::HostRoot;
use crate::netlink::Netlink;
use rustix::net::netdevice::name_to_index;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::{fmt, io};

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
    for host in [host, &HostRoot::default()] {
        match host.read(PATH, MAX_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            bytes => return Ok(parse(&String::from_utf8_lossy(&bytes?))),
        }
    }
    Ok(parse(""))
}

/// Parses the nameservers, and skips malformed lines. If there is none, it is 127.0.0.1, as resolv.conf(5)
/// says.
fn parse(text: &str) -> Vec<Nameserver> {
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
    let over_tcp = lines.iter().any(|words| words.starts_with(&["options"]) && words.contains(&"use-vc"));
    let nameserver = |address: &str| {
        let (ip, scope) = address.split_once('%').map_or((address, None), |(ip, scope)| (ip, Some(scope)));
        Some(Nameserver { ip: ip.parse().ok()?, scope: scope.map(str::to_owned), over_tcp })
    };
    let named = lines.iter().filter_map(|words| match words.as_slice() {
        ["nameserver", address, ..] => nameserver(address),
        _ => None,
    });
    let found: Vec<_> = named.take(MAX_NAMESERVERS).collect();
    if found.is_empty() { nameserver("127.0.0.1").into_iter().collect() } else { found }
}

impl Nameserver {
    /// Returns its socket address, with the number of the interface that its scope names.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        match (self.ip, &self.scope) {
            (IpAddr::V6(ip), Some(scope)) => {
                let named = |_| io::Result::Ok(name_to_index(Netlink::open(None)?.0, scope)?);
                let index = scope.parse().or_else(named)?;
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

    #[test]
    fn nameservers_are_found_in_order_with_their_transport_and_what_is_none_is_left_out() {
        let shown = |text: &str| {
            let tcp = |of: &Nameserver| if of.over_tcp { "tcp " } else { "" };
            parse(text).iter().map(|of| format!("{}{of}", tcp(of))).collect::<Vec<_>>().join(", ")
        };
        for (text, found) in [
            (
                "search a.example\nnameserver 10.0.0.2\n; old: nameserver 9.9.9.9\n\tnameserver\t2001:db8::53 # second\n\
              options edns0 trust-ad\nnameserver fe80::1%eth0\nnameserver 10.0.0.9\n",
                "10.0.0.2, 2001:db8::53, fe80::1%eth0",
            ),
            ("nameserver 127.0.0.53\r\noptions edns0\r\n", "127.0.0.53"),
            ("nameserver 10.0.0.2\noptions edns0 use-vc\nnameserver 10.0.0.3", "tcp 10.0.0.2, tcp 10.0.0.3"),
            ("nameserver 10.0.0.2\noptions edns0 # use-vcr\nsearch use-vc", "10.0.0.2"),
            ("nameserver\nnameserver dns.example\nnameservers 10.0.0.1\nnameserver 10.0.0.3", "10.0.0.3"),
            ("", "127.0.0.1"),
            ("# nameserver 10.0.0.1\nnameserver dns.example\n", "127.0.0.1"),
        ] {
            assert_eq!(shown(text), found, "{text:?}");
        }
    }

    #[test]
    fn a_link_local_address_needs_its_interface() {
        let of = |text: &str| parse(text).remove(0);
        let named = of("nameserver fe80::1%lo").address().unwrap();
        let SocketAddr::V6(address) = named else { panic!("{named}") };
        assert_eq!(of(&format!("nameserver fe80::1%{}", address.scope_id())).address().unwrap(), named);
        assert!(address.scope_id() > 0 && address.port() == 53);
        assert!(of("nameserver fe80::1%absent0").address().is_err());
        assert_eq!(of("nameserver 10.0.0.1").address().unwrap(), "10.0.0.1:53".parse().unwrap());
    }

    #[test]
    fn the_file_is_the_hosts_whatever_it_links_to() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("etc")).unwrap();
        let host = HostRoot::new(root).unwrap();
        assert_eq!(read(&host).ok(), read(&HostRoot::default()).ok(), "the agent's own");
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
