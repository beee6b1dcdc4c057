//! The objects that are watched, cut down to what is needed: what a Node carries besides costs no memory here.

use crate::annotation::{MAX_VALUE, PREFIX};
use crate::facts::{Family, NodeFacts, NodeState, PortFacts, ServiceFacts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use std::borrow::Cow;

/// Nodes with this label take no traffic of load balancers.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
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
    pub(crate) fn facts(&self) -> NodeFacts {
        let meta = &self.metadata;
        let addresses = self.status.iter().flat_map(|status| status.addresses.iter().flatten());
        NodeFacts {
            name: meta.name.clone().unwrap_or_default(),
            state: self.state(),
            weight: meta.annotations.as_ref().and_then(|all| all.get(WEIGHT)).map(|text| clip(text)),
            addresses: addresses
                .filter_map(|address| Some((clip(&address.kind), address.address.parse().ok()?)))
                .take(MAX_PARTS)
                .collect(),
        }
    }

    fn state(&self) -> NodeState {
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.filter(|condition| condition.kind == "Ready").any(|c| c.status == "True");
        let meta = &self.metadata;
        let excluded = meta.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED));
        let cordoned = self.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        match (ready, cordoned || excluded || meta.deletion_timestamp.is_some()) {
            (false, _) => NodeState::NotReady,
            (true, true) => NodeState::Draining,
            (true, false) => NodeState::Ready,
        }
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
            assert_eq!(node.facts(), NodeFacts::default());
            let service: WatchedService = serde_json::from_str(json).unwrap();
            assert_eq!(service.facts(), None);
        }
        let odd = r#"{"spec":{"type":"NodePort","ports":[{"port":99999,"nodePort":1},{"port":1,"nodePort":99999}]}}"#;
        let service: WatchedService = serde_json::from_str(odd).unwrap();
        assert_eq!(service.facts().unwrap().ports.iter().map(|p| p.node_port).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_cordon_drains_and_not_ready_beats_it() {
        let node = |unschedulable, ready| {
            let json = format!(
                r#"{{"spec":{{"unschedulable":{unschedulable}}},"status":{{"conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#
            );
            serde_json::from_str::<WatchedNode>(&json).unwrap().facts().state
        };
        assert_eq!(node(false, "True"), NodeState::Ready);
        assert_eq!(node(true, "True"), NodeState::Draining);
        assert_eq!(node(true, "Unknown"), NodeState::NotReady);
    }
}
