//! Watches Nodes and Services. After every failure, reconnects with fresh credentials and relists.

pub mod life;
mod lists;
pub(crate) mod objects;

use crate::plan::facts::{Facts, ServiceKey};
use crate::watch::life::Life;
use crate::watch::lists::{Known, List};
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use nodegate_kube_follow::{Backoff, FailureReason, Session, SessionEnd, connect, expires_in};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
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
        let services = self.services().map(|namespace| lists::services(namespace).name);
        std::iter::once(lists::nodes(self).name).chain(services).collect()
    }

    /// Returns the namespaces whose Services are watched; `None` for all.
    fn services(&self) -> impl Iterator<Item = Option<&str>> {
        let all = self.namespaces.is_empty().then_some(None);
        all.into_iter().chain(self.namespaces.iter().map(|namespace| Some(namespace.as_str())))
    }
}

/// Watches forever; dropping the future ends it.
pub async fn run(scope: WatchScope, observed: Sender<Observed>, life: Arc<Life>) {
    let (observed, life, silence) = (&observed, &life, scope.silence);
    let nodes = Watch { list: lists::nodes(&scope), observed, life, silence };
    let services = scope
        .services()
        .map(|namespace| Watch { list: lists::services(namespace), observed, life, silence }.run());
    tokio::join!(nodes.run(), futures::future::join_all(services));
}

struct Watch<'a, Object, Key, Facts> {
    list: List<'a, Object, Key, Facts>,
    observed: &'a Sender<Observed>,
    life: &'a Arc<Life>,
    silence: Duration,
}

impl<Object, Key, Facts> Watch<'_, Object, Key, Facts>
where
    Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    Key: Ord,
    Facts: PartialEq,
{
    async fn run(self) {
        let mut backoff = Backoff::new();
        let mut failing = false;
        let list = &self.list.name;
        loop {
            let ended = match connect(self.life.observer(Some(list))).await {
                Ok(client) => self.session(client, &mut failing).await,
                Err(error) => SessionEnd::before_it_began(FailureReason::NoClient, error.to_string()),
            };
            self.life.closed(list);
            let reason = ended.reason.as_str();
            self.life.counts.restart(reason);
            if ended.reason == FailureReason::Relist {
                continue;
            }
            if ended.lasted > LASTING {
                backoff.reset();
            }
            let wait = backoff.wait();
            let detail = &ended.detail;
            if failing {
                tracing::debug!(list, reason, ?wait, detail, "watch failed again; retrying");
            } else {
                let what = "watch failed; retrying and keeping the last configuration";
                tracing::warn!(list, reason, ?wait, detail, "{what}");
            }
            failing = true;
            tokio::time::sleep(wait).await;
        }
    }

    /// Lists and watches until an error occurs or a relist is due.
    async fn session(&self, client: Client, failing: &mut bool) -> SessionEnd {
        let list = &self.list.name;
        let relist = RELIST.mul_f64(0.9 + 0.2 * fastrand::f64());
        // A plugin may give credentials that have hardly any time left.
        let relist = expires_in(&client).map_or(relist, |left| relist.min(left.max(LASTING)));
        let (api, config) = ((self.list.api)(client), self.list.config());
        let session = Session { api, config, list_within: LIST_WITHIN };
        let began = Instant::now();
        let stop = async {
            tokio::select! {
                () = self.life.silent(list, began, self.silence) => {
                    (FailureReason::Unresponsive, format!("nothing heard for {} s", self.silence.as_secs()))
                }
                () = tokio::time::sleep(relist) => {
                    (FailureReason::Relist, String::new())
                }
            }
        };
        let mut listed = BTreeMap::new();
        let told = |event| {
            let is_complete = matches!(event, Event::InitDone);
            self.take(&mut listed, event);
            if is_complete && std::mem::take(failing) {
                tracing::info!(list, "watching again");
            }
        };
        session.run(stop, told).await
    }

    fn take(&self, listed: &mut Known<Key, Facts>, event: Event<Object>) {
        self.life.counts.event();
        let List { name, key, facts, known, covers, .. } = &self.list;
        let facts = |object: &Object| facts(object).map(Arc::new);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => listed.extend(facts(&object).map(|facts| (key(&object), facts))),
            Event::InitDone => self.observed.send_modify(|observed| {
                let known = known(observed);
                known.retain(|key, _| !covers(key));
                known.append(listed);
                observed.synced.insert(name.clone());
            }),
            Event::Apply(object) => self.set(key(&object), facts(&object)),
            Event::Delete(object) => self.set(key(&object), None),
        }
    }

    /// Records the facts of an object, or its deletion.
    fn set(&self, key: Key, facts: Option<Arc<Facts>>) {
        self.observed.send_if_modified(|observed| {
            let known = (self.list.known)(observed);
            if let Some(facts) = facts {
                let is_news = known.get(&key).is_none_or(|before| *before != facts);
                known.insert(key, facts);
                return is_news;
            }
            let was_known = known.remove(&key).is_some();
            if was_known {
                (self.list.deleted)(observed, key);
            }
            was_known
        });
    }
}
