//! The followed types of objects, and what happens to their events.

use crate::driver::Driver;
use crate::freshness::NodeVersion;
use crate::node_watch::{FirstList, NodeWatch};
use crate::stream::Stream;
use crate::watched_objects::{LEASE_NAMESPACE, Watched, WatchedLease, WatchedSlice, local_endpoints};
use kube::runtime::watcher;
use kube::{Api, Client};
use nodegate_kube_follow::WatchedNode;
use nodegate_readiness::{Node, ServiceName};
use std::mem::discriminant;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch::Sender;

/// The label by which slices name their Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// A list that is followed.
pub(crate) trait Followed {
    type Object: Watched;
    /// The plural, as in metrics and log.
    const RESOURCE: &'static str;

    fn stream(&self) -> Stream;
    fn api(&self, client: Client) -> Api<Self::Object>;
    /// Returns the selection of the objects.
    fn selected(&self, watch: &NodeWatch) -> watcher::Config;
    /// Takes all present objects, after a list if `listed` is true. If it is the Node, returns its version.
    fn changed(
        &mut self,
        watch: &NodeWatch,
        objects: &[Arc<Self::Object>],
        listed: bool,
    ) -> Option<NodeVersion>;
    /// Returns the version of an object in an event if it is older than the held one, and must be ignored.
    fn outdated(&self, _: &Self::Object) -> Option<NodeVersion> {
        None
    }
    /// Returns the heartbeat in an object, by its sender's clock; `None` if the object is no heartbeat.
    fn renewed(_: &Self::Object) -> Option<Renewed> {
        None
    }
    /// Handles a complete list, or that there is none for the time being.
    fn settled(&mut self, _: &Driver) {}
}

/// A heartbeat. Some have no date, and some do not have an interval.
pub(crate) struct Renewed {
    pub(crate) at: Option<SystemTime>,
    pub(crate) every: Option<Duration>,
}

/// Selects the object with the node's own name.
fn own_name(watch: &NodeWatch) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={}", watch.node_name))
}

/// The agent's own Node, as the object of a follower.
pub(crate) struct OwnNode {
    pub(crate) first_list: Option<FirstList>,
    /// The last version of the Node from the watch.
    pub(crate) held: NodeVersion,
    /// Tells of each cordon that begins, with its revision if it came as an event, and of its end.
    pub(crate) cordons: Sender<Option<String>>,
}

impl Followed for OwnNode {
    type Object = WatchedNode;
    const RESOURCE: &'static str = "nodes";

    fn stream(&self) -> Stream {
        Stream::Node
    }

    fn api(&self, client: Client) -> Api<WatchedNode> {
        Api::all(client)
    }

    fn selected(&self, watch: &NodeWatch) -> watcher::Config {
        own_name(watch)
    }

    fn changed(
        &mut self,
        watch: &NodeWatch,
        nodes: &[Arc<WatchedNode>],
        listed: bool,
    ) -> Option<NodeVersion> {
        let node = nodes.first();
        let facts = node.map_or(Node::Absent, |node| Node::Present(node.facts()));
        let cordon = || discriminant(&watch.board.published().state.cordon);
        let before = cordon();
        watch.board.set_node(facts, watch.now(), nodegate_clock::wall());
        if cordon() != before {
            let revision = node.and_then(|node| node.metadata.resource_version.clone());
            self.cordons.send_replace(revision.filter(|_| !listed));
        }
        self.held = node.map_or(NodeVersion::Absent, |node| NodeVersion::present(&node.metadata));
        Some(self.held.clone())
    }

    fn outdated(&self, node: &WatchedNode) -> Option<NodeVersion> {
        Some(NodeVersion::present(&node.metadata)).filter(|state| state.is_before(&self.held))
    }

    fn settled(&mut self, driver: &Driver) {
        self.first_list.take().into_iter().for_each(FirstList::settled);
        driver.link.connected();
    }
}

/// The node's Lease: its renewals are a heartbeat that costs no request.
pub(crate) struct OwnLease;

impl Followed for OwnLease {
    type Object = WatchedLease;
    const RESOURCE: &'static str = "leases";

    fn stream(&self) -> Stream {
        Stream::Lease
    }

    fn api(&self, client: Client) -> Api<WatchedLease> {
        Api::namespaced(client, LEASE_NAMESPACE)
    }

    fn selected(&self, watch: &NodeWatch) -> watcher::Config {
        own_name(watch)
    }

    fn changed(&mut self, _: &NodeWatch, _: &[Arc<WatchedLease>], _: bool) -> Option<NodeVersion> {
        None
    }

    fn renewed(lease: &WatchedLease) -> Option<Renewed> {
        Some(Renewed { at: lease.renewed(), every: lease.renewed_every() })
    }
}

/// The `EndpointSlices` of a watched Service.
pub(crate) struct ServiceSlices<'a> {
    pub(crate) index: usize,
    pub(crate) name: &'a ServiceName,
    pub(crate) first_list: Option<FirstList>,
}

impl Followed for ServiceSlices<'_> {
    type Object = WatchedSlice;
    const RESOURCE: &'static str = "endpointslices";

    fn stream(&self) -> Stream {
        Stream::Service(self.index)
    }

    fn api(&self, client: Client) -> Api<WatchedSlice> {
        Api::namespaced(client, &self.name.namespace)
    }

    fn selected(&self, _: &NodeWatch) -> watcher::Config {
        watcher::Config::default().labels(&format!("{SERVICE_LABEL}={}", self.name.name))
    }

    fn changed(&mut self, watch: &NodeWatch, slices: &[Arc<WatchedSlice>], _: bool) -> Option<NodeVersion> {
        let count = local_endpoints(slices.iter().map(AsRef::as_ref), &watch.node_name);
        watch.board.set_service(self.index, count, watch.now(), nodegate_clock::wall());
        None
    }

    /// Completes the startup also for a Service that can't be watched.
    fn settled(&mut self, _: &Driver) {
        self.first_list.take().into_iter().for_each(FirstList::settled);
    }
}
