//! The objects that are watched, cut down to what is needed: a Node's image list alone can be 20 kB.

use crate::held::Held;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::runtime::reflector::Lookup;
use nodegate_readiness::reason::clean;
use nodegate_readiness::{Condition, ConditionStatus, Endpoint, EndpointSlice, NodeFacts};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt::Debug;
use std::net::IpAddr;

/// The namespace of the kubelets' heartbeats.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// What can be followed.
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
    /// Drops what need not be held on the node of this name.
    fn trim(&mut self, _node: &str) {
        self.meta_mut().managed_fields = None;
    }
}

impl Watched for WatchedNode {}
impl Watched for WatchedLease {}

impl Watched for WatchedSlice {
    /// A large Service has thousands of endpoints elsewhere.
    fn trim(&mut self, node: &str) {
        self.metadata.managed_fields = None;
        if let Some(endpoints) = &mut self.endpoints {
            endpoints.retain(|endpoint| endpoint.node_name.as_deref() == Some(node));
            endpoints.shrink_to_fit();
        }
    }
}

/// A Node, as far as readiness depends on it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WatchedNode {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    unschedulable: Option<bool>,
    #[serde(default)]
    taints: Option<Vec<Taint>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Taint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Option<Vec<ApiCondition>>,
}

#[derive(Clone, Debug, Deserialize)]
struct ApiCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: Option<String>,
}

/// What a Node's JSON says, as far as readiness depends on it; all else is skipped unread.
pub fn node_facts(json: &[u8]) -> serde_json::Result<NodeFacts> {
    serde_json::from_slice(json).map(|node: WatchedNode| node.facts())
}

impl WatchedNode {
    /// Which state of the Node this is.
    pub(crate) fn held(&self) -> Held {
        Held::present(&self.metadata)
    }

    /// The Node in the core's words.
    pub(crate) fn facts(&self) -> NodeFacts {
        let spec = self.spec.clone().unwrap_or_default();
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        NodeFacts {
            conditions: conditions.map(ApiCondition::to_condition).collect(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            deleting: self.metadata.deletion_timestamp.is_some(),
            taints: spec.taints.into_iter().flatten().map(|taint| taint.key).collect(),
            labels: self.metadata.labels.iter().flatten().map(|(key, _)| key.clone()).collect(),
        }
    }
}

impl ApiCondition {
    fn to_condition(&self) -> Condition {
        Condition {
            // Neither has a form that the API server would insist on, nor a bound of its own.
            kind: clean(self.kind.clone()),
            status: ConditionStatus::from_api(&self.status),
            reason: clean(self.reason.clone().unwrap_or_default()),
        }
    }
}

/// A Lease, of which only the news that it changed matters.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WatchedLease {
    #[serde(default)]
    metadata: ObjectMeta,
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
}

impl WatchedSlice {
    /// What matters of the slice to `node`. Names (address type FQDN) are left out, as kube-proxy does.
    pub(crate) fn facts(&self, node: &str) -> EndpointSlice {
        // kube-proxy takes no port to mean none, too.
        let has_port = self.ports.iter().flatten().any(|port| port.port.is_some_and(|port| port != 0));
        let endpoints = self.endpoints.iter().flatten().filter_map(ApiEndpoint::to_endpoint);
        EndpointSlice { has_port, endpoints: endpoints.filter(|endpoint| endpoint.is_on(node)).collect() }
    }
}

impl ApiEndpoint {
    fn to_endpoint(&self) -> Option<Endpoint> {
        let address: IpAddr = self.addresses.first()?.parse().ok()?;
        // Unknown is to be read as ready (discovery.k8s.io/v1, EndpointConditions).
        let ready = self.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
        Some(Endpoint { address, node: self.node_name.clone(), ready })
    }
}

