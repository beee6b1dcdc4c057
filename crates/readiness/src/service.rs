//! Watched Services: the number of their ready endpoints on this node, counted as kube-proxy counts them for
//! healthCheckNodePort.

use crate::moment::Moment;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// The reason while no endpoint on this node is ready.
pub const NO_LOCAL_ENDPOINTS: &str = "NoLocalEndpoints";

/// The time for which balancers wait for the first ready endpoint. kube-proxy changes its rules at most once a second
/// (`minSyncPeriod`), and refuses connections until then.
const RULES_OF_KUBE_PROXY: Duration = Duration::from_secs(2);

/// A Service's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    namespace: String,
    name: String,
}

/// The error for a text that names no Service.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes namespace/name, e.g. ingress/router")]
pub struct BadServiceName;

/// The facts of a watched Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// The number of ready endpoints on this node.
    pub local_endpoints: usize,
}

/// A watched Service: its facts, and the state of its watch. Its freshness is that of the Node: one client
/// watches both, and proof that its API server is in touch with etcd holds for both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedService {
    /// The facts; `None` before the first list.
    pub facts: Option<ServiceFacts>,
    /// The state of its own watch.
    pub watch: ServiceWatch,
    /// The time at which its last ready endpoint left this node, or the first one came back.
    pub changed: Moment,
}

/// The state of a Service's own watch, which may be lost alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceWatch {
    /// The first list is missing; the facts may be an earlier agent's.
    #[default]
    NotYet,
    /// Changes arrive: proof for the Node is proof for the Service.
    Open,
    /// Proof for the Node is no proof for the Service, which was last proved at this time.
    Lost(Moment),
}

/// One `EndpointSlice`, as far as the count depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSlice {
    /// True if it has a port; without one its endpoints can't be reached.
    pub has_port: bool,
    /// The endpoints of the slice.
    pub endpoints: Vec<Endpoint>,
}

/// One endpoint of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its first address; further addresses belong to the same endpoint.
    pub address: IpAddr,
    /// The name of its node, if it has one.
    pub node: Option<String>,
    /// `conditions.ready`, unless it is terminating: traffic may still go to a terminating endpoint, but a
    /// balancer must not choose the node for it.
    pub ready: bool,
}

// === impl ServiceName ===

impl ServiceName {
    /// Returns the namespace of the Service.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns its name in the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for ServiceName {
    type Err = BadServiceName;

