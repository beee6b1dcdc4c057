//! The followed types of objects, and what happens to their events.

use crate::freshness::{Input, NodeVersion};
use crate::node_watch::NodeWatch;
use crate::watched_objects::{LEASE_NAMESPACE, WatchedLease, WatchedSlice, local_endpoints};
use kube::runtime::reflector::Lookup;
use kube::{Api, Client, Resource};
use nodegate_kube_follow::WatchedNode;
use nodegate_readiness::{Moment, Node, ServiceName};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::mem::discriminant;
use std::sync::Arc;
use tokio::sync::watch::Sender;

/// A list that is followed.
pub(crate) trait Followed {
    type Object: Resource<DynamicType = ()>
        + Lookup<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// The plural, as in metrics and log.
    const RESOURCE: &'static str;
    /// The log line of an account that may not watch it.
    const FORBIDDEN: &'static str;

    fn api(&self, client: Client) -> Api<Self::Object>;
    /// Drops the parts of an object that are not needed on the node with this name.
    fn trim(_: &mut Self::Object, _node: &str) {}
    /// Takes all present objects, after an event, or after a list that was requested after `asked_at`. Returns what
    /// that means for the freshness.
    fn changed(
        &mut self,
        watch: &NodeWatch,
        objects: &[Arc<Self::Object>],
        asked_at: Option<Moment>,
    ) -> Option<Input>;
    /// Returns the Service whose slices they are, if any.
    fn service(&self) -> Option<&ServiceName> {
        None
    }
}

/// The agent's own Node, as the object of a follower.
pub(crate) struct OwnNode {
    /// Tells of each cordon that begins, with its revision if it came as an event, and of its end.
    pub(crate) cordons: Sender<Option<String>>,
}

impl Followed for OwnNode {
    type Object = WatchedNode;
    const RESOURCE: &'static str = "nodes";
    const FORBIDDEN: &'static str =
        "the account lacks a right; retrying. Apply the manifests or the chart again: they grant it";

    fn api(&self, client: Client) -> Api<WatchedNode> {
        Api::all(client)
    }

    fn changed(
        &mut self,
        watch: &NodeWatch,
        nodes: &[Arc<WatchedNode>],
        asked_at: Option<Moment>,
    ) -> Option<Input> {
        let node = nodes.first();
        let facts = node.map_or(Node::Absent, |node| Node::Present(node.facts()));
        let cordon = || discriminant(&watch.board.state().cordon);
        let before = cordon();
        watch.board.set_node(facts, watch.now(), nodegate_clock::wall());
        if cordon() != before {
            let revision = node.and_then(|node| node.metadata.resource_version.clone());
            self.cordons.send_replace(revision.filter(|_| asked_at.is_none()));
        }
        let node = node.map_or(NodeVersion::Absent, |node| NodeVersion::present(&node.metadata));
        Some(match asked_at {
            Some(asked_at) => Input::Listed { asked_at, node },
            None => Input::Changed(node),
        })
    }
}

/// The node's Lease: its renewals are a heartbeat that costs no request.
pub(crate) struct OwnLease;

impl Followed for OwnLease {
    type Object = WatchedLease;
    const RESOURCE: &'static str = "leases";
    const FORBIDDEN: &'static str =
        "not allowed to watch the node's Lease; continuing without it, with more requests";

    fn api(&self, client: Client) -> Api<WatchedLease> {
        Api::namespaced(client, LEASE_NAMESPACE)
    }

    fn changed(
        &mut self,
        _: &NodeWatch,
        leases: &[Arc<WatchedLease>],
        asked_at: Option<Moment>,
    ) -> Option<Input> {
        let lease = leases.first().filter(|_| asked_at.is_none())?;
        Some(Input::Renewed { at: lease.renewed(), wall: nodegate_clock::wall() })
    }
}

/// The `EndpointSlices` of a watched Service.
pub(crate) struct ServiceSlices<'a> {
    pub(crate) index: usize,
    pub(crate) name: &'a ServiceName,
}

impl Followed for ServiceSlices<'_> {
    type Object = WatchedSlice;
    const RESOURCE: &'static str = "endpointslices";
    const FORBIDDEN: &'static str = "not allowed to watch the Service's EndpointSlices; its check uses the last \
                                     known state, or passes. The rights are in manifests/services.yaml";

    fn api(&self, client: Client) -> Api<WatchedSlice> {
        Api::namespaced(client, &self.name.namespace)
    }

    fn changed(
        &mut self,
        watch: &NodeWatch,
        slices: &[Arc<WatchedSlice>],
        asked_at: Option<Moment>,
    ) -> Option<Input> {
        let count = local_endpoints(slices.iter().map(AsRef::as_ref), &watch.node_name);
        let (now, wall) = (watch.now(), nodegate_clock::wall());
        watch.board.set_service(self.index, count, now, wall);
        watch.board.prove_services(&[self.index], asked_at?, now, wall);
        None
    }

    fn trim(slice: &mut WatchedSlice, node: &str) {
        slice.trim(node);
    }

    fn service(&self) -> Option<&ServiceName> {
        Some(self.name)
    }
}
