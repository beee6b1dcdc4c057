//! The drain budget (`--max-drained`): how many nodes a cordon may take out of the pool at a time, and in which order.

// Each agent decides about its own node, so all agents need one order of the cordons. Where the agent saw the cordon
// as an event, the order is that of etcd's revisions: the cordons before its own are those of a list at the revision
// of that event. So of any number of cordons exactly as many are granted as the limit says, however close together
// they come. Where it did not, the dates of the cordons and the names of the nodes decide. A program that watches all
// Nodes has that order by itself.

use crate::bad_value::BadValue;
use crate::moment::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// The largest share of the nodes that a cordon may take out at a time, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display("{_0}%")]
pub struct MaxDrained(u8);

impl MaxDrained {
    /// The share that limits nothing.
    pub const OFF: Self = Self(100);

    /// Returns the number of these nodes that may be out, rounded down; at least one.
    pub fn of(self, nodes: usize) -> usize {
        (nodes.saturating_mul(self.0.into()) / 100).max(1)
    }
}

impl Default for MaxDrained {
    fn default() -> Self {
        Self::OFF
    }
}

impl FromStr for MaxDrained {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let in_range = percent.filter(|percent| (1..=100).contains(percent));
        in_range.map(Self).ok_or(BadValue("a share of the nodes from 1% to 100%, which is no limit"))
    }
}

/// A cordoned node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CordonedNode {
    /// The date of the cordon, in whole seconds; `None`, which counts as the earliest, if it has none.
    pub since: Option<SystemTime>,
    /// The name of the node.
    pub name: String,
}

/// The most cordons that an agent hands on.
const MAX_HANDED_ON: usize = 256;

/// The time for which a node counts as drained after its cordon has ended: until then its load balancers may not send
/// to it yet, and its pods may still start.
const RETURN: Duration = Duration::from_secs(15);

/// The cordons before that of one node, each with the time at which it was found to have ended: the node's turn comes
/// when few enough of them are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CordonsBefore(Vec<(CordonedNode, Option<Moment>)>);

impl CordonsBefore {
    /// Returns the cordons before that of `node`; none if it is not in the list. `is_at_cordon` is true if the list is
    /// of the very revision of that cordon, so that all others came before.
    pub fn new(node: &str, cordoned: Vec<CordonedNode>, is_at_cordon: bool) -> Self {
        let own = cordoned.iter().find(|other| other.name == node).cloned();
        let is_before = |other: &CordonedNode| {
            own.as_ref().is_some_and(|own| other.name != node && (is_at_cordon || other < own))
        };
        Self::of(cordoned.into_iter().filter(is_before))
    }

    fn of(nodes: impl Iterator<Item = CordonedNode>) -> Self {
        Self(nodes.map(|node| (node, None)).collect())
    }

    /// Returns those of them that an earlier agent knew as the cordons before.
    pub fn handed_on(before: &[String], cordoned: Vec<CordonedNode>) -> Self {
        Self::of(cordoned.into_iter().filter(|other| before.contains(&other.name)))
    }

    /// Returns their number.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Removes those that ended some time ago, by a later list. A date may change without that: the manager that has
    /// cordoned the node writes something else. So a node that is cordoned again meanwhile counts as if it had stayed.
    pub fn retain(&mut self, cordoned: &[CordonedNode], now: Moment) {
        self.0.retain_mut(|(node, ended)| {
            let is_there = cordoned.iter().any(|other| other.name == node.name);
            *ended = if is_there { None } else { ended.or(Some(now)) };
            ended.is_none_or(|ended| now.since(ended) < RETURN)
        });
    }

    /// Returns the time until the first of those that have ended no longer counts.
    pub fn next_return(&self, now: Moment) -> Option<Duration> {
        let ended = self.0.iter().filter_map(|(_, ended)| *ended).min()?;
        Some(RETURN.saturating_sub(now.since(ended)))
    }

