//! The fault switches that work on requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What goes wrong, and for whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What happens.
    pub effect: Effect,
    /// For whom.
    pub scope: FaultScope,
    /// How often, 0 to 1.
    pub probability: f64,
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
    /// 429 as the watch cache says it while it is made (from 1.31), to whoever lists or watches.
    CacheInitializing {
        /// Seconds in `Retry-After`: a real one says 1 to 30, more the longer it takes.
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
    /// The answer comes, and on HTTP/2 a GOAWAY besides, as with `--goaway-chance`: what is open on the connection goes on,
    /// and the next request needs another one. HTTP/1.1 is left alone.
    GoAway,
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
pub struct FaultScope {
    /// Plural resources. Requests for other paths (discovery, health) have none and are then not hit.
    pub resources: Vec<String>,
    /// Verbs as RBAC names them: get, list, watch, create, update, patch, delete, …
    pub verbs: Vec<String>,
    /// User names.
    pub users: Vec<String>,
    /// Numbers of API servers.
    pub servers: Vec<usize>,
}

impl FaultScope {
    /// Everything.
    pub fn all() -> Self {
        FaultScope::default()
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

    /// Only these API servers; 0 is the first.
    #[must_use]
    pub fn servers(mut self, servers: &[usize]) -> Self {
        self.servers = servers.to_vec();
        self
    }

    fn covers(&self, request: &RequestInfo) -> bool {
        let has = |list: &[String], word: &str| list.is_empty() || list.iter().any(|w| w == word);
        has(&self.resources, &request.resource)
            && has(&self.verbs, &request.verb)
            && has(&self.users, &request.user)
            && (self.servers.is_empty() || self.servers.contains(&request.server))
    }
}

impl Effect {
    /// For everything.
    pub fn everywhere(self) -> Fault {
        self.on(FaultScope::all())
    }

    /// For a scope.
    pub fn on(self, scope: FaultScope) -> Fault {
        Fault { effect: self, scope, probability: 1.0 }
    }

    /// Returns true if a request with this verb is where it strikes. [`Effect::Deaf`] is asked for as long as
    /// a watch is open.
    fn strikes_request(&self, verb: &str) -> bool {
        match self {
            Effect::Deaf { .. } => false,
            Effect::CloseWatch => verb == "watch",
            Effect::CacheInitializing { .. } => matches!(verb, "list" | "watch"),
            Effect::Malformed | Effect::CutEvent => verb != "watch",
            _ => true,
        }
    }

    /// Returns true if an event of a watch is where it strikes, also of one that was open before.
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
}

/// What a scope looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// Plural resource or empty.
    pub resource: String,
    /// RBAC verb, or the HTTP method in lower case.
    pub verb: String,
    /// User name.
    pub user: String,
    /// The API server's number.
    pub server: usize,
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

    /// Returns the effects that hit this request. Drawn once a request.
    pub(crate) fn on_request(&self, request: &RequestInfo) -> Vec<Effect> {
        self.draw(request, |effect| effect.strikes_request(&request.verb))
    }

    /// What damages this event of a watch: drawn once an event, and one is enough.
    pub(crate) fn on_event(&self, request: &RequestInfo) -> Option<Effect> {
        self.draw(request, Effect::strikes_event).into_iter().next()
    }

    fn draw(&self, request: &RequestInfo, fits: impl Fn(&Effect) -> bool) -> Vec<Effect> {
        let strikes = |fault: &Fault| {
            fits(&fault.effect) && fault.scope.covers(request) && fastrand::f64() < fault.probability
        };
        let on = self.lock();
        on.iter().filter(|(_, fault)| strikes(fault)).map(|(_, fault)| fault.effect.clone()).collect()
    }

    /// Whether a watch is deaf now, and if so whether its bookmarks still come.
    pub(crate) fn deaf(&self, request: &RequestInfo) -> Option<bool> {
        self.lock().iter().find_map(|(_, fault)| match fault.effect {
            Effect::Deaf { bookmarks } if fault.scope.covers(request) => Some(bookmarks),
            _ => None,
        })
    }
}
