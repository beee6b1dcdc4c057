//! The removal limit: keeps servers if too many of a Service vanish at once.

use crate::plan::facts::{Facts, ObservedNode};
use crate::plan::forward::Forward;
use crate::plan::policy::{MaxRemoval, PlanPolicy};
use crate::plan::pool::{Pool, pools};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Nodes = BTreeMap<String, Arc<ObservedNode>>;

/// The facts that were accepted last, and the limit on removals from them.
#[derive(Debug)]
pub struct RemovalLimit {
    accepted: Facts,
    /// True while the accepted facts are those of an earlier run.
    is_earlier: bool,
    max_removal: MaxRemoval,
    networks: Vec<IpNet>,
    forwards: Vec<Forward>,
}

/// The objects that are kept although the API server no longer has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Nodes that are gone, or have lost the labels or addresses by which Services choose them.
    pub nodes: BTreeSet<String>,
    /// Nodes that exist without an address; they keep the last one.
    pub addresses: BTreeSet<String>,
    /// Services, as `namespace/name`.
    pub services: BTreeSet<String>,
    /// True if nothing that an earlier run knew exists any more. Everything is kept.
    pub another_cluster: bool,
}

impl Retained {
    /// Returns true if anything is held.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

impl RemovalLimit {
    /// Starts from the facts that an earlier run accepted. Without these, the first facts are taken as they
    /// are.
    pub fn new(policy: &PlanPolicy, accepted: Facts) -> Self {
        let (max_removal, networks) = (policy.max_removal, policy.networks.clone());
        let forwards = policy.forwards.clone();
        Self { accepted, is_earlier: true, max_removal, networks, forwards }
    }

    /// Returns the facts that were accepted last.
    pub fn accepted(&self) -> &Facts {
        &self.accepted
    }

    /// Returns true if this Service is among the accepted facts.
    pub fn holds(&self, service: &(String, String)) -> bool {
        self.accepted.services.contains_key(service)
    }

    /// Accepts new facts, with three exceptions that stay as they were last known. A Node that has no
    /// addresses now keeps its last ones. Missing Services stay if more are missing than may vanish at once.
    /// The nodes of a Service stay if it would lose more servers than may vanish at once. Everything else is
    /// accepted, so a cordon works while an empty list is in doubt.
    ///
    /// New nodes in place of old ones are a replacement, because the limit counts numbers. The same is true
    /// of new Services. A Service that asks for other nodes than before is no loss: its old and its new
    /// servers are both counted by its current request. A Service for which `deleted` is true is no loss
    /// either: the watch reported its deletion as an event, so this is no list that came back empty.
    ///
    /// The cluster is another one, or a recreated one, if an earlier run knew Nodes and Services, and now
    /// there are others, by UID, and none of those. Everything stays as it was known.
    pub fn accept(
        &mut self,
        observed: &Facts,
        deleted: &dyn Fn(&(String, String)) -> bool,
    ) -> (Facts, Retained) {
        if self.is_another_cluster(observed) {
            let nodes = self.accepted.nodes.keys().cloned().collect();
            let services = self.accepted.services.values().map(|service| service.key()).collect();
            let held = Retained { nodes, services, another_cluster: true, ..Retained::default() };
            return (self.accepted.clone(), held);
        }
        self.is_earlier = false;
        let mut facts = observed.clone();
        let held = Retained {
            another_cluster: false,
            addresses: self.keep_addresses(&mut facts.nodes),
            services: self.keep_services(&mut facts, deleted),
            nodes: self.keep_nodes(&mut facts),
        };
        self.accepted = facts.clone();
        (facts, held)
    }

    fn is_another_cluster(&self, observed: &Facts) -> bool {
        if !self.is_earlier || self.max_removal.allows(1, 1) {
            return false;
        }
        let (nodes, services) = (uids(&self.accepted.nodes, |node| &node.uid), service_uids(&self.accepted));
        // A store that comes back empty is no other cluster. The limits below keep missing objects and accept
        // new ones.
        let gone = |known: &BTreeSet<&str>, now: BTreeSet<&str>| {
            !known.is_empty() && !now.is_empty() && known.is_disjoint(&now)
        };
        gone(&nodes, uids(&observed.nodes, |node| &node.uid)) && gone(&services, service_uids(observed))
    }

