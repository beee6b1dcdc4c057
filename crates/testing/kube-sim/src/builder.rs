//! The setup of a simulator.

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
use crate::faults::health::Distribution;
use crate::net::Net;
use crate::net::tls::{CertificateError, Tls};
use crate::server::{ApiServer, ApiServers};
use crate::sim::{Inner, Sim};
use crate::store::Store;
use crate::wire::release::Release;

/// An error that keeps the simulator from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port could not be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The certificate could not be made.
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
    distribution: Distribution,
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
            distribution: Distribution::default(),
            release: Release::default(),
        }
    }
}

impl Sim {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Sets the address of the API. Port 0 takes a free port, which stays the same after kill and restart.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets the number of API servers on the same etcd (default 1). The other servers take free ports.
    #[must_use]
    pub fn servers(mut self, count: usize) -> Self {
        self.servers = count;
        self
    }

    /// Serves HTTPS (HTTP/2 and HTTP/1.1) with its own CA rather than plain HTTP.
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

    /// Sets the approximate size of a node's JSON in bytes (default 4,000; a node with many images has
    /// 20,000).
    #[must_use]
    pub fn node_bytes(mut self, bytes: usize) -> Self {
        self.shape.bytes = bytes;
        self
    }

    /// Gives every node a simulated kubelet: it renews the Lease and posts heartbeats. When it stops, the
    /// node becomes Unknown.
    #[must_use]
    pub fn kubelets(mut self, on: bool) -> Self {
        self.kubelets = on;
        self
    }

    /// Sets the interval of Lease renewals (default 10 s).
    #[must_use]
    pub fn lease_interval(mut self, interval: Duration) -> Self {
        self.timing.lease = interval;
        self
    }

    /// Sets the interval of a kubelet's status posts without changes (default 5 min).
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.timing.heartbeat = interval;
        self
    }

    /// Sets the time from the last Lease renewal until a node is Unknown (default: that of the simulated
    /// release).
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Sets the interval of bookmarks (default 60 s).
    #[must_use]
    pub fn bookmark_interval(mut self, interval: Duration) -> Self {
        self.bookmark_interval = interval;
        self
    }

    /// Sets whether taints follow cordons and conditions (default on).
    #[must_use]
    pub fn lifecycle(mut self, on: bool) -> Self {
        self.lifecycle = on;
        self
    }

    /// Simulates the life of pods: `ReplicaSets` create pods, a scheduler binds them, `program` runs in them,
    /// EndpointSlices list their addresses, and a deleted pod has its grace period to end. Without this call,
    /// a pod that names its node runs at once, and a deleted pod is gone at once.
    #[must_use]
    pub fn pods(mut self, program: PodProgram) -> Self {
        self.pods = Some(program);
        self
    }

    /// Sets whether a request without a token is `system:anonymous` (403) rather than the administrator. The
    /// default is on over TLS and off over plain HTTP, where kubectl sends no token.
    #[must_use]
    pub fn anonymous(mut self, on: bool) -> Self {
        self.anonymous = Some(on);
        self
    }

    /// Sets the simulated distribution (default: Kubernetes itself).
    #[must_use]
    pub fn distribution(mut self, distribution: Distribution) -> Self {
        self.distribution = distribution;
        self
    }

    /// Sets the simulated release of Kubernetes (default: the newest known one).
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

    /// Starts the simulator on the current tokio runtime without sockets; the runtime's time may be paused.
    /// Clients call [`ApiServer::service`]. Connection faults are then the caller's task.
    pub fn without_sockets(self) -> Sim {
        let api = self.api();
        let net = Net::without_sockets(api.clone(), self.listen);
        let servers = ApiServers::new(ApiServer { api, net });
        for _ in 1..self.servers {
            // Without sockets no port can be taken, so this cannot fail.
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
            distribution: self.distribution,
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
            // The objects are well-formed and the store is empty, so this cannot fail.
            let _ = sim.apply(object);
        }
        for node in &self.nodes {
            sim.add_node(node);
        }
        sim
    }
}