    fn from_str(text: &str) -> Result<Self, BadServiceName> {
        match text.split_once('/') {
            Some((namespace, name)) if is_label(namespace) && is_label(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(BadServiceName),
        }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
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

// === impl WatchedService ===

impl WatchedService {
    /// Sets the facts as of `now`.
    pub fn set(&mut self, facts: &ServiceFacts, now: Moment) {
        // Balancers get the answer for one endpoint before the first list.
        let is_out = |facts: Option<&ServiceFacts>| facts.is_some_and(|facts| facts.local_endpoints == 0);
        if is_out(self.facts.as_ref()) != is_out(Some(facts)) {
            self.changed = now;
        }
        self.facts = Some(facts.clone());
    }

    /// Returns true if kube-proxy may not have its rules yet for the first ready endpoint, which has just come back.
    pub fn is_returning(&self, now: Moment) -> bool {
        let is_back = self.changed > Moment::default()
            && self.facts.as_ref().is_some_and(|facts| facts.local_endpoints > 0);
        is_back && now.since(self.changed) < RULES_OF_KUBE_PROXY
    }

    /// Returns true if its own watch makes the facts stale, however fresh the Node is.
    pub fn is_stale(&self, stale_after: Duration, now: Moment) -> bool {
        match self.watch {
            ServiceWatch::NotYet => true,
            ServiceWatch::Open => false,
            ServiceWatch::Lost(at) => now.since(at) > stale_after,
        }
    }

    /// Returns the time at which its own watch will make the facts stale, if it will.
    pub fn fresh_until(&self, stale_after: Duration) -> Option<Moment> {
        match self.watch {
            ServiceWatch::NotYet | ServiceWatch::Open => None,
            ServiceWatch::Lost(at) => Some(at.plus(stale_after)),
        }
    }
}

// === impl ServiceFacts ===

impl ServiceFacts {
    /// Counts the endpoints of all slices that are ready on `node`.
    ///
    /// It counts as kube-proxy does (`pkg/proxy/endpoints.go`, `LocalReadyEndpoints`): an address counts
    /// once, however many ports and slices name it. kube-proxy counts for each address family by itself; here
    /// the larger count stands for both, so that a dual-stack endpoint, which has a slice in each, is one
    /// endpoint.
    pub fn count<'a>(slices: impl IntoIterator<Item = &'a EndpointSlice>, node: &str) -> Self {
        let reachable = slices.into_iter().filter(|slice| slice.has_port);
        let local = reachable.flat_map(|slice| &slice.endpoints).filter(|endpoint| endpoint.is_on(node));

        let ready = local.filter(|endpoint| endpoint.ready);
        let addresses: BTreeSet<IpAddr> = ready.map(|endpoint| endpoint.address).collect();
        let v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
        Self { local_endpoints: v4.max(addresses.len() - v4) }
    }
}

impl Endpoint {
    /// Returns true if it is on this node. An endpoint without a node name is on none.
    pub fn is_on(&self, node: &str) -> bool {
        self.node.as_deref().is_some_and(|on| on == node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint(address: &str, node: &str, ready: bool) -> Endpoint {
        let node = (!node.is_empty()).then(|| node.to_owned());
        Endpoint { address: address.parse().unwrap(), node, ready }
    }

    fn slice(endpoints: Vec<Endpoint>) -> EndpointSlice {
        EndpointSlice { has_port: true, endpoints }
    }

    fn count(slices: &[EndpointSlice]) -> usize {
        ServiceFacts::count(slices, "here").local_endpoints
    }

    #[test]
    fn only_ready_endpoints_on_this_node_count() {
        let slices = [
            slice(vec![
                endpoint("10.0.0.1", "here", true),
                endpoint("10.0.0.2", "here", false),
                endpoint("10.0.0.3", "there", true),
                endpoint("10.0.0.4", "", true),
            ]),
            slice(vec![endpoint("10.0.0.5", "here", true)]),
        ];
        assert_eq!(count(&slices), 2);
        assert_eq!(count(&[]), 0);
    }

    #[test]
    fn names() {
        let name: ServiceName = "ingress/router-2".parse().unwrap();
        assert_eq!((name.namespace(), name.name()), ("ingress", "router-2"));
        assert_eq!(name.to_string(), "ingress/router-2");
        for bad in ["", "a", "a/", "/a", "a/b/c", "A/b", "a/b,c", "a/b=c", "a b/c", "-a/b", "a/b-", "a/é"] {
            assert_eq!(bad.parse::<ServiceName>(), Err(BadServiceName), "{bad:?}");
        }
        assert!(format!("a/{}", "b".repeat(64)).parse::<ServiceName>().is_err());
    }

    /// Returns endpoints with few addresses, so that they collide.
    fn any_endpoint() -> impl Strategy<Value = Endpoint> {
        let address = prop_oneof![
            (0u8..6).prop_map(|n| IpAddr::from([10, 0, 0, n])),
            (0u16..6).prop_map(|n| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n])),
        ];
        let node = prop::option::of(prop_oneof![Just("here".to_owned()), Just("there".to_owned())]);
        (address, node, any::<bool>()).prop_map(|(address, node, ready)| Endpoint { address, node, ready })
    }

    fn any_slices() -> impl Strategy<Value = Vec<EndpointSlice>> {
        let slice = (any::<bool>(), prop::collection::vec(any_endpoint(), 0..8))
            .prop_map(|(has_port, endpoints)| EndpointSlice { has_port, endpoints });
        prop::collection::vec(slice, 0..6)
    }

    proptest! {
        #[test]
        fn the_count_is_that_of_the_larger_family(slices in any_slices()) {
            let of_family = |v4: bool| {
                let mut seen: Vec<IpAddr> = slices.iter().filter(|slice| slice.has_port).flat_map(|slice| &slice.endpoints)
                    .filter(|e| e.ready && e.node.as_deref() == Some("here") && e.address.is_ipv4() == v4)
                    .map(|e| e.address).collect();
                seen.sort_unstable();
                seen.dedup();
                seen.len()
            };
            prop_assert_eq!(count(&slices), of_family(true).max(of_family(false)));
        }
    }
}