    /// Returns why the node is kept in a pool of so many nodes; `None` if its turn has come.
    pub fn kept(&self, max_drained: MaxDrained, nodes: usize) -> Option<Kept> {
        let drained = max_drained.of(nodes);
        let all = || self.0.iter().map(|(node, _)| node);
        let first = all().min().filter(|_| self.0.len() >= drained)?;
        let is_short = self.0.len() <= MAX_HANDED_ON;
        let before = all().filter(|_| is_short).map(|node| node.name.clone()).collect();
        Some(Kept { drained, nodes, max_drained, first: first.name.clone(), before })
    }
}

/// Returns the nodes that their cordons take out: those of `before` that are still cordoned, and of the others as many as
/// may be; and the rest. `cordoned` has all cordoned nodes, the first cordon first.
pub fn granted(cordoned: Vec<String>, before: &[String], max: usize) -> (Vec<String>, Vec<String>) {
    let lasting: BTreeSet<_> = before.iter().collect();
    let (mut granted, mut kept): (Vec<_>, Vec<_>) =
        cordoned.into_iter().partition(|node| lasting.contains(node));
    let free = max.saturating_sub(granted.len()).min(kept.len());
    granted.extend(kept.drain(..free));
    (granted, kept)
}

/// Why a cordoned node is kept in the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The most nodes that cordons may take out: as many are out.
    pub drained: usize,
    /// The number of nodes that share the budget.
    pub nodes: usize,
    /// The value of `--max-drained`.
    pub max_drained: MaxDrained,
    /// The node that has been out for longest.
    pub first: String,
    /// The nodes whose cordons came before, for the next agent; none if they are too many.
    pub before: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_share_is_at_least_one_node_and_rounded_down() {
        let max = |text: &str| text.parse::<MaxDrained>();
        for (text, of) in [("50%", [1, 1, 1, 1, 5]), ("1%", [1, 1, 1, 1, 1]), ("100%", [1, 1, 2, 3, 10])] {
            let max = max(text).unwrap();
            assert_eq!([0, 1, 2, 3, 10].map(|nodes| max.of(nodes)), of, "{text}");
            assert_eq!(max.to_string(), text);
        }
        for text in ["", "%", "0%", "101%", "-1%", "50", "1.5%", "50 %"] {
            assert!(max(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_order_is_that_of_dates_and_names_unless_the_list_is_of_the_cordon() {
        let at = |name: &str, second: Option<u64>| CordonedNode {
            since: second.map(|second| UNIX_EPOCH + Duration::from_secs(second)),
            name: name.to_owned(),
        };
        let cordoned =
            || vec![at("a", Some(7)), at("b", Some(7)), at("c", Some(7)), at("d", None), at("e", Some(6))];
        let names =
            |before: &CordonsBefore| before.0.iter().map(|(node, _)| node.name.clone()).collect::<String>();
        for (node, by_date, by_revision) in [("b", "ade", "acde"), ("d", "", "abce"), ("x", "", "")] {
            assert_eq!(names(&CordonsBefore::new(node, cordoned(), false)), by_date);
            assert_eq!(names(&CordonsBefore::new(node, cordoned(), true)), by_revision);
        }
        let mut before = CordonsBefore::new("b", cordoned(), false);
        let max = "40%".parse().unwrap();
        let handed_on = ["a", "d", "e"].map(str::to_owned).to_vec();
        let kept =
            Kept { drained: 2, nodes: 5, max_drained: max, first: "d".to_owned(), before: handed_on.clone() };
        assert_eq!(before.kept(max, 5), Some(kept));
        // The next agent goes on with these, whatever has become of the dates.
        let later = vec![at("a", None), at("b", Some(7)), at("d", Some(9)), at("f", None)];
        assert_eq!(names(&CordonsBefore::handed_on(&handed_on, later)), "ad");
        // One is on its way back, and cordoned again meanwhile; two are back; one was written to, and one is new.
        let second = |second| Moment::from_start(Duration::from_secs(second));
        before.retain(&[at("b", Some(7)), at("e", Some(9)), at("f", None)], second(1));
        assert_eq!((names(&before).as_str(), before.next_return(second(6))), ("ade", Some(RETURN / 3 * 2)));
        before.retain(&[at("d", None), at("e", Some(9))], second(15));
        before.retain(&[at("e", Some(9))], second(16));
        assert_eq!((names(&before).as_str(), before.next_return(second(16))), ("de", Some(RETURN)));
        before.retain(&[at("e", Some(9))], second(31));
        assert_eq!((names(&before).as_str(), before.next_return(second(31))), ("e", None));
        assert_eq!(before.kept(max, 5), None);
    }

    /// A cluster whose nodes decide as the agents do.
    #[derive(Default)]
    struct Pool {
        cordoned: Vec<CordonedNode>,
        waiting: Vec<(usize, CordonsBefore)>,
        granted: BTreeSet<usize>,
        /// The nodes that have come back since the agents asked.
        back: BTreeSet<usize>,
    }

    proptest! {
        /// In any order of cordons, answers and returns: no more are granted than the limit says, none is kept
        /// afterwards, and the turn of each comes. A program that watches all Nodes grants the same.
        #[test]
        fn the_limit_holds_in_any_order(
            nodes in 1_usize..12, percent in 1_u8..=100, steps in prop::collection::vec((0_usize..12, 0..3), 0..200),
        ) {
            let (max, mut pool, mut unasked) = (MaxDrained(percent), Pool::default(), Vec::new());
            let mut by_all = Vec::new();
            let name = |node: usize| format!("n{node:02}");
            for (second, (node, step)) in steps.into_iter().enumerate() {
                let later = |times: u32| Moment::from_start(Duration::from_secs(30 * second as u64) + RETURN * times);
                let node = node % nodes;
                let is_cordoned = pool.cordoned.iter().any(|other| other.name == name(node));
                match step {
                    // All dates of ten steps are equal, and the names are in any order.
                    0 if !is_cordoned && !pool.back.contains(&node) => {
                        let since = Some(UNIX_EPOCH + Duration::from_secs(second as u64 / 10));
                        pool.cordoned.push(CordonedNode { since, name: name(node) });
                        unasked.push((node, CordonsBefore::new(&name(node), pool.cordoned.clone(), true)));
                    }
                    1 => {
                        pool.cordoned.retain(|other| other.name != name(node));
                        pool.waiting.retain(|(other, _)| *other != node);
                        unasked.retain(|(other, _)| *other != node);
                        pool.granted.remove(&node);
                        pool.back.insert(node);
                    }
                    _ => {
                        pool.waiting.append(&mut unasked);
                        pool.back.clear();
                        let before = pool.granted.clone();
                        for (node, queue) in &mut pool.waiting {
                            queue.retain(&pool.cordoned, later(0));
                            queue.retain(&pool.cordoned, later(1));
                            let is_full = queue.count() as usize >= max.of(nodes);
                            prop_assert_eq!(queue.kept(max, nodes).is_some(), is_full);
                            if !is_full {
                                pool.granted.insert(*node);
                            }
                        }
                        pool.waiting.retain(|(node, _)| !pool.granted.contains(node));
                        prop_assert!(pool.granted.is_superset(&before));
                        let cordoned: Vec<_> = pool.cordoned.iter().map(|node| node.name.clone()).collect();
                        by_all = super::granted(cordoned, &by_all, max.of(nodes)).0;
                        by_all.sort();
                        prop_assert_eq!(&by_all, &pool.granted.iter().map(|node| name(*node)).collect::<Vec<_>>());
                        prop_assert_eq!(pool.granted.len(), pool.cordoned.len().min(max.of(nodes)));
                    }
                }
                prop_assert!(pool.granted.len() <= max.of(nodes), "{:?}", pool.granted);
            }
        }
    }
}
