//! The fault switches that work on requests.

use crate::counters::RequestKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub effect: Effect,
    pub scope: FaultScope,
    pub probability: f64,
    /// The number of requests that it still affects.
    pub times: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The API server answers with this code (401, 403, 429, 500, 503, 504, …) and its usual words.
    Status {
        code: u16,
        /// The seconds in `Retry-After`; 0 for none.
        retry_after: u32,
    },
    /// The user has lost its RBAC permissions: 403 with the authorizer's words.
    Forbidden,
    /// The API server reads the request and never answers.
    Hang,
    Latency {
        ms: u64,
    },
    /// The API server answers and, on HTTP/2, also sends a GOAWAY, as with `--goaway-chance`.
    GoAway,
    /// The API server accepts a watch and closes it at once.
    CloseWatch,
    /// Watches stay open and send no events; the missed events are lost.
    LoseEvents {
        bookmarks: bool,
    },
    /// Lists, objects and watch events are broken JSON.
    Malformed,
    /// The stream ends in the middle of an event or body.
    CutEvent,
}

/// The scope of a fault. An empty list means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultScope {
    /// The plural resources. Other paths (discovery, health) have none.
    pub resources: Vec<&'static str>,
    /// The verbs as RBAC names them: get, list, watch, create, update, patch, delete, …
    pub verbs: Vec<&'static str>,
    pub users: Vec<&'static str>,
    /// The API servers; 0 is the first.
    pub servers: Vec<usize>,
}

impl FaultScope {
    pub fn all() -> Self {
        FaultScope::default()
    }

    #[must_use]
    pub fn resources(self, resources: &[&'static str]) -> Self {
        FaultScope { resources: resources.to_vec(), ..self }
    }

    #[must_use]
    pub fn verbs(self, verbs: &[&'static str]) -> Self {
        FaultScope { verbs: verbs.to_vec(), ..self }
    }

    fn covers(&self, request: &RequestKind) -> bool {
        let has = |list: &[&str], word: &str| list.is_empty() || list.contains(&word);
        // A path that is not a resource begins with a slash.
        let resource = request.resource.split('/').next().unwrap_or_default();
        has(&self.resources, resource)
            && has(&self.verbs, &request.verb)
            && has(&self.users, &request.user)
            && (self.servers.is_empty() || self.servers.contains(&request.server))
    }
}

impl Effect {
    pub fn everywhere(self) -> Fault {
        self.on(FaultScope::all())
    }

    pub fn on(self, scope: FaultScope) -> Fault {
        Fault { effect: self, scope, probability: 1.0, times: u32::MAX }
    }

    /// Returns true if the effect applies to a request. A watch checks [`Effect::LoseEvents`] as long as it is open.
    fn strikes_request(&self, verb: &str) -> bool {
        match self {
            Effect::LoseEvents { .. } => false,
            Effect::CloseWatch => verb == "watch",
            Effect::Malformed | Effect::CutEvent => verb != "watch",
            _ => true,
        }
    }
}

pub type FaultId = u64;

#[derive(Debug, Default)]
pub struct Faults {
    on: Mutex<Vec<(FaultId, Fault)>>,
    added: AtomicU64,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Vec<(FaultId, Fault)>> {
        self.on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, fault: Fault) -> FaultId {
        let id = self.added.fetch_add(1, Ordering::Relaxed);
        self.lock().push((id, fault));
        id
    }

    pub fn remove(&self, id: FaultId) -> bool {
        let mut on = self.lock();
        let before = on.len();
        on.retain(|(other, _)| *other != id);
        on.len() < before
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Returns the effects on this request. The probability is drawn once per request.
    pub(crate) fn on_request(&self, request: &RequestKind) -> Vec<Effect> {
        self.draw(request, |effect| effect.strikes_request(&request.verb))
    }

    /// Returns the effect on this event of a watch, also of one that was open before.
    pub(crate) fn on_event(&self, request: &RequestKind) -> Option<Effect> {
        self.draw(request, |effect| matches!(effect, Effect::Malformed | Effect::CutEvent)).into_iter().next()
    }

    fn draw(&self, request: &RequestKind, fits: impl Fn(&Effect) -> bool) -> Vec<Effect> {
        let mut on = self.lock();
        let faults = on.iter_mut().map(|(_, fault)| fault);
        let struck = faults.filter(|fault| {
            let is_meant = fits(&fault.effect) && fault.scope.covers(request) && fault.times > 0;
            is_meant && fastrand::f64() < fault.probability
        });
        let effects = struck.map(|fault| {
            fault.times -= 1;
            fault.effect.clone()
        });
        effects.collect()
    }

    /// Returns `None` unless the watch is unresponsive now. The value is true if its bookmarks still come.
    pub(crate) fn loses_events(&self, request: &RequestKind) -> Option<bool> {
        self.lock().iter().find_map(|(_, fault)| match fault.effect {
            Effect::LoseEvents { bookmarks } if fault.scope.covers(request) => Some(bookmarks),
            _ => None,
        })
    }
}