    fn keep_addresses(&self, nodes: &mut Nodes) -> BTreeSet<String> {
        let has_none = |node: &ObservedNode| node.address(&self.networks, &[]).is_none();
        let mut kept = BTreeSet::new();
        // Addresses may vanish if everything may.
        if self.max_removal.allows(1, 1) {
            return kept;
        }
        for (name, node) in nodes.iter_mut().filter(|(_, node)| has_none(node)) {
            if let Some(before) = self.accepted.nodes.get(name).filter(|before| !has_none(before)) {
                *node = Arc::new(ObservedNode {
                    addresses: before.addresses.clone(),
                    ..ObservedNode::clone(node)
                });
                kept.insert(name.clone());
            }
        }
        kept
    }

    fn keep_services(
        &self,
        facts: &mut Facts,
        deleted: &dyn Fn(&(String, String)) -> bool,
    ) -> BTreeSet<String> {
        let missing = |key: &(String, String)| !facts.services.contains_key(key) && !deleted(key);
        let gone: Vec<_> = self.accepted.services.iter().filter(|(key, _)| missing(key)).collect();
        let new = facts.services.keys().filter(|key| !self.holds(key)).count();
        if self.max_removal.allows(gone.len().saturating_sub(new), self.accepted.services.len()) {
            return BTreeSet::new();
        }
        let gone: Vec<_> = gone.into_iter().map(|(key, service)| (key.clone(), service.clone())).collect();
        let names = gone.iter().map(|(_, service)| service.key()).collect();
        facts.services.extend(gone);
        names
    }

    fn keep_nodes(&self, facts: &mut Facts) -> BTreeSet<String> {
        let same = |(name, before): (&String, &Arc<ObservedNode>)| {
            let chosen_alike = |now: &Arc<ObservedNode>| {
                (&now.addresses, &now.labels) == (&before.addresses, &before.labels)
            };
            facts.nodes.get(name).is_some_and(chosen_alike)
        };
        let mut kept = BTreeSet::new();
        if self.accepted.nodes.iter().all(same) {
            return kept;
        }
        for pool in pools(facts.services.values().map(Arc::as_ref), &self.forwards) {
            let (had, has) = (self.members(&self.accepted.nodes, &pool), self.members(&facts.nodes, &pool));
            let fewer = had.len().saturating_sub(has.len());
            if !self.max_removal.allows(fewer, had.len()) {
                kept.extend(had.difference(&has).map(|name| (*name).to_owned()));
            }
        }
        for name in &kept {
            let Some(before) = self.accepted.nodes.get(name) else { continue };
            let node = match facts.nodes.get(name) {
                Some(now) => Arc::new(ObservedNode {
                    addresses: before.addresses.clone(),
                    labels: before.labels.clone(),
                    ..ObservedNode::clone(now)
                }),
                None => before.clone(),
            };
            facts.nodes.insert(name.clone(), node);
        }
        kept
    }

    fn members<'a>(&self, nodes: &'a Nodes, pool: &Pool) -> BTreeSet<&'a str> {
        let serves = |node: &&Arc<ObservedNode>| pool.address(node, &self.networks).is_some();
        nodes.values().filter(serves).map(|node| node.name.as_str()).collect()
    }
}

/// Returns the UIDs of objects.
fn uids<'a, K, T>(objects: &'a BTreeMap<K, Arc<T>>, uid: impl Fn(&'a T) -> &'a String) -> BTreeSet<&'a str> {
    objects.values().map(|object| uid(object).as_str()).filter(|uid| !uid.is_empty()).collect()
}

