//! The operator's part of the file, as far as the generated part depends on it.

use crate::plan::desired::{Listen, overlap};
use crate::plan::names;
use shlex::Shlex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// The keywords that begin a section.
const SECTIONS: &str = "global defaults frontend backend listen peers resolvers mailers userlist program http-errors ring \
    log-forward log-profile cache fcgi-app crt-store traces acme";

#[derive(Clone, Debug, Default)]
pub(crate) struct Template {
    pub(crate) bytes: Vec<u8>,
    lines: Vec<Line>,
}

/// The sockets that a word of a configuration listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    ip: IpAddr,
    ports: RangeInclusive<u16>,
}

impl Socket {
    /// Returns true if it prevents a socket on this address.
    pub(crate) fn meets(&self, port: u16, address: IpAddr) -> bool {
        self.ports.contains(&port) && overlap(self.ip, address)
    }
}

/// Returns the sockets of a configuration.
pub(crate) fn sockets(configuration: &[u8]) -> Vec<Socket> {
    let all: Vec<Line> = lines(&String::from_utf8_lossy(configuration)).collect();
    all.iter().flat_map(Line::sockets).collect()
}

fn lines(text: &str) -> impl Iterator<Item = Line> {
    let mut section = String::new();
    let lines = text.lines().map(|line| Shlex::new(line).collect::<Vec<_>>());
    lines.filter(|words| !words.is_empty()).map(move |words| {
        if let Some(first) = words.first().filter(|first| SECTIONS.split(' ').any(|word| word == *first)) {
            section.clone_from(first);
        }
        Line { section: section.clone(), words }
    })
}

/// The words of a line, which HAProxy splits like a shell, and the kind of its section.
#[derive(Clone, Debug)]
struct Line {
    section: String,
    words: Vec<String>,
}

impl Template {
    /// Reads a template. The error says why the generated part can't follow it.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self, String> {
        let lines = lines(&String::from_utf8_lossy(&bytes)).collect();
        let template = Self { bytes, lines };
        template.refusal().map_or(Ok(template), Err)
    }

    fn refusal(&self) -> Option<String> {
        let is_ours =
            |line: &Line| line.words.get(..2).is_some_and(|words| words == ["defaults", names::DEFAULTS]);
        if self.lines.iter().any(is_ours) {
            let why = "it has a \"defaults nodegate\", which the generated part has; give yours another name";
            return Some(why.to_owned());
        }
        if self.has_global("zero-warning") {
            let why =
                "it has zero-warning, and HAProxy warns of servers that a reload takes out; leave it out";
            return Some(why.to_owned());
        }
        let is_other = |c: char| !(c.is_ascii_alphanumeric() || "_-./:".contains(c));
        let named = self.lines.iter().flat_map(|line| &line.words).flat_map(|word| word.split(is_other));
        let named = named.filter(|name| name.starts_with("nodegate_")).min()?;
        let why = "the name of a generated section, which goes with its Service; use names of your own";
        Some(format!("it has {named}, {why}"))
    }

    /// Returns true if a `global` section has the keyword.
    pub(crate) fn has_global(&self, keyword: &str) -> bool {
        let has =
            |line: &Line| line.section == "global" && line.words.first().is_some_and(|word| word == keyword);
        self.lines.iter().any(has)
    }

    /// Returns true if the template listens on one of these sockets.
    pub(crate) fn listens_on(&self, other: &Listen) -> bool {
        let meets = |socket: Socket| other.addresses.iter().any(|ip| socket.meets(other.port, *ip));
        self.lines.iter().flat_map(Line::sockets).any(meets)
    }
}

impl Line {
    fn sockets(&self) -> impl Iterator<Item = Socket> {
        let at = match (self.section.as_str(), self.words.first().map(String::as_str)) {
            (_, Some("bind")) => 1,
            ("peers", Some("peer")) | ("global", Some("stats")) => 2,
            _ => usize::MAX,
        };
        self.words.get(at).into_iter().flat_map(|list| list.split(',')).filter_map(socket)
    }
}

