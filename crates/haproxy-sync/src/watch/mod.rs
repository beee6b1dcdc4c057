//! Watches Nodes and Services, each begun anew after every fault with fresh credentials, connection and list.

pub mod counts;
pub mod life;
mod objects;
pub mod observed;

use crate::plan::facts::{NodeFacts, ServiceFacts};
use crate::watch::counts::Counts;
use crate::watch::life::Life;
use crate::watch::objects::{WatchedNode, WatchedService};
use crate::watch::observed::{Observed, ServiceKey};
use futures::TryStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use nodegate_node_watch::{Backoff, connect};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::time::Instant;

/// A list that takes longer is given up.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);
/// A session that lived this long was a success.
const LASTING: Duration = Duration::from_secs(30);
/// The API server sends a bookmark every 60 s; a watch silent for longer is deaf.
const SILENCE: Duration = Duration::from_secs(75);
/// A list is made anew so often, in case a watch is deaf and its bookmarks still come.
const RELIST: Duration = Duration::from_mins(30);
/// Seconds that one watch lives.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 240..=290;
/// Objects in one page of a list: 50 Nodes of 50 kB are 2.5 MB, and pages of more than 8 MiB are refused.
const PAGE: u32 = 50;
/// Whatever else is of no use to us is left out by the API server.
const WITH_NODE_PORTS: &str = "spec.type!=ClusterIP,spec.type!=ExternalName";

/// What is watched.
#[derive(Clone, Debug)]
pub struct Scope {
    /// A label selector for Nodes.
    pub node_selector: String,
    /// A label selector for Services.
    pub service_selector: String,
    /// Namespaces; empty for all.
    pub namespaces: Vec<String>,
    /// By which rules a Node is ready, draining or neither.
    pub rules: nodegate_readiness::Policy,
    /// A watch that was silent for so long is deaf.
    pub silence: Duration,
}

impl Default for Scope {
    fn default() -> Self {
        let (node_selector, service_selector, namespaces) = (String::new(), String::new(), Vec::new());
        let rules = nodegate_readiness::Policy::default();
        Self { node_selector, service_selector, namespaces, rules, silence: SILENCE }
    }
}

impl Scope {
    /// The names of all lists that must be complete.
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
pub async fn run(scope: Scope, observed: Sender<Observed>, life: Arc<Life>, counts: Arc<Counts>) {
    let nodes = async {
        let (list, silence) = ("nodes".to_owned(), scope.silence);
        let watch = Watch { list, observed: &observed, life: &life, counts: &counts, silence };
        watch.run(&NodeLists { selector: scope.node_selector.clone(), rules: &scope.rules }).await;
    };
    let services = scope.service_lists().into_iter().map(|namespace| {
        let (observed, life, counts, scope) = (&observed, &life, &counts, &scope);
        async move {
            let (list, silence) = (list_name(namespace.as_deref()), scope.silence);
            let watch = Watch { list, observed, life, counts, silence };
            watch.run(&ServiceLists { selector: scope.service_selector.clone(), namespace }).await;
        }
    });
    tokio::join!(nodes, futures::future::join_all(services));
}

/// One kind of list and what becomes of its objects.
trait Lists {
    type Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static;
    type Listed: Default;

    fn api(&self, client: Client) -> Api<Self::Object>;
    fn config(&self, by_field: bool) -> watcher::Config;
    fn list(&self, listed: &mut Self::Listed, object: &Self::Object);
    fn listed(&self, observed: &mut Observed, listed: Self::Listed);
    fn set(&self, observed: &mut Observed, object: &Self::Object) -> bool;
    fn remove(&self, observed: &mut Observed, object: &Self::Object) -> bool;
}

struct NodeLists<'a> {
    selector: String,
    rules: &'a nodegate_readiness::Policy,
}

impl Lists for NodeLists<'_> {
    type Object = WatchedNode;
    type Listed = BTreeMap<String, Arc<NodeFacts>>;

    fn api(&self, client: Client) -> Api<WatchedNode> {
        Api::all(client)
    }

    fn config(&self, _: bool) -> watcher::Config {
        config(&self.selector)
    }

    fn list(&self, listed: &mut Self::Listed, object: &WatchedNode) {
        let facts = object.facts(self.rules);
        listed.insert(facts.name.clone(), Arc::new(facts));
    }

    fn listed(&self, observed: &mut Observed, listed: Self::Listed) {
        observed.set_nodes(listed);
    }

    fn set(&self, observed: &mut Observed, object: &WatchedNode) -> bool {
        observed.set_node(object.facts(self.rules))
    }

    fn remove(&self, observed: &mut Observed, object: &WatchedNode) -> bool {
        observed.remove_node(object.meta().name.as_deref().unwrap_or_default())
    }
}

struct ServiceLists {
    selector: String,
    namespace: Option<String>,
}

impl Lists for ServiceLists {
    type Object = WatchedService;
    type Listed = BTreeMap<ServiceKey, Arc<ServiceFacts>>;

