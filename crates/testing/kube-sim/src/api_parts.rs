//! The parts of an API server.

use crate::api::auth::Tokens;
use crate::counters::Counters;
use crate::faults::etcd::Etcd;
use crate::faults::health::Health;
use crate::faults::requests::Faults;
use crate::store::Store;
use std::sync::Arc;

/// An API server without its sockets. Clones are other servers on the same etcd.
#[derive(Clone)]
pub(crate) struct Api {
    /// The number of the server; 0 is the first.
    pub number: usize,
    /// The store of all objects.
    pub store: Arc<Store>,
    /// The users and their tokens.
    pub tokens: Arc<Tokens>,
    /// The fault switches of the API.
    pub faults: Arc<Faults>,
    pub counters: Arc<Counters>,
    /// The server's link to etcd.
    pub etcd: Arc<Etcd>,
    /// The failing parts of the server's health.
    pub health: Arc<Health>,
    /// True if a request without a token is `system:anonymous`, who may read health and version. Otherwise it
    /// is the administrator, as on the insecure port that API servers once had.
    pub anonymous: bool,
}
