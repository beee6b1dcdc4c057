//! The removal limit: keeps servers if too many of a Service vanish at once.

use crate::plan::desired::Problem;
use crate::plan::observed::{Facts, ObservedNode, ServiceKey};
use crate::plan::policy::PlanPolicy;
use crate::plan::publish::{Pool, pools};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Nodes = BTreeMap<String, Arc<ObservedNode>>;

/// The facts that HAProxy's configuration was made of, and the limit on removals from them. Without such facts, the first
/// ones are all accepted.
#[derive(Debug)]
pub(crate) struct RemovalLimit<'a> {
    pub(crate) applied: &'a Facts,
    pub(crate) policy: &'a PlanPolicy,
}

impl RemovalLimit<'_> {
    /// Accepts new facts, but for two exceptions. Missing Services stay if more are missing than may vanish at
    /// once. The nodes of a Service stay if it would lose more servers than may vanish at once: nodes that are
    /// gone, or have no address.
    ///
    /// The limit counts numbers, so new objects in place of old ones are a replacement. A Service is counted
    /// by the nodes that it asks for now. One for which `deleted` is true is no loss: the watch reported its
    /// deletion, so this is no list that came back empty. Also returns what is kept, as problems.
    pub(crate) fn accept(
        &self,
        observed: &Facts,
        deleted: impl Fn(&ServiceKey) -> bool,
    ) -> (Facts, BTreeSet<Problem>) {
        let mut facts = observed.clone();
        let mut kept = self.keep_services(&mut facts, deleted);
        kept.extend(self.keep_nodes(&mut facts));
        let text = "more than --max-removal allows has vanished at once; it is kept";
        let problem = |about| Problem { about, kind: "held", text: text.to_owned(), unpublished: false };
        (facts, kept.into_iter().map(problem).collect())
    }

    fn keep_services(&self, facts: &mut Facts, deleted: impl Fn(&ServiceKey) -> bool) -> BTreeSet<String> {
        let known = &self.applied.services;
        let missing = |key: &ServiceKey| !facts.services.contains_key(key) && !deleted(key);
        let mut gone = known.clone();
        gone.retain(|key, _| missing(key));
        let new = facts.services.keys().filter(|key| !known.contains_key(*key)).count();
        if self.policy.may_vanish(gone.len().saturating_sub(new), known.len()) {
            return BTreeSet::new();
        }
        let names = gone.values().map(|service| service.shown()).collect();
        facts.services.extend(gone);
        names
    }

    fn keep_nodes(&self, facts: &mut Facts) -> BTreeSet<String> {
        let mut kept = BTreeSet::new();
        for pool in pools(facts.services.values().map(Arc::as_ref), &self.policy.forward) {
            let (had, has) = (self.members(&self.applied.nodes, &pool), self.members(&facts.nodes, &pool));
            let fewer = had.len().saturating_sub(has.len());
            if !self.policy.may_vanish(fewer, had.len()) {
                kept.extend(had.difference(&has).map(|name| (*name).to_owned()));
            }
        }
        for name in &kept {
            let Some(before) = self.applied.nodes.get(name) else { continue };
            let mut node = ObservedNode::clone(before);
            if let Some(now) = facts.nodes.get(name) {
                node.out.clone_from(&now.out);
            }
            facts.nodes.insert(name.clone(), Arc::new(node));
        }
        kept
    }

    fn members<'a>(&self, nodes: &'a Nodes, pool: &Pool) -> BTreeSet<&'a str> {
        let serves = |node: &&Arc<ObservedNode>| pool.address(node, self.policy.networks()).is_some();
        nodes.values().filter(serves).map(|node| node.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::observed::ObservedService;
    use crate::plan::tests::node_of;
    use nodegate_readiness::Verdict;

    /// Returns what is accepted, and what is kept, after these facts were applied.
    fn accept(percent: u8, applied: &Facts, observed: &Facts) -> (Facts, String) {
        let policy = &PlanPolicy { max_removal: percent, ..PlanPolicy::default() };
        let (facts, kept) = RemovalLimit { applied, policy }.accept(observed, |_| false);
        let kept: Vec<String> = kept.into_iter().map(|problem| problem.about).collect();
        (facts, kept.join(" "))
    }

    fn node(name: &str, role: &str, state: Verdict) -> ObservedNode {
        node_of(name, &format!("10.0.0.{}", name.as_bytes()[0]), state, role)
    }

    fn facts(nodes: impl IntoIterator<Item = ObservedNode>) -> Facts {
        Facts::of(nodes, [])
    }

    fn nodes(names: &str, state: Verdict) -> Facts {
        facts(names.split(' ').map(|name| node(name, "x", state)))
    }

    fn with_service(mut facts: Facts, name: &str, selector: Option<&str>) -> Facts {
        let annotations = selector.map(|text| ("nodes".to_owned(), text.to_owned())).into_iter().collect();
        let service = ObservedService { name: name.to_owned(), annotations, ..ObservedService::default() };
        facts.services.insert(service.key(), Arc::new(service));
        facts
    }

    #[test]
    fn half_may_go_and_more_may_not_and_states_are_the_current_ones() {
        let all = nodes("a b c d", Verdict::Ready);
        assert_eq!(accept(50, &all, &all), (all.clone(), String::new()));
        let (facts, held) = accept(50, &all, &nodes("a", Verdict::Draining));
        assert_eq!((facts.nodes.len(), &*held), (4, "b c d"));
        assert_eq!(facts.nodes["a"].out.as_ref().unwrap().0, Verdict::Draining);
        let (facts, held) = accept(50, &all, &Facts::default());
        assert_eq!((facts.nodes.len(), &*held), (4, "a b c d"));
        let (facts, held) = accept(50, &all, &nodes("a b", Verdict::Ready));
        assert_eq!((facts.nodes.len(), held), (2, String::new()));
    }

    #[test]
    fn new_nodes_in_place_of_old_ones_are_a_replacement_and_everything_may_go_at_100() {
        let new = nodes("d e f", Verdict::Ready);
        assert_eq!(accept(0, &nodes("a b c", Verdict::Ready), &new), (new.clone(), String::new()));
        let (facts, held) = accept(0, &new, &nodes("g h", Verdict::Ready));
        assert_eq!((facts.nodes.len(), &*held), (5, "d e f"));
        let nothing = (Facts::default(), String::new());
        assert_eq!(accept(100, &new, &Facts::default()), nothing);
    }

    #[test]
    fn servers_are_counted_for_each_service_by_what_it_asks_for_now() {
        let label = |name: &str| if name < "c" { "ingress" } else { "x" };
        let all = facts(["a", "b", "c", "d", "e", "f"].map(|name| node(name, label(name), Verdict::Ready)));
        let all = with_service(with_service(all, "all", None), "few", Some("role=ingress"));
        // Two of six nodes are below the limit, but they are all that one of the Services has.
        let mut fewer = all.clone();
        fewer.nodes.retain(|name, _| name.as_str() > "b");
        let (kept, held) = accept(50, &all, &fewer);
        assert_eq!((kept.nodes.len(), &*held), (6, "a b"));
        // The same for nodes that only lost their labels, or their addresses.
        let without = |name| ObservedNode { addresses: Vec::new(), ..node(name, "ingress", Verdict::Ready) };
        for others in [nodes("a b", Verdict::Ready), facts(["a", "b"].map(without))] {
            fewer.nodes.extend(others.nodes);
            let (kept, held) = accept(50, &all, &fewer);
            assert_eq!((&kept.nodes, &*held), (&all.nodes, "a b"));
        }
        // The Service itself asks for fewer nodes.
        let fewer = with_service(all.clone(), "all", Some("role=ingress"));
        assert_eq!(accept(50, &all, &fewer), (fewer, String::new()));
        // Other nodes have replaced them.
        let mut replaced = all.clone();
        replaced.nodes.retain(|name, _| name.as_str() > "b");
        replaced.nodes.extend(facts(["x", "y"].map(|name| node(name, "ingress", Verdict::Ready))).nodes);
        assert_eq!(accept(50, &all, &replaced), (replaced, String::new()));
    }

    #[test]
    fn services_that_vanish_without_a_word_are_kept() {
        let all = with_service(with_service(Facts::default(), "a", None), "b", None);
        let (facts, held) = accept(50, &all, &Facts::default());
        assert_eq!((facts.services.len(), &*held), (2, "/a /b"));
        let others = with_service(with_service(Facts::default(), "c", None), "d", None);
        assert_eq!(accept(50, &all, &others), (others, String::new()));
        let limit = RemovalLimit { applied: &all, policy: &PlanPolicy::default() };
        assert_eq!(limit.accept(&Facts::default(), |_| true), (Facts::default(), BTreeSet::new()));
    }
}
