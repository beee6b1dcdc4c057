//! Parsers of values that settings of several programs accept.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Parses a duration within bounds, written with a unit: `500ms`, `15s`, `2m`.
pub fn duration(
    bounds: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let parse = |text: &str| humantime::parse_duration(text).ok().filter(|found| bounds.contains(found));
        parse(text).ok_or_else(|| {
            let [least, most] = [bounds.start(), bounds.end()]
                .map(|bound| humantime::format_duration(*bound).to_string().replace("1day", "24h"));
            let takes = format!("takes a duration from {least} to {most}");
            if text.bytes().all(|byte| byte.is_ascii_digit()) && parse(&format!("{text}s")).is_some() {
                return format!("has no unit: write {text}s; {takes}");
            }
            format!("{takes}, with its unit: ms, s, m or h")
        })
    }
}

/// Formats a duration as [`duration`] parses it, for the default of a setting: `clap` requires a static text.
pub fn shown(duration: Duration) -> &'static str {
    humantime::format_duration(duration).to_string().leak()
}

/// Parses a number within bounds; the error names them.
pub fn number<T: FromStr + PartialOrd + Clone + Send + Sync + 'static>(
    bounds: RangeInclusive<T>,
    takes: &'static str,
) -> impl Fn(&str) -> Result<T, &'static str> + Clone + Send + Sync + 'static {
    move |text| text.parse().ok().filter(|number| bounds.contains(number)).ok_or(takes)
}

/// Parses an IP address with a port.
pub fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "takes an IP address and a port, e.g. 127.0.0.1:25004 or [::]:25004")
}

/// Parses one of several words, two at least.
pub fn choice<T: Copy + Send + Sync>(
    words: &'static [(&'static str, T)],
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let chosen = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        chosen.ok_or_else(|| {
            let mut words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let last = words.pop().unwrap_or_default();
            format!("takes {} or {last}", words.join(", "))
        })
    }
}

/// Returns true if Kubernetes accepts this name for an object: a DNS subdomain (RFC 1123). Any other text would
/// change the meaning of a path or a field selector.
pub fn is_object_name(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.chars().all(|c| is_alphanumeric(c) || matches!(c, '-' | '.'))
        && name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
}

/// Parses the name of an object; the error says what it takes.
pub fn object_name(
    takes: &'static str,
) -> impl Fn(&str) -> Result<String, &'static str> + Clone + Send + Sync + 'static {
    move |text| is_object_name(text).then(|| text.to_owned()).ok_or(takes)
}

/// Parses the name of a Node.
pub fn node_name(text: &str) -> Result<String, &'static str> {
    object_name("takes the name of a Node: lower-case letters, digits, '-' and '.', at most 253")(text)
}

/// A comma-separated list as the value of a flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T: FromStr> List<T> {
    /// Parses a list of the values that the text describes.
    pub fn of(what: &'static str) -> impl Fn(&str) -> Result<Self, String> + Clone + Send + Sync + 'static {
        move |text| {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            let list = words.map(str::parse).collect::<Result<_, _>>();
            list.map(Self).map_err(|_| format!("takes a list of {what}"))
        }
    }
}

impl<T: Display> Display for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_again() {
        let parse = duration(Duration::from_secs(2)..=Duration::from_hours(1));
        for millis in [2000, 2500, 15_000, 90_000, 3_600_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(shown(duration)), Ok(duration));
        }
        let takes = "takes a duration from 2s to 1h";
        for wrong in ["1s", "61m", "1", "3601", "", "soon", "-3s", "2m s"] {
            assert_eq!(parse(wrong), Err(format!("{takes}, with its unit: ms, s, m or h")), "{wrong:?}");
        }
        assert_eq!(parse("15"), Err(format!("has no unit: write 15s; {takes}")));
    }

    #[test]
    fn lists_may_have_blanks_and_end_with_a_comma() {
        let parse = List::<u16>::of("ports");
        for text in ["22,80", " 22 , 80 ,", ",22,,80"] {
            assert_eq!(parse(text).map(|list| list.to_string()).as_deref(), Ok("22,80"), "{text:?}");
        }
        assert_eq!(parse(""), Ok(List::default()));
        assert_eq!(parse("22,x"), Err("takes a list of ports".to_owned()));
    }
}
