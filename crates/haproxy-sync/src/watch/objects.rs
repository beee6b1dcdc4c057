//! The objects that are watched, cut down to what is needed: what a Node carries besides costs no memory here.

use crate::plan::annotation::{MAX_VALUE, PREFIX};
use crate::plan::facts::{Family, NodeFacts, NodeState, PortFacts, ServiceFacts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use nodegate_readiness::{ConditionStatus, Outcome, Policy};
use serde::Deserialize;
use std::borrow::Cow;

const WEIGHT: &str = "nodegate.io/haproxy-weight";
/// No Node or Service has more of anything than this.
const MAX_PARTS: usize = 1000;

/// A Node.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WatchedNode {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<NodeSpec>,
    #[serde(default)]
    status: Option<NodeStatus>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: Option<bool>,
    #[serde(default)]
    taints: Option<Vec<Taint>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Taint {
    #[serde(default)]
    key: String,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
    #[serde(default)]
    addresses: Option<Vec<Address>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// A Service.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct WatchedService {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<ServiceSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    external_traffic_policy: Option<String>,
    #[serde(default)]
    health_check_node_port: Option<u32>,
    #[serde(default)]
    ip_families: Option<Vec<String>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    #[serde(rename = "port")]
    number: u32,
    #[serde(default, rename = "nodePort")]
    on_nodes: Option<u32>,
    #[serde(default)]
    protocol: Option<String>,
}

impl WatchedNode {
    pub(crate) fn facts(&self, rules: &Policy) -> NodeFacts {
        let meta = &self.metadata;
        let addresses = self.status.iter().flat_map(|status| status.addresses.iter().flatten());
        NodeFacts {
            name: meta.name.clone().unwrap_or_default(),
            state: self.state(rules),
            weight: meta.annotations.as_ref().and_then(|all| all.get(WEIGHT)).map(|text| clip(text)),
            addresses: addresses
                .filter_map(|address| Some((clip(&address.kind), address.address.parse().ok()?)))
                .take(MAX_PARTS)
                .collect(),
        }
    }

    /// What the agent would say of it: both go by the same rules.
    fn state(&self, rules: &Policy) -> NodeState {
        let (meta, spec) = (&self.metadata, self.spec.as_ref());
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let facts = nodegate_readiness::NodeFacts {
            conditions: conditions.map(Condition::fact).collect(),
            unschedulable: spec.is_some_and(|spec| spec.unschedulable == Some(true)),
            deleting: meta.deletion_timestamp.is_some(),
            taints: taints.map(|taint| taint.key.clone()).collect(),
            labels: meta.labels.iter().flatten().map(|(key, _)| key.clone()).collect(),
        };
        match rules.node_ready(&nodegate_readiness::Node::Present(facts), false) {
            Outcome::Pass => NodeState::Ready,
            Outcome::Draining(_) => NodeState::Draining,
            Outcome::Fail(_) => NodeState::NotReady,
        }
    }
}

impl Condition {
    fn fact(&self) -> nodegate_readiness::Condition {
        // A reason would be shown to nobody.
        let (kind, reason) = (self.kind.clone(), String::new());
        nodegate_readiness::Condition { kind, status: ConditionStatus::from_api(&self.status), reason }
    }
}

impl WatchedService {
    /// None if it has no ports on nodes.
    pub(crate) fn facts(&self) -> Option<ServiceFacts> {
        let spec = self.spec.as_ref()?;
        if !matches!(spec.kind.as_deref(), Some("NodePort" | "LoadBalancer")) {
            return None;
        }
        let meta = &self.metadata;
        let annotations = meta.annotations.iter().flatten().filter_map(|(key, value)| {
            let name = key.strip_prefix(PREFIX)?;
            // One byte more than is read, so that it can be seen to be too long.
            Some((clip(name), value.chars().take(MAX_VALUE + 1).collect()))
        });
        let family = |word: &String| match word.as_str() {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => None,
        };
        Some(ServiceFacts {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second()),
            local: spec.external_traffic_policy.as_deref() == Some("Local"),
            health_port: spec.health_check_node_port.and_then(port),
            families: spec.ip_families.iter().flatten().filter_map(family).take(2).collect(),
            ports: spec.ports.iter().flatten().filter_map(Port::facts).take(MAX_PARTS).collect(),
            annotations: annotations.take(MAX_PARTS).collect(),
        })
    }
}

