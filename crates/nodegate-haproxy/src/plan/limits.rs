//! What may change at once: the removal limit holds servers if too many of a Service vanish, the drain budget keeps nodes
//! if too many are cordoned.

use crate::plan::desired::Problem;
use crate::plan::observed::{Facts, ObservedNode, ServiceKey};
use crate::plan::policy::PlanPolicy;
use crate::plan::selection::{self, Selection};
use nodegate_readiness::{MaxDrained, granted};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Accepts new facts after those of what HAProxy runs, but for two exceptions. All missing Services stay if more are
/// missing than may vanish at once. All missing nodes of a selection stay if it would lose more than may vanish at once:
/// nodes that are gone, or have no address. Without applied facts, the first ones are all accepted.
///
/// The limit counts numbers, so new objects in place of old ones are a replacement. A Service is counted
/// by the nodes that it asks for now. One for which `deleted` is true is no loss: the watch reported its
/// deletion, so this is no list that came back empty. Also returns what is held, as problems.
pub(crate) fn hold_vanished(
    applied: &Facts,
    observed: &Facts,
    deleted: impl Fn(&ServiceKey) -> bool,
    policy: &PlanPolicy,
) -> (Facts, BTreeSet<Problem>) {
    let (mut facts, mut held) = (observed.clone(), BTreeSet::new());
    let known = &applied.services;
    let mut gone = known.clone();
    gone.retain(|key, _| !facts.services.contains_key(key) && !deleted(key));
    let new = facts.services.keys().filter(|key| !known.contains_key(*key)).count();
    if !policy.within_removal_limit(gone.len().saturating_sub(new), known.len()) {
        held.extend(gone.keys().cloned());
        facts.services.extend(gone);
    }
    let mut held_nodes = BTreeSet::new();
    for selection in selection::all(&facts, &policy.forward) {
        let (had, has) = (members(applied, &selection, policy), members(&facts, &selection, policy));
        if !policy.within_removal_limit(had.len().saturating_sub(has.len()), had.len()) {
            held_nodes.extend(had.difference(&has).map(|name| (*name).to_owned()));
        }
    }
    for name in &held_nodes {
        let Some(before) = applied.nodes.get(name) else { continue };
        let mut node = ObservedNode::clone(before);
        if let Some(now) = facts.nodes.get(name) {
            node.out.clone_from(&now.out);
        }
        facts.nodes.insert(name.clone(), Arc::new(node));
    }
    held.append(&mut held_nodes);
    let text = "more than --max-removal allows has vanished at once; it stays";
    let problem = |about| Problem { about, kind: "held", text: text.to_owned(), unpublished: false };
    (facts, held.into_iter().map(problem).collect())
}

fn members<'a>(facts: &'a Facts, selection: &Selection<'_>, policy: &PlanPolicy) -> BTreeSet<&'a str> {
    let serves = |node: &&Arc<ObservedNode>| selection.address(node, policy.networks()).is_some();
    facts.nodes.values().filter(serves).map(|node| node.name.as_str()).collect()
}

