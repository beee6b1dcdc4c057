//! A Node of the API, reduced to the fields that matter. All followers of Nodes read them through this type.

use crate::resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use nodegate_readiness::reason::clean;
use nodegate_readiness::{Condition, ConditionStatus, NodeFacts, Taint, UnreachableTaint};
use serde::Deserialize;
use std::net::IpAddr;

/// The maximum number of networks of a node's pods: one of each family.
const MAX_POD_CIDRS: usize = 2;

/// The maximum number of addresses of a node that count: one of each family, and some more.
const MAX_INTERNAL_IPS: usize = 8;

/// The key of the taint with which the node controller evicts the pods of a single silent node.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A Node, reduced to the needed fields: its image list alone can be 20 kB.
#[derive(Clone, Debug, Deserialize)]
pub struct WatchedNode {
    /// Its name, version, labels, annotations and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Spec {
    unschedulable: Option<bool>,
    taints: Option<Vec<ApiTaint>>,
    #[serde(default, rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiTaint {
    #[serde(flatten)]
    taint: Taint,
    time_added: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    conditions: Option<Vec<ApiCondition>>,
    addresses: Option<Vec<Address>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Clone, Debug, Deserialize)]
struct ApiCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
}

/// Parses the facts from a Node's JSON, as far as readiness depends on them; all else is skipped.
pub fn node_facts(json: &[u8]) -> serde_json::Result<NodeFacts> {
    serde_json::from_slice(json).map(|node: WatchedNode| node.facts())
}

impl WatchedNode {
    /// Returns the facts of the Node, in the types of the core.
    pub fn facts(&self) -> NodeFacts {
        let spec = self.spec.clone().unwrap_or_default();
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let condition = |of: &ApiCondition| Condition {
            // The API server enforces neither a format nor a limit for these.
            kind: clean(of.kind.clone()),
            status: ConditionStatus::from_api(&of.status),
            reason: clean(of.reason.clone().unwrap_or_default()),
        };
        let internal_ips = self.addresses().filter(|(kind, _)| *kind == "InternalIP");
        let annotations = self.metadata.annotations.iter().flatten();
        let unreachable = spec.taints.iter().flatten().find_map(ApiTaint::to_unreachable);
        NodeFacts {
            uid: self.metadata.uid.clone().filter(|uid| !uid.is_empty()).map(clean),
            conditions: conditions.map(condition).collect(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            kept: None,
            deleting: self.metadata.deletion_timestamp.is_some(),
            taints: spec.taints.into_iter().flatten().map(|taint| taint.taint).collect(),
            labels: self.metadata.labels.clone().unwrap_or_default(),
            annotations: annotations.map(|(key, value)| (key.clone(), clean(value.clone()))).collect(),
            pod_cidrs: spec.pod_cidrs.into_iter().flatten().take(MAX_POD_CIDRS).map(clean).collect(),
            internal_ips: internal_ips.map(|(_, address)| address).take(MAX_INTERNAL_IPS).collect(),
            unreachable,
        }
    }

    /// Returns its addresses with their types; host names are skipped.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        let addresses = self.status.iter().flat_map(|status| status.addresses.iter().flatten());
        addresses.filter_map(|address| Some((address.kind.as_str(), address.address.parse().ok()?)))
    }
}

resource!(WatchedNode, k8s_openapi::api::core::v1::Node);

impl ApiTaint {
    /// Returns the taint if it is the one of an unreachable node. A malformed date, or one before 1970,
    /// counts as missing.
    fn to_unreachable(&self) -> Option<UnreachableTaint> {
        let is_it = self.taint.key == UNREACHABLE && self.taint.effect == "NoExecute";
        let added = self.time_added.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
        let added_unix_ms = added.and_then(|added| u64::try_from(added.as_millisecond()).ok());
        is_it.then_some(UnreachableTaint { added_unix_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            r#"{"kind":"Node","metadata":{"resourceVersion":"7","uid":"1-2","deletionTimestamp":"2026-11-21T06:40:10Z","labels":{"a":"b"},
            "annotations":{"c":"d","e":"f\ng"}},
            "spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"},{"key":"k","value":"v"}],"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00::/64","no third"]},
            "status":{"conditions":[{"type":"Ready","status":"Odd","reason":"a\nb","lastHeartbeatTime":null}],"images":[{"names":["x"]}],
            "addresses":[{"type":"Hostname","address":"n1"},{"type":"ExternalIP","address":"2001:db8::1"},
                         {"type":"InternalIP","address":"10.0.0.11"}]}}"#,
        );
        assert_eq!(facts.internal_ips, ["10.0.0.11".parse::<IpAddr>().unwrap()]);
        assert!(facts.unschedulable && facts.deleting);
        assert_eq!(facts.pod_cidrs, ["10.0.0.0/24", "fd00::/64"]);
        assert_eq!(facts.uid.as_deref(), Some("1-2"));
        let taints = [["k", "", "NoSchedule"], ["k", "v", ""]].map(|parts| parts.map(str::to_owned));
        assert_eq!(facts.taints, taints.map(|[key, value, effect]| Taint { key, value, effect }).into());
        assert_eq!(facts.labels, [("a".to_owned(), "b".to_owned())].into());
        assert_eq!(
            facts.annotations,
            [("c", "d"), ("e", "f g")].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
        );
        let ready = facts.condition("Ready").unwrap();
        assert_eq!((ready.status, &*ready.reason), (ConditionStatus::Unknown, "a b"));
    }

    #[test]
    fn the_taint_of_an_unreachable_node_has_its_date() {
        let taint = |rest: &str| {
            let key = UNREACHABLE;
            let other = r#"{"key":"a","effect":"NoExecute","timeAdded":"2026-11-22T22:23:15Z"}"#;
            facts(&format!(r#"{{"spec":{{"taints":[{other},{{"key":"{key}",{rest}}}]}}}}"#)).unreachable
        };
        let added_unix_ms = Some(1_795_386_195_000);
        let dated = taint(r#""effect":"NoExecute","timeAdded":"2026-11-22T22:23:15Z""#);
        assert_eq!(dated, Some(UnreachableTaint { added_unix_ms }));
        for undated in ["\"soon\"", "\"0001-01-01T00:00:00Z\"", "null"] {
            let taint = taint(&format!(r#""effect":"NoExecute","timeAdded":{undated}"#));
            assert_eq!(taint, Some(UnreachableTaint { added_unix_ms: None }), "{undated}");
        }
        assert_eq!(taint(r#""effect":"NoSchedule","timeAdded":"2026-11-22T22:23:15Z""#), None);
    }
}
