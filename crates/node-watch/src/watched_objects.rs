//! The watched objects besides the Node, reduced to the needed fields.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use nodegate_kube_follow::resource;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::SystemTime;

/// The namespace of the kubelets' heartbeats.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// A Lease, reduced to its renewal.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WatchedLease {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: Option<LeaseSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    /// A malformed date counts as missing, and does not end the watch.
    renew_time: Option<String>,
}

impl WatchedLease {
    /// Returns the time of the renewal, by the kubelet's clock.
    pub(crate) fn renewed(&self) -> Option<SystemTime> {
        let text = self.spec.as_ref()?.renew_time.as_ref()?;
        text.parse::<Timestamp>().ok().map(SystemTime::from)
    }
}

/// An `EndpointSlice`, as far as the count of ready local endpoints depends on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WatchedSlice {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    address_type: String,
    ports: Option<Vec<Port>>,
    endpoints: Option<Vec<ApiEndpoint>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Port {
    port: Option<i32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    node_name: Option<String>,
    conditions: Option<Conditions>,
}

#[derive(Clone, Debug, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

/// The label of slices that kube-proxy leaves out.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// The label of the program that keeps a slice, and its value for slices of Services with a selector.
const MANAGED_BY: (&str, &str) =
    ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");

impl WatchedSlice {
    /// Drops endpoints on other nodes: a large Service has thousands of them.
    pub(crate) fn trim(&mut self, node: &str) {
        let local = self.by_address().into_values().filter(|endpoint| endpoint.is_on(node));
        self.endpoints = Some(local.cloned().collect());
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(name).map(String::as_str)
    }

    /// Returns the endpoint of each address. As in kube-proxy, the last of two equal endpoints counts, whatever its node;
    /// but one that terminates replaces no other. Names (address type FQDN) and addresses of another family are skipped.
    fn by_address(&self) -> BTreeMap<IpAddr, &ApiEndpoint> {
        let mut endpoints = BTreeMap::new();
        for endpoint in self.endpoints.iter().flatten() {
            let Some(Ok(address)) = endpoint.addresses.first().map(|address| address.parse::<IpAddr>())
            else {
                continue;
            };
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let is_taken = endpoint.is_terminating() && endpoints.contains_key(&address);
            if family == self.address_type && !is_taken {
                endpoints.insert(address, endpoint);
            }
        }
        endpoints
    }

    /// Returns the addresses of the ready endpoints on `node`. As in kube-proxy, a slice needs a port with a number.
    fn ready_on(&self, node: &str) -> impl Iterator<Item = IpAddr> {
        let has_port = self.ports.iter().flatten().any(|port| port.port.is_some_and(|port| port != 0));
        let counts = has_port && self.label(HEADLESS).is_none();
        let ready = move |endpoint: &ApiEndpoint| counts && endpoint.is_on(node) && endpoint.is_ready();
        self.by_address().into_iter().filter(move |(_, endpoint)| ready(endpoint)).map(|(address, _)| address)
    }
}

impl ApiEndpoint {
    /// Unknown means ready and not terminating (discovery.k8s.io/v1, `EndpointConditions`). With
    /// publishNotReadyAddresses, an endpoint that terminates is ready, too; but a balancer must not choose the node
    /// for it.
    fn is_ready(&self) -> bool {
        let is_ready = self.conditions.as_ref().and_then(|conditions| conditions.ready);
        is_ready.unwrap_or(true) && !self.is_terminating()
    }

    fn is_terminating(&self) -> bool {
        self.conditions.as_ref().and_then(|conditions| conditions.terminating).unwrap_or(false)
    }

    fn is_on(&self, node: &str) -> bool {
        self.node_name.as_deref() == Some(node)
    }
}

/// Counts the endpoints of a Service's slices that are ready on `node`.
///
/// It counts as kube-proxy does (`pkg/proxy/endpointslicecache.go`, and `LocalReadyEndpoints` of `endpoints.go`): an
/// address counts once, however many ports and slices name it. kube-proxy
/// counts for each address family of the Service by itself; here the larger count stands for both, so that a dual-stack
/// endpoint, which has a slice in each, is one endpoint. The families are those of the slices that the control plane
/// keeps; without such a slice, all.
pub(crate) fn local_endpoints<'a>(
    slices: impl IntoIterator<Item = &'a WatchedSlice>,
    node: &'a str,
) -> usize {
    let slices: Vec<_> = slices.into_iter().collect();
    // The control plane keeps at least one slice for each family of the Service.
    let managed = slices.iter().filter(|slice| slice.label(MANAGED_BY.0) == Some(MANAGED_BY.1));
    let families: BTreeSet<_> = managed.map(|slice| &slice.address_type).collect();
    let counted = slices.iter().filter(|slice| families.is_empty() || families.contains(&slice.address_type));
    let addresses: BTreeSet<_> = counted.flat_map(|slice| slice.ready_on(node)).collect();
    let v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
    v4.max(addresses.len() - v4)
}

