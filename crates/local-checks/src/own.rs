//! The operator's own checks: `nginx=http://127.0.0.1:10254/healthz`, `db=127.0.0.1:5432`.

use crate::checks::{http, tcp};
use crate::connect::{HostConnector, HostPort};
use crate::http_get::HttpGet;
use crate::interface::Check;
use crate::url::HttpUrl;
use std::str::FromStr;
use std::sync::Arc;

/// The maximum length of a name. It is a label of metrics, and up to 32 names go into a query.
const MAX_NAME: usize = 63;

/// All checks of the operator's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnChecks(Vec<OwnCheck>);

/// One of the operator's own checks: its name and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnCheck {
    /// The name with its kind: `http:nginx`.
    name: String,
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Http(HttpUrl),
    Tcp(HostPort),
}

/// The error for a text that defines no check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOwnCheck {
    /// The text has no `=`.
    #[error("takes <name>=<target>, e.g. {0}")]
    Form(&'static str),
    /// A name that a request could not contain.
    #[error("takes a name of letters, digits, '-', '_' and '.', at most {MAX_NAME}, before the \"=\"")]
    Name,
    /// A target of another form.
    #[error("{0}")]
    Target(String),
    /// A name that another check of the same kind has.
    #[error("there is another {0}")]
    Twice(String),
}

impl OwnChecks {
    /// Adds `<name>=<url>`, named `http:<name>` in requests.
    pub fn add_http(&mut self, text: &str) -> Result<(), BadOwnCheck> {
        self.add("http", text, "nginx=http://127.0.0.1:10254/healthz", Target::Http)
    }

    /// Adds `<name>=<host>:<port>`, named `tcp:<name>` in requests.
    pub fn add_tcp(&mut self, text: &str) -> Result<(), BadOwnCheck> {
        self.add("tcp", text, "db=127.0.0.1:5432", Target::Tcp)
    }

    fn add<T: FromStr>(
        &mut self,
        kind: &str,
        text: &str,
        example: &'static str,
        target: fn(T) -> Target,
    ) -> Result<(), BadOwnCheck>
    where
        T::Err: ToString,
    {
        let (name, value) = text.split_once('=').ok_or(BadOwnCheck::Form(example))?;
        let (name, value) = (name.trim(), value.trim());
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
            return Err(BadOwnCheck::Name);
        }
        let name = format!("{kind}:{name}");
        let target = target(value.parse().map_err(|bad: T::Err| BadOwnCheck::Target(bad.to_string()))?);
        if self.names().any(|other| other == name) {
            return Err(BadOwnCheck::Twice(name));
        }
        self.0.push(OwnCheck { name, target });
        Ok(())
    }

    /// Returns their names, with their kinds.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|check| check.name.as_str())
    }

    /// Returns the checks with their names.
    pub(crate) fn checks(&self) -> impl Iterator<Item = (&str, Arc<dyn Check>)> {
        self.0.iter().map(|check| (check.name.as_str(), check.make()))
    }
}

impl OwnCheck {
    fn make(&self) -> Arc<dyn Check> {
        match self.target.clone() {
            Target::Http(url) => Arc::new(http::Http(HttpGet::new(url))),
            Target::Tcp(to) => Arc::new(tcp::Tcp(HostConnector::new(to))),
        }
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
        let mut refused = |text: &str| own.add_http(text).unwrap_err().to_string();
        assert_eq!(refused("nginx"), "takes <name>=<target>, e.g. nginx=http://127.0.0.1:10254/healthz");
        assert_eq!(refused("a=http://127.0.0.1/"), "there is another http:a");
        let url = "takes a URL like http://127.0.0.1:8080/healthz";
        assert_eq!(refused("b="), url);
        assert!(refused("b=https://a/").contains("no TLS"));
        for name in ["", "a,b", "a&b", "a:b", "a b", "ä", "a%20", "a\"", &"a".repeat(64)] {
            assert!(refused(&format!("{name}=http://a/")).starts_with("takes a name of letters"), "{name}");
        }
        assert!(own.add_tcp("db=5432").unwrap_err().to_string().starts_with("takes a host and a port"));
        assert_eq!(own.names().count(), 1);
    }
}
