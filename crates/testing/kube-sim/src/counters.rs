//! Counters of requests by client and outcome, of connections, watches and bytes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    /// The RBAC verb, or the HTTP method in lower case for other paths.
    pub verb: String,
    /// The plural resource (`nodes`, `nodes/status`), or the path.
    pub resource: String,
    /// The HTTP status code; 0 if the request was cut off before an answer.
    pub code: u16,
    /// The first word of the `User-Agent`.
    pub user_agent: String,
    /// The user name; empty if the request was not authenticated.
    pub user: String,
}

/// A snapshot of all counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The number of requests by kind.
    pub requests: Vec<(RequestKind, u64)>,
    /// The number of open connections.
    pub connections: u64,
    /// The most connections open at once since the last reset.
    pub connections_max: u64,
    /// The number of open watches.
    pub watches: u64,
    /// The bytes written to clients, TLS and headers included.
    pub bytes_sent: u64,
}

impl Reading {
    /// Returns the number of matching requests. An empty string or a code of 0 matches all.
    pub fn count(&self, verb: &str, resource: &str, code: u16) -> u64 {
        let fits = |kind: &RequestKind| {
            (verb.is_empty() || kind.verb == verb)
                && (resource.is_empty() || kind.resource == resource)
                && (code == 0 || kind.code == code)
        };
        self.requests.iter().filter(|(kind, _)| fits(kind)).map(|(_, n)| n).sum()
    }

    /// Returns the number of all requests.
    pub fn total(&self) -> u64 {
        self.count("", "", 0)
    }
}

/// The counters of a simulator.
#[derive(Debug, Default)]
pub struct Counters {
    requests: Mutex<BTreeMap<RequestKind, u64>>,
    connections: AtomicU64,
    connections_max: AtomicU64,
    watches: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RequestKind, u64>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request when the returned value is dropped. The request counts as unanswered unless the value
    /// has got a code.
    pub(crate) fn request(self: &Arc<Self>, kind: RequestKind) -> RequestGuard {
        RequestGuard { counters: self.clone(), kind }
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a watch as open until the returned value is dropped.
    pub(crate) fn watch(self: &Arc<Self>) -> Open {
        self.watches.fetch_add(1, Ordering::Relaxed);
        Open { counters: self.clone(), gauge: |counters| &counters.watches }
    }

    /// Counts a connection as open until the returned value is dropped.
    pub(crate) fn connection(self: &Arc<Self>) -> Open {
        let now = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        self.connections_max.fetch_max(now, Ordering::Relaxed);
        Open { counters: self.clone(), gauge: |counters| &counters.connections }
    }

    /// Returns a snapshot of all counters.
    pub fn read(&self) -> Reading {
        Reading {
            requests: self.lock().iter().map(|(kind, n)| (kind.clone(), *n)).collect(),
            connections: self.connections.load(Ordering::Relaxed),
            connections_max: self.connections_max.load(Ordering::Relaxed),
            watches: self.watches.load(Ordering::Relaxed),
            bytes_sent: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Resets the counters to zero. Open connections and watches stay counted.
    pub fn reset(&self) {
        self.lock().clear();
        self.bytes.store(0, Ordering::Relaxed);
        self.connections_max.store(self.connections.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct RequestGuard {
    counters: Arc<Counters>,
    kind: RequestKind,
}

impl RequestGuard {
    pub(crate) fn answered(mut self, code: u16) {
        self.kind.code = code;
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        *self.counters.lock().entry(std::mem::take(&mut self.kind)).or_default() += 1;
    }
}

#[derive(Debug)]
pub(crate) struct Open {
    counters: Arc<Counters>,
    gauge: fn(&Counters) -> &AtomicU64,
}

impl Drop for Open {
    fn drop(&mut self) {
        (self.gauge)(&self.counters).fetch_sub(1, Ordering::Relaxed);
    }
}