impl Port {
    fn facts(&self) -> Option<PortFacts> {
        Some(PortFacts {
            name: self.name.as_deref().map(clip),
            port: port(self.number)?,
            node_port: self.on_nodes.and_then(port).unwrap_or(0),
            protocol: clip(self.protocol.as_deref().unwrap_or("TCP")),
        })
    }
}

fn port(number: u32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port != 0)
}

fn clip(text: &str) -> String {
    text.chars().take(253).collect()
}

/// Ties one of the types above to its place in the API.
macro_rules! resource {
    ($type:ty, $scope:ty, $kind:literal, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                "".into()
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

resource!(WatchedNode, ClusterResourceScope, "Node", "nodes");
resource!(WatchedService, NamespaceResourceScope, "Service", "services");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_everything_left_out_or_odd_are_read() {
        for json in ["{}", r#"{"metadata":{},"spec":null,"status":null}"#] {
            let node: WatchedNode = serde_json::from_str(json).unwrap();
            assert_eq!(node.facts(&Policy::default()), NodeFacts::default());
            let service: WatchedService = serde_json::from_str(json).unwrap();
            assert_eq!(service.facts(), None);
        }
        let odd = r#"{"spec":{"type":"NodePort","ports":[{"port":99999,"nodePort":1},{"port":1,"nodePort":99999}]}}"#;
        let service: WatchedService = serde_json::from_str(odd).unwrap();
        assert_eq!(service.facts().unwrap().ports.iter().map(|p| p.node_port).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn what_drains_by_the_agents_rules_drains_here_and_not_ready_beats_it() {
        let node = |metadata: &str, spec: &str, ready: &str, drain_on: &str| {
            let json = format!(
                r#"{{"metadata":{{{metadata}}},"spec":{{{spec}}},"status":{{"conditions":[
                    {{"type":"DiskPressure","status":"False"}},{{"type":"Ready","status":"{ready}","reason":"x"}}]}}}}"#
            );
            let rules = Policy { drain_on: drain_on.parse().unwrap(), ..Policy::default() };
            serde_json::from_str::<WatchedNode>(&json).unwrap().facts(&rules).state
        };
        let default = nodegate_readiness::DrainSignals::default().to_string();
        let taint = |key: &str| {
            format!(r#""taints":[{{"key":"a","effect":"NoExecute"}},{{"key":"{key}","value":"x"}}]"#)
        };
        let label = r#""labels":{"node.kubernetes.io/exclude-from-external-load-balancers":""}"#;
        assert_eq!(node("", &taint("b"), "True", &default), NodeState::Ready);
        for (metadata, spec) in [
            ("", r#""unschedulable":true"#.to_owned()),
            ("", taint("ToBeDeletedByClusterAutoscaler")),
            ("", taint("karpenter.sh/disrupted")),
            ("", taint("node.kubernetes.io/out-of-service")),
            (label, String::new()),
            (r#""deletionTimestamp":"2026-01-01T00:00:00Z""#, String::new()),
        ] {
            assert_eq!(node(metadata, &spec, "True", &default), NodeState::Draining, "{metadata} {spec}");
            assert_eq!(node(metadata, &spec, "Unknown", &default), NodeState::NotReady, "{metadata} {spec}");
            assert_eq!(node(metadata, &spec, "True", "none"), NodeState::Ready, "{metadata} {spec}");
        }
        assert_eq!(node("", &taint("own"), "True", "taint:own"), NodeState::Draining);
    }
}
