//! The kinds of objects that are watched, and how they become facts.

use crate::plan::facts::{Facts, ObservedNode, ObservedService, ServiceKey};
use crate::watch::Observed;
use crate::watch::objects::{node_facts, service_facts};
use k8s_openapi::api::core::v1::Service;
use kube::Resource;
use nodegate_kube_follow::WatchedNode;
use nodegate_readiness::Policy;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// The maximum number of deletions that are remembered.
const MAX_DELETED: usize = 10_000;

/// The facts of one kind, by the key of their object.
pub(super) type Known<Key, Facts> = BTreeMap<Key, Arc<Facts>>;

/// A kind of objects.
pub(super) trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static
{
    type Key: Ord;
    type Facts: PartialEq;

    fn key(&self) -> Self::Key;

    /// Returns the facts. `None` if the object is of no use.
    fn facts(&self, rules: &Policy) -> Option<Self::Facts>;

    fn known(facts: &mut Facts) -> &mut Known<Self::Key, Self::Facts>;

    /// Records that the watch reported a deletion.
    fn deleted(_: &mut Observed, _: Self::Key) {}
}

impl Watched for WatchedNode {
    type Key = String;
    type Facts = ObservedNode;

    fn key(&self) -> String {
        self.metadata.name.clone().unwrap_or_default()
    }

    fn facts(&self, rules: &Policy) -> Option<ObservedNode> {
        Some(node_facts(self, rules))
    }

    fn known(facts: &mut Facts) -> &mut Known<String, ObservedNode> {
        &mut facts.nodes
    }
}

impl Watched for Service {
    type Key = ServiceKey;
    type Facts = ObservedService;

    fn key(&self) -> ServiceKey {
        let meta = &self.metadata;
        (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }

    fn facts(&self, _: &Policy) -> Option<ObservedService> {
        service_facts(self)
    }

    fn known(facts: &mut Facts) -> &mut Known<ServiceKey, ObservedService> {
        &mut facts.services
    }

    fn deleted(observed: &mut Observed, key: ServiceKey) {
        if observed.deleted.len() < MAX_DELETED {
            observed.deleted.insert(key);
        }
    }
}
