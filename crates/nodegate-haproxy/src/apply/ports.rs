//! Ports that no Service can have now: those that the template binds, and those of other programs.

use crate::plan::desired::{Desired, Frontend, Problem};
use crate::plan::listen::overlap;
use crate::plan::status::ABSENT;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// Removes the frontends on which HAProxy could not listen. A reload with one of them would fail, and one Service
/// must not do that to the others. `ours` are the sockets of the running HAProxy's generated part, and
/// `template` the ports of the operator's part.
pub fn leave_out(desired: &mut Desired, template: &BTreeSet<u16>, ours: &[SocketAddr]) -> BTreeSet<Problem> {
    desired.leave_out(|frontend| {
        if template.contains(&frontend.port) {
            return Some(("reserved", format!("the template binds port {}", frontend.port)));
        }
        in_the_way(frontend, ours)
    })
}

fn in_the_way(frontend: &Frontend, ours: &[SocketAddr]) -> Option<(&'static str, String)> {
    let port = frontend.port;
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
    use crate::plan::annotation::Mode;

    fn frontend(address: &str, port: u16) -> Frontend {
        Frontend {
            about: "forward a".to_owned(),
            service: None,
            backend: "a".to_owned(),
            node_port: 1,
            port,
            addresses: vec![address.parse().unwrap()],
            sources: None,
            mode: Mode::Tcp,
            last_resort: Vec::new(),
        }
    }

    #[test]
    fn a_port_in_use_is_seen_and_our_own_and_a_free_one_too() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let kind = |ip: &str, ours: &[SocketAddr]| {
            in_the_way(&frontend(ip, address.port()), ours).map(|(kind, _)| kind)
        };
        assert_eq!(kind("127.0.0.1", &[]), Some("busy"));
        assert_eq!(kind("::", &[]), Some("busy"));
        assert_eq!(kind("127.0.0.1", &[address]), None);
        assert_eq!(kind("::", &[address]), None, "HAProxy hands an overlapping socket on");
        assert_eq!(kind("192.0.2.1", &[]), Some(ABSENT));
        drop(taken);
        assert_eq!(kind("127.0.0.1", &[]), None);
    }

    #[test]
    fn a_service_does_not_get_a_port_of_the_template() {
        let mut desired = Desired {
            frontends: [9, 10].map(|port| (port.to_string(), frontend("127.0.0.1", port))).into(),
            ..Desired::default()
        };
        let problems = leave_out(&mut desired, &BTreeSet::from([9]), &[]);
        let kinds: Vec<_> = problems.iter().map(|problem| problem.kind).collect();
        assert_eq!((kinds, desired.frontends.len()), (vec!["reserved"], 1));
    }
}
