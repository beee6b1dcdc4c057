//! What the watches told us, in our own words: plain data, no Kubernetes types.

use crate::plan::names::is_dns_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Whether a node may get new traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// It may.
    Ready,
    /// It is healthy, and somebody is taking it out (`--drain-on`).
    Draining,
    /// Its kubelet is not ready, or has never said that it is.
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
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// A Node, as far as HAProxy is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// Its UID, which no other Node of any cluster has.
    pub uid: String,
    /// Whether it may get traffic.
    pub state: NodeState,
    /// The annotation `nodegate.io/haproxy-weight`, as written.
    pub weight: Option<String>,
    /// Why it may not, in a word.
    pub reason: Option<String>,
    /// Its labels, those whose keys and values are what the API server lets pass.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Its addresses by type (`InternalIP`, `ExternalIP`), in the order of its status.
    pub addresses: Vec<(String, IpAddr)>,
}

impl ObservedNode {
    /// Returns the address of the most wanted family and type. Without families any will do. A name that no Node can
    /// have has none.
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
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Whether it is of type `LoadBalancer`.
    pub load_balancer: bool,
    /// Its `loadBalancerClass`, if it has one.
    pub class: Option<String>,
    /// Whose connections it takes (`loadBalancerSourceRanges`), as written; none for everybody's.
    pub source_ranges: Vec<String>,
    /// Whether a client is to stay with its node (`sessionAffinity: ClientIP`).
    pub sticky: bool,
    /// Whether only nodes with an endpoint of their own take its traffic (`externalTrafficPolicy: Local`).
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
    /// `namespace/name`
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// A port that stays reserved although its Service is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldPort {
    /// The port.
    pub port: u16,
    /// Where HAProxy listened.
    pub addresses: Vec<IpAddr>,
    /// Whose it was.
    pub namespace: String,
    /// Whose it was.
    pub service: String,
}

/// Everything that the watches told us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<ObservedNode>>,
    /// Services by namespace and name.
    pub services: BTreeMap<(String, String), Arc<ObservedService>>,
    /// Ports that only Services of these namespaces may have now.
    pub held_ports: Vec<HeldPort>,
}
