//! The operator's part of the file, and the ports that no Service can have now: those that the template binds, and those
//! of other programs.

use crate::failure::Failure;
use crate::haproxy::config_file::ConfigFile;
use crate::plan::desired::{ABSENT, Desired, Frontend, Problem, Refusal};
use crate::plan::listen::Listen;
use crate::plan::names;
use crate::plan::template::{Socket, Template};
use socket2::{Domain, Protocol, Type};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The maximum number of ports of one socket that are tried.
const MAX_TRIED: usize = 1000;

/// Reads a template. Without a path it is empty.
pub(crate) fn read(path: Option<&Path>) -> Result<Template, Failure> {
    let Some(path) = path else { return Ok(Template::default()) };
    let failed = |why: &dyn Display| {
        Failure::new("template", format!("can't use --template {}: {why}", path.display()))
    };
    let read = ConfigFile::new(path.to_owned()).read().map_err(|error| failed(&error))?;
    let bytes = read.ok_or_else(|| failed(&"it does not exist"))?;
    Template::parse(bytes).map_err(|why| failed(&why))
}

/// Checks that HAProxy can listen on the template's sockets, apart from those that it has.
pub(crate) fn ensure_bindable(template: &Template, runs: &[Socket]) -> Result<(), Failure> {
    let obstacle = |socket: Socket| match socket {
        Socket::Tcp { ip, ports, is_plain: true } => {
            ports.take(MAX_TRIED).find_map(|port| obstacle(ip, port, runs)).map(|(_, text)| text)
        }
        Socket::Unix(path) if !path.parent().is_some_and(Path::is_dir) => {
            Some(format!("{} is in a directory that does not exist", path.display()))
        }
        Socket::Tcp { .. } | Socket::Unix(_) => None,
    };
    let failed = |why| Failure::new("template", format!("HAProxy can't listen as --template has it: {why}"));
    template.sockets().find_map(obstacle).map_or(Ok(()), |why| Err(failed(why)))
}

/// Removes the frontends on which HAProxy could not listen, because a reload with one of them would fail, and
/// the backends that only they used. `runs` has the sockets of the file that HAProxy has loaded. Returns the reasons.
pub(crate) fn leave_out(desired: &mut Desired, template: &Template, runs: &[Socket]) -> BTreeSet<Problem> {
    let mut problems = BTreeSet::new();
    desired.frontends.retain(|_, frontend| {
        let Some((kind, text)) = in_the_way(frontend, template, runs) else { return true };
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

fn in_the_way(frontend: &Frontend, template: &Template, runs: &[Socket]) -> Option<Refusal> {
    let Listen { port, addresses } = &frontend.listen;
    if template.listens_on(&frontend.listen) {
        return Some(("reserved", format!("the template binds port {port}")));
    }
    addresses.iter().find_map(|ip| obstacle(*ip, *port, runs))
}

/// Returns why HAProxy can't listen there, if it does not do so already.
fn obstacle(ip: IpAddr, port: u16, runs: &[Socket]) -> Option<Refusal> {
    if runs.iter().any(|own| own.meets(port, &[ip])) {
        return None;
    }
    // A port below 1024 needs a privilege that HAProxy may have; its own error tells of any other problem.
    match try_bind(SocketAddr::new(ip, port)).err()?.kind() {
        ErrorKind::AddrInUse => Some(("busy", format!("another program has port {port}"))),
        ErrorKind::AddrNotAvailable => Some((
            ABSENT,
            format!(
                "this host does not have {ip} now (a standby listens there with the sysctl ip_nonlocal_bind)"
            ),
        )),
        _ => None,
    }
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
            let frontend = Frontend {
                about: "forward a".to_owned(),
                service: None,
                backend: "a".to_owned(),
                listen: Listen { port: address.port(), addresses: vec![ip.parse().unwrap()] },
                sources: None,
                last_resort: Vec::new(),
            };
            let template = Template::parse(template.as_bytes().to_vec()).unwrap();
            in_the_way(&frontend, &template, &sockets(runs.as_bytes())).map(|(kind, _)| kind)
        };
        let own = format!("bind {address}");
        assert_eq!(kind("127.0.0.1", "", ""), Some("busy"));
        assert_eq!(kind("::", "", ""), Some("busy"));
        assert_eq!(kind("127.0.0.1", "", &own), None);
        assert_eq!(kind("::", "", &own), None, "HAProxy hands an overlapping socket on");
        assert_eq!(kind("192.0.2.1", "", ""), Some(ABSENT));
        assert_eq!(kind("127.0.0.1", &format!("bind :{}", address.port()), &own), Some("reserved"));
        let bindable = |template: &str, runs: &str| {
            let template = Template::parse(template.as_bytes().to_vec()).unwrap();
            ensure_bindable(&template, &sockets(runs.as_bytes())).map_err(|failure| failure.text)
        };
        let busy = bindable(&format!("bind 127.0.0.2:1,{address}"), "").unwrap_err();
        assert!(busy.ends_with(&format!("another program has port {}", address.port())), "{busy}");
        assert_eq!(bindable(&own, &own), Ok(()));
        for special in ["interface x", "namespace x", "transparent"] {
            assert_eq!(bindable(&format!("bind {address} {special}"), ""), Ok(()));
        }
        let nowhere = bindable("global\n  stats socket unix@/nowhere/x level admin", "").unwrap_err();
        assert!(nowhere.ends_with("/nowhere/x is in a directory that does not exist"), "{nowhere}");
        drop(taken);
        assert_eq!(kind("127.0.0.1", "", ""), None);
    }
}
