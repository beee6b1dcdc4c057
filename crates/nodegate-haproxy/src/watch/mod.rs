//! Watches Nodes and Services. After every failure, reconnects with fresh credentials and relists.

mod kinds;
pub mod life;
pub(crate) mod objects;

use crate::plan::facts::{Facts, ServiceKey};
use crate::watch::kinds::{Kind, Nodes, Services};
use crate::watch::life::Life;
use kube::Client;
use kube::runtime::watcher::Event;
use nodegate_kube_follow::{Backoff, FailureReason, KubectlCredentials, Session, SessionEnd, connect};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::time::Instant;

/// The timeout for a list.
const LIST_WITHIN: Duration = Duration::from_secs(30);
/// The time after which a session counts as a success.
const LASTING: Duration = Duration::from_secs(30);
/// The time after which a silent watch counts as unresponsive. The API server sends a bookmark every 60 s.
const SILENCE: Duration = Duration::from_secs(75);
/// The interval of relists, in case a watch misses events although its bookmarks arrive.
const RELIST: Duration = Duration::from_mins(30);

/// The maximum length of a logged error.
const MAX_DETAIL: usize = 500;

/// What the watches have reported.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The observed facts.
    pub facts: Facts,
    /// Services whose deletion the watch reported as an event, until the plan has accepted that.
    pub deleted: BTreeSet<ServiceKey>,
    /// The lists that have been complete once.
    pub synced: BTreeSet<String>,
}

/// The objects to watch.
#[derive(Clone, Debug)]
pub struct WatchScope {
    /// A label selector for Nodes.
    pub node_selector: String,
    /// Namespaces; empty for all.
    pub namespaces: Vec<String>,
    /// The rules by which a Node is ready, draining or neither.
    pub rules: nodegate_readiness::Policy,
    /// The time after which a silent watch counts as unresponsive.
    pub silence: Duration,
}

impl Default for WatchScope {
    fn default() -> Self {
        let (node_selector, namespaces) = (String::new(), Vec::new());
        let rules = nodegate_readiness::Policy::default();
        Self { node_selector, namespaces, rules, silence: SILENCE }
    }
}

impl WatchScope {
    /// Returns the names of all lists that must be complete.
    pub fn lists(&self) -> Vec<String> {
        let services = self.service_lists().into_iter().map(|namespace| list_name(namespace.as_deref()));
        std::iter::once("nodes".to_owned()).chain(services).collect()
    }

    fn service_lists(&self) -> Vec<Option<String>> {
        if self.namespaces.is_empty() {
            vec![None]
        } else {
            self.namespaces.iter().cloned().map(Some).collect()
        }
    }
}

fn list_name(namespace: Option<&str>) -> String {
    namespace.map_or_else(|| "services".to_owned(), |namespace| format!("services in {namespace}"))
}

/// Watches forever; dropping the future ends it.
pub async fn run(scope: WatchScope, observed: Sender<Observed>, life: Arc<Life>) {
    let watch = |list| Watch { list, observed: &observed, life: &life, silence: scope.silence };
    let nodes = Nodes { selector: &scope.node_selector, rules: &scope.rules };
    let services = scope.service_lists().into_iter().map(|namespace| {
        let watch = watch(list_name(namespace.as_deref()));
        async move { watch.run(&Services { namespace }).await }
    });
    let nodes_watch = watch("nodes".to_owned());
    tokio::join!(nodes_watch.run(&nodes), futures::future::join_all(services));
}

struct Watch<'a> {
    list: String,
    observed: &'a Sender<Observed>,
    life: &'a Arc<Life>,
    silence: Duration,
}