fn service_uids(facts: &Facts) -> BTreeSet<&str> {
    uids(&facts.services, |service| &service.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::{Family, NodeState, ObservedService};
    use std::net::IpAddr;

    fn limit(percent: u8) -> RemovalLimit {
        let policy = PlanPolicy { max_removal: MaxRemoval(percent), ..PlanPolicy::default() };
        RemovalLimit::new(&policy, Facts::default())
    }

    fn node(name: &str, labels: &[&str]) -> ObservedNode {
        let number = name.bytes().next().unwrap_or_default();
        ObservedNode {
            name: name.to_owned(),
            state: NodeState::Ready,
            labels: Arc::new(labels.iter().map(|key| ((*key).to_owned(), String::new())).collect()),
            addresses: vec![("InternalIP".to_owned(), IpAddr::from([10, 0, 0, number]))],
            ..ObservedNode::default()
        }
    }

    fn facts(nodes: impl IntoIterator<Item = ObservedNode>) -> Facts {
        let nodes = nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node)));
        Facts { nodes: nodes.collect(), ..Facts::default() }
    }

    fn nodes(names: &[&str], state: NodeState) -> Facts {
        facts(names.iter().map(|name| ObservedNode { state, ..node(name, &[]) }))
    }

    fn with_service(mut facts: Facts, name: &str, selector: Option<&str>) -> Facts {
        let annotations = selector.map(|text| ("nodes".to_owned(), text.to_owned())).into_iter().collect();
        let service = ObservedService {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            families: vec![Family::V4],
            annotations,
            ..ObservedService::default()
        };
        facts.services.insert((service.namespace.clone(), service.name.clone()), Arc::new(service));
        facts
    }

    fn names(held: &BTreeSet<String>) -> Vec<&str> {
        held.iter().map(String::as_str).collect()
    }

    #[test]
    fn half_may_go_and_more_may_not() {
        let mut limit = limit(50);
        let all = nodes(&["a", "b", "c", "d"], NodeState::Ready);
        assert_eq!(limit.accept(&all, &|_| false), (all.clone(), Retained::default()));
        let (facts, held) = limit.accept(&nodes(&["a"], NodeState::Draining), &|_| false);
        assert_eq!((facts.nodes.len(), names(&held.nodes)), (4, vec!["b", "c", "d"]));
        assert_eq!(facts.nodes["a"].state, NodeState::Draining);
        let (facts, held) = limit.accept(&Facts::default(), &|_| false);
        assert_eq!((facts.nodes.len(), held.nodes.len()), (4, 4));
        let (facts, held) = limit.accept(&nodes(&["a", "b"], NodeState::Ready), &|_| false);
        assert_eq!((facts.nodes.len(), held.any()), (2, false));
    }

    #[test]
    fn new_nodes_in_place_of_old_ones_are_a_replacement() {
        let mut limit = limit(0);
        limit.accept(&nodes(&["a", "b", "c"], NodeState::Ready), &|_| false);
        let new = nodes(&["d", "e", "f"], NodeState::Ready);
        assert_eq!(limit.accept(&new, &|_| false), (new, Retained::default()));
        let (facts, held) = limit.accept(&nodes(&["g", "h"], NodeState::Ready), &|_| false);
        assert_eq!((facts.nodes.len(), names(&held.nodes)), (5, vec!["d", "e", "f"]));
    }

    #[test]
    fn a_node_without_an_address_keeps_its_last_one() {
        let mut limit = limit(50);
        let all = nodes(&["a", "b", "c", "d"], NodeState::Ready);
        limit.accept(&all, &|_| false);
        let mut without = all.clone();
        let bare = ObservedNode { addresses: Vec::new(), state: NodeState::Draining, ..node("b", &[]) };
        without.nodes.insert("b".to_owned(), Arc::new(bare));
        // One of four is less than the limit, and its address is kept anyway.
        let (facts, held) = limit.accept(&without, &|_| false);
        assert_eq!((names(&held.addresses), held.nodes.len()), (vec!["b"], 0));
        assert_eq!(facts.nodes["b"].addresses, all.nodes["b"].addresses);
        assert_eq!(facts.nodes["b"].state, NodeState::Draining);
        // A host name is no address.
        let hostnames =
            all.nodes.keys().map(|name| ObservedNode { addresses: Vec::new(), ..node(name, &[]) });
        let (facts, held) = limit.accept(&super::tests::facts(hostnames), &|_| false);
        assert_eq!((facts.nodes, held.addresses.len()), (all.nodes.clone(), 4));
        assert_eq!(limit.accept(&all, &|_| false), (all, Retained::default()));
    }

    #[test]
    fn servers_are_counted_for_each_service_by_what_it_asks_for_now() {
        let mut limit = limit(50);
        let labels = |name: &str| if name < "c" { vec!["ingress"] } else { vec![] };
        let all = facts(["a", "b", "c", "d", "e", "f"].map(|name| node(name, &labels(name))));
        let all = with_service(with_service(all, "all", None), "few", Some("ingress"));
        limit.accept(&all, &|_| false);
        // Two of six nodes are below the limit, but they are all that one of the Services has.
        let mut fewer = all.clone();
        fewer.nodes.retain(|name, _| name.as_str() > "b");
        let (kept, held) = limit.accept(&fewer, &|_| false);
        assert_eq!((kept.nodes.len(), names(&held.nodes)), (6, vec!["a", "b"]));
        // The same for nodes that only lost their labels.
        let mut unlabelled = all.clone();
        for name in ["a", "b"] {
            unlabelled.nodes.insert(name.to_owned(), Arc::new(node(name, &[])));
        }
        let (kept, held) = limit.accept(&unlabelled, &|_| false);
        assert_eq!((&kept.nodes, names(&held.nodes)), (&all.nodes, vec!["a", "b"]));
        // The Service itself asks for fewer nodes.
        let fewer = with_service(all.clone(), "all", Some("ingress"));
        assert_eq!(limit.accept(&fewer, &|_| false), (fewer, Retained::default()));
        // Other nodes have replaced them.
        let mut replaced = all.clone();
        for (old, new) in [("a", "x"), ("b", "y")] {
            replaced.nodes.remove(old);
            replaced.nodes.insert(new.to_owned(), Arc::new(node(new, &["ingress"])));
        }
        assert_eq!(limit.accept(&replaced, &|_| false), (replaced, Retained::default()));
    }

    #[test]
    fn services_that_vanish_without_a_word_are_kept() {
        let mut limit = limit(50);
        let all = with_service(with_service(Facts::default(), "a", None), "b", None);
        limit.accept(&all, &|_| false);
        let (facts, held) = limit.accept(&Facts::default(), &|_| false);
        assert_eq!((facts.services.len(), names(&held.services)), (2, vec!["shop/a", "shop/b"]));
        let others = with_service(with_service(Facts::default(), "c", None), "d", None);
        assert_eq!(limit.accept(&others, &|_| false), (others, Retained::default()));
        let (facts, held) = limit.accept(&Facts::default(), &|_| true);
        assert_eq!((facts.services.len(), held.any()), (0, false));
    }

    fn uid(word: &str, kind: &str) -> String {
        if word.is_empty() { String::new() } else { format!("{word}-{kind}") }
    }

    /// Returns a cluster of one Node and one Service whose UIDs begin with a word. Without a word they have
    /// none.
    fn cluster(word: &str) -> Facts {
        let node = ObservedNode { uid: uid(word, "n"), ..node("a", &[]) };
        let mut facts = with_service(facts([node]), "web", None);
        for service in facts.services.values_mut() {
            Arc::make_mut(service).uid = uid(word, "s");
        }
        facts
    }

    #[test]
    fn another_cluster_of_the_same_names_is_refused_at_the_start_unless_told_so() {
        let (known, other) = (cluster("known"), cluster("other"));
        let with = |percent: u8, known: &Facts| {
            let policy = PlanPolicy { max_removal: MaxRemoval(percent), ..PlanPolicy::default() };
            RemovalLimit::new(&policy, known.clone())
        };
        let mut limit = with(50, &known);
        for _ in 0..2 {
            let (facts, held) = limit.accept(&other, &|_| false);
            assert_eq!((facts, held.another_cluster), (known.clone(), true));
            assert_eq!((names(&held.nodes), names(&held.services)), (vec!["a"], vec!["shop/web"]));
        }
        // The right cluster is back. From now on, recreated objects are accepted.
        assert_eq!(limit.accept(&known, &|_| false), (known.clone(), Retained::default()));
        assert_eq!(limit.accept(&other, &|_| false), (other.clone(), Retained::default()));
        assert_eq!(with(100, &known).accept(&other, &|_| false), (other.clone(), Retained::default()));
        // One Node or Service of the same UID is enough, and an object without a UID does not count.
        let mut rebuilt = other.clone();
        rebuilt.nodes = known.nodes.clone();
        assert!(!with(50, &known).accept(&rebuilt, &|_| false).1.another_cluster);
        for other in [cluster(""), Facts::default()] {
            assert!(!with(50, &other).accept(&known, &|_| false).1.another_cluster);
            assert!(!with(50, &known).accept(&other, &|_| false).1.another_cluster);
        }
    }

    #[test]
    fn everything_may_go_if_told_so() {
        let mut limit = limit(100);
        limit.accept(&nodes(&["a", "b"], NodeState::Ready), &|_| false);
        let bare = facts([ObservedNode { addresses: Vec::new(), ..node("a", &[]) }]);
        assert_eq!(limit.accept(&bare, &|_| false), (bare, Retained::default()));
        assert_eq!(limit.accept(&Facts::default(), &|_| false), (Facts::default(), Retained::default()));
    }
}
