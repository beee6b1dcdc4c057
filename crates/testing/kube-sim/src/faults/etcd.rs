//! An API server's link to etcd, and its answers while the link is cut.

// It behaves as a real kube-apiserver 1.36 does when its packets to etcd are held back. Watches stay open,
// and new ones are accepted. Bookmarks continue. Answers that may come from the watch cache come from it,
// with its old content. Requests that need etcd hang. When the link is mended, all events that were held
// back arrive at once.

use crate::observed::Observed;
use crate::store::Store;
use crate::store::object::{Key, Obj};
use crate::store::resource::{RESOURCES, Resource};
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::wire::options::{ReadSource, VERSION_WAIT};
use http::StatusCode;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The API server gives up a request after this time (`--request-timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
type Caches = HashMap<&'static str, Arc<Cache>>;

/// The link to etcd: one for each resource, as an API server has.
#[derive(Debug, Default)]
pub(crate) struct Etcd {
    cut: Observed<Caches>,
}

/// The content of a resource's watch cache when the cache lost the link to etcd.
#[derive(Debug)]
pub(crate) struct Cache {
    pub version: u64,
    objects: Vec<Obj>,
    lost: Lost,
}

/// The lost part of a resource's link to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The link for all resources.
    Everything,
    /// The stream of changes. etcd still answers requests.
    Stream,
    /// The stream of changes until a restart: the restored etcd does not have the cache's version.
    History,
}

impl Etcd {
    /// Cuts this part of the link for these resources, or for all if `plurals` is empty.
    pub(crate) fn lose(&self, lost: Lost, store: &Store, plurals: &[&str]) {
        let named = |r: &&Resource| plurals.is_empty() || plurals.contains(&r.plural);
        self.cut.modify(|cut| {
            for resource in RESOURCES.iter().filter(named) {
                let cache = match cut.get(resource.plural) {
                    // A link of which everything is lost does not get its requests back.
                    Some(cache) if (cache.lost, lost) == (Lost::Everything, Lost::Stream) => continue,
                    // The cache has not changed since the first cut.
                    Some(cache) => Cache { version: cache.version, objects: cache.objects.clone(), lost },
                    None => {
                        let (version, objects) = store.list(resource, &Selector::default());
                        Cache { version, objects, lost }
                    }
                };
                cut.insert(resource.plural, Arc::new(cache));
            }
        });
    }

    pub(crate) fn mend(&self) {
        self.cut.modify(|cut| cut.retain(|_, cache| cache.lost == Lost::History));
    }

    /// Rebuilds the caches that continued from versions which the restored etcd does not have.
    pub(crate) fn started_again(&self) {
        self.cut.modify(|cut| cut.retain(|_, cache| cache.lost != Lost::History));
    }

    /// Returns the frozen cache, if the link is cut for this resource.
    pub(crate) fn cache(&self, resource: &Resource) -> Option<Arc<Cache>> {
        self.cut.read(|cut| cut.get(resource.plural).cloned())
    }

    /// Waits until the resource has another frozen cache than this one, or none if this is one.
    pub(crate) async fn until_not(&self, resource: &Resource, cache: Option<&Arc<Cache>>) {
        let is_other = |cut: &Caches| match (cut.get(resource.plural), cache) {
            (Some(now), Some(before)) => !Arc::ptr_eq(now, before),
            (now, before) => now.is_some() != before.is_some(),
        };
        self.cut.until(|cut| is_other(cut).then_some(())).await;
    }

    /// Returns the cache that answers a read, or `None` if etcd does. A read that needs a lost etcd hangs.
    pub(crate) async fn read(
        &self,
        resource: &Resource,
        source: &ReadSource,
    ) -> Result<Option<Arc<Cache>>, ApiStatus> {
        let Some(cache) = self.cache(resource) else { return Ok(None) };
        match source {
            ReadSource::Cache(asked) => cache.reach(*asked).await?,
            _ if cache.lost != Lost::Everything => return Ok(None),
            _ => {
                tokio::time::sleep(REQUEST_TIMEOUT).await;
                return Err(ApiStatus::with_code(StatusCode::GATEWAY_TIMEOUT, 0));
            }
        }
        Ok(Some(cache))
    }
}

impl Cache {
    pub(crate) fn get(&self, key: &Key) -> Option<Obj> {
        self.objects.iter().find(|object| object.key == *key).cloned()
    }

    pub(crate) fn list(&self, selector: &Selector) -> Vec<Obj> {
        self.objects.iter().filter(|object| selector.matches(object)).cloned().collect()
    }

    /// Waits for a version as the API server does. A frozen cache never gets there.
    pub(crate) async fn reach(&self, asked: u64) -> Result<(), ApiStatus> {
        if asked <= self.version {
            return Ok(());
        }
        tokio::time::sleep(VERSION_WAIT).await;
        Err(ApiStatus::version_too_large(asked, self.version))
    }
}
