//! The lists that are watched, and the treatment of their objects.

use crate::plan::facts::{ObservedNode, ObservedService};
use crate::plan::status::ServiceStatus;
use crate::watch::objects::{ServiceObject, node_facts};
use crate::watch::observed::{Observed, ServiceKey};
use crate::watch::statuses::StatusSink;
use kube::runtime::watcher;
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

/// One kind of list, and the treatment of its objects.
pub(super) trait Lists {
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static;
    type Listed: Default;

    fn api(&self, client: Client) -> Api<Self::Object>;
    fn config(&self, by_field: bool) -> watcher::Config;
    fn list(&self, listed: &mut Self::Listed, object: &Self::Object);
    fn listed(&self, observed: &mut Observed, listed: Self::Listed);
    fn set(&self, observed: &mut Observed, object: &Self::Object) -> bool;
    fn remove(&self, observed: &mut Observed, object: &Self::Object) -> bool;
}

pub(super) struct NodeLists<'a> {
    pub(super) selector: String,
    pub(super) rules: &'a nodegate_readiness::Policy,
}

impl Lists for NodeLists<'_> {
    type Object = WatchedNode;
    type Listed = BTreeMap<String, Arc<ObservedNode>>;

    fn api(&self, client: Client) -> Api<WatchedNode> {
        Api::all(client)
    }

    fn config(&self, _: bool) -> watcher::Config {
        config(&self.selector)
    }

    fn list(&self, listed: &mut Self::Listed, object: &WatchedNode) {
        let facts = node_facts(object, self.rules);
        listed.insert(facts.name.clone(), Arc::new(facts));
    }

    fn listed(&self, observed: &mut Observed, listed: Self::Listed) {
        observed.set_nodes(listed);
    }

    fn set(&self, observed: &mut Observed, object: &WatchedNode) -> bool {
        observed.set_node(node_facts(object, self.rules))
    }

    fn remove(&self, observed: &mut Observed, object: &WatchedNode) -> bool {
        observed.remove_node(object.meta().name.as_deref().unwrap_or_default())
    }
}

pub(super) struct ServiceLists {
    pub(super) namespace: Option<String>,
    pub(super) statuses: StatusSink,
}

/// The Services of a list, and their statuses if these are kept.
#[derive(Default)]
pub(super) struct ListedServices {
    facts: BTreeMap<ServiceKey, Arc<ObservedService>>,
    statuses: BTreeMap<ServiceKey, Arc<ServiceStatus>>,
}

impl Lists for ServiceLists {
    type Object = ServiceObject;
    type Listed = ListedServices;

    fn api(&self, client: Client) -> Api<ServiceObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }

    fn config(&self, by_field: bool) -> watcher::Config {
        let config = config("");
        if by_field { config.fields(WITH_NODE_PORTS) } else { config }
    }

    fn list(&self, listed: &mut Self::Listed, object: &ServiceObject) {
        if let Some(facts) = object.facts() {
            let key = (facts.namespace.clone(), facts.name.clone());
            if self.statuses.is_open() {
                listed.statuses.insert(key.clone(), Arc::new(object.status()));
            }
            listed.facts.insert(key, Arc::new(facts));
        }
    }

    fn listed(&self, observed: &mut Observed, listed: Self::Listed) {
        observed.set_services(self.namespace.as_deref(), listed.facts);
        self.statuses.replace(self.namespace.as_deref(), listed.statuses);
    }

    fn set(&self, observed: &mut Observed, object: &ServiceObject) -> bool {
        match object.facts() {
            Some(facts) => {
                if self.statuses.is_open() {
                    self.statuses.set((facts.namespace.clone(), facts.name.clone()), object.status());
                }
                observed.set_service(facts)
            }
            // The Service has lost its ports on nodes.
            None => self.remove(observed, object),
        }
    }

    fn remove(&self, observed: &mut Observed, object: &ServiceObject) -> bool {
        let meta = object.meta();
        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        self.statuses.remove(&key);
        observed.remove_service(key)
    }
}

fn config(selector: &str) -> watcher::Config {
    let config = watcher::Config::default().timeout(fastrand::u32(WATCH_SECONDS)).page_size(PAGE);
    if selector.is_empty() { config } else { config.labels(selector) }
}
