//! The two kinds of objects that are watched, and how they become facts.

use crate::plan::facts::{ObservedNode, ObservedService, ServiceKey};
use crate::watch::Observed;
use crate::watch::objects::{node_facts, service_facts};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource};
use nodegate_kube_follow::WatchedNode;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// The lifetime of one watch, in seconds.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 240..=290;
/// The number of objects in one page of a list. 50 Nodes of 50 kB are 2.5 MB, and pages of more than 8 MiB
/// are refused.
const PAGE: u32 = 50;
/// The field selector with which the API server leaves out Services that are of no use here.
const WITH_NODE_PORTS: &str = "spec.type!=ClusterIP,spec.type!=ExternalName";
/// The maximum number of deletions that are remembered.
const MAX_DELETED: usize = 10_000;

/// A kind of object in one list.
pub(super) trait Kind {
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static;
    type Key: Ord;
    type Facts: PartialEq;

    fn api(&self, client: Client) -> Api<Self::Object>;
    fn config(&self, by_field: bool) -> Config;
    fn key(object: &Self::Object) -> Self::Key;
    /// Returns the facts. `None` if the object is of no use.
    fn facts(&self, object: &Self::Object) -> Option<Self::Facts>;
    fn known(observed: &mut Observed) -> &mut BTreeMap<Self::Key, Arc<Self::Facts>>;
    /// Returns true if an object with this key would be in the list.
    fn covers(&self, key: &Self::Key) -> bool;
    /// Records that the watch reported a deletion.
    fn deleted(observed: &mut Observed, key: Self::Key);
}

/// All Nodes with these labels.
pub(super) struct Nodes<'a> {
    pub(super) selector: &'a str,
    pub(super) rules: &'a nodegate_readiness::Policy,
}

impl Kind for Nodes<'_> {
    type Object = WatchedNode;
    type Key = String;
    type Facts = ObservedNode;

    fn api(&self, client: Client) -> Api<WatchedNode> {
        Api::all(client)
    }

    fn config(&self, _: bool) -> Config {
        if self.selector.is_empty() { config() } else { config().labels(self.selector) }
    }

    fn key(object: &WatchedNode) -> String {
        object.metadata.name.clone().unwrap_or_default()
    }

    fn facts(&self, object: &WatchedNode) -> Option<ObservedNode> {
        Some(node_facts(object, self.rules))
    }

    fn known(observed: &mut Observed) -> &mut BTreeMap<String, Arc<ObservedNode>> {
        &mut observed.facts.nodes
    }

    fn covers(&self, _: &String) -> bool {
        true
    }

    fn deleted(_: &mut Observed, _: String) {}
}

/// The Services of a namespace, or of all.
pub(super) struct Services {
    pub(super) namespace: Option<String>,
}

impl Kind for Services {
    type Object = Service;
    type Key = ServiceKey;
    type Facts = ObservedService;

    fn api(&self, client: Client) -> Api<Service> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }

    fn config(&self, by_field: bool) -> Config {
        if by_field { config().fields(WITH_NODE_PORTS) } else { config() }
    }

    fn key(object: &Service) -> ServiceKey {
        let meta = object.meta();
        (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }

    fn facts(&self, object: &Service) -> Option<ObservedService> {
        service_facts(object)
    }

    fn known(observed: &mut Observed) -> &mut BTreeMap<ServiceKey, Arc<ObservedService>> {
        &mut observed.facts.services
    }

    fn covers(&self, (namespace, _): &ServiceKey) -> bool {
        self.namespace.as_ref().is_none_or(|own| own == namespace)
    }

    fn deleted(observed: &mut Observed, key: ServiceKey) {
        if observed.deleted.len() < MAX_DELETED {
            observed.deleted.insert(key);
        }
    }
}

fn config() -> Config {
    Config::default().timeout(fastrand::u32(WATCH_SECONDS)).page_size(PAGE)
}
