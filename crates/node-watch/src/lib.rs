//! Watches the node's own Node object and its Lease, and keeps proof that the cache matches etcd.
//!
//! One follower watches the Node, one the Lease, whose renewals are a heartbeat without requests, and one the
//! `EndpointSlices` of each watched Service. A state machine (`freshness`) without clock and network decides
//! what counts as proof of a current cache, and how to act without proof. Its driver queries the API server
//! for it. The results go to the [`Board`] as facts.

mod cordon_judge;
mod driver;
mod follow;
mod followed;
mod freshness;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod link;
mod metrics;
mod stream;
#[cfg(test)]
mod tests;
mod watched_objects;

pub use freshness::{Transition, Transitions};
pub use metrics::WatchMetrics;
pub use nodegate_kube_follow::Connector;

use driver::Driver;
use follow::Follower;
use followed::{OwnLease, ServiceSlices};
use futures::future::join_all;
use nodegate_program::Mistakes;
use nodegate_readiness::{Board, Liveness, Moment, ServiceName, Timeline};
use std::sync::Arc;
use tokio::sync::watch;

/// The progress of the first connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// The API server has not answered yet.
    Connecting,
    /// No client could be built, because credentials or a usable kubeconfig are missing; the agent retries.
    NoClient,
    /// The Node, or its absence, has been read once, and the watched Services, as far as that is allowed.
    Synced,
}

/// A handle on the startup. Each follower has a clone, and gives it back when its first list is complete or
/// can't be had. With the last one, the startup is synced.
#[derive(Clone)]
pub(crate) struct FirstList(Arc<watch::Sender<Startup>>);

impl FirstList {
    pub(crate) fn new(startup: watch::Sender<Startup>) -> Self {
        Self(Arc::new(startup))
    }

    pub(crate) fn settled(self) {
        if let Some(startup) = Arc::into_inner(self.0) {
            startup.send_replace(Startup::Synced);
        }
    }
}

/// Parses the selector of the nodes that share a budget of drains; empty means all.
pub fn pool_selector(text: &str) -> Result<String, &'static str> {
    if !text.is_empty() {
        nodegate_kube_follow::parse_selector(text)?;
    }
    Ok(text.to_owned())
}

/// The maximum number of Services: each costs the API server a watch from every node.
const MAX_SERVICES: usize = 16;

/// The Services to watch.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceArgs {
    /// Service whose ready endpoints on this node the agent counts, as namespace/name; may be repeated, and
    /// the environment variable takes several separated by ",". Provides /services/<namespace>/<name> and the
    /// check service:<namespace>/<name>; each needs a watch, and the right to watch `EndpointSlices` in its
    /// namespace
    #[arg(long, env = "NODEGATE_WATCH_SERVICE", value_name = "NAMESPACE/NAME", value_delimiter = ',')]
    watch_service: Vec<ServiceName>,
}

impl ServiceArgs {
    /// Returns the Services, each once.
    pub fn services(self, mistakes: &mut Mistakes) -> Vec<ServiceName> {
        let mut names = Vec::new();
        for name in self.watch_service {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.len() > MAX_SERVICES {
            let what = format_args!("names {} Services: takes at most {MAX_SERVICES}", names.len());
            mistakes.setting("watch-service", what);
        }
        names
    }
}

/// The settings and handles of the loops.
#[derive(Clone)]
pub struct NodeWatch {
    /// The name of the own Node.
    pub node_name: String,
    /// The transport of the clients.
    pub connector: Connector,
    /// The board for facts and proof.
    pub board: Arc<Board>,
    /// Converts instants to moments.
    pub timeline: Timeline,
    /// The driver's liveness reports.
    pub liveness: Arc<Liveness>,
    /// The counters of events and requests.
    pub metrics: Arc<WatchMetrics>,
}

impl NodeWatch {
    fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
    }

    /// Runs the loops on the current runtime, forever; dropping the future ends them and closes every
    /// connection.
    pub async fn run(self, startup: watch::Sender<Startup>) {
        let driver = Arc::new(Driver::new(self.clone()));
        let first_list = FirstList::new(startup.clone());
        let no_client = || {
            startup.send_if_modified(|at| {
                *at == Startup::Connecting && {
                    *at = Startup::NoClient;
                    true
                }
            });
        };
        let lease = Follower::new(&self, driver.clone(), OwnLease { watch: &self }).follow();
        let drive = driver::run(driver.clone());
        let services = self.board.catalog().services().enumerate().map(|(index, name)| {
            let first_list = Some(first_list.clone());
            let slices = ServiceSlices { watch: &self, index, name, first_list };
            Follower::new(&self, driver.clone(), slices).follow()
        });
        let services: Vec<_> = services.collect();
        let (cordons, seen) = watch::channel(None);
        let judge = Box::pin(cordon_judge::run(&self, &driver, seen));
        let node = follow::node(&self, driver.clone(), no_client, first_list, cordons);
        // Biased: the order in which the streams are polled does not depend on how often they were.
        tokio::join!(biased; node, lease, drive, judge, join_all(services));
    }
}
