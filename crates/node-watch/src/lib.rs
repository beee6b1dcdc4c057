//! Watches the node's own Node object and its Lease, and keeps proof that the cache matches etcd.
//!
//! One follower watches the Node, one the Lease, whose renewals are a heartbeat without requests, and one the
//! `EndpointSlices` of each watched Service. A state machine (`freshness`) without clock and network decides
//! what counts as proof of a current cache, and how to act without proof. Its driver queries the API server
//! for it. The results go to the `Board` as facts.

mod broken_watches;
mod cordon_judge;
mod driver;
mod follow;
mod followed;
mod freshness;
mod link;
mod metrics;
mod node_watch;
mod stream;
#[cfg(test)]
mod tests;
mod watched_objects;

pub use freshness::{Transition, Transitions};
pub use metrics::WatchMetrics;
pub use node_watch::{NodeWatch, Startup};
pub use nodegate_kube_follow::Connector;

use driver::Driver;
use follow::Follower;
use followed::{OwnLease, OwnNode, ServiceSlices};
use futures::future::join_all;
use kube::runtime::watcher::Config;
use node_watch::LastDrop;
use nodegate_program::Mistakes;
use nodegate_readiness::ServiceName;
use std::collections::BTreeSet;
use std::sync::Arc;
use stream::{LEASE, NODE, service};
use tokio::sync::watch;

/// The label by which slices name their Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
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
        let (mut names, mut known) = (self.watch_service, BTreeSet::new());
        names.retain(|name| known.insert(name.clone()));
        if names.len() > MAX_SERVICES {
            let what = format_args!("names {} Services: takes at most {MAX_SERVICES}", names.len());
            mistakes.setting("watch-service", what);
        }
        names
    }
}

impl NodeWatch {
    /// Runs the loops on the current runtime, forever; dropping the future ends them and closes every
    /// connection.
    pub async fn run(self, startup: watch::Sender<Startup>) {
        let driver = Arc::new(Driver::new(self.clone()));
        let _closing = Closing(driver.clone());
        let first_list = Arc::new(LastDrop(startup.clone()));
        let no_client = || {
            if *startup.borrow() == Startup::Connecting {
                startup.send_replace(Startup::NoClient);
            }
        };
        let own = Config::default().fields(&format!("metadata.name={}", self.node_name));
        let lease = Follower::new(&driver, LEASE, own.clone(), OwnLease, None).follow();
        let drive = driver::run(driver.clone());
        let services = self.board.catalog().services().enumerate().map(|(index, name)| {
            let selected = Config::default().labels(&format!("{SERVICE_LABEL}={}", name.name));
            let (slices, first_list) = (ServiceSlices { index, name }, Some(first_list.clone()));
            Follower::new(&driver, service(index), selected, slices, first_list).follow()
        });
        let services: Vec<_> = services.collect();
        let (cordons, seen) = watch::channel(None);
        let judge = Box::pin(cordon_judge::run(&driver, seen));
        let node = Follower::new(&driver, NODE, own, OwnNode { cordons }, Some(first_list));
        let node = follow::node(node, no_client);
        // Biased: the order in which the streams are polled does not depend on how often they were.
        tokio::join!(biased; node, lease, drive, judge, join_all(services));
    }
}

/// Closes every connection when the loops end.
struct Closing(Arc<Driver>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.link.close();
    }
}
