//! How a simulator is set up.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::api::auth::{Tokens, User};
use crate::api::{Anonymous, Api, Settings};
use crate::cluster::kubelet::{Kubelets, Timing};
use crate::cluster::node::NodeShape;
use crate::counters::Counters;
use crate::journal::Journal;
use crate::net::Net;
use crate::net::tls::{Tls, TlsError};
use crate::sim::{Inner, Sim};
use crate::store::Store;
use crate::store::limits::Limits;

/// The simulator could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port could not be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// No certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The state file could not be read or written.
    #[error("cannot use the state file {0}: {1}")]
    State(PathBuf, #[source] io::Error),
}

/// Settings of a simulator; see [`Sim::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    listen: SocketAddr,
    control: Option<SocketAddr>,
    tls: bool,
    nodes: Vec<String>,
    shape: NodeShape,
    kubelets: bool,
    timing: Timing,
    bookmark_interval: Duration,
    lifecycle: bool,
    anonymous: Option<bool>,
    limits: Limits,
    admin: String,
    tokens: Vec<(String, User)>,
    state: Option<PathBuf>,
    max_connections: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            control: None,
            tls: false,
            nodes: Vec::new(),
            shape: NodeShape::default(),
            kubelets: false,
            timing: Timing::default(),
            bookmark_interval: Duration::from_mins(1),
            lifecycle: true,
            anonymous: None,
            limits: Limits::default(),
            admin: "sim-admin".to_owned(),
            tokens: Vec::new(),
            state: None,
            max_connections: 20_000,
        }
    }
}

impl Builder {
    /// Where the API listens; port 0 takes a free one, which is kept over kill and restart.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Opens the HTTP control API, which works while the simulated API is dead.
    #[must_use]
    pub fn control(mut self, address: SocketAddr) -> Self {
        self.control = Some(address);
        self
    }

    /// Serves HTTPS (HTTP/2 and HTTP/1.1) with a CA of its own rather than plain HTTP.
    #[must_use]
    pub fn tls(mut self, on: bool) -> Self {
        self.tls = on;
        self
    }

    /// Adds a node.
    #[must_use]
    pub fn node(mut self, name: &str) -> Self {
        self.nodes.push(name.to_owned());
        self
    }

    /// Adds nodes.
    #[must_use]
    pub fn nodes<S: AsRef<str>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.nodes.extend(names.into_iter().map(|n| n.as_ref().to_owned()));
        self
    }

    /// Roughly how many bytes a node's JSON has (4,000; a node with many images has 20,000).
    #[must_use]
    pub fn node_bytes(mut self, bytes: usize) -> Self {
        self.shape.bytes = bytes;
        self
    }

    /// Gives every node a simulated kubelet: Lease renewals, heartbeats, and Unknown when it stops.
    #[must_use]
    pub fn kubelets(mut self, on: bool) -> Self {
        self.kubelets = on;
        self
    }

    /// How often Leases are renewed (10 s).
    #[must_use]
    pub fn lease_interval(mut self, interval: Duration) -> Self {
        self.timing.lease = interval;
        self
    }

    /// How often a kubelet posts its status when nothing changed (5 min).
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.timing.heartbeat = interval;
        self
    }

    /// How long after its last Lease renewal a node is Unknown (40 s).
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.timing.grace = grace;
        self
    }

    /// How often watches get bookmarks (60 s).
    #[must_use]
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.bookmark_interval = interval;
        self
    }

    /// Whether taints follow cordons and conditions (on).
    #[must_use]
    pub fn lifecycle(mut self, on: bool) -> Self {
        self.lifecycle = on;
        self
    }

    /// Whether a request without a token is `system:anonymous` (403) rather than 401. Unless this is
    /// called, it is so over TLS, and over plain HTTP such a request is the administrator's: kubectl
    /// sends no token there.
    #[must_use]
    pub fn anonymous(mut self, on: bool) -> Self {
        self.anonymous = Some(on);
        self
    }

    /// Bounds of history, watch queues and objects.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The administrator's token (`sim-admin`).
    #[must_use]
    pub fn admin_token(mut self, token: &str) -> Self {
        token.clone_into(&mut self.admin);
        self
    }

    /// Another token.
    #[must_use]
    pub fn token(mut self, token: &str, user: User) -> Self {
        self.tokens.push((token.to_owned(), user));
        self
    }

    /// Keeps all objects in a file, over a SIGKILL too, and the CA beside it (extension `ca`).
    #[must_use]
    pub fn state(mut self, path: impl Into<PathBuf>) -> Self {
        self.state = Some(path.into());
        self
    }

    /// Connections at once (20,000); more are closed at once.
    #[must_use]
    pub fn max_connections(mut self, most: usize) -> Self {
        self.max_connections = most;
        self
    }

    /// Starts the simulator on the current tokio runtime.
    pub async fn start(self) -> Result<Sim, StartError> {
        let store = Arc::new(Store::new(self.limits));
        if let Some(path) = &self.state {
            let failed = |error| StartError::State(path.clone(), error);
            store.attach(Journal::open(path).map_err(failed)?).map_err(failed)?;
        }
        let beside = self.state.as_ref().map(|path| path.with_extension("ca"));
        let tls = if self.tls { Some(Arc::new(Tls::new(self.listen.ip(), beside)?)) } else { None };
        let tokens = Tokens::new(&self.admin);
        for (token, user) in self.tokens {
            tokens.set(&token, user);
        }
        let anonymous = match self.anonymous {
            Some(true) => Anonymous::Nobody,
            Some(false) => Anonymous::Refused,
            None if self.tls => Anonymous::Nobody,
            None => Anonymous::Admin,
        };
        let lifecycle = self.lifecycle;
        let api = Arc::new(Api {
            store: store.clone(),
            tokens: Arc::new(tokens),
            faults: Arc::default(),
            counters: Arc::new(Counters::default()),
            etcd: Arc::default(),
            settings: Settings { bookmark_interval: self.bookmark_interval, anonymous, lifecycle },
            flow: (crate::store::object::uuid(), crate::store::object::uuid()),
        });
        let net = Net::start(api.clone(), tls, self.listen, self.max_connections)
            .map_err(|error| StartError::Listen(self.listen, error))?;
        let kubelets = Arc::new(Kubelets::new(self.timing));
        let mut tasks = vec![tokio::spawn(kubelets.clone().run(store.clone(), net.clone()))];
        if lifecycle {
            tasks.push(tokio::spawn(crate::cluster::node_controller::run(store)));
        }
        let sim = Sim::new(Inner::new(api, net, kubelets, self.admin, self.shape, self.kubelets), tasks);
        sim.seed();
        for node in &self.nodes {
            if sim.node(node).is_none() {
                sim.add_node(node);
            } else if self.kubelets {
                sim.start_kubelet(node);
            }
        }
        if let Some(address) = self.control {
            sim.open_control(address).await.map_err(|error| StartError::Listen(address, error))?;
        }
        Ok(sim)
    }
}

/// Objects that every cluster has.
pub(crate) fn base_objects() -> Vec<serde_json::Value> {
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
    let mut all: Vec<serde_json::Value> = namespaces
        .iter()
        .map(|name| {
            json!({
                "kind": "Namespace", "apiVersion": "v1",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            })
        })
        .collect();
    all.extend(namespaces.iter().map(|namespace| {
        json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default", "namespace": namespace}})
    }));
    all.push(json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "type": "ClusterIP", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    }));
    all
}
