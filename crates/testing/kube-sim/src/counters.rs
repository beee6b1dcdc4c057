//! Counters of requests by client and outcome, of connections, watches and bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKind {
    /// The RBAC verb, or the HTTP method in lower case for other paths.
    pub verb: String,
    /// The plural resource (`nodes`, `nodes/status`), or the path.
    pub resource: String,
    /// The HTTP status code; 0 if the request was cut off before an answer.
    pub code: u16,
    /// The user name; empty if the request was not authenticated.
    pub user: String,
    /// The number of the API server; 0 is the first.
    pub server: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub requests: BTreeMap<RequestKind, u64>,
    pub connections: u64,
    /// The most connections open at once since the last reset.
    pub connections_max: u64,
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

    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// A mark of an open connection or watch.
pub(crate) type Open = Arc<()>;

#[derive(Debug, Default)]
pub struct Counters {
    /// All but what is open now.
    counted: Mutex<Reading>,
    connections: Open,
    watches: Open,
}

impl Counters {
    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request when the returned value is dropped: as unanswered, unless the value has got a code.
    pub(crate) fn request(self: &Arc<Self>, kind: RequestKind) -> CountedRequest {
        CountedRequest { counters: self.clone(), kind }
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.lock().bytes_sent += bytes as u64;
    }

    pub(crate) fn watch(&self) -> Open {
        self.watches.clone()
    }

    /// Counts a connection as open until the returned value is dropped.
    pub(crate) fn connection(&self) -> Open {
        let mut counted = self.lock();
        let connection = self.connections.clone();
        counted.connections_max = counted.connections_max.max(open(&self.connections));
        connection
    }

    pub fn read(&self) -> Reading {
        let (connections, watches) = (open(&self.connections), open(&self.watches));
        Reading { connections, watches, ..self.lock().clone() }
    }

    /// Resets the counters to zero. Open connections and watches stay counted.
    pub fn reset(&self) {
        *self.lock() = Reading { connections_max: open(&self.connections), ..Reading::default() };
    }
}

fn open(all: &Open) -> u64 {
    Arc::strong_count(all) as u64 - 1
}

#[derive(Debug)]
pub(crate) struct CountedRequest {
    counters: Arc<Counters>,
    pub(crate) kind: RequestKind,
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        *self.counters.lock().requests.entry(std::mem::take(&mut self.kind)).or_default() += 1;
    }
}
