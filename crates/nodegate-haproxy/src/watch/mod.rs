//! Watches Nodes and Services. After every failure, reconnects with fresh credentials and relists.

pub(crate) mod life;
mod objects;

use crate::failure::Lasting;
use crate::plan::observed::{Facts, ServiceKey};
use crate::plan::values::namespaces;
use crate::watch::life::Life;
use crate::watch::objects::Watched;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use nodegate_kube_follow::{
    Backoff, Connector, FailureReason, Session, SessionEnd, StreamId, WatchedNode, expires_in, tagged,
};
use nodegate_program::List;
use nodegate_readiness::{DrainSignals, LabelSelector, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::time::Instant;

/// The timeout for a list, and for the head of each answer.
const LIST_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The time after which a session counts as a success.
const LASTING: Duration = Duration::from_secs(30);
/// The time after which a silent watch counts as unresponsive: two bookmarks are missing. The API server sends one
/// every 60 s, and leaves out one now and then (2 of 14 watches of an idle cluster).
const SILENCE: Duration = Duration::from_secs(135);
/// The interval of relists, in case a watch misses events although its bookmarks arrive.
const RELIST: Duration = Duration::from_mins(30);
/// The lifetime of one watch, in seconds.
const WATCH_SECONDS: RangeInclusive<u32> = 240..=290;
/// The number of objects in one page of a list: pages of more than 8 MiB are refused, and a Node may have 50
/// kB.
const PAGE: u32 = 50;
const MAX_DELETED: usize = 10_000;

/// What the watches have reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The facts of each list by its name, once it has been complete.
    lists: BTreeMap<String, Option<Facts>>,
    /// Services whose deletion the watch reported as an event, until the plan has accepted that.
    pub(crate) deleted: BTreeSet<ServiceKey>,
}

impl Observed {
    /// Creates the observations of these lists, none of which has been complete.
    pub(crate) fn of(lists: &[String]) -> Self {
        Self { lists: lists.iter().map(|list| (list.clone(), None)).collect(), ..Self::default() }
    }

    /// Returns all facts. `None` while one of the lists has not been complete.
    pub(crate) fn facts(&self) -> Option<Facts> {
        let mut all = Facts::default();
        for list in self.lists.values() {
            let Facts { nodes, services, cordons } = list.clone()?;
            all.nodes.extend(nodes);
            all.services.extend(services);
            all.cordons.extend(cordons);
        }
        Some(all)
    }

