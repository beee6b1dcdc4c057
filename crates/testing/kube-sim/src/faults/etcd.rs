//! An API server's link to etcd, and what it still says while that is cut.
//!
//! As a real kube-apiserver 1.36 does when its packets to etcd are held back: watches stay open, new ones are accepted,
//! bookmarks go on, and what may come from the watch cache does, as it was. What needs etcd hangs. When the link is mended,
//! the events that were held back arrive all at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::observed::{Observed, Observer};
use crate::store::Store;
use crate::store::object::{Key, Obj};
use crate::store::resource::{RESOURCES, Resource};
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::wire::options::{ReadSource, VERSION_WAIT};
use crate::wire::reply::{self, ApiReply};
use crate::wire::request::QueryString;

/// The API server gives a request up after this time (`--request-timeout`), if the client has not set a shorter one.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// How long `/livez` waits for etcd's answer.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// By plural names.
pub(crate) type Caches = HashMap<&'static str, Arc<Cache>>;

/// The link, which can be cut for each resource: an API server has a client of etcd for each of them.
#[derive(Debug)]
pub(crate) struct Etcd {
    cut: Observed<Caches>,
}

/// What the watch cache of a resource held when it lost touch with etcd.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The version that it had reached.
    pub version: u64,
    objects: Vec<Obj>,
    lost: Lost,
}

/// What is lost of a resource's link to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// All of it.
    Everything,
    /// The stream of changes; questions are answered.
    Stream,
    /// The same, until the API server is started again: it goes on from a version that the restored etcd has not.
    History,
}

impl Default for Etcd {
    fn default() -> Self {
        Etcd { cut: Observed::new(Caches::new()) }
    }
}

impl Etcd {
    /// The link loses that much for these resources; for all if none is named.
    pub(crate) fn lose(&self, lost: Lost, store: &Store, plurals: &[&str]) {
        let named = |r: &&Resource| plurals.is_empty() || plurals.contains(&r.plural);
        self.cut.modify(|cut| {
            for resource in RESOURCES.iter().filter(named) {
                let (version, objects) = match cut.get(resource.plural) {
                    // It has stood still since.
                    Some(cache) => (cache.version, cache.objects.clone()),
                    None => store.list(resource, None, &Selector::default()),
                };
                cut.insert(resource.plural, Arc::new(Cache { version, objects, lost }));
            }
        });
    }

    /// The link works again.
    pub(crate) fn mend(&self) {
        self.cut.modify(|cut| cut.retain(|_, cache| cache.lost == Lost::History));
    }

    /// Caches that went on from a history that never was are made anew.
    pub(crate) fn started_again(&self) {
        self.cut.modify(|cut| cut.retain(|_, cache| cache.lost != Lost::History));
    }

    /// Returns the cache that no longer moves, if the link is cut for this resource.
    pub(crate) fn cache(&self, resource: &Resource) -> Option<Arc<Cache>> {
        self.cut.read(|cut| cut.get(resource.plural).cloned())
    }

    /// Is told of each cut and mending.
    pub(crate) fn changes(&self) -> Observer<Caches> {
        self.cut.observe()
    }

    /// What a read is answered from if the link is cut; one that needs etcd waits in vain.
    pub(crate) async fn read(
        &self,
        resource: &Resource,
        query: &QueryString,
        source: &ReadSource,
    ) -> Result<Option<Arc<Cache>>, ApiStatus> {
        let Some(cache) = self.cache(resource) else { return Ok(None) };
        match source {
            ReadSource::Cache(asked) => cache.reach(*asked).await?,
            _ if cache.asks_etcd() => return Ok(None),
            _ => return Err(in_vain(query).await),
        }
        Ok(Some(cache))
    }

    /// A write waits in vain.
    pub(crate) async fn write(&self, resource: &Resource, query: &QueryString) -> Result<(), ApiStatus> {
        match self.cache(resource) {
            Some(cache) if !cache.asks_etcd() => Err(in_vain(query).await),
            _ => Ok(()),
        }
    }

    /// What `/livez` says; `/readyz` goes on to say that all is well.
    pub(crate) async fn health(&self, path: &str) -> Option<ApiReply> {
        let cut = self.cut.read(|cut| cut.values().filter(|cache| !cache.asks_etcd()).count());
        if cut < RESOURCES.len() || !matches!(path.trim_matches('/'), "livez" | "healthz") {
            return None;
        }
        tokio::time::sleep(HEALTH_TIMEOUT).await;
        let name = path.trim_matches('/');
        let text = format!("[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n{name} check failed\n");
        Some(reply::typed(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", text))
    }
}

/// Waits for etcd for as long as the API server does.
async fn in_vain(query: &QueryString) -> ApiStatus {
    let wanted = query.text("timeout").strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    let wanted = wanted.map(Duration::from_secs).filter(|timeout| !timeout.is_zero());
    tokio::time::sleep(wanted.unwrap_or(REQUEST_TIMEOUT).min(REQUEST_TIMEOUT)).await;
    ApiStatus::with_code(StatusCode::GATEWAY_TIMEOUT, 0)
}

impl Cache {
    /// Returns true if etcd still answers what is asked of it.
    pub(crate) fn asks_etcd(&self) -> bool {
        self.lost != Lost::Everything
    }

    /// One object.
    pub(crate) fn get(&self, key: &Key) -> Option<Obj> {
        self.objects.iter().find(|object| object.key == *key).cloned()
    }

    /// Returns all that match.
    pub(crate) fn list(&self, namespace: Option<&str>, selector: &Selector) -> Vec<Obj> {
        let fits = |o: &&Obj| namespace.is_none_or(|n| o.key.namespace == n) && selector.matches(o);
        self.objects.iter().filter(fits).cloned().collect()
    }

    /// A version that it has not is waited for, and not reached.
    pub(crate) async fn reach(&self, asked: u64) -> Result<(), ApiStatus> {
        if asked <= self.version {
            return Ok(());
        }
        tokio::time::sleep(VERSION_WAIT).await;
        Err(ApiStatus::version_too_large(asked, self.version))
    }
}
