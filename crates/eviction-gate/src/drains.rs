//! The age of each drain, and the pods that this replica holds.

// A drain lasts as long as the Node with the same UID has a drain signal, whatever its agent says and however rarely
// anyone asks: its record ends only when the API server shows that the drain is over.

use crate::reduced_objects::ReadNode;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The most drains and held pods that are remembered; the one that was seen longest ago is forgotten first.
const MAX_REMEMBERED: usize = 8192;
/// The time without a review after which a pod is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// The time without a review after which a pod no longer counts as held: drainers ask again every 5 to 20 s.
const HELD_LATELY: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Drains {
    drains: Mutex<HashMap<String, SeenDrain>>,
    pods: Mutex<HashMap<String, HeldPod>>,
}

#[derive(Debug)]
struct SeenDrain {
    node: String,
    first: Instant,
    last: Instant,
    /// When the drain began, as far as anything has shown it.
    began: Instant,
    /// The date of the cordon, if that alone drains the Node.
    cordoned_at: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug)]
struct HeldPod {
    first: Instant,
    last: Instant,
}

/// The time since this replica first saw a drain; and the time since it began, as far as anything has shown it, which never
/// decreases during a drain.
type DrainAge = (Duration, Duration);

impl Drains {
    fn drains(&self) -> MutexGuard<'_, HashMap<String, SeenDrain>> {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a Node that drains, and that its agent has taken out for `out_for`. Returns the age of its drain. A dry run
    /// changes nothing.
    pub(crate) fn seen(&self, node: &ReadNode, out_for: Duration, now: Instant, dry_run: bool) -> DrainAge {
        let mut drains = self.drains();
        // A Node that was uncordoned and cordoned again since the last look at it begins another drain.
        let is_over = |cordoned_at| matches!((cordoned_at, node.cordoned_at), (Some(before), Some(now)) if now > before);
        let known = drains.get(node.key()).filter(|known| !is_over(known.cordoned_at));
        let shown = node.drained_for.unwrap_or_default().max(out_for);
        let began = now.checked_sub(shown).unwrap_or(now);
        let drain = SeenDrain {
            node: node.identity.name.clone(),
            first: known.map_or(now, |known| known.first),
            last: now,
            began: known.map_or(began, |known| known.began.min(began)),
            cordoned_at: node.cordoned_at,
        };
        let age = (now.saturating_duration_since(drain.first), now.saturating_duration_since(drain.began));
        if !dry_run {
            forget_oldest(&mut drains, node.key(), |drain| drain.last);
            drains.insert(node.key().to_owned(), drain);
        }
        age
    }

    pub(crate) fn ended(&self, key: &str) {
        self.drains().remove(key);
    }

    /// Returns the keys and names of all Nodes with a drain.
    pub(crate) fn nodes(&self) -> Vec<(String, String)> {
        self.drains().iter().map(|(key, drain)| (key.clone(), drain.node.clone())).collect()
    }

    /// Records that a pod is held. Returns true if it was not held before.
    pub(crate) fn held(&self, pod: &str, now: Instant) -> bool {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !pods.contains_key(pod);
        forget_oldest(&mut pods, pod, |held| held.last);
        pods.entry(pod.to_owned()).or_insert(HeldPod { first: now, last: now }).last = now;
        is_new
    }

    /// Returns the number of pods whose eviction was refused lately: a drainer that still waits has asked again. Forgets
    /// those for which none has asked for long.
    pub(crate) fn held_pods(&self, now: Instant) -> usize {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.retain(|_, held| now.saturating_duration_since(held.last) < FORGOTTEN_AFTER);
        pods.values().filter(|held| now.saturating_duration_since(held.last) < HELD_LATELY).count()
    }

    /// Returns how long this replica held the pod, or `None` if it did not.
    pub(crate) fn let_go(&self, pod: &str, now: Instant) -> Option<Duration> {
        let held = self.pods.lock().unwrap_or_else(PoisonError::into_inner).remove(pod)?;
        Some(now.saturating_duration_since(held.first))
    }
}