impl Watch<'_> {
    async fn run<K: Kind>(&self, kind: &K) {
        let mut backoff = Backoff::new();
        let mut failing = false;
        let mut by_field = true;
        loop {
            let observer = self.life.observer(Some(&self.list));
            let ended = match connect::<KubectlCredentials>(observer).await {
                Ok(client) => self.session(kind, client, by_field, &mut failing).await,
                Err(error) => SessionEnd::before_it_began(FailureReason::NoClient, error.to_string()),
            };
            self.life.closed(&self.list);
            self.life.counts.restart(ended.reason.as_str());
            match ended.reason {
                FailureReason::Relist => continue,
                FailureReason::BadRequest if by_field => {
                    tracing::debug!(
                        ended.detail,
                        "the API server can't select Services by type; reading all of them"
                    );
                    by_field = false;
                    continue;
                }
                _ => {}
            }
            if ended.lasted > LASTING {
                backoff.reset();
            }
            let wait = backoff.wait();
            self.log(&ended, wait, failing);
            failing = true;
            tokio::time::sleep(wait).await;
        }
    }

    fn log(&self, ended: &SessionEnd, wait: Duration, failing: bool) {
        let (list, reason, retry_ms) = (&self.list, ended.reason.as_str(), wait.as_millis());
        let detail: String = ended.detail.chars().take(MAX_DETAIL).collect();
        if failing {
            tracing::debug!(list, reason, retry_ms, detail, "watch failed again; retrying");
        } else {
            tracing::warn!(
                list,
                reason,
                retry_ms,
                detail,
                "watch failed; retrying and keeping the last configuration"
            );
        }
    }

    /// Lists and watches until an error occurs or a relist is due.
    async fn session<K: Kind>(
        &self,
        kind: &K,
        client: Client,
        by_field: bool,
        failing: &mut bool,
    ) -> SessionEnd {
        let (api, config) = (kind.api(client), kind.config(by_field));
        let session = Session { api, config, list_within: LIST_WITHIN };
        let began = Instant::now();
        let stop = async {
            tokio::select! {
                () = self.life.silent(&self.list, began, self.silence) => {
                    (FailureReason::Deaf, format!("nothing heard for {} s", self.silence.as_secs()))
                }
                () = tokio::time::sleep(RELIST.mul_f64(0.9 + 0.2 * fastrand::f64())) => {
                    (FailureReason::Relist, String::new())
                }
            }
        };
        let mut listed = BTreeMap::new();
        session
            .run(stop, |event| {
                let complete = matches!(event, Event::InitDone);
                self.take(kind, &mut listed, event);
                if complete && std::mem::take(failing) {
                    tracing::info!(list = self.list, "watching again");
                }
            })
            .await
    }

    fn take<K: Kind>(&self, kind: &K, listed: &mut BTreeMap<K::Key, Arc<K::Facts>>, event: Event<K::Object>) {
        self.life.counts.event();
        let read = |object: &K::Object| (K::key(object), kind.facts(object).map(Arc::new));
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                if let (key, Some(facts)) = read(&object) {
                    listed.insert(key, facts);
                }
            }
            Event::InitDone => self.observed.send_modify(|observed| {
                let known = K::known(observed);
                known.retain(|key, _| !kind.covers(key));
                known.append(listed);
                observed.synced.insert(self.list.clone());
            }),
            Event::Apply(object) => {
                let (key, facts) = read(&object);
                self.observed.send_if_modified(|observed| set::<K>(observed, key, facts));
            }
            Event::Delete(object) => {
                self.observed.send_if_modified(|observed| set::<K>(observed, K::key(&object), None));
            }
        }
    }
}

/// Records the facts of an object, or its deletion. Returns true if that is news.
fn set<K: Kind>(observed: &mut Observed, key: K::Key, facts: Option<Arc<K::Facts>>) -> bool {
    let known = K::known(observed);
    let Some(facts) = facts else {
        let was_known = known.remove(&key).is_some();
        if was_known {
            K::deleted(observed, key);
        }
        return was_known;
    };
    let is_news = known.get(&key).is_none_or(|before| *before != facts);
    known.insert(key, facts);
    is_news
}