    fn api(&self, client: Client) -> Api<WatchedService> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }

    fn config(&self, by_field: bool) -> watcher::Config {
        let config = config(&self.selector);
        if by_field { config.fields(WITH_NODE_PORTS) } else { config }
    }

    fn list(&self, listed: &mut Self::Listed, object: &WatchedService) {
        if let Some(facts) = object.facts() {
            listed.insert((facts.namespace.clone(), facts.name.clone()), Arc::new(facts));
        }
    }

    fn listed(&self, observed: &mut Observed, listed: Self::Listed) {
        observed.set_services(self.namespace.as_deref(), listed);
    }

    fn set(&self, observed: &mut Observed, object: &WatchedService) -> bool {
        match object.facts() {
            Some(facts) => observed.set_service(facts),
            // It has lost its ports on nodes.
            None => self.remove(observed, object),
        }
    }

    fn remove(&self, observed: &mut Observed, object: &WatchedService) -> bool {
        let meta = object.meta();
        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        observed.remove_service(key)
    }
}

fn config(selector: &str) -> watcher::Config {
    let config = watcher::Config::default().timeout(fastrand::u32(WATCH_SECONDS)).page_size(PAGE);
    if selector.is_empty() { config } else { config.labels(selector) }
}

/// Why a session ended; the values of a metric's label.
fn reason(error: &watcher::Error) -> &'static str {
    let client = match error {
        watcher::Error::WatchError(status) => return of_status(status.code),
        watcher::Error::NoResourceVersion => return "malformed",
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error,
    };
    match client {
        kube::Error::Api(status) => of_status(status.code),
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => "malformed",
        _ => "disconnected",
    }
}

fn of_status(code: u16) -> &'static str {
    match code {
        400 => "bad-request",
        401 => "unauthorized",
        403 => "forbidden",
        410 => "expired",
        429 => "throttled",
        500.. => "server-error",
        _ => "rejected",
    }
}

/// The error with its causes, each said once, and not too much of it.
fn detail(error: &watcher::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text.chars().take(500).collect()
}

struct Watch<'a> {
    list: String,
    observed: &'a Sender<Observed>,
    life: &'a Arc<Life>,
    counts: &'a Arc<Counts>,
    silence: Duration,
}

impl Watch<'_> {
    async fn run<L: Lists>(&self, lists: &L) {
        let mut backoff = Backoff::new();
        let mut failing = false;
        let mut by_field = true;
        loop {
            let began = Instant::now();
            let ear = self.life.ear(&self.list, self.counts.clone());
            let (reason, detail) = match connect(ear).await {
                Ok(client) => self.session(lists, client, by_field, &mut failing).await,
                Err(error) => ("no-client", error.to_string()),
            };
            self.life.closed(&self.list);
            self.counts.restart(reason);
            if reason == "relist" {
                continue;
            }
            if reason == "bad-request" && by_field {
                tracing::debug!(detail, "no selection of Services by type: reading all of them");
                by_field = false;
                continue;
            }
            if began.elapsed() > LASTING {
                backoff.reset();
            }
            let wait = backoff.wait();
            let (list, retry_ms) = (&self.list, wait.as_millis());
            if failing {
                tracing::debug!(list, reason, retry_ms, detail, "watch failing");
            } else {
                tracing::warn!(list, reason, retry_ms, detail, "watch lost; the last configuration stays");
            }
            failing = true;
            tokio::time::sleep(wait).await;
        }
    }

    /// Lists and watches until something goes wrong.
    async fn session<L: Lists>(
        &self,
        lists: &L,
        client: Client,
        by_field: bool,
        failing: &mut bool,
    ) -> (&'static str, String) {
        let began = Instant::now();
        let mut events = pin!(watcher(lists.api(client), lists.config(by_field)));
        let mut listed = L::Listed::default();
        let mut synced = false;
        let relist = began + RELIST.mul_f64(0.9 + 0.2 * fastrand::f64());
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                () = tokio::time::sleep_until(began + SYNC_TIMEOUT), if !synced => {
                    return ("timeout", "the first list took too long".to_owned());
                }
                () = self.life.silent(&self.list, began, self.silence), if synced => {
                    return ("deaf", format!("nothing heard for {} s", self.silence.as_secs()));
                }
                () = tokio::time::sleep_until(relist), if synced => return ("relist", String::new()),
            };
            match event {
                Ok(Some(event)) => {
                    let done = matches!(event, Event::InitDone);
                    self.take(lists, &mut listed, event);
                    if done {
                        synced = true;
                        if std::mem::take(failing) {
                            tracing::info!(list = self.list, "watching again");
                        }
                    }
                }
                Ok(None) => return ("disconnected", "the stream of events ended".to_owned()),
                Err(error) => return (reason(&error), detail(&error)),
            }
        }
    }

    fn take<L: Lists>(&self, lists: &L, listed: &mut L::Listed, event: Event<L::Object>) {
        self.counts.event();
        match event {
            Event::Init => *listed = L::Listed::default(),
            Event::InitApply(object) => lists.list(listed, &object),
            Event::InitDone => {
                let complete = std::mem::take(listed);
                self.observed.send_modify(|observed| {
                    lists.listed(observed, complete);
                    observed.synced.insert(self.list.clone());
                });
            }
            Event::Apply(object) => {
                self.observed.send_if_modified(|observed| lists.set(observed, &object));
            }
            Event::Delete(object) => {
                self.observed.send_if_modified(|observed| lists.remove(observed, &object));
            }
        }
    }
}