/// Makes room for this key.
fn forget_oldest<T>(map: &mut HashMap<String, T>, key: &str, last: impl Fn(&T) -> Instant) {
    if map.len() >= MAX_REMEMBERED && !map.contains_key(key) {
        let oldest = map.iter().min_by_key(|(_, entry)| last(entry)).map(|(key, _)| key.clone());
        oldest.and_then(|key| map.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn node(uid: &str) -> ReadNode {
        let mut node = ReadNode::default();
        node.identity.uid = Some(uid.to_owned());
        node
    }

    fn cordoned(at: u64) -> ReadNode {
        ReadNode { cordoned_at: Some(UNIX_EPOCH + Duration::from_secs(at)), ..node("u") }
    }

    const ZERO: DrainAge = (Duration::ZERO, Duration::ZERO);

    #[test]
    fn an_earlier_start_counts_from_when_it_is_known() {
        let (drains, start) = (Drains::default(), nodegate_clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        drains.seen(&node("u"), Duration::ZERO, at(0), false);
        drains.seen(&node("u"), Duration::from_secs(40), at(10), false);
        let age = (Duration::from_secs(20), Duration::from_secs(50));
        assert_eq!(drains.seen(&node("u"), Duration::ZERO, at(20), false), age);
        // Another replica, which has never seen it: the Node has a date.
        let dated = ReadNode { drained_for: Some(Duration::from_secs(70)), ..node("u") };
        assert_eq!(Drains::default().seen(&dated, Duration::ZERO, at(0), false).1, Duration::from_secs(70));
        assert_eq!(drains.seen(&dated, Duration::ZERO, at(20), false).1, Duration::from_secs(70));
    }

    #[test]
    fn a_drain_ends_with_its_signal_its_node_or_a_second_cordon() {
        let (drains, start) = (Drains::default(), nodegate_clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(drains.seen(&cordoned(5), Duration::ZERO, at(0), true), ZERO);
        assert_eq!(
            drains.seen(&cordoned(5), Duration::ZERO, at(9), false),
            ZERO,
            "a dry run is not remembered"
        );
        // The node controller dates a cordon a moment later.
        drains.seen(&node("u"), Duration::ZERO, at(10), false);
        assert_eq!(drains.seen(&cordoned(5), Duration::ZERO, at(20), false).1, Duration::from_secs(11));
        assert_eq!(drains.seen(&cordoned(6), Duration::ZERO, at(30), true), ZERO, "cordoned again");
        assert_eq!(drains.seen(&cordoned(6), Duration::ZERO, at(31), false), ZERO);
        assert_eq!(drains.seen(&node("another"), Duration::ZERO, at(31), false), ZERO);
        drains.ended("u");
        assert_eq!(drains.seen(&cordoned(6), Duration::ZERO, at(32), false), ZERO);
        let mut nodes: Vec<_> = drains.nodes().into_iter().map(|(key, _)| key).collect();
        nodes.sort();
        assert_eq!(nodes, ["another", "u"]);
    }

    #[test]
    fn the_number_of_drains_and_pods_is_bounded() {
        let (drains, start) = (Drains::default(), nodegate_clock::now());
        for n in 0..MAX_REMEMBERED + 10 {
            let at = start + Duration::from_millis(n as u64);
            drains.seen(&node(&n.to_string()), Duration::ZERO, at, false);
            drains.held(&n.to_string(), at);
        }
        assert_eq!(drains.drains().len(), MAX_REMEMBERED);
        assert_eq!(drains.let_go("0", start), None);
        let now = start + Duration::from_secs(20);
        assert_eq!(drains.let_go("5000", now), Some(Duration::from_secs(15)));
        assert_eq!(drains.let_go("5000", now), None);
    }
}
