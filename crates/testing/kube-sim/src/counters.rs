//! What was asked, by whom, and how it ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Different kinds of request that are told apart; a client that makes up User-Agents fills no memory.
const MAX_KINDS: usize = 10_000;

/// One kind of request and how often it came.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestKind {
    /// RBAC verb, or the HTTP method in lower case for other paths.
    pub verb: String,
    /// Plural resource (`nodes`, `nodes/status`), or the path.
    pub resource: String,
    /// HTTP status code; 0 if the request was cut off before an answer.
    pub code: u16,
    /// First word of the `User-Agent`.
    pub user_agent: String,
    /// User name; empty if it was never found out.
    pub user: String,
}

/// A reading of all counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Requests by kind.
    pub requests: Vec<(RequestKind, u64)>,
    /// Connections open now.
    pub connections: u64,
    /// Most connections open at once since the last reset.
    pub connections_max: u64,
    /// Connections accepted since the last reset.
    pub connections_accepted: u64,
    /// Watches open now.
    pub watches: u64,
    /// Bytes written to clients, TLS and headers included.
    pub bytes_sent: u64,
}

impl Reading {
    /// Requests that match; an empty word matches all.
    pub fn count(&self, verb: &str, resource: &str, code: u16) -> u64 {
        let fits = |kind: &RequestKind| {
            (verb.is_empty() || kind.verb == verb)
                && (resource.is_empty() || kind.resource == resource)
                && (code == 0 || kind.code == code)
        };
        self.requests.iter().filter(|(kind, _)| fits(kind)).map(|(_, n)| n).sum()
    }

    /// Returns all requests.
    pub fn total(&self) -> u64 {
        self.count("", "", 0)
    }
}

/// The counters.
#[derive(Debug, Default)]
pub struct Counters {
    requests: Mutex<BTreeMap<RequestKind, u64>>,
    connections: AtomicU64,
    connections_max: AtomicU64,
    accepted: AtomicU64,
    watches: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RequestKind, u64>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request when the guard goes: without an answer, unless it is told of one.
    pub(crate) fn request(self: &Arc<Self>, kind: RequestKind) -> RequestGuard {
        RequestGuard { counters: self.clone(), kind }
    }

    fn add(&self, kind: RequestKind) {
        let mut requests = self.lock();
        if requests.len() < MAX_KINDS || requests.contains_key(&kind) {
            *requests.entry(kind).or_default() += 1;
        } else {
            *requests
                .entry(RequestKind { verb: "other".to_owned(), ..RequestKind::default() })
                .or_default() += 1;
        }
    }

    /// Counts bytes written.
    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a watch until the guard goes.
    pub(crate) fn watch(self: &Arc<Self>) -> Open {
        self.watches.fetch_add(1, Ordering::Relaxed);
        Open { counters: self.clone(), gauge: |counters| &counters.watches }
    }

    /// Counts a connection until the guard goes.
    pub(crate) fn connection(self: &Arc<Self>) -> Open {
        let now = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        self.connections_max.fetch_max(now, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Open { counters: self.clone(), gauge: |counters| &counters.connections }
    }

    /// Returns all counters now.
    pub fn read(&self) -> Reading {
        Reading {
            requests: self.lock().iter().map(|(kind, n)| (kind.clone(), *n)).collect(),
            connections: self.connections.load(Ordering::Relaxed),
            connections_max: self.connections_max.load(Ordering::Relaxed),
            connections_accepted: self.accepted.load(Ordering::Relaxed),
            watches: self.watches.load(Ordering::Relaxed),
            bytes_sent: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Starts again from zero; what is open stays counted.
    pub fn reset(&self) {
        self.lock().clear();
        self.bytes.store(0, Ordering::Relaxed);
        self.accepted.store(0, Ordering::Relaxed);
        self.connections_max.store(self.connections.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    counters: Arc<Counters>,
    kind: RequestKind,
}

impl RequestGuard {
    /// It got an answer with this code.
    pub(crate) fn answered(mut self, code: u16) {
        self.kind.code = code;
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.counters.add(std::mem::take(&mut self.kind));
    }
}

/// An open watch or connection.
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