/// Returns the socket of a word such as `ipv4@*:80-89`. A name stands for all addresses.
fn socket(word: &str) -> Option<Socket> {
    let (kind, address) = word.rsplit_once('@').unwrap_or(("", word));
    let (address, ports) = address.rsplit_once(':')?;
    let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
    if address.starts_with('/') || kind.contains("quic") || kind.contains("udp") {
        return None;
    }
    let ip = match address.trim_matches(['[', ']']) {
        "" | "*" => Ipv4Addr::UNSPECIFIED.into(),
        address => address.parse().unwrap_or(Ipv6Addr::UNSPECIFIED.into()),
    };
    Some(Socket { ip, ports: low.parse().ok()?..=high.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_of_a_template_are_found_as_haproxy_reads_them() {
        for (text, address, ports) in [
            (&b"listen x\n  bind *:8404"[..], "::", &[8404][..]),
            (b"bind :80,:::443 v4v6 ssl crt /x", "::", &[80, 443]),
            (b"bind 10.0.0.1:9000-9002 # bind :1", "10.0.0.1", &[9000, 9001, 9002]),
            (b"bind 10.0.0.2:443", "10.0.0.1", &[]),
            (b"bind *:443", "fd00::1", &[]),
            (b"bind *:443", "10.0.0.1", &[443]),
            (b"bind [::]:443", "10.0.0.1", &[443]),
            (b"bind 10.0.0.1:443", "::", &[443]),
            (b"bind [::ffff:10.0.0.1]:443", "10.0.0.1", &[443]),
            (b"bind [fd00::1]:443", "fd00::1", &[443]),
            (b"bind localhost:443", "10.0.0.1", &[443]),
            (b"bind quic4@:443", "::", &[]),
            (b"bind /run/x.sock", "::", &[]),
            (b"  server a 1.2.3.4:1234", "::", &[]),
            (b"bind", "::", &[]),
            (b"bind \":82\" name \xff\xfe", "::", &[82]),
            (b"bind '*:83' ssl", "::", &[83]),
            (b"\"bind\" ipv4@\\*:84", "::", &[84]),
            (b"\xe4\xf6 bind :85", "::", &[]),
            (b"peers p\n  peer a 10.0.0.1:1024\n  bind :1025", "10.0.0.1", &[1024, 1025]),
            (b"global\n  stats socket ipv4@10.0.0.1:9999 level admin\n  stats timeout 1m", "::", &[9999]),
        ] {
            let template = Template::parse(text.to_vec()).unwrap();
            let addresses = vec![address.parse().unwrap()];
            let found = (1..=10_000)
                .filter(|port| template.listens_on(&Listen { port: *port, addresses: addresses.clone() }));
            assert_eq!(found.collect::<Vec<_>>(), ports, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_template_that_the_generated_part_can_t_follow_is_refused() {
        for (text, why) in [
            ("defaults nodegate\n", "defaults nodegate"),
            ("  \"defaults\" nodegate from x\n", "defaults nodegate"),
            ("global\n  zero-warning\n", "zero-warning"),
            ("listen x\n  use_backend nodegate_shop_web_443 if { path / }", "nodegate_shop_web_443"),
            ("frontend x\n  acl a nbsrv(nodegate_nodes) gt 1", "nodegate_nodes"),
            ("backend nodegate_x", "nodegate_x"),
            (
                "defaults mine\n# defaults nodegate, nodegate_x, zero-warning\n  errorfile 503 /nodegate_x/503\n",
                "",
            ),
            ("\u{0}\u{feff}", ""),
        ] {
            let refused = Template::parse(text.as_bytes().to_vec()).err();
            let said = refused.as_deref().unwrap_or_default();
            assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{text:?}: {said:?}");
        }
    }
}
