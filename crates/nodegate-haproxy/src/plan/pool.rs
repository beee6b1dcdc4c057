//! The nodes that serve a Service or Forward: those with an address of its families and with the labels that
//! it asks for.

use crate::plan::{Family, Forward, ObservedNode, ObservedService, Refusal, names, selector};
use ipnet::IpNet;
use kube::core::{Selector, SelectorExt};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The requirements for nodes. Services with the same requirements share their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    families: Vec<Family>,
    chosen: Option<(String, Selector)>,
}

impl Pool {
    /// Returns the requirements of a Service. A selector that can't be parsed is an error; it must not mean
    /// all nodes.
    pub(crate) fn of(service: &ObservedService) -> Result<Self, Refusal> {
        let parse = |text: &String| {
            let selector = selector::parse(text);
            let refused = |takes| ("annotation", format!("haproxy-nodes {takes}; it is not published"));
            Ok((text.trim().to_owned(), selector.map_err(refused)?))
        };
        let chosen = service.annotations.get("nodes").map(parse).transpose()?;
        Ok(Self { families: service.families.clone(), chosen })
    }

    pub(crate) fn of_forward(forward: &Forward) -> Self {
        Self { families: Vec::new(), chosen: forward.nodes.clone() }
    }

    /// Returns a node's address. `None` if the node does not serve.
    pub(crate) fn address(&self, node: &ObservedNode, networks: &[IpNet]) -> Option<IpAddr> {
        let chosen = self.chosen.as_ref().is_none_or(|(_, selector)| selector.matches(&node.labels));
        if chosen { node.address(networks, &self.families) } else { None }
    }

    /// Returns a part for the names of backends, which distinguishes this pool from others.
    pub(crate) fn name(&self) -> String {
        let families: String =
            self.families.iter().map(|family| format!("{family:?}").to_lowercase()).collect();
        let families = if families.is_empty() { "any".to_owned() } else { families };
        let chosen = self.chosen.as_ref().map(|(text, _)| format!("_{}", names::hash(text)));
        families + &chosen.unwrap_or_default()
    }
}

/// Returns each pool that these Services and Forwards need, and the pool of all nodes, without repetitions.
pub(crate) fn pools<'a>(
    services: impl Iterator<Item = &'a ObservedService>,
    forwards: &[Forward],
) -> impl Iterator<Item = Pool> {
    let read = services.filter_map(|service| Pool::of(service).ok());
    let all = std::iter::once(Pool::default()).chain(forwards.iter().map(Pool::of_forward)).chain(read);
    all.map(|pool| (pool.name(), pool)).collect::<BTreeMap<_, _>>().into_values()
}
