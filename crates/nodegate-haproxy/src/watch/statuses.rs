//! The statuses of the watched Services. They are apart from the facts, because no plan depends on them.

use crate::plan::facts::ServiceKey;
use crate::plan::status::ServiceStatus;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch::Sender;

/// The statuses by Service.
pub type Statuses = Arc<BTreeMap<ServiceKey, Arc<ServiceStatus>>>;

/// The receiver of statuses. `None` without `--publish-status`: they are not kept then.
#[derive(Clone, Debug, Default)]
pub struct StatusSink(Option<Sender<Statuses>>);

impl StatusSink {
    /// Creates a sink that keeps the statuses here.
    pub fn new(sender: Sender<Statuses>) -> Self {
        Self(Some(sender))
    }

    /// Returns true if statuses are kept.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Replaces the statuses of a namespace (`None`: of all namespaces) by those of a list.
    pub(super) fn replace(&self, namespace: Option<&str>, listed: BTreeMap<ServiceKey, Arc<ServiceStatus>>) {
        let Some(sender) = &self.0 else { return };
        sender.send_modify(|statuses| {
            let statuses = Arc::make_mut(statuses);
            statuses.retain(|(of, _), _| namespace.is_some_and(|namespace| of != namespace));
            statuses.extend(listed);
        });
    }

    pub(super) fn set(&self, key: ServiceKey, status: ServiceStatus) {
        let Some(sender) = &self.0 else { return };
        sender.send_if_modified(|statuses| {
            let changed = statuses.get(&key).is_none_or(|old| **old != status);
            if changed {
                Arc::make_mut(statuses).insert(key, Arc::new(status));
            }
            changed
        });
    }

    pub(super) fn remove(&self, key: &ServiceKey) {
        let Some(sender) = &self.0 else { return };
        sender.send_if_modified(|statuses| {
            let known = statuses.contains_key(key);
            if known {
                Arc::make_mut(statuses).remove(key);
            }
            known
        });
    }
}
