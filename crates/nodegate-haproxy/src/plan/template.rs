//! The operator's part of the file, as far as the generated part depends on it.

use crate::plan::listen::{Listen, overlap};
use crate::plan::names;
use shlex::Shlex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The keywords that begin a section.
const SECTIONS: &str = "global defaults frontend backend listen peers resolvers mailers userlist program http-errors ring \
    log-forward log-profile cache fcgi-app crt-store traces acme";

/// Words of a line by which HAProxy may have a socket that a plain one can't have, or the reverse.
const SPECIAL: [&str; 3] = ["interface", "namespace", "transparent"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Template {
    pub(crate) bytes: Vec<u8>,
    lines: Vec<Line>,
}

/// A socket that a configuration listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    Tcp {
        ip: IpAddr,
        ports: RangeInclusive<u16>,
        /// True if a plain socket shows whether HAProxy can have this one.
        is_plain: bool,
    },
    Unix(PathBuf),
}

impl Socket {
    /// Returns true if it prevents a socket on one of these addresses.
    pub(crate) fn meets(&self, port: u16, addresses: &[IpAddr]) -> bool {
        match self {
            Self::Tcp { ip, ports, .. } => {
                ports.contains(&port) && addresses.iter().any(|other| overlap(*ip, *other))
            }
            Self::Unix(_) => false,
        }
    }
}

/// Returns the sockets of a configuration.
pub(crate) fn sockets(configuration: &[u8]) -> Vec<Socket> {
    let text = String::from_utf8_lossy(configuration);
    lines(&text).flat_map(|line| line.sockets()).collect()
}

fn lines(text: &str) -> impl Iterator<Item = Line> {
    let mut section = String::new();
    text.lines().map(|line| Shlex::new(line).collect::<Vec<_>>()).filter(|words| !words.is_empty()).map(
        move |words| {
            if let Some(first) =
                words.first().filter(|first| SECTIONS.split(' ').any(|keyword| keyword == *first))
            {
                section.clone_from(first);
            }
            Line { section: section.clone(), words }
        },
    )
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
        let starts = |line: &Line, with: &[&str]| {
            line.words.iter().zip(with).filter(|(a, b)| a == b).count() == with.len()
        };
        if self.lines.iter().any(|line| starts(line, &["defaults", names::DEFAULTS])) {
            return Some(
                "it has a \"defaults nodegate\", which the generated part has; give yours another name"
                    .to_owned(),
            );
        }
        if self.has_global("zero-warning", |_| true) {
            return Some(
                "it has zero-warning, and HAProxy warns of servers that a reload takes out; leave it out"
                    .to_owned(),
            );
        }
        let is_other = |c: char| !(c.is_ascii_alphanumeric() || "_-./:".contains(c));
        let named = self.lines.iter().flat_map(|line| &line.words).flat_map(|word| word.split(is_other));
        let named = named.filter(|name| name.starts_with("nodegate_")).min()?;
        let why = "the name of a generated section, which goes with its Service; use names of your own";
        Some(format!("it has {named}, {why}"))
    }

    /// Returns true if a `global` section has the keyword, and what follows it is as required.
    pub(crate) fn has_global(&self, keyword: &str, fits: impl Fn(&[String]) -> bool) -> bool {
        let of_global =
            |line: &&Line| line.section == "global" && line.words.first().is_some_and(|word| word == keyword);
        self.lines.iter().filter(of_global).any(|line| fits(line.words.get(1..).unwrap_or_default()))
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = Socket> {
        self.lines.iter().flat_map(Line::sockets)
    }

    /// Returns true if the template listens on one of these sockets.
    pub(crate) fn listens_on(&self, other: &Listen) -> bool {
        self.sockets().any(|socket| socket.meets(other.port, &other.addresses))
    }
}

impl Line {
    fn sockets(&self) -> Vec<Socket> {
        let at = match (self.section.as_str(), self.words.first().map(String::as_str)) {
            (_, Some("bind")) => 1,
            ("peers", Some("peer")) | ("global", Some("stats")) => 2,
            _ => return Vec::new(),
        };
        let is_plain = !self.words.iter().any(|word| SPECIAL.contains(&word.as_str()));
        let addresses = self.words.get(at).into_iter().flat_map(|list| list.split(','));
        addresses.filter_map(|word| socket(word, is_plain)).collect()
    }
}

/// Returns the socket of a word such as `ipv4@*:80-89`. A name stands for all addresses.
fn socket(word: &str, is_plain: bool) -> Option<Socket> {
    let (kind, address) = word.rsplit_once('@').unwrap_or(("", word));
    if address.starts_with('/') {
        return Some(Socket::Unix(address.into()));
    }
    let (address, ports) = address.rsplit_once(':')?;
    let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
    if kind.contains("quic") || kind.contains("udp") {
        return None;
    }
    let ip = match address.trim_matches(['[', ']']) {
        "" | "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
        address => address.parse().ok(),
    };
    let (is_plain, ip) = (is_plain && ip.is_some(), ip.unwrap_or(Ipv6Addr::UNSPECIFIED.into()));
    Some(Socket::Tcp { ip, ports: low.parse().ok()?..=high.parse().ok()?, is_plain })
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
                "defaults mine\n# defaults nodegate, nodegate_x, zero-warning\n  errorfile 503 /etc/nodegate_x/503\n",
                "",
            ),
            ("\u{0}\u{feff}", ""),
        ] {
            let refused = Template::parse(text.as_bytes().to_vec()).err();
            assert!(
                refused.as_ref().is_some_and(|said| said.contains(why)) != why.is_empty(),
                "{text:?}: {refused:?}"
            );
        }
    }
}
