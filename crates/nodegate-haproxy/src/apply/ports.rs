//! Ports that a Service must not get: those of the hand-written configuration, and those of other programs.

use crate::apply::listeners::{self, is_in_the_way};
use crate::haproxy::rights::Rights;
use crate::plan::desired::{Desired, Frontend, Problem, overlap};
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

/// Returns the sockets that `bind` lines name. If a Service got one of them, HAProxy would silently share it
/// between both owners and give each a part of the connections.
pub fn bound(config: &str) -> Bound {
    let mut ports = Bound::new();
    for line in config.lines() {
        let words = words(line);
        let mut words = words.iter().map(String::as_str);
        match words.next() {
            Some("bind") => ports.extend(words.next().into_iter().flat_map(addresses)),
            // The older syntax: an address on the line that begins the section.
            Some("listen" | "frontend") => ports.extend(words.nth(1).into_iter().flat_map(addresses)),
            _ => {}
        }
    }
    ports
}

/// Splits a line into words as HAProxy does. Quotes and backslashes hide blanks and `#`, and are removed.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let said = match (letter, quote) {
            (mark, Some(open)) if mark == open => {
                quote = None;
                None
            }
            ('\'' | '"', None) => {
                quote = Some(letter);
                None
            }
            ('\\', None | Some('"')) => letters.next(),
            ('#', None) => break,
            (blank, None) if blank.is_ascii_whitespace() => {
                words.extend(word.take());
                continue;
            }
            _ => Some(letter),
        };
        // Quotes without content are an empty word.
        word.get_or_insert_default().extend(said);
    }
    words.extend(word);
    words
}

/// Ports, each with an address.
pub type Bound = BTreeSet<(u16, IpAddr)>;

fn is_bound(bound: &Bound, port: u16, address: IpAddr) -> bool {
    let lowest = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    bound.range((port, lowest)..).take_while(|(p, _)| *p == port).any(|(_, ip)| overlap(*ip, address))
}

