//! Watches Nodes and Services. After every failure, reconnects with fresh credentials and relists.

pub mod life;
pub(crate) mod objects;
mod watched;

use crate::lasting::Lasting;
use crate::plan::facts::{Facts, ServiceKey};
use crate::watch::life::Life;
use crate::watch::watched::{Known, Watched};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use nodegate_kube_follow::{Backoff, FailureReason, Session, SessionEnd, WatchedNode, connect, expires_in};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
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
/// The lifetime of one watch, in seconds.
const WATCH_SECONDS: RangeInclusive<u32> = 240..=290;
/// The number of objects in one page of a list. 50 Nodes of 50 kB are 2.5 MB, and pages of more than 8 MiB
/// are refused.
const PAGE: u32 = 50;

/// What the watches have reported.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The facts of each list that has been complete once, by its name.
    lists: BTreeMap<String, Facts>,
    /// Services whose deletion the watch reported as an event, until the plan has accepted that.
    pub deleted: BTreeSet<ServiceKey>,
}

impl Observed {
    /// Returns all facts. `None` while one of these lists has not been complete.
    pub fn facts(&self, lists: &[String]) -> Option<Facts> {
        let mut all = Facts::default();
        for list in lists {
            let Facts { nodes, services } = self.lists.get(list)?.clone();
            all.nodes.extend(nodes);
            all.services.extend(services);
        }
        Some(all)
    }

    /// Returns true if a list has this Service.
    pub fn has(&self, service: &ServiceKey) -> bool {
        self.lists.values().any(|facts| facts.services.contains_key(service))
    }
}

/// The objects to watch.
#[derive(Clone, Debug, Default)]
pub struct WatchScope {
    /// A label selector for Nodes.
    pub node_selector: String,
    /// Namespaces; empty for all.
    pub namespaces: Vec<String>,
    /// The rules by which a Node is ready, draining or neither.
    pub rules: nodegate_readiness::Policy,
}

impl WatchScope {
    /// Returns the names of all lists that must be complete.
    pub fn lists(&self) -> Vec<String> {
        std::iter::once("nodes".to_owned()).chain(self.services().map(name_of_services)).collect()
    }

    /// Returns the namespaces whose Services are watched; `None` for all.
    fn services(&self) -> impl Iterator<Item = Option<&str>> {
        let all = self.namespaces.is_empty().then_some(None);
        all.into_iter().chain(self.namespaces.iter().map(|namespace| Some(namespace.as_str())))
    }
}

fn name_of_services(namespace: Option<&str>) -> String {
    namespace.map_or("services".to_owned(), |namespace| format!("services in {namespace}"))
}

/// Watches forever; dropping the future ends it.
pub async fn run(scope: WatchScope, observed: Sender<Observed>, life: Arc<Life>) {
    let (observed, life, rules) = (&observed, &life, &scope.rules);
    let (name, selector) = ("nodes".to_owned(), scope.node_selector.as_str());
    let nodes = Watch::<WatchedNode> { name, api: Box::new(Api::all), selector, rules, observed, life }.run();
    let services = scope.services().map(|namespace| {
        let api = Box::new(move |client| match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        });
        let (name, selector) = (name_of_services(namespace), "");
        Watch::<Service> { name, api, selector, rules, observed, life }.run()
    });
    tokio::join!(nodes, futures::future::join_all(services));
}

/// The watch of one list.
struct Watch<'a, Object> {
    name: String,
    api: Box<dyn Fn(Client) -> Api<Object> + Send + Sync + 'a>,
    selector: &'a str,
    rules: &'a nodegate_readiness::Policy,
    observed: &'a Sender<Observed>,
    life: &'a Arc<Life>,
}

impl<Object: Watched> Watch<'_, Object> {
    async fn run(self) {
        let mut backoff = Backoff::new();
        let mut failing =
            Lasting::new("watch failed; retrying and keeping the last configuration", "watching again");
        let list = &self.name;
        loop {
            let ended = match connect(self.life.observer(Some(list))).await {
                Ok(client) => self.session(client, &mut failing).await,
                Err(error) => SessionEnd::before_it_began(FailureReason::NoClient, error.to_string()),
            };
            self.life.closed(list);
            let reason = ended.reason.as_str();
            self.life.restart(reason);
            if ended.reason == FailureReason::Relist {
                continue;
            }
            if ended.lasted > LASTING {
                backoff.reset();
            }
            failing.tell_of(reason, &format!("{list}: {reason}: {}", ended.detail));
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// Lists and watches until an error occurs or a relist is due.
    async fn session(&self, client: Client, failing: &mut Lasting) -> SessionEnd {
        let mut config = Config::default().timeout(fastrand::u32(WATCH_SECONDS)).page_size(PAGE);
        if !self.selector.is_empty() {
            config = config.labels(self.selector);
        }
        let relist = RELIST.mul_f64(0.9 + 0.2 * fastrand::f64());
        // A plugin may give credentials that have hardly any time left.
        let relist = expires_in(&client).map_or(relist, |left| relist.min(left.max(LASTING)));
        let session = Session { api: (self.api)(client), config, list_within: LIST_WITHIN };
        let began = Instant::now();
        let stop = async {
            tokio::select! {
                () = self.life.silent(&self.name, began, SILENCE) => {
                    (FailureReason::Unresponsive, format!("nothing heard for {} s", SILENCE.as_secs()))
                }
                () = tokio::time::sleep(relist) => (FailureReason::Relist, String::new()),
            }
        };
        let mut listed = BTreeMap::new();
        let told = |event| {
            if matches!(event, Event::InitDone) {
                failing.end();
            }
            self.take(&mut listed, event);
        };
        session.run(stop, told).await
    }

    fn take(&self, listed: &mut Known<Object::Key, Object::Facts>, event: Event<Object>) {
        let facts = |object: &Object| object.facts(self.rules).map(Arc::new);
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => listed.extend(facts(&object).map(|facts| (object.key(), facts))),
            Event::InitDone => self.observed.send_modify(|observed| {
                let list = observed.lists.entry(self.name.clone()).or_default();
                *Object::known(list) = std::mem::take(listed);
            }),
            Event::Apply(object) => self.set(object.key(), facts(&object)),
            Event::Delete(object) => self.set(object.key(), None),
        }
    }

    /// Records the facts of an object, or its deletion.
    fn set(&self, key: Object::Key, facts: Option<Arc<Object::Facts>>) {
        self.observed.send_if_modified(|observed| {
            let known = Object::known(observed.lists.entry(self.name.clone()).or_default());
            if let Some(facts) = facts {
                let is_news = known.get(&key).is_none_or(|before| *before != facts);
                known.insert(key, facts);
                return is_news;
            }
            let was_known = known.remove(&key).is_some();
            if was_known {
                Object::deleted(observed, key);
            }
            was_known
        });
    }
}
