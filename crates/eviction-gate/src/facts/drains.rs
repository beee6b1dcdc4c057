//! When this replica first saw each drain, and each pod that it holds.

use nodegate_agent_client::DrainSummary;
use nodegate_readiness::Verdict;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most drains and held pods that are remembered; the one that was seen longest ago is forgotten first.
const MOST: usize = 8192;
/// A drain without a review for this long has ended; drainers retry within a minute.
const ENDED_AFTER: Duration = Duration::from_mins(2);
/// A pod without a review for this long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// The start of a drain by the agent's clock may differ from the earlier one by this much.
const TOLERANCE: Duration = Duration::from_secs(2);

/// The memory of one replica.
#[derive(Debug, Default)]
pub struct Drains {
    drains: Mutex<HashMap<String, SeenDrain>>,
    pods: Mutex<HashMap<String, HeldPod>>,
}

#[derive(Clone, Debug)]
struct SeenDrain {
    first: Instant,
    last: Instant,
    /// The agent's start id, and when the node went out by its word.
    by_agent: Option<(String, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct HeldPod {
    first: Instant,
    last: Instant,
}

impl Drains {
    fn drains(&self) -> MutexGuard<'_, HashMap<String, SeenDrain>> {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns for how long the drain of this Node has been known. A dry run changes nothing.
    pub fn seen(&self, node: &str, now: Instant, dry_run: bool) -> Duration {
        let mut drains = self.drains();
        if let Some(drain) = drains.get_mut(node)
            && now.saturating_duration_since(drain.last) < ENDED_AFTER
        {
            if !dry_run {
                drain.last = now;
            }
            return now.saturating_duration_since(drain.first);
        }
        if !dry_run {
            make_room(&mut drains, now, |drain| drain.last);
            drains.insert(node.to_owned(), SeenDrain { first: now, last: now, by_agent: None });
        }
        Duration::ZERO
    }

    /// Returns the same after the agent's answer, which may show that the node was in the pool since this replica first
    /// saw the drain, so that this is another drain: after it said that the node is out it says Ready, since a later time
    /// than the first review; or the same agent process reports a later start of the drain than before.
    pub fn said(&self, node: &str, said: &DrainSummary, now: Instant, dry_run: bool) -> Duration {
        let mut drains = self.drains();
        let Some(drain) = drains.get_mut(node) else { return Duration::ZERO };
        let is_out = !said.stale && matches!(said.verdict, Some(Verdict::Draining | Verdict::NotReady));
        let began = now.checked_sub(Duration::from_millis(said.since_ms));
        let is_ready = !said.stale && said.verdict == Some(Verdict::Ready);
        let was_out = drain.by_agent.is_some();
        if is_ready && was_out && began.is_some_and(|began| began > drain.first) && !dry_run {
            (drain.first, drain.by_agent) = (now, None);
        }
        if let (true, Some(id), Some(began), false) = (is_out, &said.start_id, began, dry_run) {
            if let Some((known, before)) = &drain.by_agent
                && known == id
                && began > *before + TOLERANCE
            {
                drain.first = began.max(drain.first);
            }
            drain.by_agent = Some((id.clone(), began));
        }
        now.saturating_duration_since(drain.first)
    }

    /// Forgets the drain of a Node that no longer drains.
    pub fn ended(&self, node: &str) {
        self.drains().remove(node);
    }

    /// Notes that a pod is held. Returns true if it was not held before.
    pub fn held(&self, pod: &str, now: Instant) -> bool {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = pods.get_mut(pod)
            && now.saturating_duration_since(held.last) < FORGOTTEN_AFTER
        {
            held.last = now;
            return false;
        }
        make_room(&mut pods, now, |held| held.last);
        pods.insert(pod.to_owned(), HeldPod { first: now, last: now });
        true
    }

    /// Returns for how long a pod was held that is let go, if this replica held it.
    pub fn let_go(&self, pod: &str, now: Instant) -> Option<Duration> {
        let held = self.pods.lock().unwrap_or_else(PoisonError::into_inner).remove(pod)?;
        (now.saturating_duration_since(held.last) < FORGOTTEN_AFTER)
            .then(|| now.saturating_duration_since(held.first))
    }
}

fn make_room<T>(map: &mut HashMap<String, T>, now: Instant, last: impl Fn(&T) -> Instant) {
    if map.len() < MOST {
        return;
    }
    map.retain(|_, entry| now.saturating_duration_since(last(entry)) < FORGOTTEN_AFTER);
    if map.len() >= MOST {
        let oldest = map.iter().min_by_key(|(_, entry)| last(entry)).map(|(key, _)| key.clone());
        oldest.and_then(|key| map.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::probers::ToldSettings;

    fn out_for(since_ms: u64, id: &str) -> DrainSummary {
        DrainSummary {
            node: None,
            uid: None,
            start_id: Some(id.to_owned()),
            verdict: Some(Verdict::Draining),
            since_ms,
            stale: false,
            told: None,
            told_ready: None,
            released: None,
            told_probers: 0,
            probers: 0,
            waiting_for: Vec::new(),
            not_known: None,
            not_known_code: None,
            balancers: false,
            settings: ToldSettings::default(),
        }
    }

    #[test]
    fn a_drain_is_as_old_as_its_first_review() {
        let (drains, start) = (Drains::default(), nodegate_clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(drains.seen("u", at(0), true), Duration::ZERO);
        assert_eq!(drains.seen("u", at(5), false), Duration::ZERO, "a dry run is not remembered");
        assert_eq!(drains.seen("u", at(25), false), Duration::from_secs(20));
        drains.ended("u");
        assert_eq!(drains.seen("u", at(26), false), Duration::ZERO);
        assert_eq!(drains.seen("u", at(26 + 700), false), Duration::ZERO, "nobody asked for too long");
    }

    #[test]
    fn a_second_cordon_is_another_drain_and_a_new_agent_is_not() {
        let (drains, start) = (Drains::default(), nodegate_clock::now() + Duration::from_hours(1));
        let at = |seconds| start + Duration::from_secs(seconds);
        drains.seen("u", at(0), false);
        assert_eq!(drains.said("u", &out_for(100, "a"), at(0), false), Duration::ZERO);
        assert_eq!(drains.said("u", &out_for(30_100, "a"), at(30), false), Duration::from_secs(30));
        assert_eq!(drains.said("u", &out_for(1000, "b"), at(40), false), Duration::from_secs(40));
        // In the pool for a while, unseen by this replica.
        assert_eq!(drains.said("u", &out_for(3000, "b"), at(70), false), Duration::from_secs(3));
    }

    /// A review may reach the agent before the cordon does.
    #[test]
    fn an_agent_that_has_been_ready_in_between_shows_another_drain() {
        let (drains, start) = (Drains::default(), nodegate_clock::now() + Duration::from_hours(1));
        let at = |seconds| start + Duration::from_secs(seconds);
        let ready_for = |since_ms| DrainSummary { verdict: Some(Verdict::Ready), ..out_for(since_ms, "a") };
        drains.seen("u", at(0), false);
        drains.said("u", &out_for(100, "a"), at(0), false);
        assert_eq!(drains.seen("u", at(30), false), Duration::from_secs(30));
        assert_eq!(drains.said("u", &ready_for(5000), at(30), true), Duration::from_secs(30), "a dry run");
        assert_eq!(drains.said("u", &ready_for(5000), at(30), false), Duration::ZERO);
        assert_eq!(drains.said("u", &ready_for(36_000), at(36), false), Duration::from_secs(6), "not again");
        assert_eq!(
            drains.said("u", &ready_for(1000), at(40), false),
            Duration::from_secs(10),
            "whatever it says"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let (drains, start) = (Drains::default(), nodegate_clock::now());
        for n in 0..MOST + 10 {
            let at = start + Duration::from_millis(n as u64);
            drains.seen(&n.to_string(), at, false);
            drains.held(&n.to_string(), at);
        }
        assert_eq!(drains.drains().len(), MOST);
        assert_eq!(drains.let_go("0", start), None);
        let now = start + Duration::from_secs(20);
        assert_eq!(drains.let_go("5000", now), Some(Duration::from_secs(15)));
        assert_eq!(drains.let_go("5000", now), None);
    }
}
