//! The operator's part of the file.

use crate::apply::config_file::ConfigFile;
use crate::failure::Failure;
use crate::plan::names;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Display;
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

/// Returns the ports that the `bind` lines of a template name. HAProxy shares a socket of one process silently among
/// all that bind it, and gives each a part of the connections. So no Service may get one of them.
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
            assert_eq!(
                super::ports(line, variable),
                ports.iter().copied().collect(),
                "{}",
                String::from_utf8_lossy(line)
            );
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
