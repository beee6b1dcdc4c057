//! The names that may go into a configuration, and the names of the generated sections.

use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The default prefix, for an operator who runs one nodegate-haproxy.
pub const DEFAULT_PREFIX: &str = "nodegate";
/// The maximum length of a prefix, so that HAProxy's own lists stay readable.
const MAX_PREFIX: usize = 32;

/// The prefix of all generated names (`--prefix`), so that two clusters can share one HAProxy.
///
/// A prefix contains no underscore, and neither do namespaces and names of Services. So no two names are
/// equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: Arc<str>,
    nodes: Arc<str>,
}

impl Default for Names {
    fn default() -> Self {
        Self::new(DEFAULT_PREFIX)
    }
}

impl Names {
    /// Creates names that begin with a prefix.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into(), nodes: format!("{prefix}_nodes").into() }
    }

    /// Returns the prefix.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the first line of every generated configuration. A file without it belongs to another program
    /// or a person.
    pub fn marker(&self) -> String {
        format!("{} it replaces the whole file, so put nothing into it.", self.mark())
    }

    fn mark(&self) -> String {
        format!("# Managed by nodegate-haproxy --prefix {};", self.prefix)
    }

    /// Returns true if a configuration begins with the marker or is empty.
    pub fn may_replace(&self, text: &[u8]) -> bool {
        text.trim_ascii().is_empty() || text.starts_with(self.mark().as_bytes())
    }

    /// Returns the name of the backend whose servers are the nodes themselves; other backends track it.
    pub fn nodes(&self) -> &str {
        &self.nodes
    }

    /// Returns the name of the backend that checks each node, drained or not. The last-resort backends track
    /// it.
    pub fn passing(&self) -> String {
        format!("{}_passing", self.prefix)
    }

    /// Returns the name of a Service port's backend.
    pub fn backend(&self, namespace: &str, service: &str, port: u16) -> String {
        format!("{}_{namespace}_{service}_{port}", self.prefix)
    }

    /// Returns the name of a backend of drained nodes, for when none is Ready.
    pub fn last_resort(&self, kind: &str) -> String {
        format!("{}_last_resort_{kind}", self.prefix)
    }

    /// Returns the name of a backend of drained nodes that serves one Service port alone.
    pub fn last_resort_of(&self, namespace: &str, service: &str, port: u16) -> String {
        self.last_resort(&format!("{namespace}_{service}_{port}"))
    }

    /// Returns the name of a backend of all nodes, for when none passes its check.
    pub fn any_node(&self, kind: &str) -> String {
        format!("{}_any_node_{kind}", self.prefix)
    }
}

/// Returns true if a text can be a prefix: a short DNS label. Other texts could not be told from the rest of
/// a name.
pub fn is_prefix(text: &str) -> bool {
    text.len() <= MAX_PREFIX && !text.contains('.') && is_dns_name(text)
}

/// Returns true if a name from the API is a DNS subdomain (RFC 1123), as the API server promises. No other
/// name is written into a configuration, so no name can end a line or begin a keyword.
pub fn is_dns_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
    let outer = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let bytes = name.as_bytes();
    name.len() <= 253 && bytes.iter().all(|c| inner(*c)) && outer(bytes.first()) && outer(bytes.last())
}

/// Returns a digest of a text as a word: the first half of its SHA-256. Tenants choose such texts, so no two
/// texts may have the same digest.
pub fn hash(text: impl AsRef<[u8]>) -> String {
    let mut digest = format!("{:x}", Sha256::digest(text.as_ref()));
    digest.truncate(32);
    digest
}

/// Returns the name of the frontend that leads to a backend. No port ends like this, so no backend has this
/// name.
pub fn frontend(backend: &str) -> String {
    format!("{backend}_frontend")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_hash_is_the_published_one() {
        // From FIPS 180-2.
        assert_eq!(hash("abc"), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(hash(""), "e3b0c44298fc1c149afbf4c8996fb924");
    }

    #[test]
    fn no_two_sections_have_one_name_nor_those_of_two_clusters() {
        let of = |prefix| {
            let names = Names::new(prefix);
            let backend = names.backend("last", "resort", 443);
            let shared = [names.last_resort("resort_443"), names.any_node("resort_443")];
            let own = [names.nodes().to_owned(), frontend(&backend), backend];
            let local = [names.last_resort_of("last", "resort", 443)];
            [own.as_slice(), &shared, &local].concat()
        };
        let all = [of("east"), of("eas"), of("east-last")].concat();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 18, "{all:?}");
    }

    #[test]
    fn only_what_we_wrote_or_nothing_may_be_replaced() {
        let (ours, others) = (Names::new("east"), Names::new("eas"));
        let text = format!("{}\nbackend east_nodes\n", ours.marker());
        assert!(ours.may_replace(text.as_bytes()) && ours.may_replace(b"") && ours.may_replace(b"\n \n"));
        let hand_written = [format!("\n{text}"), format!(" {text}"), "global\n".to_owned(), others.marker()];
        for text in hand_written {
            assert!(!ours.may_replace(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_prefix_is_one_short_word() {
        for good in ["nodegate", "east", "c1", "east-1"] {
            assert!(is_prefix(good), "{good}");
        }
        for bad in ["", "a_b", "A", "a.b", "-a", "a b", &"a".repeat(33)] {
            assert!(!is_prefix(bad), "{bad:?}");
        }
    }

    #[test]
    fn only_dns_names_pass() {
        for good in ["a", "node-1", "ip-10-0-0-1.eu.example.com", "0"] {
            assert!(is_dns_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a_b", "A", "a b", "a\nb", "a#", "a;b", "ä", ".a", &"a".repeat(254)] {
            assert!(!is_dns_name(bad), "{bad:?}");
        }
    }
}
