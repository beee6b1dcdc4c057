//! Which nodes serve a Service: those that have an address of its families, and the labels that it asks for.

use crate::plan::facts::{Family, ObservedNode, ObservedService};
use crate::plan::last_resort;
use crate::plan::names;
use crate::plan::publish::PublishRefusal;
use crate::plan::selector::Selector;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a Service asks of the nodes that serve it; Services that ask for the same share their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    families: Vec<Family>,
    /// As written, and what it means.
    chosen: Option<(String, Selector)>,
}

impl Pool {
    /// Returns what a Service asks for. A choice that can't be read is not taken for all nodes.
    pub(crate) fn of(service: &ObservedService) -> Result<Self, PublishRefusal> {
        let chosen = match service.annotations.get("nodes") {
            None => None,
            Some(text) => {
                let refused = |takes| {
                    PublishRefusal::problem(
                        "annotation",
                        format!("haproxy-nodes {takes}; it is not published"),
                    )
                };
                Some((text.trim().to_owned(), text.parse().map_err(refused)?))
            }
        };
        Ok(Self { families: service.families.clone(), chosen })
    }

    /// Returns a node's address for these Services; none if it does not serve them.
    pub(crate) fn address(&self, node: &ObservedNode, address_types: &[String]) -> Option<IpAddr> {
        let chosen = self.chosen.as_ref().is_none_or(|(_, selector)| selector.matches(&node.labels));
        if chosen { node.address(address_types, &self.families) } else { None }
    }

    /// Returns what tells it from other pools.
    pub(crate) fn key(&self) -> (Vec<Family>, String) {
        (self.families.clone(), self.chosen.as_ref().map_or_else(String::new, |(text, _)| text.clone()))
    }

    /// Returns a word for it in the names of backends.
    pub(crate) fn name(&self) -> String {
        let kind =
            self.chosen.as_ref().map(|(text, _)| format!("_{}", names::hash(text))).unwrap_or_default();
        format!("{}{kind}", last_resort::families(&self.families))
    }
}

/// Returns every pool that these Services need, once, and the one of all nodes.
pub(crate) fn pools<'a>(services: impl Iterator<Item = &'a ObservedService>) -> impl Iterator<Item = Pool> {
    let read = services.filter_map(|service| Pool::of(service).ok());
    let all: BTreeMap<_, _> = std::iter::once(Pool::default()).chain(read).map(|p| (p.key(), p)).collect();
    all.into_values()
}
