//! The setup of a simulator.

use crate::api::auth::Tokens;
use crate::api_parts::Api;
use crate::net::Net;
use crate::net::tls::{SetupError, Tls};
use crate::server::ApiServer;
use crate::sim::{Inner, Sim};
use crate::store::Store;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

const NODE_BYTES: usize = 4_000;
/// The initial content of every cluster.
const INITIAL: &str = include_str!("initial.json");

#[derive(Clone)]
pub struct Builder {
    listen: SocketAddr,
    servers: usize,
    tls: bool,
    nodes: Vec<String>,
    node_bytes: usize,
    kubelets: bool,
    lease_interval: Duration,
    anonymous: Option<bool>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            servers: 1,
            tls: false,
            nodes: Vec::new(),
            node_bytes: NODE_BYTES,
            kubelets: false,
            lease_interval: Duration::from_secs(10),
            anonymous: None,
        }
    }
}

impl Sim {
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// Makes setters of settings: their names, their arguments, and what they set.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($argument:ident: $type:ty) => $field:ident = $value:expr;)*) => {
        impl Builder {
            $($(#[$doc])* #[must_use] pub fn $name(mut self, $argument: $type) -> Self {
                self.$field = $value;
                self
            })*
        }
    };
}

setters! {
    /// Sets the address of the API. Port 0 takes a free port, which stays the same after kill and restart.
    listen(address: SocketAddr) => listen = address;
    /// Sets the number of API servers on the same etcd (default 1) of a simulator without sockets.
    servers(count: usize) => servers = count;
    /// Serves HTTPS (HTTP/2 and HTTP/1.1) with its own CA rather than plain HTTP.
    tls(on: bool) => tls = on;
    /// Sets the approximate size of a node's JSON in bytes (default 4,000; with many images 20,000).
    node_bytes(bytes: usize) => node_bytes = bytes;
    /// Gives every node a simulated kubelet, which renews the Lease.
    kubelets(on: bool) => kubelets = on;
    /// Sets the interval of Lease renewals (default 10 s).
    lease_interval(interval: Duration) => lease_interval = interval;
    /// Sets whether a request without a token is `system:anonymous` (403) rather than the administrator. The
    /// default is on over TLS and off over plain HTTP, where kubectl sends no token.
    anonymous(on: bool) => anonymous = Some(on);
}

impl Builder {
    #[must_use]
    pub fn node(self, name: &str) -> Self {
        self.nodes([name])
    }

    #[must_use]
    pub fn nodes<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.nodes.extend(names.into_iter().map(|n| n.as_ref().to_owned()));
        self
    }

    /// Starts the simulator on the current tokio runtime.
    #[allow(clippy::unused_async, reason = "it spawns tasks, so only a runtime can run it")]
    pub async fn start(self) -> Result<Sim, SetupError> {
        let tls = if self.tls { Some(Arc::new(Tls::new(self.listen.ip().to_string())?)) } else { None };
        let api = self.api();
        let net = Net::start(api.clone(), tls, self.listen)?;
        Ok(self.assemble(vec![ApiServer { api, net }]))
    }

    /// Starts the simulator on the current tokio runtime without sockets; the runtime's time may be paused.
    /// Clients call the [`ApiServer`], a service. Connection faults are then the caller's task.
    pub fn without_sockets(self) -> Sim {
        let api = self.api();
        let net = Net::without_sockets(api.clone(), self.listen);
        let first = ApiServer { api, net };
        let servers = (0..self.servers).map(|number| first.beside(number)).collect();
        self.assemble(servers)
    }

    fn api(&self) -> Arc<Api> {
        Arc::new(Api {
            number: 0,
            store: Arc::new(Store::new()),
            tokens: Arc::new(Tokens::new()),
            faults: Arc::default(),
            counters: Arc::default(),
            etcd: Arc::default(),
            health: Arc::default(),
            anonymous: self.anonymous.unwrap_or(self.tls),
        })
    }

    fn assemble(self, servers: Vec<ApiServer>) -> Sim {
        let sim = Sim {
            inner: Arc::new(Inner {
                servers,
                node_bytes: self.node_bytes,
                lease_interval: self.kubelets.then_some(self.lease_interval),
                made: AtomicUsize::new(2),
                runtime: Handle::current(),
                tasks: Mutex::default(),
            }),
        };
        // The objects are well-formed and the store is empty, so this cannot fail.
        for object in serde_json::from_str::<Vec<Value>>(INITIAL).unwrap_or_default() {
            let _ = sim.apply(object);
        }
        for node in &self.nodes {
            sim.add_node(node);
        }
        sim
    }
}
