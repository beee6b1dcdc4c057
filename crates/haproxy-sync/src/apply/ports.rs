//! Ports that a Service must not get: those of the hand-written part, and those that somebody else listens on.

use crate::apply::listeners::{self, is_in_the_way};
use crate::plan::desired::{Desired, Frontend, Problem};
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The ports that `bind` lines name. HAProxy would share such a port between the old and the new owner without a word,
/// and give each a part of the connections.
pub fn bound_ports(config: &str) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    for line in config.lines() {
        let words = words(line);
        let mut words = words.iter().map(String::as_str);
        match words.next() {
            Some("bind") => ports.extend(words.next().into_iter().flat_map(addresses)),
            // The old way: an address on the section's own line.
            Some("listen" | "frontend") => ports.extend(words.nth(1).into_iter().flat_map(addresses)),
            _ => {}
        }
    }
    ports
}

/// Takes a line apart as HAProxy does: quotes and backslashes hide blanks and `#`, and stand for nothing themselves.
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
        // Quotes alone are an empty word.
        word.get_or_insert_default().extend(said);
    }
    words.extend(word);
    words
}

fn addresses(list: &str) -> Vec<u16> {
    let range = |address: &str| -> Option<std::ops::RangeInclusive<u16>> {
        let (_, port) = address.rsplit_once(':')?;
        match port.split_once('-') {
            Some((low, high)) => Some(low.parse().ok()?..=high.parse().ok()?),
            None => port.parse().ok().map(|port| port..=port),
        }
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Takes out what wants a port of the hand-written part's.
pub fn leave_out_bound(desired: &mut Desired, bound: &BTreeSet<u16>) {
    leave_out(desired, "reserved", "the template binds port", |frontend| bound.contains(&frontend.port));
}

/// Takes out what wants a port that another program has. A reload with it would fail, and until it has failed HAProxy
/// pauses its listeners: one Service must not do that to the others. `old` is the configuration in effect.
pub fn leave_out_busy(desired: &mut Desired, binds: &[IpAddr], old: &str) {
    let ours = bound_ports(old);
    let listeners = Listeners::new(listeners::now);
    let busy =
        |frontend: &Frontend| !ours.contains(&frontend.port) && !is_free(binds, frontend.port, &listeners);
    leave_out(desired, "busy", "another program listens on port", busy);
}

/// The addresses that this host does not have. HAProxy may be allowed to listen there all the same, so nothing is left
/// out.
pub fn absent(binds: &[IpAddr]) -> Vec<Problem> {
    let is_absent = |ip: &&IpAddr| {
        let tried = try_bind(SocketAddr::new(**ip, 0));
        tried.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
    };
    let problem = |ip: &IpAddr| {
        let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        let text = format!(
            "--bind: this host has no such address now; HAProxy can listen there only with the sysctl \
             net.{family}.ip_nonlocal_bind=1, as the standby of a pair needs it"
        );
        Problem { kind: "bind", about: ip.to_string(), text }
    };
    binds.iter().filter(is_absent).map(problem).collect()
}

fn leave_out(desired: &mut Desired, kind: &'static str, why: &str, out: impl Fn(&Frontend) -> bool) {
    let mut problems = Vec::new();
    desired.frontends.retain(|frontend| {
        let out = out(frontend);
        if out {
            let about = format!("{}/{}", frontend.namespace, frontend.service);
            problems.push(Problem { kind, about, text: format!("{why} {}; left out", frontend.port) });
        }
        !out
    });
    desired.problems.extend(problems);
    desired.problems.sort();
}

/// What listens now, asked for once at most.
type Listeners = LazyCell<Vec<SocketAddr>>;

fn is_free(binds: &[IpAddr], port: u16, listeners: &Listeners) -> bool {
    let any = [IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let binds = if binds.is_empty() { &any } else { binds };
    binds
        .iter()
        .map(|ip| SocketAddr::new(*ip, port))
        .all(|address| !is_taken(address, try_bind(address), listeners))
}

fn is_taken(address: SocketAddr, tried: io::Result<()>, listeners: &Listeners) -> bool {
    match tried.map_err(|error| error.kind()) {
        Err(ErrorKind::AddrInUse) => true,
        // Ports below 1024 take a privilege that HAProxy has and we need not have.
        Err(ErrorKind::PermissionDenied) => {
            listeners.iter().any(|listening| is_in_the_way(*listening, address))
        }
        // Whatever else keeps us from binding (no such address here) may not keep HAProxy.
        Ok(()) | Err(_) => false,
    }
}

fn try_bind(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    // Not listened on: a client that came in that moment would be let in and thrown out.
    socket.bind(&address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_hand_written_head_are_found() {
        let head = "frontend stats\n  bind *:8404\n  bind :80,:::443 v4v6 ssl crt /x\n  bind /run/x.sock\n\
            listen old 0.0.0.0:9000-9002\nbackend b\n  server a 1.2.3.4:1234\n  bind";
        let expected = BTreeSet::from([80, 443, 8404, 9000, 9001, 9002]);
        assert_eq!(bound_ports(head), expected);
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
            assert_eq!(bound_ports(line), port.into_iter().collect(), "{line}");
        }
    }

    #[test]
    fn a_port_in_use_is_seen_and_a_free_one_too() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let listeners = || Listeners::new(listeners::now);
        let forbidden = || Err(ErrorKind::PermissionDenied.into());
        let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        assert!(!is_free(&[], port, &listeners()));
        assert!(is_taken(address, forbidden(), &listeners()));
        drop(taken);
        assert!(is_free(&[], port, &listeners()));
        assert!(!is_taken(address, forbidden(), &listeners()));
    }
}
