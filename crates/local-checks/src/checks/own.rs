//! The checks of the operator's own, `http:<name>` (a URL answers 2xx) and `tcp:<name>` (an address accepts
//! connections), and `okd_router_1936`.

use crate::check::{Check, Definition, KnownNode, Run, Timing};
use crate::http_get::{Header, HttpGet, status_reason};
use crate::options::{AnyKey, Options};
use crate::url::{HostPort, HttpUrl};
use nodegate_readiness::Outcome;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// The maximum length of a name. It is a label of metrics, and up to 32 names go into a query.
const MAX_NAME: usize = 63;

/// The `OpenShift` router on this node, by its `STATS_PORT`, which host networking makes the host's.
pub(crate) const OKD_ROUTER_1936: Definition = Definition {
    name: "okd_router_1936",
    options: &[&HttpUrl::KEY],
    timing: Timing::USUAL,
    new: |context| {
        let usual = || HttpUrl::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 1936)), "/healthz/ready");
        Arc::new(Target::Http(HttpGet::new(context.options.get(&HttpUrl::KEY).unwrap_or_else(usual))))
    },
};

/// A check of a URL or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// Passes if the answer is 2xx.
    Http(HttpGet),
    /// Passes if a connection opens. It is closed at once, without a byte.
    Tcp(HostPort),
}

impl Check for Target {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async {
            match self {
                Self::Tcp(to) => to.connect().await.err().map(|error| error.reason).into(),
                Self::Http(get) => match get.status().await {
                    Ok(status) if status.is_success() => Outcome::Pass,
                    Ok(status) => Outcome::Fail(status_reason(status)),
                    Err(error) => Outcome::Fail(error.reason),
                },
            }
        })
    }
}

/// The checks of the operator's own: each with its name, which begins with its kind (`http:nginx`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnChecks(Vec<(String, Target)>);

impl OwnChecks {
    /// Adds `<name>=<url>`, named `http:<name>` in requests. The error says what is accepted.
    pub fn add_http(&mut self, text: &str) -> Result<(), String> {
        self.add("http", text, "nginx=http://127.0.0.1:10254/healthz", |url| Target::Http(HttpGet::new(url)))
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
    pub(crate) fn keys(&self, name: &str) -> Option<&'static [&'static dyn AnyKey]> {
        let (_, target) = self.0.iter().find(|(known, _)| known == name)?;
        Some(if matches!(target, Target::Http(_)) { &[&Header::KEY] } else { &[] })
    }

    /// Returns the checks with their names; `options` has the settings of each name.
    pub(crate) fn checks(
        &self,
        options: impl Fn(&str) -> Options,
    ) -> impl Iterator<Item = (&str, Arc<dyn Check>)> {
        self.0.iter().map(move |(name, target)| {
            let mut check = target.clone();
            if let Target::Http(get) = &mut check {
                get.header = options(name).get(&Header::KEY);
            }
            (name.as_str(), Arc::new(check) as Arc<dyn Check>)
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
