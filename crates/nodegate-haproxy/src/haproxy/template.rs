//! The operator's part of the file, and the ports that no Service can have now: those that the template binds, and those
//! of other programs.

use crate::failure::Failure;
use crate::haproxy::config_file::ConfigFile;
use crate::haproxy::launch::Launch;
use crate::plan::{ABSENT, Desired, Frontend, Listen, Problem, Refusal, names, overlap, sockets};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

/// Reads a template. Without a path it is empty.
pub(crate) fn read(path: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let failed = |why: &dyn Display| {
        Failure::new("template", format!("can't use --template {}: {why}", path.display()))
    };
    let read = ConfigFile::new(path.to_owned()).read().map_err(|error| failed(&error))?;
    let bytes = read.ok_or_else(|| failed(&"it does not exist"))?;
    let text = String::from_utf8_lossy(&bytes);
    if text.lines().any(|line| second_word(line, "defaults").as_deref() == Some(names::DEFAULTS)) {
        let what = "it has a \"defaults nodegate\", which the generated part has; give yours another name";
        return Err(failed(&what));
    }
    Ok(bytes)
}

/// Returns the ports that the `bind` lines of a template name. HAProxy shares a socket silently among all
/// that bind it, and gives each a part of the connections.
pub(crate) fn ports<'a>(template: &[u8], variable: impl Fn(&str) -> Option<&'a OsStr>) -> BTreeSet<u16> {
    let text = String::from_utf8_lossy(template);
    let binds = text.lines().filter_map(|line| second_word(line, "bind"));
    binds.flat_map(|word| ports_of(&with_values(&word, &variable))).collect()
}

/// Returns the second word of a line that begins with this keyword, without quotes and backslashes.
fn second_word(line: &str, keyword: &str) -> Option<String> {
    let plain = line.replace(['"', '\'', '\\'], "");
    let mut words = plain.split_whitespace();
    words.next().filter(|word| *word == keyword).and(words.next()).map(str::to_owned)
}

fn with_values<'a>(word: &str, variable: impl Fn(&str) -> Option<&'a OsStr>) -> String {
    let mut parts = word.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start_matches('{');
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        text.extend(variable(name).map(OsStr::to_string_lossy));
        text += rest.split_once('}').map_or(rest, |(_, rest)| rest);
    }
    text
}

fn ports_of(list: &str) -> Vec<u16> {
    let range = |address: &str| -> Option<RangeInclusive<u16>> {
        let (_, port) = address.rsplit_once(':')?;
        let (low, high) = port.split_once('-').unwrap_or((port, port));
        Some(low.parse().ok()?..=high.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Removes the frontends on which HAProxy could not listen, because a reload with one of them would fail, and
/// the backends that only they used. `runs` is the file that HAProxy has loaded. Returns the reasons.
pub(crate) fn leave_out(
    desired: &mut Desired,
    template: &[u8],
    launch: Option<&Launch>,
    runs: &[u8],
) -> BTreeSet<Problem> {
    let reserved = ports(template, |name| launch?.variable(name));
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
    let Listen { port, addresses } = &frontend.listen;
    if reserved.contains(port) {
        return Some(("reserved", format!("the template binds port {port}")));
    }
    let is_ours = |ip: IpAddr| ours.iter().any(|own| own.port() == *port && overlap(own.ip(), ip));
    let refusal = |ip: &IpAddr| {
        let error = try_bind(SocketAddr::new(*ip, *port)).err()?;
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
    addresses.iter().filter(|ip| !is_ours(**ip)).find_map(refusal)
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
    fn the_ports_of_a_template_are_found_as_haproxy_reads_them() {
        let variable = |name: &str| (name == "PORT").then(|| OsStr::new("8081"));
        for (line, ports) in [
            (&b"  bind *:8404"[..], &[8404][..]),
            (b"bind :80,:::443 v4v6 ssl crt /x", &[80, 443]),
            (b"bind 10.0.0.1:9000-9002 # bind :1", &[9000, 9001, 9002]),
            (b"bind /run/x.sock", &[]),
            (b"  server a 1.2.3.4:1234", &[]),
            (b"bind", &[]),
            (b"bind \":${PORT}\" name \xff\xfe", &[8081]),
            (b"bind \"10.0.0.1:${PORT-80}\"", &[8081]),
            (b"bind \"*:$PORT\"", &[8081]),
            (b"bind \":${OTHER}\"", &[]),
            (b"bind '*:82' ssl", &[82]),
            (b"\"bind\" ipv4@\\*:84", &[84]),
            (b"\xe4\xf6 bind :85", &[]),
        ] {
            let found = super::ports(line, variable);
            assert_eq!(found, ports.iter().copied().collect(), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_template_with_the_generated_defaults_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("template");
        for (text, refused) in [
            ("defaults nodegate\n", true),
            ("  \"defaults\" nodegate from x\n", true),
            ("defaults mine\n# defaults nodegate\n", false),
            ("\u{0}\u{feff}", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(Some(&path)).is_err(), refused, "{text:?}");
        }
        assert!(read(None).unwrap().is_empty() && read(Some(dir.path())).is_err());
    }

    #[test]
    fn a_port_in_use_is_seen_and_our_own_and_a_free_one_too() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let kind = |ip: &str, reserved: &[u16], ours: &[SocketAddr]| {
            let frontend = Frontend {
                about: "forward a".to_owned(),
                service: None,
                backend: "a".to_owned(),
                listen: Listen { port: address.port(), addresses: vec![ip.parse().unwrap()] },
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
