//! The operator's own checks: `nginx=http://127.0.0.1:10254/healthz`, `db=127.0.0.1:5432`.

use crate::checks::{http::Http, tcp::Tcp};
use crate::connect::HostPort;
use crate::http_get::{Header, HttpGet};
use crate::interface::Check;
use crate::options::{OptionKey, Options};
use crate::url::HttpUrl;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

/// The maximum length of a name. It is a label of metrics, and up to 32 names go into a query.
const MAX_NAME: usize = 63;

/// The checks of the operator's own: each with its name, which begins with its kind (`http:nginx`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnChecks(Vec<(String, Target)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Http(HttpUrl),
    Tcp(HostPort),
}

impl OwnChecks {
    /// Adds `<name>=<url>`, named `http:<name>` in requests. The error says what is accepted.
    pub fn add_http(&mut self, text: &str) -> Result<(), String> {
        self.add("http", text, "nginx=http://127.0.0.1:10254/healthz", Target::Http)
    }

    /// Adds `<name>=<host>:<port>`, named `tcp:<name>` in requests. The error says what is accepted.
    pub fn add_tcp(&mut self, text: &str) -> Result<(), String> {
        self.add("tcp", text, "db=127.0.0.1:5432", Target::Tcp)
    }

    fn add<T: FromStr<Err: Display>>(
        &mut self,
        kind: &str,
        text: &str,
        example: &str,
        target: fn(T) -> Target,
    ) -> Result<(), String> {
        let parts = text.split_once('=').ok_or(format!("takes <name>=<target>, e.g. {example}"))?;
        let (name, value) = (parts.0.trim(), parts.1.trim());
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
            return Err(format!(
                "takes a name of letters, digits, '-', '_' and '.', at most {MAX_NAME}, before the \"=\""
            ));
        }
        let name = format!("{kind}:{name}");
        let target = target(value.parse().map_err(|takes: T::Err| takes.to_string())?);
        if self.names().any(|other| other == name) {
            return Err(format!("there is another {name}"));
        }
        self.0.push((name, target));
        Ok(())
    }

    /// Returns their names, with their kinds.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the keys of the check of this name besides its timing; `None` if there is no such check.
    pub(crate) fn keys(&self, name: &str) -> Option<&'static [OptionKey]> {
        let (_, target) = self.0.iter().find(|(known, _)| known == name)?;
        Some(if matches!(target, Target::Http(_)) { &[Header::OPTION] } else { &[] })
    }

    /// Returns the checks with their names; `options` has the settings of each name.
    pub(crate) fn checks(
        &self,
        options: impl Fn(&str) -> Options,
    ) -> impl Iterator<Item = (&str, Arc<dyn Check>)> {
        self.0.iter().map(move |(name, target)| {
            let check: Arc<dyn Check> = match target.clone() {
                Target::Http(url) => {
                    let header = options(name).get(Header::OPTION);
                    Arc::new(Http(HttpGet::new(url).with_header(header)))
                }
                Target::Tcp(to) => Arc::new(Tcp(to)),
            };
            (name.as_str(), check)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_their_kind() {
        let mut own = OwnChecks::default();
        own.add_http("nginx=http://127.0.0.1:10254/healthz?a=b").unwrap();
        own.add_tcp(" db = [::1]:5432 ").unwrap();
        own.add_tcp("nginx=localhost:80").unwrap();
        assert_eq!(own.names().collect::<Vec<_>>(), ["http:nginx", "tcp:db", "tcp:nginx"]);
    }

    #[test]
    fn mistakes_say_what_is_taken() {
        let mut own = OwnChecks::default();
        own.add_http("a=http://127.0.0.1/").unwrap();
        let mut refused = |text: &str| own.add_http(text).unwrap_err();
        assert_eq!(refused("nginx"), "takes <name>=<target>, e.g. nginx=http://127.0.0.1:10254/healthz");
        assert_eq!(refused("a=http://127.0.0.1/"), "there is another http:a");
        let url = "takes a URL like http://127.0.0.1:8080/healthz";
        assert_eq!(refused("b="), url);
        assert!(refused("b=https://a/").contains("no TLS"));
        for name in ["", "a,b", "a&b", "a:b", "a b", "ä", "a%20", "a\"", &"a".repeat(64)] {
            assert!(refused(&format!("{name}=http://a/")).starts_with("takes a name of letters"), "{name}");
        }
        assert!(own.add_tcp("db=5432").unwrap_err().starts_with("takes a host and a port"));
        assert_eq!(own.names().count(), 1);
    }
}
