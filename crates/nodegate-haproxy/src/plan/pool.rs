//! The nodes that serve a Service: those with an address of its families and with the labels that it asks
//! for.

use crate::plan::facts::{Family, ObservedNode, ObservedService};
use crate::plan::last_resort;
use crate::plan::names;
use crate::plan::publish::PublishRefusal;
use crate::plan::selector::Selector;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The requirements of a Service for its nodes. Services with the same requirements share their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    families: Vec<Family>,
    /// The selector as written, and parsed.
    chosen: Option<(String, Selector)>,
}

impl Pool {
    /// Returns the requirements of a Service. A selector that can't be parsed is an error; it must not mean
    /// all nodes.
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

    /// Returns a node's address for these Services. `None` if the node does not serve them.
    pub(crate) fn address(&self, node: &ObservedNode, address_types: &[String]) -> Option<IpAddr> {
        let chosen = self.chosen.as_ref().is_none_or(|(_, selector)| selector.matches(&node.labels));
        if chosen { node.address(address_types, &self.families) } else { None }
    }

    /// Returns a key that distinguishes this pool from others.
    pub(crate) fn key(&self) -> (Vec<Family>, String) {
        (self.families.clone(), self.chosen.as_ref().map_or_else(String::new, |(text, _)| text.clone()))
    }

    /// Returns a part for the names of backends.
    pub(crate) fn name(&self) -> String {
        let kind =
            self.chosen.as_ref().map(|(text, _)| format!("_{}", names::hash(text))).unwrap_or_default();
        format!("{}{kind}", last_resort::families(&self.families))
    }
}

/// Returns each pool that these Services need, and the pool of all nodes, without repetitions.
pub(crate) fn pools<'a>(services: impl Iterator<Item = &'a ObservedService>) -> impl Iterator<Item = Pool> {
    let read = services.filter_map(|service| Pool::of(service).ok());
    let all: BTreeMap<_, _> = std::iter::once(Pool::default()).chain(read).map(|p| (p.key(), p)).collect();
    all.into_values()
}
