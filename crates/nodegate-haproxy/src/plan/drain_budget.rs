//! The drain budget: cordons beyond it take no node out until their turn comes.

use crate::plan::desired::Problem;
use crate::plan::observed::Facts;
use nodegate_readiness::{MaxDrained, granted};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Leaves only those cordons in the facts that take their nodes out, and returns the nodes that are kept, as problems.
/// `before` has those that did so before.
pub(crate) fn keep_nodes(facts: &mut Facts, before: &[String], max_drained: MaxDrained) -> BTreeSet<Problem> {
    let all = std::mem::take(&mut facts.cordons);
    if max_drained == MaxDrained::OFF {
        return BTreeSet::new();
    }
    let nodes = facts.nodes.values().filter(|node| !node.is_labelled()).count();
    facts.cordons = granted(&all, before, max_drained.of(nodes));
    let drained = facts.cordons.len();
    let are = if drained == 1 { "node is" } else { "nodes are" };
    let text = format!("kept in the pool: {drained} of {nodes} {are} drained (--max-drained {max_drained})");
    let granted: BTreeSet<&String> = facts.cordons.iter().collect();
    let mut kept = BTreeSet::new();
    for about in all.into_iter().filter(|name| !granted.contains(name)) {
        let Some(node) = facts.nodes.get_mut(&about) else { continue };
        let Some(cordon) = node.cordon.clone() else { continue };
        if cordon.otherwise.is_none() {
            kept.insert(Problem { about, kind: "kept", text: text.clone(), unpublished: false });
        }
        Arc::make_mut(node).out = cordon.otherwise;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::observed::{Cordon, ObservedNode};
    use nodegate_readiness::{EXCLUDE_LABEL, Verdict};

    fn node(name: &str, since: Option<i64>) -> ObservedNode {
        let cordon = Some(Cordon { since, otherwise: None });
        let out = Some((Verdict::Draining, "Unschedulable".to_owned()));
        ObservedNode { name: name.to_owned(), out, cordon, ..ObservedNode::default() }
    }

    #[test]
    fn half_leave_in_the_order_of_their_cordons_and_none_returns() {
        let cordoned =
            [("a", None), ("b", Some(9)), ("c", Some(7)), ("d", Some(9)), ("e", Some(8)), ("f", Some(9))];
        let mut observed = Facts::of(cordoned.map(|(name, since)| node(name, since)), []);
        let mut labelled = node("g", Some(1));
        (labelled.cordon, labelled.labels) = (None, [(EXCLUDE_LABEL.to_owned(), String::new())].into());
        observed.nodes.insert("g".to_owned(), labelled.into());
        // A watch has seen the cordon of f before it listed the others.
        observed.order_cordons(vec!["x".to_owned(), "f".to_owned()]);
        assert_eq!(observed.cordons, ["f", "a", "c", "e", "b", "d"]);
        let keep = |observed: &Facts, before: &[String], max: &str| {
            let mut facts = observed.clone();
            let kept = keep_nodes(&mut facts, before, max.parse().unwrap());
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
