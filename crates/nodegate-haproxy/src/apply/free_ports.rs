//! Ports that no Service can have now: those that the template binds, and those of other programs.

use crate::apply::template;
use crate::haproxy::launch::Launch;
use crate::plan::{ABSENT, Desired, Frontend, Problem, Refusal, names, overlap, sockets};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// Removes the frontends on which HAProxy could not listen, with the backends that only they used. A reload with one of
/// them would fail, and one Service must not do that to the others. `runs` is the file that the running HAProxy has
/// loaded. Returns the reasons.
pub(crate) fn leave_out(
    desired: &mut Desired,
    template: &[u8],
    launch: Option<&Launch>,
    runs: &[u8],
) -> BTreeSet<Problem> {
    let reserved = template::ports(template, |name| launch?.variable(name));
    let (ours, mut problems) = (sockets(runs), BTreeSet::new());
    desired.frontends.retain(|_, frontend| {
        let Some((kind, text)) = in_the_way(frontend, &reserved, &ours) else { return true };
        problems.insert(Problem { about: frontend.about.clone(), kind, text, unpublished: true });
        false
    });
    let mut used = BTreeSet::from([names::NODES, names::PASSING]);
    for frontend in desired.frontends.values() {
        used.insert(&frontend.backend);
        used.extend(frontend.last_resort.iter().map(String::as_str));
    }
    desired.backends.retain(|name, _| used.contains(name.as_str()));
    problems
}

fn in_the_way(frontend: &Frontend, reserved: &BTreeSet<u16>, ours: &[SocketAddr]) -> Option<Refusal> {
    let port = frontend.port;
    if reserved.contains(&port) {
        return Some(("reserved", format!("the template binds port {port}")));
    }
    let is_ours = |ip: IpAddr| ours.iter().any(|own| own.port() == port && overlap(own.ip(), ip));
    let refusal = |ip: &IpAddr| {
        let error = try_bind(SocketAddr::new(*ip, port)).err()?;
        // A port below 1024 needs a privilege that HAProxy may have; its own error tells of any other problem.
        match error.kind() {
            ErrorKind::AddrInUse => Some(("busy", format!("another program has port {port}"))),
            ErrorKind::AddrNotAvailable => Some((
                ABSENT,
                format!(
                    "this host does not have {ip} now (a standby listens there with the sysctl ip_nonlocal_bind)"
                ),
            )),
            _ => None,
        }
    };
    frontend.addresses.iter().filter(|ip| !is_ours(**ip)).find_map(refusal)
}

fn try_bind(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    // The socket does not listen. Otherwise a client that connects now would be accepted and dropped.
    socket.bind(&address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_seen_and_our_own_and_a_free_one_too() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let kind = |ip: &str, reserved: &[u16], ours: &[SocketAddr]| {
            let frontend = Frontend {
                about: "forward a".to_owned(),
                service: None,
                backend: "a".to_owned(),
                port: address.port(),
                addresses: vec![ip.parse().unwrap()],
                sources: None,
                last_resort: Vec::new(),
            };
            let reserved = reserved.iter().copied().collect();
            in_the_way(&frontend, &reserved, ours).map(|(kind, _)| kind)
        };
        assert_eq!(kind("127.0.0.1", &[], &[]), Some("busy"));
        assert_eq!(kind("::", &[], &[]), Some("busy"));
        assert_eq!(kind("127.0.0.1", &[], &[address]), None);
        assert_eq!(kind("::", &[], &[address]), None, "HAProxy hands an overlapping socket on");
        assert_eq!(kind("192.0.2.1", &[], &[]), Some(ABSENT));
        assert_eq!(kind("127.0.0.1", &[address.port()], &[address]), Some("reserved"));
        drop(taken);
        assert_eq!(kind("127.0.0.1", &[], &[]), None);
    }
}
