//! The watched objects besides the Node, reduced to the needed fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::runtime::reflector::Lookup;
use nodegate_kube_follow::{WatchedNode, resource};
use nodegate_readiness::{Endpoint, EndpointSlice};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// The namespace of the kubelets' heartbeats.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// A type that can be followed.
pub(crate) trait Watched:
    Resource<DynamicType = ()>
    + Lookup<DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Drops the parts that are not needed on the node with this name.
    fn trim(&mut self, _node: &str) {
        self.meta_mut().managed_fields = None;
    }
}

impl Watched for WatchedNode {}
impl Watched for WatchedLease {}

impl Watched for WatchedSlice {
    /// Drops endpoints on other nodes: a large Service has thousands of them.
    fn trim(&mut self, node: &str) {
        self.metadata.managed_fields = None;
        if let Some(endpoints) = &mut self.endpoints {
            endpoints.retain(|endpoint| endpoint.node_name.as_deref() == Some(node));
            endpoints.shrink_to_fit();
        }
    }
}

/// A Lease, reduced to its renewal.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WatchedLease {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<LeaseSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    /// A malformed date counts as missing, and does not end the watch.
    #[serde(default)]
    renew_time: Option<String>,
    /// A value that is no number of seconds counts as missing, for the same reason.
    #[serde(default)]
    lease_duration_seconds: Option<serde_json::Value>,
}

/// The number of renewals in the duration of a Lease.
const RENEWALS: u32 = 4;
/// The longest duration of a Lease that is used.
const LONGEST_LEASE: Duration = Duration::from_hours(1);

impl WatchedLease {
    /// Returns the time of the renewal, by the kubelet's clock.
    pub(crate) fn renewed(&self) -> Option<SystemTime> {
        let text = self.spec.as_ref()?.renew_time.as_ref()?;
        text.parse::<Timestamp>().ok().map(SystemTime::from)
    }

    /// Returns the interval of the renewals.
    pub(crate) fn renewed_every(&self) -> Option<Duration> {
        let seconds = self.spec.as_ref()?.lease_duration_seconds.as_ref()?.as_u64()?;
        let holds = Duration::from_secs(seconds).min(LONGEST_LEASE);
        (!holds.is_zero()).then_some(holds / RENEWALS)
    }
}

/// An `EndpointSlice`, as far as the count of ready local endpoints depends on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WatchedSlice {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    ports: Option<Vec<Port>>,
    #[serde(default)]
    endpoints: Option<Vec<ApiEndpoint>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Port {
    #[serde(default)]
    port: Option<i32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    conditions: Option<Conditions>,
}

#[derive(Clone, Debug, Deserialize)]
struct Conditions {
    #[serde(default)]
    ready: Option<bool>,
    #[serde(default)]
    terminating: Option<bool>,
}

impl WatchedSlice {
    /// Returns the facts of the slice for `node`. Names (address type FQDN) are skipped, as in kube-proxy.
    pub(crate) fn facts(&self, node: &str) -> EndpointSlice {
        // kube-proxy also treats a missing port as none.
        let has_port = self.ports.iter().flatten().any(|port| port.port.is_some_and(|port| port != 0));
        let endpoints = self.endpoints.iter().flatten().filter_map(ApiEndpoint::to_endpoint);
        EndpointSlice { has_port, endpoints: endpoints.filter(|endpoint| endpoint.is_on(node)).collect() }
    }
}

impl ApiEndpoint {
    fn to_endpoint(&self) -> Option<Endpoint> {
        let address: IpAddr = self.addresses.first()?.parse().ok()?;
        // Unknown means ready and not terminating (discovery.k8s.io/v1, EndpointConditions). With
        // publishNotReadyAddresses, an endpoint that terminates is ready, too.
        let ready = self.conditions.as_ref().is_none_or(|conditions| {
            conditions.ready.unwrap_or(true) && !conditions.terminating.unwrap_or(false)
        });
        Some(Endpoint { address, node: self.node_name.clone(), ready })
    }
}