    pub(crate) fn has(&self, service: &ServiceKey) -> bool {
        self.lists.values().flatten().any(|facts| facts.services.contains_key(service))
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WatchScope {
    /// Only Services of these namespaces
    #[arg(long, env = "NODEGATE_HAPROXY_NAMESPACES", value_name = "LIST", value_parser = namespaces)]
    pub(crate) namespaces: Option<List<String>>,

    /// Only Nodes with these labels
    #[arg(long, env = "NODEGATE_HAPROXY_NODE_SELECTOR", value_name = "SELECTOR")]
    pub(crate) node_selector: Option<LabelSelector>,

    /// Signals that drain a node, by the rules of the agent's --drain-on: unschedulable, deleting,
    /// taint:<key>, taint:<key>=<value>, taint:<key>:<effect>, taint:<prefix>*, label:<key>,
    /// label:<key>=<value>, annotation:<key>, annotation:<key>=<value>, condition:<Type>,
    /// condition:<Type>=<status>, lifecycle; or none alone
    #[arg(long, env = "NODEGATE_HAPROXY_DRAIN_ON", value_name = "LIST", default_value_t)]
    pub(crate) drain_on: DrainSignals,
}

impl WatchScope {
    pub(crate) fn lists(&self) -> Vec<String> {
        std::iter::once("nodes".to_owned()).chain(self.services().map(name_of_services)).collect()
    }

    fn services(&self) -> impl Iterator<Item = Option<&str>> {
        let named = self.namespaces.as_ref().map_or(&[][..], |List(all)| all);
        let all = named.is_empty().then_some(None);
        all.into_iter().chain(named.iter().map(|namespace| Some(namespace.as_str())))
    }
}

fn name_of_services(namespace: Option<&str>) -> String {
    namespace.map_or("services".to_owned(), |namespace| format!("services in {namespace}"))
}

/// Watches forever; dropping the future ends it.
pub(crate) async fn run(scope: WatchScope, observed: Sender<Observed>, life: Arc<Life>) {
    let rules = &Policy { drain_on: scope.drain_on.clone(), ..Policy::default() };
    let (observed, life) = (&observed, &life);
    let selector = &scope.node_selector.as_ref().map(LabelSelector::to_string).unwrap_or_default();
    let name = "nodes".to_owned();
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

struct Watch<'a, Object> {
    name: String,
    api: Box<dyn Fn(Client) -> Api<Object> + Send + Sync + 'a>,
    selector: &'a str,
    rules: &'a Policy,
    observed: &'a Sender<Observed>,
    life: &'a Arc<Life>,
}

impl<Object: Watched> Watch<'_, Object> {
    async fn run(self) {
        let mut backoff = Backoff::default();
        let mut failing =
            Lasting::new("watch failed; retrying and keeping the last configuration", "watching again");
        let list = &self.name;
        loop {
            let ended = match Connector::Network.connect(self.life.observer(list)).await {
                Ok(client) => self.session(client, &mut failing).await,
                Err(error) => SessionEnd::before_it_began(FailureReason::NoClient, error.to_string()),
            };
            self.life.closed(list);
            let reason = ended.reason.to_string();
            self.life.restart(&reason);
            if ended.reason == FailureReason::Relist {
                continue;
            }
            if ended.lasted > LASTING {
                backoff.reset();
            }
            let todo = match ended.reason {
                FailureReason::Forbidden => "; haproxy-kubeconfig makes an account with this right",
                _ => "",
            };
            failing.tell_of(&reason, &format!("{list}: {}{todo}", ended.detail));
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// Lists and watches until an error occurs or a relist is due.
    async fn session(&self, client: Client, failing: &mut Lasting) -> SessionEnd {
        let mut config = Config::default().timeout(fastrand::u32(WATCH_SECONDS)).page_size(PAGE);
        if !self.selector.is_empty() {
            config = config.labels(self.selector);
        }
        let relist = relist_in(RELIST.mul_f64(0.9 + 0.2 * fastrand::f64()), expires_in(&client));
        let client = tagged(client, StreamId(0), ANSWER_WITHIN);
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
        let mut listed = Facts::default();
        let on_event = |event| {
            if matches!(event, Event::InitDone) {
                failing.end();
            }
            self.take(&mut listed, event);
        };
        session.run(stop, on_event).await
    }

    fn take(&self, listed: &mut Facts, event: Event<Object>) {
        match event {
            Event::Init => *listed = Facts::default(),
            Event::InitApply(object) => {
                object.record(listed, Some(self.rules));
            }
            Event::InitDone => self.observed.send_modify(|observed| {
                let before = observed.lists.remove(&self.name).flatten().unwrap_or_default();
                listed.order_cordons(before.cordons);
                observed.lists.insert(self.name.clone(), Some(std::mem::take(listed)));
            }),
            Event::Apply(object) => self.changed(&object, Some(self.rules)),
            Event::Delete(object) => self.changed(&object, None),
        }
    }

    fn changed(&self, object: &Object, rules: Option<&Policy>) {
        self.observed.send_if_modified(|observed| {
            let list = observed.lists.entry(self.name.clone()).or_default().get_or_insert_default();
            let is_news = object.record(list, rules);
            if is_news {
                let before = std::mem::take(&mut list.cordons);
                list.order_cordons(before);
            }
            let gone = object.service_key().filter(|key| is_news && !list.services.contains_key(key));
            if observed.deleted.len() < MAX_DELETED {
                observed.deleted.extend(gone);
            }
            is_news
        });
    }
}

/// Returns the time until the next relist, which comes with new credentials.
fn relist_in(usual: Duration, expires_in: Option<Duration>) -> Duration {
    // A plugin may give credentials that have hardly any time left.
    expires_in.map_or(usual, |left| usual.min(left.max(LASTING)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_before_its_credentials_do() {
        let minutes = |minutes| Duration::from_mins(minutes);
        let relist = [None, Some(60), Some(10), Some(0)].map(|left| relist_in(RELIST, left.map(minutes)));
        assert_eq!(relist, [RELIST, RELIST, minutes(10), LASTING]);
    }
}
