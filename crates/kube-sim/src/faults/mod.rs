//! The fault switches that work on requests. Those that work on connections are in `net`.

pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod etcd;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What goes wrong, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What happens.
    pub effect: Effect,
    /// For whom.
    pub scope: Scope,
    /// How often, 0 to 1.
    pub probability: f64,
    /// How many requests (or events of watches, if it spoils those) it hits before it is spent; none
    /// for ever.
    pub times: Option<u64>,
}

/// What a fault does to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answers with this code (401, 403, 410, 429, 500, 503, 504, …) in the API server's words.
    Status {
        /// HTTP status code.
        code: u16,
        /// Seconds in `Retry-After`; 0 for none.
        retry_after: u32,
    },
    /// RBAC taken away: 403 as the authorizer words it.
    Forbidden,
    /// The request is read and never answered.
    Hang,
    /// The answer comes this much later.
    Latency {
        /// Milliseconds.
        ms: u64,
    },
    /// A watch is accepted and closed at once.
    CloseWatch,
    /// Watches stay open and say nothing; what they missed is lost.
    Deaf {
        /// Whether bookmarks still come.
        bookmarks: bool,
    },
    /// Broken JSON in lists, objects and watch events.
    Malformed,
    /// The stream ends in the middle of an event or body.
    CutEvent,
}

/// Which requests a fault hits; an empty list means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Plural resources. Requests for other paths (discovery, health) have none and are then not hit.
    pub resources: Vec<String>,
    /// Verbs as RBAC names them: get, list, watch, create, update, patch, delete, …
    pub verbs: Vec<String>,
    /// User names.
    pub users: Vec<String>,
    /// Beginnings of the User-Agent.
    pub user_agents: Vec<String>,
}

impl Scope {
    /// Everything.
    pub fn all() -> Self {
        Scope::default()
    }

    /// Only these resources.
    #[must_use]
    pub fn resources(mut self, resources: &[&str]) -> Self {
        self.resources = resources.iter().map(|r| (*r).to_owned()).collect();
        self
    }

    /// Only these verbs.
    #[must_use]
    pub fn verbs(mut self, verbs: &[&str]) -> Self {
        self.verbs = verbs.iter().map(|v| (*v).to_owned()).collect();
        self
    }

    /// Only these users.
    #[must_use]
    pub fn users(mut self, users: &[&str]) -> Self {
        self.users = users.iter().map(|u| (*u).to_owned()).collect();
        self
    }

    fn covers(&self, facts: &Facts) -> bool {
        let has = |list: &[String], word: &str| list.is_empty() || list.iter().any(|w| w == word);
        has(&self.resources, &facts.resource)
            && has(&self.verbs, &facts.verb)
            && has(&self.users, &facts.user)
            && (self.user_agents.is_empty()
                || self.user_agents.iter().any(|a| facts.user_agent.starts_with(a.as_str())))
    }
}

impl Effect {
    /// For everything.
    pub fn everywhere(self) -> Fault {
        self.on(Scope::all())
    }

    /// For a scope.
    pub fn on(self, scope: Scope) -> Fault {
        Fault { effect: self, scope, probability: 1.0, times: None }
    }

    /// Whether a request with this verb is where it strikes. [`Effect::Deaf`] is asked for as long as
    /// a watch is open, and never spent.
    fn strikes_request(&self, verb: &str) -> bool {
        match self {
            Effect::Deaf { .. } => false,
            Effect::CloseWatch => verb == "watch",
            Effect::Malformed | Effect::CutEvent => verb != "watch",
            _ => true,
        }
    }

    /// Whether an event of a watch is where it strikes, also of one that was open before.
    fn strikes_event(&self) -> bool {
        matches!(self, Effect::Malformed | Effect::CutEvent)
    }
}