/// Parses the addresses of a `bind` line. An address that can't be parsed, such as a name, counts as all
/// addresses.
fn addresses(list: &str) -> Vec<(u16, IpAddr)> {
    let range = |address: &str| -> Option<Vec<(u16, IpAddr)>> {
        let (host, port) = address.rsplit_once(':')?;
        let host = host.split_once('@').map_or(host, |(_, host)| host).trim_matches(['[', ']']);
        let ip = host.parse().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let ports: RangeInclusive<u16> = match port.split_once('-') {
            Some((low, high)) => low.parse().ok()?..=high.parse().ok()?,
            None => port.parse().ok().map(|port| port..=port)?,
        };
        Some(ports.map(|port| (port, ip)).collect())
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Removes the frontends that want a socket of the hand-written configuration.
pub fn leave_out_bound(desired: &mut Desired, bound: &Bound) {
    let wants = |frontend: &Frontend| frontend.addresses.iter().any(|ip| is_bound(bound, frontend.port, *ip));
    leave_out(desired, |frontend| {
        wants(frontend).then_some(("reserved", "your own configuration binds port"))
    });
}

/// Removes the frontends on which HAProxy could not listen: another program listens there, this host lacks
/// the address, or HAProxy lacks the right. A reload with one of them would fail, and HAProxy pauses its
/// listeners until it has failed. One Service must not do that to the others. HAProxy keeps the sockets that
/// it has by `old`, even if their address is gone.
pub(crate) fn leave_out_busy(desired: &mut Desired, old: &str, rights: Rights) {
    let ours = bound(old);
    let listeners = Listeners::new(listeners::now);
    leave_out(desired, |frontend| {
        let mut new = frontend.addresses.iter().filter(|ip| !is_bound(&ours, frontend.port, **ip));
        new.find_map(|ip| in_the_way(SocketAddr::new(*ip, frontend.port), &listeners, rights))
    });
}

/// Returns an address that this host lacks, of a frontend for which HAProxy would have to replace an
/// overlapping socket of `old`. The frontend can't be left out, because HAProxy serves it. A reload would
/// fail and pause all listeners.
pub(crate) fn absent_anew(desired: &Desired, old: &str) -> Option<SocketAddr> {
    let ours = bound(old);
    let of = |frontend: &Frontend| {
        let port = frontend.port;
        let mut anew = frontend.addresses.iter().filter(|ip| !ours.contains(&(port, **ip)));
        anew.find(|ip| is_bound(&ours, port, **ip) && is_absent(**ip)).map(|ip| SocketAddr::new(*ip, port))
    };
    desired.frontends.iter().find_map(of)
}

fn is_absent(address: IpAddr) -> bool {
    try_bind(SocketAddr::new(address, 0)).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

/// Returns a problem for each address that this host does not have.
pub fn absent(binds: impl Iterator<Item = IpAddr>) -> Vec<Problem> {
    let problem = |ip: IpAddr| {
        let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        let text = format!(
            "--bind: this host has no such address now; HAProxy can listen there only with the sysctl \
             net.{family}.ip_nonlocal_bind=1, as the standby of a pair needs it"
        );
        Problem { kind: "bind", about: ip.to_string(), text }
    };
    binds.filter(|ip| is_absent(*ip)).map(problem).collect()
}

fn leave_out(desired: &mut Desired, out: impl Fn(&Frontend) -> Option<(&'static str, &'static str)>) {
    let mut problems = Vec::new();
    desired.frontends.retain(|frontend| {
        let out = out(frontend);
        if let Some((kind, why)) = out {
            let about = format!("{}/{}", frontend.namespace, frontend.service);
            problems.push(Problem { kind, about, text: format!("{why} {}; left out", frontend.port) });
        }
        out.is_none()
    });
    desired.problems.extend(problems);
    desired.problems.sort();
}

/// The sockets that listen now, read once at most.
type Listeners = LazyCell<Vec<SocketAddr>>;

/// Returns the reason why HAProxy can't listen on an address, or `None`.
fn in_the_way(
    address: SocketAddr,
    listeners: &Listeners,
    rights: Rights,
) -> Option<(&'static str, &'static str)> {
    judged(address, try_bind(address), listeners, rights)
}

fn judged(
    address: SocketAddr,
    tried: io::Result<()>,
    listeners: &Listeners,
    rights: Rights,
) -> Option<(&'static str, &'static str)> {
    const BUSY: (&str, &str) = ("busy", "another program listens on port");
    const FORBIDDEN: (&str, &str) =
        ("forbidden", "HAProxy lacks CAP_NET_BIND_SERVICE, and may not bind port");
    let denied = tried.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if rights.forbid(address.port(), denied) {
        return Some(FORBIDDEN);
    }
    match tried.map_err(|error| error.kind()) {
        Err(ErrorKind::AddrInUse) => Some(BUSY),
        Err(ErrorKind::AddrNotAvailable) => Some(("absent", "this host does not have the address of port")),
        // Ports below 1024 need a privilege that HAProxy has and nodegate-haproxy may lack.
        Err(ErrorKind::PermissionDenied) => {
            listeners.iter().any(|listening| is_in_the_way(*listening, address)).then_some(BUSY)
        }
        // Any other error may not concern HAProxy.
        Ok(()) | Err(_) => None,
    }
}

fn try_bind(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // The socket does not listen. Otherwise a client that connects now would be accepted and dropped.
    socket.bind(&address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_hand_written_head_are_found() {
        let head = "frontend stats\n  bind *:8404\n  bind :80,:::443 v4v6 ssl crt /x\n  bind /run/x.sock\n\
            listen old 0.0.0.0:9000-9002\nbackend b\n  server a 1.2.3.4:1234\n  bind";
        let ports: BTreeSet<u16> = bound(head).into_iter().map(|(port, _)| port).collect();
        assert_eq!(ports, BTreeSet::from([80, 443, 8404, 9000, 9001, 9002]));
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (line, address, meets) in [
            ("bind 10.0.0.1:443", "10.0.0.1", true),
            ("bind 10.0.0.1:443", "10.0.0.2", false),
            ("bind ipv4@10.0.0.1:443", "10.0.0.2", false),
            ("bind [fd00::1]:443", "fd00::1", true),
            ("bind :::443 v4v6", "10.0.0.2", true),
            ("bind *:443", "fd00::1", true),
            ("bind host.example:443", "10.0.0.2", true),
            ("bind 0.0.0.0:443", "10.0.0.2", true),
            ("bind 10.0.0.1:444", "10.0.0.1", false),
        ] {
            assert_eq!(is_bound(&bound(line), 443, ip(address)), meets, "{line} {address}");
        }
    }

    #[test]
    fn quotes_and_backslashes_are_read_as_haproxy_reads_them() {
        for (line, port) in [
            (r#"bind "*:81""#, Some(81)),
            (r"bind '10.0.0.1:82' ssl", Some(82)),
            (r#"  bind *:"83" # bind :1"#, Some(83)),
            (r#""bind" ipv4@\*:84"#, Some(84)),
            (r#"listen "a b" :85"#, Some(85)),
            (r"listen a\ b :86", Some(86)),
            (r#"bind"" :87"#, Some(87)),
            (r#"bind "" :88"#, None),
            ("# bind :89", None),
            (r"bind '*:90", Some(90)),
            (r#"bind "${ADDRESS}:91" name 'x#y'"#, Some(91)),
        ] {
            let found: BTreeSet<u16> = bound(line).into_iter().map(|(port, _)| port).collect();
            assert_eq!(found, port.into_iter().collect(), "{line}");
        }
    }

    #[test]
    fn a_port_in_use_is_seen_and_a_free_one_too() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let listeners = || Listeners::new(listeners::now);
        let forbidden = || Err(ErrorKind::PermissionDenied.into());
        let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let busy = |found: Option<(&str, &str)>| found.is_some_and(|(kind, _)| kind == "busy");
        assert!(busy(in_the_way(address, &listeners(), Rights::default())));
        assert!(busy(judged(address, forbidden(), &listeners(), Rights::default())));
        drop(taken);
        assert!(in_the_way(address, &listeners(), Rights::default()).is_none());
        assert!(judged(address, forbidden(), &listeners(), Rights::default()).is_none());
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        let absent = in_the_way(elsewhere, &listeners(), Rights::default()).map(|(kind, _)| kind);
        assert_eq!(absent, Some("absent"));
    }
}