resource!(WatchedSlice, NamespaceResourceScope, "EndpointSlice", "discovery.k8s.io", "endpointslices");
resource!(WatchedLease, NamespaceResourceScope, "Lease", "coordination.k8s.io", "leases");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_read_with_the_defaults_of_the_api() {
        let read = |json: &str| serde_json::from_str::<WatchedSlice>(json).unwrap().facts("n1");
        for json in ["{}", r#"{"metadata":{},"ports":null,"endpoints":null}"#] {
            assert_eq!(read(json), EndpointSlice::default(), "{json}");
        }
        let slice = read(
            r#"{"addressType":"IPv4","ports":[{"name":"","port":8080,"protocol":"TCP"}],"endpoints":[
            {"addresses":["10.0.0.1","10.0.0.9"],"nodeName":"n1"},
            {"addresses":["10.0.0.2"],"nodeName":"n1","conditions":{}},
            {"addresses":["10.0.0.3"],"nodeName":"n1","conditions":{"ready":false,"serving":true,"terminating":true}},
            {"addresses":["10.0.0.6"],"nodeName":"n1","conditions":{"ready":true,"terminating":true}},
            {"addresses":["10.0.0.4"],"nodeName":"n2","conditions":{"ready":true}},
            {"addresses":["10.0.0.5"]},{"addresses":[],"nodeName":"n1"},{"addresses":["web.example"],"nodeName":"n1"}]}"#,
        );
        let ready: Vec<_> = slice.endpoints.iter().map(|e| (e.address.to_string(), e.ready)).collect();
        assert!(slice.has_port);
        assert_eq!(
            ready,
            [("10.0.0.1", true), ("10.0.0.2", true), ("10.0.0.3", false), ("10.0.0.6", false)]
                .map(|(a, r)| (a.to_owned(), r))
        );
        assert!(!read(r#"{"ports":[{"name":"x"},{"port":0}]}"#).has_port);
    }

    #[test]
    fn a_lease_has_the_date_of_its_renewal_or_none() {
        let read = |spec: &str| {
            let lease: WatchedLease = serde_json::from_str(&format!(r#"{{"metadata":{{}}{spec}}}"#)).unwrap();
            lease.renewed().map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros())
        };
        let renewed = r#","spec":{"holderIdentity":"n1","renewTime":"2026-11-21T06:40:10.000250Z"}"#;
        assert_eq!(read(renewed), Some(1_795_243_210_000_250));
        for none in ["", r#","spec":null"#, r#","spec":{}"#, r#","spec":{"renewTime":"soon"}"#] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn a_lease_says_how_often_it_is_renewed() {
        let read = |seconds: &str| {
            let json = format!(r#"{{"spec":{{"leaseDurationSeconds":{seconds}}}}}"#);
            serde_json::from_str::<WatchedLease>(&json).unwrap().renewed_every()
        };
        assert_eq!(read("40"), Some(Duration::from_secs(10)));
        assert_eq!(read("52"), Some(Duration::from_secs(13)));
        assert_eq!(read("99999999"), Some(Duration::from_mins(15)));
        for none in ["0", "-4", "null", "\"x\"", "1.5"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn endpoints_elsewhere_are_not_held() {
        let json = r#"{"ports":[{"port":1}],"endpoints":[{"addresses":["10.0.0.1"],"nodeName":"n1"},
            {"addresses":["10.0.0.2"],"nodeName":"n2"},{"addresses":["10.0.0.3"]}]}"#;
        let mut slice: WatchedSlice = serde_json::from_str(json).unwrap();
        let before = slice.facts("n1");
        slice.trim("n1");
        assert_eq!(slice.endpoints.as_ref().map(Vec::len), Some(1));
        assert_eq!(slice.facts("n1"), before);
    }
}
