//! What an API server is made of.

use std::sync::Arc;
use std::time::Duration;

use crate::api::auth::Tokens;
use crate::counters::Counters;
use crate::faults::etcd::Etcd;
use crate::faults::requests::Faults;
use crate::store::Store;
use crate::wire::release::Release;

/// What the API server is set to.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Bookmarks of watches that allow them come this often.
    pub bookmark_interval: Duration,
    /// Whether a request without a token is `system:anonymous`, who may read health and version, or the administrator,
    /// as on the insecure port that API servers once had.
    pub anonymous: bool,
    /// Whether the node lifecycle controller runs.
    pub lifecycle: bool,
    /// Whether pods are started and ended by somebody, rather than running once they are bound and gone when deleted.
    pub pods_live: bool,
    /// Which release of Kubernetes it plays.
    pub release: Release,
}

/// The simulated API server, without its sockets. Clones are other servers on the same etcd.
#[derive(Clone)]
pub(crate) struct Api {
    /// Which server it is; 0 is the first.
    pub number: usize,
    /// All objects.
    pub store: Arc<Store>,
    /// Who may come in.
    pub tokens: Arc<Tokens>,
    /// Fault switches.
    pub faults: Arc<Faults>,
    /// Counters.
    pub counters: Arc<Counters>,
    /// Its link to etcd.
    pub etcd: Arc<Etcd>,
    /// Settings.
    pub settings: Settings,
    /// The flow schema and priority level that all requests are said to have.
    pub flow: (String, String),
}

impl Api {
    /// One on a store of its own.
    pub(crate) fn new(store: Arc<Store>, settings: Settings) -> Self {
        Api {
            number: 0,
            store,
            tokens: Arc::new(Tokens::new()),
            faults: Arc::default(),
            counters: Arc::default(),
            etcd: Arc::default(),
            settings,
            flow: (crate::store::object::uuid(), crate::store::object::uuid()),
        }
    }
}
