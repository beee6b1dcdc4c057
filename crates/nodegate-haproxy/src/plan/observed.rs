//! The facts that the watches reported, as plain data.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::LoadBalancerIngress;
use nodegate_program::is_object_name;
use nodegate_readiness::{EXCLUDE_LABEL, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A Service, as `namespace/name`.
pub(crate) type ServiceKey = String;

/// Why a node gets no new traffic: the verdict of the agent's rules, and the reason in one word. `None` for a node that
/// is ready.
pub(crate) type NodeOut = Option<(Verdict, String)>;

/// A cordon that shares the drain budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cordon {
    /// Its date, in seconds since 1970. `None`, which counts as the earliest, if it has none.
    pub(crate) since: Option<i64>,
    /// What takes the node out besides the cordon.
    pub(crate) besides: NodeOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Family {
    V4,
    V6,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ObservedNode {
    pub(crate) name: String,
    /// After a restart, HAProxy's own checks know it.
    #[serde(skip)]
    pub(crate) out: NodeOut,
    /// True if its exclusion label alone takes it out.
    #[serde(skip)]
    pub(crate) is_out_by_label: bool,
    #[serde(skip)]
    pub(crate) cordon: Option<Cordon>,
    /// The addresses that its annotation chooses, as written.
    pub(crate) chosen: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Its addresses by type (`InternalIP`, `ExternalIP`), in the order of its status.
    pub(crate) addresses: Vec<(String, IpAddr)>,
}

impl ObservedNode {
    pub(crate) fn is_labelled(&self) -> bool {
        self.labels.contains_key(EXCLUDE_LABEL)
    }

    /// Returns the address that HAProxy uses: the annotation's, else the first in the most preferred network,
    /// else the first `InternalIP`, else the first `ExternalIP`; of the first family that it has one of.
    pub(crate) fn address(&self, networks: &[IpNet], families: &[Family]) -> Option<IpAddr> {
        if !is_object_name(&self.name) {
            return None;
        }
        let candidates = self.candidates(networks);
        let of =
            |family: &Family| candidates.iter().copied().find(|ip| ip.is_ipv6() == (*family == Family::V6));
        if families.is_empty() { candidates.first().copied() } else { families.iter().find_map(of) }
    }

    fn candidates(&self, networks: &[IpNet]) -> Vec<IpAddr> {
        if let Some(chosen) = self.chosen() {
            return chosen;
        }
        let of = |kind| self.addresses.iter().filter(move |(of, _)| of == kind).map(|(_, ip)| *ip);
        let all = || of("InternalIP").chain(of("ExternalIP"));
        if networks.is_empty() {
            return all().collect();
        }
        networks.iter().flat_map(|network| all().filter(|ip| network.contains(ip))).collect()
    }

    /// Returns the addresses of the annotation. `None` without it, and if one of them isn't the Node's own.
    fn chosen(&self) -> Option<Vec<IpAddr>> {
        let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
        let chosen: Option<Vec<IpAddr>> = self.chosen.as_ref()?.split(',').map(parse).collect();
        chosen.filter(|chosen| chosen.iter().all(|ip| self.addresses.iter().any(|(_, own)| own == ip)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortFacts {
    pub(crate) port: u16,
    pub(crate) node_port: u16,
    pub(crate) protocol: String,
}

/// The age of a Service that finalizers keep although it has been deleted: all others come before it.
pub(crate) const DELETING: i64 = i64::MAX;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one of the Service's fields")]
pub(crate) struct ObservedService {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The time of its creation, or [`DELETING`].
    pub(crate) created: i64,
    pub(crate) load_balancer: bool,
    pub(crate) class: Option<String>,
    /// Whether its annotation asks that it be published.
    pub(crate) publish: Option<bool>,
    /// The address of `--bind` that it asks for, as written.
    pub(crate) address: Option<String>,
    /// The source ranges whose connections it accepts, as written. Empty for all.
    pub(crate) source_ranges: Vec<String>,
    /// True if a client stays with its node (`sessionAffinity: ClientIP`).
    pub(crate) sticky: bool,
    /// True if only nodes with an endpoint of their own take its traffic (`externalTrafficPolicy: Local`).
    pub(crate) local: bool,
    pub(crate) health_port: Option<u16>,
    /// True if its annotation asks that the agents check it.
    pub(crate) asks_agents: bool,
    pub(crate) families: Vec<Family>,
    pub(crate) ports: Vec<PortFacts>,
    /// Its status, on which no plan depends.
    #[serde(skip)]
    pub(crate) status: ServiceStatus,
}

impl ObservedService {
    pub(crate) fn key(&self) -> ServiceKey {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServiceStatus {
    pub(crate) uid: String,
    /// Its resourceVersion. A write with it fails if the Service has changed since.
    pub(crate) version: String,
    pub(crate) ingress: Vec<LoadBalancerIngress>,
    /// The field manager that wrote the entries, if there are any.
    pub(crate) writer: Option<String>,
}

/// All facts that the watches reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) nodes: BTreeMap<String, Arc<ObservedNode>>,
    pub(crate) services: BTreeMap<ServiceKey, Arc<ObservedService>>,
    /// The nodes whose cordons share the drain budget, the first cordon first. In the facts of a plan, those that their
    /// cordons take out.
    pub(crate) cordons: Vec<String>,
}

impl Facts {
    pub(crate) fn of(
        nodes: impl IntoIterator<Item = ObservedNode>,
        services: impl IntoIterator<Item = ObservedService>,
    ) -> Self {
        Self {
            nodes: nodes.into_iter().map(|node| (node.name.clone(), node.into())).collect(),
            services: services.into_iter().map(|service| (service.key(), service.into())).collect(),
            cordons: Vec::new(),
        }
    }

    /// Puts the cordons into their order: first those of `before` that last, then others by their date and name.
    pub(crate) fn order_cordons(&mut self, before: Vec<String>) {
        let known: BTreeSet<&String> = before.iter().collect();
        let cordons = self.nodes.values().filter_map(|node| Some((node.cordon.as_ref()?.since, &node.name)));
        let mut new: Vec<_> = cordons.filter(|(_, name)| !known.contains(name)).collect();
        new.sort();
        let new: Vec<String> = new.into_iter().map(|(_, name)| name.clone()).collect();
        let lasts = |name: &String| self.nodes.get(name).is_some_and(|node| node.cordon.is_some());
        self.cordons = before.into_iter().filter(lasts).chain(new).collect();
    }
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
