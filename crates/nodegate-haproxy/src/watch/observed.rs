//! The objects that all watches have reported.

pub use crate::plan::facts::ServiceKey;
use crate::plan::facts::{Facts, ObservedNode, ObservedService};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All observed facts, and the lists that are complete.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The observed facts.
    pub facts: Facts,
    /// Services whose deletion the watch reported as an event, since they were last seen.
    pub deleted: BTreeSet<ServiceKey>,
    /// The lists that have been complete once.
    pub synced: BTreeSet<String>,
}

/// The maximum number of deletions that are remembered.
const MAX_DELETED: usize = 10_000;

impl Observed {
    /// Records a Node. Returns true if it is new or has changed.
    pub fn set_node(&mut self, node: ObservedNode) -> bool {
        if self.facts.nodes.get(&node.name).is_some_and(|old| **old == node) {
            return false;
        }
        self.facts.nodes.insert(node.name.clone(), Arc::new(node));
        true
    }

    /// Replaces all Nodes by those of a list.
    pub fn set_nodes(&mut self, nodes: BTreeMap<String, Arc<ObservedNode>>) {
        self.facts.nodes = nodes;
    }

    /// Removes a Node. Returns true if it was known.
    pub fn remove_node(&mut self, name: &str) -> bool {
        self.facts.nodes.remove(name).is_some()
    }

    /// Records a Service. Returns true if it is new or has changed.
    pub fn set_service(&mut self, service: ObservedService) -> bool {
        let key = (service.namespace.clone(), service.name.clone());
        self.deleted.remove(&key);
        if self.facts.services.get(&key).is_some_and(|old| **old == service) {
            return false;
        }
        self.facts.services.insert(key, Arc::new(service));
        true
    }

    /// Replaces all Services of a namespace (`None`: of all namespaces) by those of a list.
    pub fn set_services(
        &mut self,
        namespace: Option<&str>,
        services: BTreeMap<ServiceKey, Arc<ObservedService>>,
    ) {
        self.facts.services.retain(|(of, _), _| namespace.is_some_and(|namespace| of != namespace));
        self.deleted.retain(|key| !services.contains_key(key));
        self.facts.services.extend(services);
    }

    /// Keeps the deletions that still matter, and forgets the others.
    pub fn keep_deleted(&mut self, matters: impl Fn(&ServiceKey) -> bool) {
        self.deleted.retain(matters);
    }

    /// Removes a Service and remembers its deletion. Returns true if it was known.
    pub fn remove_service(&mut self, key: ServiceKey) -> bool {
        let known = self.facts.services.remove(&key).is_some();
        if known && self.deleted.len() < MAX_DELETED {
            self.deleted.insert(key);
        }
        debug_assert!(self.deleted.len() <= MAX_DELETED, "too many deletions");
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::policy::PlanPolicy;
    use crate::plan::removal_limit::{RemovalLimit, Retained};

    #[test]
    fn deletions_are_remembered_until_they_have_been_accepted() {
        let (mut observed, mut limit) =
            (Observed::default(), RemovalLimit::new(&PlanPolicy::default(), Facts::default()));
        let service = |name: usize| ObservedService { name: name.to_string(), ..ObservedService::default() };
        for name in 0..=MAX_DELETED {
            observed.set_service(service(name));
            limit.accept(&observed.facts, &|key| observed.deleted.contains(key));
            observed.remove_service((String::new(), name.to_string()));
            observed.keep_deleted(|key| limit.holds(key));
            let (facts, retained) = limit.accept(&observed.facts, &|key| observed.deleted.contains(key));
            assert_eq!(
                (facts.services.len(), retained),
                (0, Retained::default()),
                "the deletion of {name} is doubted"
            );
            observed.keep_deleted(|key| limit.holds(key));
            assert!(observed.deleted.is_empty());
        }
    }
}
