//! The objects that are watched, cut down to what is needed here.

use crate::plan::annotation::{MAX_VALUE, PREFIX};
use crate::plan::facts::{Family, NodeFacts, NodeState, PortFacts, ServiceFacts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nodegate_kube_follow::{WatchedNode, resource};
use nodegate_readiness::{Node, Outcome, Policy};
use serde::Deserialize;

const WEIGHT: &str = "nodegate.io/haproxy-weight";
/// No Node or Service has more of anything than this.
const MAX_PARTS: usize = 1000;

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

/// What is needed of a Node. Its state is what the agent would say of it: both go by the same rules.
pub(crate) fn node_facts(node: &WatchedNode, rules: &Policy) -> NodeFacts {
    let meta = &node.metadata;
    let state = match rules.node_ready(&Node::Present(node.facts()), false) {
        Outcome::Pass => NodeState::Ready,
        Outcome::Draining(_) => NodeState::Draining,
        Outcome::Fail(_) => NodeState::NotReady,
    };
    NodeFacts {
        name: meta.name.clone().unwrap_or_default(),
        state,
        weight: meta.annotations.as_ref().and_then(|all| all.get(WEIGHT)).map(|text| clip(text)),
        addresses: node.addresses().map(|(kind, address)| (clip(kind), address)).take(MAX_PARTS).collect(),
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

resource!(WatchedService, NamespaceResourceScope, "Service", "", "services");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_everything_left_out_or_odd_are_read() {
        for json in ["{}", r#"{"metadata":{},"spec":null,"status":null}"#] {
            let node: WatchedNode = serde_json::from_str(json).unwrap();
            assert_eq!(node_facts(&node, &Policy::default()), NodeFacts::default());
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
            node_facts(&serde_json::from_str(&json).unwrap(), &rules).state
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
        let by_value = r#""labels":{"maintenance":"planned"}"#;
        for (metadata, taint, signal, other) in [
            ("", taint("own"), "taint:own=x", "taint:own=y"),
            ("", taint("own"), "taint:a:NoExecute", "taint:a:NoSchedule"),
            (by_value, String::new(), "label:maintenance=planned", "label:maintenance=done"),
            ("", String::new(), "condition:DiskPressure=False", "condition:DiskPressure"),
        ] {
            assert_eq!(node(metadata, &taint, "True", signal), NodeState::Draining, "{signal}");
            assert_eq!(node(metadata, &taint, "True", other), NodeState::Ready, "{other}");
        }
    }
}