/// Leaves only those cordons in the facts that take their nodes out, and returns the nodes that are kept, as problems.
/// `before` has those that did so before.
pub(crate) fn keep_cordoned(
    facts: &mut Facts,
    before: &[String],
    max_drained: MaxDrained,
) -> BTreeSet<Problem> {
    let all = std::mem::take(&mut facts.cordons);
    if max_drained == MaxDrained::OFF {
        return BTreeSet::new();
    }
    let nodes = facts.nodes.values().filter(|node| !node.is_labelled()).count();
    let (granted, rest) = granted(all, before, max_drained.of(nodes));
    let drained = granted.len();
    facts.cordons = granted;
    let are = if drained == 1 { "node is" } else { "nodes are" };
    let text = format!("kept in the pool: {drained} of {nodes} {are} drained (--max-drained {max_drained})");
    let mut kept = BTreeSet::new();
    for about in rest {
        let Some(node) = facts.nodes.get_mut(&about) else { continue };
        let Some(cordon) = node.cordon.clone() else { continue };
        if cordon.besides.is_none() {
            kept.insert(Problem { about, kind: "kept", text: text.clone(), unpublished: false });
        }
        Arc::make_mut(node).out = cordon.besides;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::observed::Cordon;
    use crate::plan::tests::{node_of, service_of};
    use nodegate_readiness::{EXCLUDE_LABEL, Verdict};

    /// Returns what is accepted, and what is kept, after these facts were applied, with a Forward to role=ingress.
    fn accept(percent: u8, applied: &Facts, observed: &Facts) -> (Facts, String) {
        let forward = vec!["few=80:80@role=ingress".parse().unwrap()];
        let policy = &PlanPolicy { max_removal: percent, forward, ..PlanPolicy::default() };
        let (facts, kept) = hold_vanished(applied, observed, |_| false, policy);
        let kept: Vec<String> = kept.into_iter().map(|problem| problem.about).collect();
        (facts, kept.join(" "))
    }

    fn node(name: &str, role: &str, state: Verdict) -> ObservedNode {
        node_of(name, &format!("10.0.0.{}", name.as_bytes()[0]), state, role)
    }

    fn nodes(names: &str, state: Verdict) -> Facts {
        Facts::of(names.split(' ').map(|name| node(name, "x", state)), [])
    }

    fn services(names: &str) -> Facts {
        Facts::of([], names.split(' ').map(|name| service_of(name, 80)))
    }

    #[test]
    fn half_may_go_and_more_may_not_and_states_are_the_current_ones() {
        let all = nodes("a b c d", Verdict::Ready);
        assert_eq!(accept(50, &all, &all), (all.clone(), String::new()));
        let (facts, held) = accept(50, &all, &nodes("a", Verdict::Draining));
        assert_eq!((facts.nodes.len(), &*held), (4, "b c d"));
        assert_eq!(facts.nodes["a"].out.as_ref().unwrap().0, Verdict::Draining);
        for (percent, observed, left, expected) in [
            (50, Facts::default(), 4, "a b c d"),
            (50, nodes("a b", Verdict::Ready), 2, ""),
            // New nodes in place of old ones are a replacement.
            (0, nodes("e f g h", Verdict::Ready), 4, ""),
            (0, nodes("e f g", Verdict::Ready), 7, "a b c d"),
            (100, Facts::default(), 0, ""),
        ] {
            let (facts, held) = accept(percent, &all, &observed);
            assert_eq!((facts.nodes.len(), &*held), (left, expected), "{percent}");
        }
    }

    #[test]
    fn servers_are_counted_for_each_selection() {
        let ingress = |name| node(name, "ingress", Verdict::Ready);
        let without_address = |name| ObservedNode { addresses: Vec::new(), ..ingress(name) };
        let with = |some: Facts| {
            let mut facts = nodes("c d e f", Verdict::Ready);
            facts.nodes.extend(some.nodes);
            facts
        };
        let all = with(Facts::of(["a", "b"].map(ingress), []));
        // Two of six nodes are below the limit, but all that the Forward has: gone, or without label or address.
        let without_label = nodes("a b", Verdict::Ready);
        for some in [Facts::default(), without_label, Facts::of(["a", "b"].map(without_address), [])] {
            let (kept, held) = accept(50, &all, &with(some));
            assert_eq!((&kept.nodes, &*held), (&all.nodes, "a b"));
        }
        let replaced = with(Facts::of(["x", "y"].map(ingress), []));
        assert_eq!(accept(50, &all, &replaced), (replaced, String::new()));
    }

    #[test]
    fn services_that_vanish_without_a_word_are_kept() {
        let all = services("a b");
        let (facts, held) = accept(50, &all, &Facts::default());
        assert_eq!((facts.services.len(), &*held), (2, "shop/a shop/b"));
        assert_eq!(accept(50, &all, &services("c d")), (services("c d"), String::new()));
        let accepted = hold_vanished(&all, &Facts::default(), |_| true, &PlanPolicy::default());
        assert_eq!(accepted, (Facts::default(), BTreeSet::new()));
    }

    #[test]
    fn half_leave_in_the_order_of_their_cordons_and_none_returns() {
        let dates =
            [("a", None), ("b", Some(9)), ("c", Some(7)), ("d", Some(9)), ("e", Some(8)), ("f", Some(9))];
        let cordoned = |(name, since)| {
            let cordon = Some(Cordon { since, besides: None });
            ObservedNode { cordon, ..node(name, "x", Verdict::Draining) }
        };
        let mut observed = Facts::of(dates.map(cordoned), []);
        let mut labelled = node("g", "x", Verdict::Draining);
        labelled.labels = [(EXCLUDE_LABEL.to_owned(), String::new())].into();
        observed.nodes.insert("g".to_owned(), labelled.into());
        // A watch has seen the cordon of f before it listed the others.
        observed.order_cordons(vec!["x".to_owned(), "f".to_owned()]);
        assert_eq!(observed.cordons, ["f", "a", "c", "e", "b", "d"]);
        let keep = |observed: &Facts, before: &[String], max: &str| {
            let mut facts = observed.clone();
            let kept = keep_cordoned(&mut facts, before, max.parse().unwrap());
            let out = facts.nodes.values().filter(|node| node.out.is_some()).map(|node| &*node.name);
            (out.collect::<String>(), facts.cordons, kept)
        };
        let (out, before, kept) = keep(&observed, &[], "50%");
        assert_eq!((&*out, before.join("")), ("acfg", "fac".to_owned()));
        let first = kept.first().unwrap();
        assert_eq!((kept.len(), &*first.about, first.kind), (3, "b", "kept"));
        assert_eq!(first.text, "kept in the pool: 3 of 6 nodes are drained (--max-drained 50%)");
        assert_eq!(keep(&observed, &[], "100%"), ("abcdefg".to_owned(), Vec::new(), BTreeSet::new()));
        // One of them is back, and then the pool is smaller.
        observed.cordons.retain(|name| name != "a");
        Arc::make_mut(observed.nodes.get_mut("a").unwrap()).out = None;
        let (out, before, _) = keep(&observed, &before, "50%");
        assert_eq!((&*out, before.join("")), ("cefg", "fce".to_owned()));
        assert_eq!(keep(&observed, &before, "20%").0, "cefg");
    }
}
