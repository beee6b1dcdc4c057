//! How a simulator is set up.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::api::server::{Api, Settings};
use crate::cluster::kubelet::{KubeletTiming, Kubelets};
use crate::cluster::node::NodeShape;
use crate::cluster::pods::{self, PodProgram};
use crate::cluster::{base, node_controller, workloads};
use crate::net::Net;
use crate::net::tls::{CertificateError, Tls};
use crate::server::{ApiServer, ApiServers};
use crate::sim::{Inner, Sim};
use crate::store::Store;
use crate::wire::release::Release;

/// The simulator could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port could not be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// No certificate.
    #[error(transparent)]
    Tls(#[from] CertificateError),
}

/// Settings of a simulator; see [`Sim::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    listen: SocketAddr,
    servers: usize,
    tls: bool,
    nodes: Vec<String>,
    shape: NodeShape,
    kubelets: bool,
    timing: KubeletTiming,
    grace: Option<Duration>,
    bookmark_interval: Duration,
    lifecycle: bool,
    pods: Option<PodProgram>,
    anonymous: Option<bool>,
    release: Release,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            servers: 1,
            tls: false,
            nodes: Vec::new(),
            shape: NodeShape::default(),
            kubelets: false,
            timing: KubeletTiming::default(),
            grace: None,
            bookmark_interval: Duration::from_mins(1),
            lifecycle: true,
            pods: None,
            anonymous: None,
            release: Release::default(),
        }
    }
}

impl Sim {
    /// Begins to set one up.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Where the API listens; port 0 takes a free one, which is kept over kill and restart.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// How many API servers there are on the same etcd (1). The others take free ports.
    #[must_use]
    pub fn servers(mut self, count: usize) -> Self {
        self.servers = count;
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

    /// How long after its last Lease renewal a node is Unknown (as in the release that is played).
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
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

    /// Gives pods a life: `ReplicaSets` have pods made, a scheduler binds them, what is given here runs in them, EndpointSlices say
    /// where they are, and one that is deleted has its grace period to end. Unless this is called, a pod that names its node runs
    /// at once, and is gone at once.
    #[must_use]
    pub fn pods(mut self, program: PodProgram) -> Self {
        self.pods = Some(program);
        self
    }

    /// Whether a request without a token is `system:anonymous` (403) rather than the administrator's. Unless this is
    /// called, it is so over TLS; over plain HTTP kubectl sends no token.
    #[must_use]
    pub fn anonymous(mut self, on: bool) -> Self {
        self.anonymous = Some(on);
        self
    }

    /// Which release of Kubernetes it plays (the newest that is known).
    #[must_use]
    pub fn release(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// Starts the simulator on the current tokio runtime.
    #[allow(clippy::unused_async, reason = "it spawns tasks, so only a runtime can run it")]
    pub async fn start(self) -> Result<Sim, StartError> {
        let tls = if self.tls { Some(Arc::new(Tls::new(self.listen.ip())?)) } else { None };
        let api = self.api();
        let no_port = |error| StartError::Listen(self.listen, error);
        let net = Net::start(api.clone(), tls, self.listen).map_err(no_port)?;
        let servers = ApiServers::new(ApiServer { api, net });
        for _ in 1..self.servers {
            servers.add().map_err(no_port)?;
        }
        Ok(self.assemble(servers))
    }

    /// Starts it on the current tokio runtime, whose time may be paused, without a socket: [`ApiServer::service`] is asked. What
    /// concerns connections is then for whoever stands between.
    pub fn without_sockets(self) -> Sim {
        let api = self.api();
        let net = Net::without_sockets(api.clone(), self.listen);
        let servers = ApiServers::new(ApiServer { api, net });
        for _ in 1..self.servers {
            // There is no port that could be taken.
            let _ = servers.add();
        }
        self.assemble(servers)
    }

    fn api(&self) -> Arc<Api> {
        let anonymous = self.anonymous.unwrap_or(self.tls);
        let settings = Settings {
            bookmark_interval: self.bookmark_interval,
            anonymous,
            lifecycle: self.lifecycle,
            pods_live: self.pods.is_some(),
            release: self.release,
        };
        Arc::new(Api::new(Arc::new(Store::new()), settings))
    }

    fn assemble(self, servers: ApiServers) -> Sim {
        let (store, servers) = (servers.first.api.store.clone(), Arc::new(servers));
        let kubelets =
            Arc::new(Kubelets::new(self.timing, self.grace.unwrap_or_else(|| self.release.grace())));
        let any = servers.clone();
        let is_up = move || any.all().iter().any(ApiServer::is_up);
        let mut tasks = vec![tokio::spawn(kubelets.clone().run(store.clone(), is_up))];
        if self.lifecycle {
            tasks.push(tokio::spawn(node_controller::run(store.clone())));
        }
        if let Some(program) = self.pods {
            tasks.push(tokio::spawn(pods::run(store.clone(), program)));
            tasks.push(tokio::spawn(workloads::run(store)));
        }
        let sim = Sim {
            inner: Arc::new(Inner {
                servers,
                kubelets,
                shape: self.shape,
                with_kubelets: self.kubelets,
                made: AtomicUsize::new(2),
                tasks: tasks.iter().map(JoinHandle::abort_handle).collect(),
            }),
        };
        for object in base::objects() {
            // They are well-formed and the store is empty.
            let _ = sim.apply(object);
        }
        for node in &self.nodes {
            sim.add_node(node);
        }
        sim
    }
}
