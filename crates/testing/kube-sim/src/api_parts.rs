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
    pub number: usize,
    pub store: Arc<Store>,
    pub tokens: Arc<Tokens>,
    pub faults: Arc<Faults>,
    pub counters: Arc<Counters>,
    pub etcd: Arc<Etcd>,
    pub health: Arc<Health>,
    /// True if a request without a token is `system:anonymous`, and not the administrator.
    pub anonymous: bool,
}