/// Ties one of the types above to its place in the API.
macro_rules! resource {
    ($type:ty, $scope:ty, $kind:literal, $group:literal, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(WatchedNode, ClusterResourceScope, "Node", "", "nodes");
resource!(WatchedSlice, NamespaceResourceScope, "EndpointSlice", "discovery.k8s.io", "endpointslices");
resource!(WatchedLease, NamespaceResourceScope, "Lease", "coordination.k8s.io", "leases");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(json: &str) -> NodeFacts {
        serde_json::from_str::<WatchedNode>(json).unwrap().facts()
    }

    #[test]
    fn a_node_with_everything_left_out_or_null_has_no_facts() {
        for json in [
            "{}",
            r#"{"metadata":{},"spec":null,"status":null}"#,
            r#"{"spec":{"unschedulable":null,"taints":null},"status":{"conditions":null}}"#,
        ] {
            assert_eq!(facts(json), NodeFacts::default(), "{json}");
        }
    }

    #[test]
    fn what_matters_is_read_and_the_rest_ignored() {
        let facts = facts(
            r#"{"kind":"Node","metadata":{"resourceVersion":"7","deletionTimestamp":"2026-11-21T06:40:10Z","labels":{"a":"b"}},
            "spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}],"podCIDR":"10.0.0.0/24"},
            "status":{"conditions":[{"type":"Ready","status":"Odd","lastHeartbeatTime":null}],"images":[{"names":["x"]}]}}"#,
        );
        assert!(facts.unschedulable && facts.deleting);
        assert!(facts.taints.contains("k") && facts.labels.contains("a"));
        assert_eq!(facts.condition("Ready").unwrap().status, ConditionStatus::Unknown);
    }

    #[test]
    fn a_conditions_words_are_bounded_and_on_one_line() {
        let json = format!(
            r#"{{"status":{{"conditions":[{{"type":"Ready","status":"False","reason":"a\nb{}"}}]}}}}"#,
            "x".repeat(10_000)
        );
        let reason = facts(&json).conditions.remove(0).reason;
        assert!(reason.starts_with("a bxxx") && reason.len() < 300, "{reason}");
    }

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
            {"addresses":["10.0.0.4"],"nodeName":"n2","conditions":{"ready":true}},
            {"addresses":["10.0.0.5"]},{"addresses":[],"nodeName":"n1"},{"addresses":["web.example"],"nodeName":"n1"}]}"#,
        );
        let ready: Vec<_> = slice.endpoints.iter().map(|e| (e.address.to_string(), e.ready)).collect();
        assert!(slice.has_port);
        assert_eq!(
            ready,
            [("10.0.0.1", true), ("10.0.0.2", true), ("10.0.0.3", false)].map(|(a, r)| (a.to_owned(), r))
        );
        assert!(!read(r#"{"ports":[{"name":"x"},{"port":0}]}"#).has_port);
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

    const NODE: &str = r#"{"metadata":{"resourceVersion":"7","labels":{"a":"b"},"deletionTimestamp":"2026-11-21T06:40:10Z"},
        "spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}]},
        "status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady"}]}}"#;

    proptest! {
        #[test]
        fn a_damaged_node_is_read_or_refused(at in 0..NODE.len(), byte: u8, cut in 0..=NODE.len()) {
            let mut json = NODE.as_bytes().to_vec();
            json[at] = byte;
            json.truncate(cut.max(NODE.len() - 40));
            if let Ok(node) = serde_json::from_slice::<WatchedNode>(&json) {
                prop_assert!(node.facts().conditions.len() <= 1);
            }
        }

        #[test]
        fn the_words_of_any_condition_are_bounded(kind in any::<String>(), status in any::<String>(), reason in any::<String>(), times in 1_usize..200) {
            let condition = serde_json::json!({"type": kind, "status": status, "reason": reason.repeat(times)});
            let node = facts(&serde_json::json!({"status": {"conditions": [condition]}}).to_string());
            let read = &node.conditions[0];
            for text in [&read.kind, &read.reason] {
                prop_assert!(text.len() < 300 && !text.contains(char::is_control));
            }
            prop_assert_eq!(read.status == ConditionStatus::True, status == "True");
        }
    }
}
