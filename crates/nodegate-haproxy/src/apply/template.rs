//! The operator's part of the file.

use crate::failure::Failure;
use crate::plan::names;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::Path;

/// The maximum size of a template.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a template. Without a path it is empty.
pub fn read(path: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES { Err(io::Error::other("it is too large")) } else { Ok(bytes) }
    };
    let failed = |why: &dyn Display| {
        Failure::new("template", format!("can't use --template {}: {why}", path.display()))
    };
    let bytes = read().map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&bytes);
    let is_ours =
        |line: &str| words(line, &|_| None).starts_with(&["defaults".into(), names::DEFAULTS.into()]);
    if text.lines().any(is_ours) {
        let what = "it has a \"defaults nodegate\", which the generated part has; give yours another name";
        return Err(failed(&what));
    }
    Ok(bytes)
}

/// Returns the sockets that the `bind` lines of a template name. HAProxy shares a socket of one process
/// silently among all that bind it, and gives each a part of the connections. So no Service may get one of them.
pub fn sockets<'a>(template: &[u8], variable: impl Fn(&str) -> Option<&'a OsStr>) -> Vec<(u16, IpAddr)> {
    let value = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
    let text = String::from_utf8_lossy(template);
    let of_line = |line: &str| -> Vec<(u16, IpAddr)> {
        let words = words(line, &value);
        let mut words = words.iter().map(String::as_str);
        if words.next() == Some("bind") {
            words.next().map(addresses).unwrap_or_default()
        } else {
            Vec::new()
        }
    };
    text.lines().flat_map(of_line).collect()
}

/// Splits a line into words as HAProxy does: quotes and backslashes hide blanks and `#`, and are removed; within
/// double quotes, `$NAME` and `${NAME}` stand for variables.
fn words(line: &str, variable: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars().peekable();
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
            ('$', Some('"')) => {
                let braced = letters.next_if_eq(&'{').is_some();
                let mut name = String::new();
                while let Some(c) = letters.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                while braced && letters.next().is_some_and(|c| c != '}') {}
                word.get_or_insert_default().push_str(&variable(&name).unwrap_or_default());
                continue;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
            (b"bind \"*:$PORT\"", &[8081]),
            (b"bind \":${OTHER}\"", &[]),
            (b"bind '*:82' ssl", &[82]),
            (b"\"bind\" ipv4@\\*:84", &[84]),
            (b"\xe4\xf6 bind :85", &[]),
            (b"bind \"\" :88", &[]),
        ] {
            let found: BTreeSet<u16> = sockets(line, variable).into_iter().map(|(port, _)| port).collect();
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
}