resource!(WatchedSlice, EndpointSlice);
resource!(WatchedLease, Lease);

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(json: &str) -> WatchedSlice {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_slice_is_read_with_the_defaults_of_the_api() {
        let ready = |json: &str| {
            let slice = slice(json);
            slice.ready_on("n1").map(|address| address.to_string()).collect::<Vec<_>>()
        };
        for json in ["{}", r#"{"metadata":{},"ports":null,"endpoints":null}"#] {
            assert!(ready(json).is_empty(), "{json}");
        }
        let endpoints = r#""endpoints":[
            {"addresses":["10.0.0.1","10.0.0.9"],"nodeName":"n1"},
            {"addresses":["10.0.0.2"],"nodeName":"n1","conditions":{}},
            {"addresses":["10.0.0.3"],"nodeName":"n1","conditions":{"ready":false,"serving":true,"terminating":true}},
            {"addresses":["10.0.0.6"],"nodeName":"n1","conditions":{"ready":true,"terminating":true}},
            {"addresses":["10.0.0.4"],"nodeName":"n2","conditions":{"ready":true}},
            {"addresses":["10.0.0.5"]},{"addresses":[],"nodeName":"n1"},{"addresses":["web.example"],"nodeName":"n1"}]"#;
        let port = r#""addressType":"IPv4","ports":[{"name":"","port":8080,"protocol":"TCP"}]"#;
        assert_eq!(ready(&format!("{{{port},{endpoints}}}")), ["10.0.0.1", "10.0.0.2"]);
        assert!(
            ready(&format!(r#"{{"addressType":"IPv4","ports":[{{"name":"x"}},{{"port":0}}],{endpoints}}}"#))
                .is_empty()
        );
    }

    #[test]
    fn endpoints_count_as_kube_proxy_counts_them() {
        let of = |family: &str, labels: serde_json::Value, endpoints: &[(&str, bool)]| {
            let endpoint = |(address, ready): &(&str, bool)| serde_json::json!({"addresses": [address], "nodeName": "n1", "conditions": {"ready": ready, "terminating": !ready && *address == "10.0.0.2"}});
            let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
            let json = serde_json::json!({
                "metadata": {"labels": labels}, "addressType": family, "ports": [{"name": "a", "port": 1}], "endpoints": endpoints,
            });
            slice(&json.to_string())
        };
        let kept = || serde_json::json!({MANAGED_BY.0: MANAGED_BY.1});
        let none = || serde_json::json!({});
        let v4 = |ready| ("10.0.0.1", ready);
        for (slices, count) in [
            // An address counts once, and in the larger family.
            (vec![of("IPv4", none(), &[v4(true), ("10.0.0.3", true)]), of("IPv4", none(), &[v4(true)])], 2),
            (
                vec![
                    of("IPv4", none(), &[v4(true)]),
                    of("IPv6", none(), &[("fd00::1", true), ("fd00::2", true)]),
                ],
                2,
            ),
            (vec![of("IPv4", serde_json::json!({HEADLESS: ""}), &[v4(true)])], 0),
            (vec![of("IPv4", none(), &[v4(true), v4(false)])], 0),
            (vec![of("IPv4", none(), &[v4(false), v4(true)])], 1),
            // A pod that terminates has left its address to another one.
            (vec![of("IPv4", none(), &[("10.0.0.2", true), ("10.0.0.2", false)])], 1),
            (vec![of("IPv6", none(), &[v4(true)])], 0),
            (vec![of("FQDN", none(), &[v4(true)])], 0),
            // Another family than the Service's, for which the control plane keeps an empty slice.
            (vec![of("IPv4", kept(), &[]), of("IPv6", none(), &[("fd00::1", true)])], 0),
            (vec![of("IPv4", kept(), &[]), of("IPv4", none(), &[v4(true)])], 1),
            (vec![of("IPv6", none(), &[("fd00::1", true)])], 1),
        ] {
            assert_eq!(
                (local_endpoints(&slices, "n1"), local_endpoints(&slices, "n2")),
                (count, 0),
                "{slices:?}"
            );
        }
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
    fn endpoints_elsewhere_are_not_held() {
        let json = r#"{"addressType":"IPv4","ports":[{"port":1}],"endpoints":[{"addresses":["10.0.0.1"],"nodeName":"n1"},
            {"addresses":["10.0.0.2"],"nodeName":"n2"},{"addresses":["10.0.0.3"]},{"addresses":["10.0.0.4"],"nodeName":"n1"},
            {"addresses":["10.0.0.4"],"nodeName":"n2"}]}"#;
        let mut slice = slice(json);
        assert_eq!(local_endpoints([&slice], "n1"), 1);
        slice.trim("n1");
        assert_eq!(slice.endpoints.as_ref().map(Vec::len), Some(1));
        assert_eq!(local_endpoints([&slice], "n1"), 1);
    }
}
