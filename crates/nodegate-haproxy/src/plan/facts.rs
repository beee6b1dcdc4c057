//! The facts that the watches reported, as plain data without Kubernetes types.

use crate::plan::ingress::Ingress;
use ipnet::IpNet;
use nodegate_program::is_object_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A Service's namespace and name.
pub type ServiceKey = (String, String);

/// The state of a node, with regard to new traffic. The better state comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// The node may get new traffic.
    #[default]
    Ready,
    /// The node is healthy, and an operator or controller is taking it out (`--drain-on`).
    Draining,
    /// The kubelet is not ready, or has never reported that it is.
    NotReady,
}

impl NodeState {
    /// Returns the word for the state in logs, metrics and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "drained",
            Self::NotReady => "not-ready",
        }
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// `IPv4`
    V4,
    /// `IPv6`
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// The facts of a Node that matter for HAProxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// The state that decides about new traffic. After a restart, HAProxy's own checks know it.
    #[serde(skip)]
    pub state: NodeState,
    /// The annotation `nodegate.io/haproxy-weight`, as written.
    pub weight: Option<String>,
    /// The annotation `nodegate.io/haproxy-address`, as written.
    pub chosen: Option<String>,
    /// The reason why it gets no new traffic, in one word.
    #[serde(skip)]
    pub reason: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its addresses by type (`InternalIP`, `ExternalIP`), in the order of its status.
    pub addresses: Vec<(String, IpAddr)>,
}

impl ObservedNode {
    /// Returns the address that HAProxy uses: the one that the annotation chooses, else the first in the most
    /// preferred network, else the first `InternalIP`, else the first `ExternalIP`. Of several families, the
    /// first one counts; without families, any will do. Returns `None` if no Node can have this name.
    pub fn address(&self, networks: &[IpNet], families: &[Family]) -> Option<IpAddr> {
        if !is_object_name(&self.name) {
            return None;
        }
        let candidates = self.candidates(networks);
        let of = |family: Option<Family>| {
            candidates.iter().copied().find(|ip| family.is_none_or(|family| Family::of(*ip) == family))
        };
        if families.is_empty() { of(None) } else { families.iter().find_map(|family| of(Some(*family))) }
    }

    fn candidates(&self, networks: &[IpNet]) -> Vec<IpAddr> {
        if let Some(chosen) = self.chosen() {
            return chosen;
        }
        let of = |fits: &dyn Fn(&str, IpAddr) -> bool| -> Vec<IpAddr> {
            self.addresses.iter().filter(|(kind, ip)| fits(kind, *ip)).map(|(_, ip)| *ip).collect()
        };
        if networks.is_empty() {
            return [of(&|kind, _| kind == "InternalIP"), of(&|kind, _| kind == "ExternalIP")].concat();
        }
        let typed = |kind: &str| matches!(kind, "InternalIP" | "ExternalIP");
        networks.iter().flat_map(|network| of(&|kind, ip| typed(kind) && network.contains(&ip))).collect()
    }

    /// Returns the addresses of the annotation. `None` without it, and if one of them isn't the Node's own.
    pub fn chosen(&self) -> Option<Vec<IpAddr>> {
        let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
        let chosen: Option<Vec<IpAddr>> = self.chosen.as_ref()?.split(',').map(parse).collect();
        chosen.filter(|chosen| chosen.iter().all(|ip| self.addresses.iter().any(|(_, own)| own == ip)))
    }
}

/// A port of a Service that every node listens on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFacts {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The Service's port.
    pub port: u16,
    /// The nodes' port.
    pub node_port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// A Service of type `NodePort` or `LoadBalancer`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObservedService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The time of its creation, in seconds since 1970.
    pub created: i64,
    /// True if it is of type `LoadBalancer`.
    pub load_balancer: bool,
    /// Its `loadBalancerClass`, if it has one.
    pub class: Option<String>,
    /// The address that it asks for (`loadBalancerIP`), as written.
    pub address: Option<String>,
    /// The source ranges whose connections it accepts (`loadBalancerSourceRanges`), as written. Empty for
    /// all.
    pub source_ranges: Vec<String>,
    /// True if a client stays with its node (`sessionAffinity: ClientIP`).
    pub sticky: bool,
    /// True if only nodes with an endpoint of their own take its traffic (`externalTrafficPolicy: Local`).
    pub local: bool,
    /// `healthCheckNodePort`, if it has one.
    pub health_port: Option<u16>,
    /// Its address families, the first one first.
    pub families: Vec<Family>,
    /// Its ports.
    pub ports: Vec<PortFacts>,
    /// Its annotations under `nodegate.io/haproxy-`, without that prefix, as written.
    pub annotations: BTreeMap<String, String>,
    /// Its status, on which no plan depends.
    #[serde(skip)]
    pub status: ServiceStatus,
}

impl ObservedService {
    /// Returns its namespace and name.
    pub fn key(&self) -> ServiceKey {
        (self.namespace.clone(), self.name.clone())
    }

    /// Returns `namespace/name`.
    pub fn shown(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// The status of a Service, as observed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceStatus {
    /// The Service's UID.
    pub uid: String,
    /// Its resourceVersion. A write with it fails if the Service has changed since.
    pub version: String,
    /// The entries.
    pub ingress: Vec<Ingress>,
    /// The field manager that wrote the entries, if there are any.
    pub writer: Option<String>,
}

/// All facts that the watches reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<ObservedNode>>,
    /// Services by namespace and name.
    pub services: BTreeMap<ServiceKey, Arc<ObservedService>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_chosen_by_annotation_then_network_then_type() {
        let addresses = [
            ("ExternalIP", "203.0.113.7"),
            ("InternalIP", "10.0.0.7"),
            ("InternalIP", "192.168.0.7"),
            ("InternalIP", "fd00::7"),
            ("Hostname", "172.16.0.7"),
        ];
        let node = |chosen: Option<&str>| ObservedNode {
            name: "n".to_owned(),
            chosen: chosen.map(str::to_owned),
            addresses: addresses.map(|(kind, ip)| (kind.to_owned(), ip.parse().unwrap())).to_vec(),
            ..ObservedNode::default()
        };
        let networks = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        for (chosen, preferred, families, address) in [
            (None, &[][..], &[][..], Some("10.0.0.7")),
            (None, &[], &[Family::V6, Family::V4], Some("fd00::7")),
            (None, &["192.168.0.0/16"], &[], Some("192.168.0.7")),
            (None, &["203.0.113.0/24", "10.0.0.0/8"], &[], Some("203.0.113.7")),
            (None, &["172.16.0.0/12"], &[], None),
            (Some("192.168.0.7"), &["10.0.0.0/8"], &[], Some("192.168.0.7")),
            (Some("192.168.0.7, fd00::7"), &[], &[Family::V6], Some("fd00::7")),
            (Some("192.168.0.7"), &[], &[Family::V6], None),
            // An address that the Node does not have, and no address, choose nothing.
            (Some("10.9.9.9"), &[], &[], Some("10.0.0.7")),
            (Some("x"), &[], &[], Some("10.0.0.7")),
        ] {
            let found = node(chosen).address(&networks(preferred), families);
            assert_eq!(found, address.map(|ip| ip.parse().unwrap()), "{chosen:?} {preferred:?} {families:?}");
        }
    }
}
