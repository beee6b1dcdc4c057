//! Watched Services: the number of their ready endpoints on this node.

use crate::bad_value::BadValue;
use crate::moment::Moment;
use std::str::FromStr;
use std::time::Duration;

/// The reason while no endpoint on this node is ready.
pub const NO_LOCAL_ENDPOINTS: &str = "NoLocalEndpoints";

/// The time for which balancers wait for the first ready endpoint. kube-proxy changes its rules at most once a second
/// (`minSyncPeriod`), and refuses connections until then.
const RULES_OF_KUBE_PROXY: Duration = Duration::from_secs(2);

/// A Service's namespace and name, which parsing creates alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{namespace}/{name}")]
#[non_exhaustive]
pub struct ServiceName {
    /// The namespace of the Service.
    pub namespace: String,
    /// Its name in the namespace.
    pub name: String,
}

/// A watched Service. Its facts are stale if the Node's are, or if its own proof is too old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedService {
    /// The number of ready endpoints on this node; `None` before the first list. It may be an earlier agent's until
    /// there is proof.
    pub local_endpoints: Option<usize>,
    /// The date of the last proof that the facts matched etcd: a list, or proof of the Node on the connection of
    /// the Service's watch.
    pub proved: Option<Moment>,
    /// The time at which its last ready endpoint left this node, or the first one came back.
    pub changed: Moment,
}

impl FromStr for ServiceName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text.split_once('/') {
            Some((namespace, name)) if is_label(namespace) && is_label(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(BadValue("namespace/name, e.g. ingress/router")),
        }
    }
}

/// Returns true if this is a DNS label (RFC 1123). Any other text would change the meaning of a path or of
/// the label selector.
fn is_label(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

impl WatchedService {
    /// Sets the number of ready endpoints as of `now`.
    pub fn set(&mut self, local_endpoints: usize, now: Moment) {
        // Balancers get the answer for one endpoint before the first list.
        if (self.local_endpoints == Some(0)) != (local_endpoints == 0) {
            self.changed = now;
        }
        self.local_endpoints = Some(local_endpoints);
    }

    /// Returns true if kube-proxy may not have its rules yet for the first ready endpoint, which has just come back.
    pub fn is_returning(&self, now: Moment) -> bool {
        let is_back = self.changed > Moment::default()
            && self.local_endpoints.is_some_and(|local_endpoints| local_endpoints > 0);
        is_back && now.since(self.changed) < RULES_OF_KUBE_PROXY
    }

    /// Returns true if its own proof is too old, however fresh the Node is.
    pub fn is_stale(&self, stale_after: Duration, now: Moment) -> bool {
        self.proved.is_none_or(|proved| now.since(proved) > stale_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let name: ServiceName = "ingress/router-2".parse().unwrap();
        assert_eq!((name.namespace.as_str(), name.name.as_str()), ("ingress", "router-2"));
        assert_eq!(name.to_string(), "ingress/router-2");
        for bad in ["", "a", "a/", "/a", "a/b/c", "A/b", "a/b,c", "a/b=c", "a b/c", "-a/b", "a/b-", "a/é"] {
            assert!(bad.parse::<ServiceName>().is_err(), "{bad:?}");
        }
        assert!(format!("a/{}", "b".repeat(64)).parse::<ServiceName>().is_err());
    }
}
