//! The operator's part of the file, and the ports that no Service can have now: those that the template binds, and those
//! of other programs.

use crate::failure::Failure;
use crate::haproxy::config_file::ConfigFile;
use crate::plan::desired::{ABSENT, Desired, Listen, Problem, Refusal};
use crate::plan::names;
use crate::plan::template::{Socket, Template};
use socket2::{Domain, Protocol, Type};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Reads a template. Without a path it is empty.
pub(crate) fn read(path: Option<&Path>) -> Result<Template, Failure> {
    let Some(path) = path else { return Ok(Template::default()) };
    let failed = |why: &dyn Display| {
        let flag = "--template (NODEGATE_HAPROXY_TEMPLATE)";
        Failure::new("template", format!("can't use {flag} \"{}\": {why}", path.display()))
    };
    let read = ConfigFile { path: path.to_owned() }.read();
    let read = read.map_err(|error| failed(&format_args!("{error}; correct the path, or the file")))?;
    let bytes = read.ok_or_else(|| failed(&"it does not exist; create it, or name another file"))?;
    Template::parse(bytes).map_err(|why| failed(&why))
}

/// Removes the frontends on which HAProxy could not listen, because a reload with one of them would fail, and
/// the backends that only they used. `runs` has the sockets of the file that HAProxy has loaded. Returns the reasons.
pub(crate) fn leave_out(desired: &mut Desired, template: &Template, runs: &[Socket]) -> BTreeSet<Problem> {
    let mut problems = BTreeSet::new();
    desired.frontends.retain(|_, frontend| {
        let Some((kind, text)) = in_the_way(&frontend.listen, template, runs) else { return true };
        problems.insert(Problem { about: frontend.about.clone(), kind, text, unpublished: true });
        false
    });
    let mut used = BTreeSet::from([names::NODES, names::PASSING, names::LABELLED]);
    for frontend in desired.frontends.values() {
        used.insert(&frontend.backend);
        used.extend(frontend.last_resort.iter().map(String::as_str));
    }
    desired.backends.retain(|name, _| used.contains(name.as_str()));
    problems
}

/// Returns why HAProxy can't listen there, if it does not do so already.
fn in_the_way(listen: &Listen, template: &Template, runs: &[Socket]) -> Option<Refusal> {
    let port = listen.port;
    if template.listens_on(listen) {
        return Some(("reserved", format!("the template binds port {port}")));
    }
    let is_new = |ip: &&IpAddr| !runs.iter().any(|own| own.meets(port, **ip));
    listen.addresses.iter().filter(is_new).find_map(|ip| {
        // A port below 1024 needs a privilege that HAProxy may have; its own error tells of any other problem.
        match try_bind(SocketAddr::new(*ip, port)).err()?.kind() {
            ErrorKind::AddrInUse => Some(("busy", format!("another program has port {port}"))),
            ErrorKind::AddrNotAvailable => {
                let standby = "a standby listens there with the sysctl ip_nonlocal_bind";
                Some((ABSENT, format!("this host does not have {ip} now ({standby})")))
            }
            _ => None,
        }
    })
}

fn try_bind(address: SocketAddr) -> io::Result<()> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
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
    use crate::plan::template::sockets;

    #[test]
    fn a_port_in_use_is_seen_and_our_own_and_a_free_one_too() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let kind = |ip: &str, template: &str, runs: &str| {
            let listen = Listen { port: address.port(), addresses: vec![ip.parse().unwrap()] };
            let template = Template::parse(template.as_bytes().to_vec()).unwrap();
            in_the_way(&listen, &template, &sockets(runs.as_bytes())).map(|(kind, _)| kind)
        };
        let own = format!("bind {address}");
        assert_eq!(kind("127.0.0.1", "", ""), Some("busy"));
        assert_eq!(kind("::", "", ""), Some("busy"));
        assert_eq!(kind("127.0.0.1", "", &own), None);
        assert_eq!(kind("::", "", &own), None, "HAProxy hands an overlapping socket on");
        assert_eq!(kind("192.0.2.1", "", ""), Some(ABSENT));
        assert_eq!(kind("127.0.0.1", &format!("bind :{}", address.port()), &own), Some("reserved"));
        drop(taken);
        assert_eq!(kind("127.0.0.1", "", ""), None);
    }
}
