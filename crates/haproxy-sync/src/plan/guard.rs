//! Refuses to believe that most of the cluster has gone at once.

use crate::plan::desired::Desired;
use crate::plan::facts::Facts;
use crate::plan::names::BACKEND_PREFIX;
use crate::plan::policy::MaxRemoval;
use std::collections::BTreeSet;

/// What was last accepted, and how much may go from it at once.
#[derive(Debug)]
pub struct Guard {
    accepted: Facts,
    max_removal: MaxRemoval,
}

/// How many objects are kept against the word of the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Nodes.
    pub nodes: usize,
    /// Services.
    pub services: usize,
}

impl Held {
    /// Whether anything is held.
    pub fn any(self) -> bool {
        self.nodes + self.services > 0
    }
}

impl Guard {
    /// Starts with nothing, so that the first facts are taken as they are.
    pub fn new(max_removal: MaxRemoval) -> Self {
        Self { accepted: Facts::default(), max_removal }
    }

    /// Whether this Service is still among what was accepted.
    pub fn holds(&self, service: &(String, String)) -> bool {
        self.accepted.services.contains_key(service)
    }

    /// Takes new facts. Where more than the allowed part of the nodes or Services is missing, those stay as they were
    /// known last, and everything else is taken: a cordon still works while an empty list is being doubted. A Service
    /// that was `deleted` is one whose end the watch told by itself; that is no list that came back empty.
    pub fn accept(&mut self, observed: &Facts, deleted: &dyn Fn(&(String, String)) -> bool) -> (Facts, Held) {
        let mut facts = observed.clone();
        let mut held = Held::default();
        let gone: Vec<_> =
            self.accepted.nodes.iter().filter(|(name, _)| !facts.nodes.contains_key(*name)).collect();
        if !self.max_removal.allows(gone.len(), self.accepted.nodes.len()) {
            held.nodes = gone.len();
            let kept: Vec<_> = gone.into_iter().map(|(name, node)| (name.clone(), node.clone())).collect();
            facts.nodes.extend(kept);
        }
        let missing = |key: &(String, String)| !facts.services.contains_key(key) && !deleted(key);
        let gone: Vec<_> = self.accepted.services.iter().filter(|(key, _)| missing(key)).collect();
        if !self.max_removal.allows(gone.len(), self.accepted.services.len()) {
            held.services = gone.len();
            let kept: Vec<_> =
                gone.into_iter().map(|(key, service)| (key.clone(), service.clone())).collect();
            facts.services.extend(kept);
        }
        self.accepted = facts.clone();
        (facts, held)
    }
}

/// How many servers a configuration would lose, and of how many, if that is more than may go at once. For the first
/// configuration after a start, when all that is known of the cluster's past is the file: `old`.
pub fn removal(old: &str, desired: &Desired, max_removal: MaxRemoval) -> Option<(usize, usize)> {
    let mut backend = "";
    let mut servers = BTreeSet::new();
    for line in old.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("backend"), Some(name)) => backend = name,
            (Some("frontend" | "listen" | "defaults" | "global"), _) => backend = "",
            (Some("server"), Some(name)) if backend.starts_with(BACKEND_PREFIX) => {
                servers.insert((backend, name));
            }
            _ => {}
        }
    }
    let kept = |(backend, server): &&(&str, &str)| {
        let at = desired.frontends.binary_search_by(|frontend| frontend.backend.as_str().cmp(backend));
        at.is_ok_and(|at| desired.frontends.get(at).is_some_and(|frontend| frontend.has(server)))
    };
    let gone = servers.len() - servers.iter().filter(kept).count();
    (!max_removal.allows(gone, servers.len())).then_some((gone, servers.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::{NodeFacts, NodeState};
    use std::sync::Arc;

    fn nodes(names: &[&str], state: NodeState) -> Facts {
        let node = |name: &&str| {
            (name.to_string(), Arc::new(NodeFacts { name: name.to_string(), state, ..NodeFacts::default() }))
        };
        Facts { nodes: names.iter().map(node).collect(), ..Facts::default() }
    }

    #[test]
    fn half_may_go_and_more_may_not() {
        let mut guard = Guard::new(MaxRemoval(50));
        let all = nodes(&["a", "b", "c", "d"], NodeState::Ready);
        assert_eq!(guard.accept(&all, &|_| false), (all.clone(), Held::default()));
        let (facts, held) = guard.accept(&nodes(&["a"], NodeState::Draining), &|_| false);
        assert_eq!((facts.nodes.len(), held.nodes), (4, 3));
        assert_eq!(facts.nodes["a"].state, NodeState::Draining);
        let (facts, held) = guard.accept(&Facts::default(), &|_| false);
        assert_eq!((facts.nodes.len(), held.nodes), (4, 4));
        let (facts, held) = guard.accept(&nodes(&["a", "b"], NodeState::Ready), &|_| false);
        assert_eq!((facts.nodes.len(), held.any()), (2, false));
    }

    #[test]
    fn the_file_is_the_memory_of_a_program_that_was_just_started() {
        let old = "backend hand\n  server x 1.2.3.4:1\nbackend k8s_a_b_80\n  server n1 1.1.1.1:1\n server n2 1.1.1.2:1\n";
        assert_eq!(removal(old, &Desired::default(), MaxRemoval(50)), Some((2, 2)));
        assert_eq!(removal(old, &Desired::default(), MaxRemoval(100)), None);
        assert_eq!(removal("", &Desired::default(), MaxRemoval(50)), None);
    }

    #[test]
    fn everything_may_go_if_told_so() {
        let mut guard = Guard::new(MaxRemoval(100));
        guard.accept(&nodes(&["a"], NodeState::Ready), &|_| false);
        assert_eq!(guard.accept(&Facts::default(), &|_| false), (Facts::default(), Held::default()));
    }
}
