//! The facts that the watches reported, as plain data without Kubernetes types.

use crate::plan::names::is_dns_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A Service's namespace and name.
pub type ServiceKey = (String, String);

/// The state of a node, with regard to new traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// The node may get new traffic.
    Ready,
    /// The node is healthy, and an operator or controller is taking it out (`--drain-on`).
    Draining,
    /// The kubelet is not ready, or has never reported that it is.
    #[default]
    NotReady,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// Its UID, which no other Node of any cluster has.
    pub uid: String,
    /// The state that decides about new traffic.
    pub state: NodeState,
    /// The annotation `nodegate.io/haproxy-weight`, as written.
    pub weight: Option<String>,
    /// The reason why it gets no new traffic, in one word.
    pub reason: Option<String>,
    /// Its labels with keys and values that the API server accepts.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Its addresses by type (`InternalIP`, `ExternalIP`), in the order of its status.
    pub addresses: Vec<(String, IpAddr)>,
}

impl ObservedNode {
    /// Returns the address of the most preferred family and type. Without families, any family will do.
    /// Returns `None` if no Node can have this name.
    pub fn address(&self, types: &[String], families: &[Family]) -> Option<IpAddr> {
        if !is_dns_name(&self.name) {
            return None;
        }
        let of = |family: Option<Family>| {
            types.iter().find_map(|wanted| {
                let mut fitting = self.addresses.iter().filter(|(kind, _)| kind == wanted);
                fitting
                    .find(|(_, ip)| family.is_none_or(|family| Family::of(*ip) == family))
                    .map(|(_, ip)| *ip)
            })
        };
        if families.is_empty() { of(None) } else { families.iter().find_map(|family| of(Some(*family))) }
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
pub struct ObservedService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, which no other Service of any cluster has.
    #[serde(default)]
    pub uid: String,
    /// The time of its creation, in seconds since 1970.
    pub created: i64,
    /// True if it is of type `LoadBalancer`.
    pub load_balancer: bool,
    /// Its `loadBalancerClass`, if it has one.
    pub class: Option<String>,
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
}

impl ObservedService {
    /// Returns `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A port that stays reserved although its Service is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldPort {
    /// The port.
    pub port: u16,
    /// The addresses on which HAProxy listened.
    pub addresses: Vec<IpAddr>,
    /// The namespace of its Service.
    pub namespace: String,
    /// The name of its Service.
    pub service: String,
}

/// All facts that the watches reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<ObservedNode>>,
    /// Services by namespace and name.
    pub services: BTreeMap<ServiceKey, Arc<ObservedService>>,
    /// Ports that only Services of these namespaces may have now.
    pub held_ports: Vec<HeldPort>,
}