impl Fault {
    /// Hits only some requests.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Hits only so many requests.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// The effect, if it strikes now; one of its times is then used up.
    fn strike(&mut self) -> Option<Effect> {
        if fastrand::f64() >= self.probability {
            return None;
        }
        if let Some(times) = &mut self.times {
            *times = times.checked_sub(1)?;
        }
        Some(self.effect.clone())
    }
}

/// What a scope looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Plural resource or empty.
    pub resource: String,
    /// RBAC verb, or the HTTP method in lower case.
    pub verb: String,
    /// User name.
    pub user: String,
    /// `User-Agent`.
    pub user_agent: String,
}

/// Names a fault that is switched on.
pub type FaultId = u64;

/// All faults that are switched on.
#[derive(Debug, Default)]
pub struct Faults {
    on: Mutex<Vec<(FaultId, Fault)>>,
    next: AtomicU64,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Vec<(FaultId, Fault)>> {
        self.on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Switches a fault on.
    pub fn add(&self, fault: Fault) -> FaultId {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().push((id, fault));
        id
    }

    /// Switches one off; false if it was not on.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut on = self.lock();
        let before = on.len();
        on.retain(|(other, _)| *other != id);
        on.len() < before
    }

    /// Switches all off.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// What is on.
    pub fn list(&self) -> Vec<(FaultId, Fault)> {
        self.lock().clone()
    }

    /// The effects that hit this request. Drawn once a request: limited ones are used up by it.
    pub fn on_request(&self, facts: &Facts) -> Vec<Effect> {
        self.draw(facts, usize::MAX, |effect| effect.strikes_request(&facts.verb))
    }

    /// What spoils this event of a watch: drawn once an event, and one is enough.
    pub fn on_event(&self, facts: &Facts) -> Option<Effect> {
        self.draw(facts, 1, Effect::strikes_event).pop()
    }

    fn draw(&self, facts: &Facts, most: usize, fits: impl Fn(&Effect) -> bool) -> Vec<Effect> {
        let mut on = self.lock();
        let covering = on.iter_mut().map(|(_, fault)| fault);
        let covering = covering.filter(|fault| fits(&fault.effect) && fault.scope.covers(facts));
        let hits = covering.filter_map(Fault::strike).take(most).collect();
        on.retain(|(_, fault)| fault.times != Some(0));
        hits
    }

    /// Whether a watch is deaf now, and if so whether its bookmarks still come.
    pub fn deaf(&self, facts: &Facts) -> Option<bool> {
        self.lock().iter().find_map(|(_, fault)| match fault.effect {
            Effect::Deaf { bookmarks } if fault.scope.covers(facts) => Some(bookmarks),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_fault_is_spent() {
        let faults = Faults::default();
        faults.add(Effect::Forbidden.on(Scope::all().resources(&["leases"])).times(1));
        let facts = |resource: &str| Facts { resource: resource.to_owned(), ..Facts::default() };
        assert!(faults.on_request(&facts("nodes")).is_empty());
        assert_eq!(faults.on_request(&facts("leases")), [Effect::Forbidden]);
        assert!(faults.on_request(&facts("leases")).is_empty());
        assert!(faults.list().is_empty());
    }

    #[test]
    fn a_limited_fault_is_spent_only_where_it_strikes() {
        let faults = Faults::default();
        let facts = |verb: &str| Facts { verb: verb.to_owned(), ..Facts::default() };
        let refused = Effect::Status { code: 500, retry_after: 0 };
        for effect in [Effect::CloseWatch, Effect::Malformed, Effect::CutEvent, refused.clone()] {
            faults.add(effect.everywhere().times(1));
        }
        assert_eq!(faults.on_event(&facts("watch")), Some(Effect::Malformed), "one spoils the event");
        assert_eq!(faults.on_request(&facts("watch")), [Effect::CloseWatch, refused]);
        assert_eq!(faults.on_request(&facts("list")), [Effect::CutEvent]);
        assert!(faults.list().is_empty());
    }
}
