//! The nodes that serve a Service or a forward.

use crate::plan::names;
use crate::plan::observed::{Facts, Family, ObservedNode, ObservedService};
use crate::plan::policy::Forward;
use ipnet::IpNet;
use nodegate_readiness::LabelSelector;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The requirements for nodes. Services with the same requirements share their servers.
#[derive(Debug, Default)]
pub(crate) struct Selection<'a> {
    families: &'a [Family],
    chosen: Option<&'a LabelSelector>,
}

impl<'a> Selection<'a> {
    pub(crate) fn of(service: &'a ObservedService) -> Self {
        Self { families: &service.families, chosen: None }
    }

    pub(crate) fn of_forward(forward: &'a Forward) -> Self {
        Self { families: &[], chosen: forward.nodes.as_ref() }
    }

    /// Returns a node's address. `None` if the node does not serve.
    pub(crate) fn address(&self, node: &ObservedNode, networks: &[IpNet]) -> Option<IpAddr> {
        let is_chosen = self.chosen.is_none_or(|selector| selector.matches(&node.labels));
        if is_chosen { node.address(networks, self.families) } else { None }
    }

    /// Returns a part for the names of backends, which distinguishes this selection from others.
    pub(crate) fn name(&self) -> String {
        let families = self.families.iter().map(|family| format!("{family:?}").to_lowercase());
        let chosen = self.chosen.map(|selector| format!("nodes_{}", names::hash(selector.to_string())));
        let name: String = families.chain(chosen).collect();
        if name.is_empty() { "any".to_owned() } else { name }
    }
}

/// Returns each selection that these Services and Forwards need, and that of all nodes, without repetitions.
pub(crate) fn all<'a>(facts: &'a Facts, forwards: &'a [Forward]) -> impl Iterator<Item = Selection<'a>> {
    let of_services = facts.services.values().map(|service| Selection::of(service));
    let all = [Selection::default()].into_iter().chain(forwards.iter().map(Selection::of_forward));
    let by_name = all.chain(of_services).map(|selection| (selection.name(), selection));
    by_name.collect::<BTreeMap<_, _>>().into_values()
}
