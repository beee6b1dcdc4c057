//! The lists that are watched, and how their objects become facts.

use crate::plan::facts::{ObservedNode, ObservedService, ServiceKey};
use crate::watch::objects::{node_facts, service_facts};
use crate::watch::{Observed, WatchScope};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use nodegate_kube_follow::WatchedNode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The lifetime of one watch, in seconds.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 240..=290;
/// The number of objects in one page of a list. 50 Nodes of 50 kB are 2.5 MB, and pages of more than 8 MiB
/// are refused.
const PAGE: u32 = 50;
/// The maximum number of deletions that are remembered.
const MAX_DELETED: usize = 10_000;

/// The facts of one kind, by the key of their object.
pub(super) type Known<Key, Facts> = BTreeMap<Key, Arc<Facts>>;

type Read<'a, Object, Facts> = Box<dyn Fn(&Object) -> Option<Facts> + Send + Sync + 'a>;

/// One list: where it comes from, and where its facts go.
pub(super) struct List<'a, Object, Key, Facts> {
    pub(super) name: String,
    pub(super) api: Box<dyn Fn(Client) -> Api<Object> + Send + Sync + 'a>,
    pub(super) selector: &'a str,
    pub(super) key: fn(&Object) -> Key,
    /// Returns the facts. `None` if the object is of no use.
    pub(super) facts: Read<'a, Object, Facts>,
    pub(super) known: fn(&mut Observed) -> &mut Known<Key, Facts>,
    /// Returns true if an object with this key would be in the list.
    pub(super) covers: Box<dyn Fn(&Key) -> bool + Send + Sync + 'a>,
    /// Records that the watch reported a deletion.
    pub(super) deleted: fn(&mut Observed, Key),
}

impl<Object, Key, Facts> List<'_, Object, Key, Facts> {
    pub(super) fn config(&self) -> Config {
        let config = Config::default().timeout(fastrand::u32(WATCH_SECONDS)).page_size(PAGE);
        if self.selector.is_empty() { config } else { config.labels(self.selector) }
    }
}

/// Returns the list of all Nodes with the labels of the scope.
pub(super) fn nodes(scope: &WatchScope) -> List<'_, WatchedNode, String, ObservedNode> {
    List {
        name: "nodes".to_owned(),
        api: Box::new(Api::all),
        selector: &scope.node_selector,
        key: |node| node.metadata.name.clone().unwrap_or_default(),
        facts: Box::new(|node| Some(node_facts(node, &scope.rules))),
        known: |observed| &mut observed.facts.nodes,
        covers: Box::new(|_| true),
        deleted: |_, _| {},
    }
}

/// Returns the list of the Services of a namespace, or of all.
pub(super) fn services(namespace: Option<&str>) -> List<'_, Service, ServiceKey, ObservedService> {
    List {
        name: namespace.map_or("services".to_owned(), |namespace| format!("services in {namespace}")),
        api: Box::new(move |client| match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }),
        selector: "",
        key: |Service { metadata, .. }| {
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
        },
        facts: Box::new(service_facts),
        known: |observed| &mut observed.facts.services,
        covers: Box::new(move |(of, _)| namespace.is_none_or(|namespace| of == namespace)),
        deleted: |observed, key| {
            if observed.deleted.len() < MAX_DELETED {
                observed.deleted.insert(key);
            }
        },
    }
}
