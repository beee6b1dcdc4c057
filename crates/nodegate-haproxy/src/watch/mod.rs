//! Watches Nodes and Services. After every failure, reconnects with fresh credentials and relists.

mod objects;

use crate::failure::Lasting;
use crate::plan::observed::{Facts, ServiceKey};
use crate::plan::policy::namespaces;
use crate::watch::objects::{Record, record_node, record_service};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource};
use nodegate_kube_follow::{
    Backoff, Connection, Connector, FailureReason, Session, SessionEnd, StreamId, WatchObserver, WatchedNode,
    expires_in, tagged,
};
use nodegate_program::List;
use nodegate_readiness::{DrainSignals, LabelSelector, Policy};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
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
/// The longest interval of relists, in case a watch misses events although its bookmarks arrive.
const RELIST: Duration = Duration::from_mins(30);
/// The number of objects in a page of a list. More than 8 MiB are refused, and a Node may have 50 kB.
const PAGE: u32 = 50;
const MAX_DELETED: usize = 10_000;

/// What the watches have reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The facts of each list, once it has been complete: that of Nodes, and those of Services.
    lists: Vec<Option<Facts>>,
    /// Services whose deletion the watch reported as an event, until there is another one of the name.
    pub(crate) deleted: BTreeSet<ServiceKey>,
}

impl Observed {
    /// Returns all facts. `None` while one of the lists has not been complete.
    pub(crate) fn facts(&self) -> Option<Facts> {
        let mut all = Facts::default();
        for list in &self.lists {
            let Facts { nodes, services, cordons } = list.clone()?;
            all.nodes.extend(nodes);
            all.services.extend(services);
            all.cordons.extend(cordons);
        }
        Some(all)
    }
}

/// All watches.
pub(crate) type Life = Vec<Arc<Pulse>>;

#[derive(Debug, Default)]
pub(crate) struct Pulse {
    pub(crate) is_open: Sender<bool>,
    heard: Sender<Option<Instant>>,
}

impl Pulse {
    /// Waits until the watch has been silent for `limit`. The time before now does not count.
    pub(super) async fn silent(&self, limit: Duration) {
        let began = Instant::now();
        let due = || self.heard.borrow().map_or(began, |heard| heard.max(began)) + limit;
        while due() > Instant::now() {
            tokio::time::sleep_until(due()).await;
        }
    }
}

impl WatchObserver for Pulse {
    fn accepted(&self, stream: StreamId, _: Connection) {
        self.is_open.send_replace(true);
        self.heard(stream);
    }

    fn heard(&self, _: StreamId) {
        self.heard.send_replace(Some(Instant::now()));
    }

    fn closed(&self, _: StreamId) {
        self.is_open.send_replace(false);
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

    #[arg(long, env = "NODEGATE_HAPROXY_DRAIN_ON", value_name = "LIST", default_value_t, help = DrainSignals::help())]
    pub(crate) drain_on: DrainSignals,
}

impl WatchScope {
    /// Returns nothing observed yet, and the watches.
    pub(crate) fn begin(&self) -> (Observed, Life) {
        let lists = 1 + self.services().count();
        let life = (0..lists).map(|_| Arc::default()).collect();
        (Observed { lists: vec![None; lists], ..Observed::default() }, life)
    }

    fn services(&self) -> impl Iterator<Item = Option<&str>> {
        let named = self.namespaces.as_ref().map_or(&[][..], |List(all)| all);
        let all = named.is_empty().then_some(None);
        all.into_iter().chain(named.iter().map(|namespace| Some(namespace.as_str())))
    }
}

/// Watches forever; dropping the future ends it.
pub(crate) async fn run(scope: WatchScope, observed: Sender<Observed>, life: Life) {
    let rules = &Policy { drain_on: scope.drain_on.clone(), ..Policy::default() };
    let Some((pulse, services)) = life.split_first() else { return };
    let (observed, list) = (&observed, 0);
    let selector = &scope.node_selector.as_ref().map(LabelSelector::to_string).unwrap_or_default();
    let (record, api) = (record_node as Record<WatchedNode>, Box::new(Api::<WatchedNode>::all));
    let nodes = Watch { list, record, api, selector, rules, observed, pulse }.run();
    let services = scope.services().zip(services).enumerate().map(|(at, (namespace, pulse))| {
        let api = Box::new(move |client| match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        });
        let (list, record) = (at + 1, record_service as Record<Service>);
        Watch { list, record, api, selector: "", rules, observed, pulse }.run()
    });
    tokio::join!(nodes, futures::future::join_all(services));
}

struct Watch<'a, Object> {
    /// Its place in [`Observed::lists`].
    list: usize,
    record: Record<Object>,
    api: Box<dyn Fn(Client) -> Api<Object> + Send + Sync + 'a>,
    selector: &'a str,
    rules: &'a Policy,
    observed: &'a Sender<Observed>,
    pulse: &'a Arc<Pulse>,
}

impl<Object> Watch<'_, Object>
where
    Object: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    async fn run(self) {
        let mut backoff = Backoff::default();
        let mut failing =
            Lasting::new("watch failed; retrying and keeping the last configuration", "watching again");
        loop {
            let pulse = self.pulse.clone();
            let ended = match Connector::Network.connect(pulse).await {
                Ok(client) => self.session(client, &mut failing).await,
                Err(error) => SessionEnd::before_it_began(FailureReason::NoClient, error),
            };
            self.pulse.is_open.send_replace(false);
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
            failing.tell_of(
                &ended.reason.to_string(),
                &format!("{}: {}{todo}", Object::plural(&()), ended.detail),
            );
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// Lists and watches until an error occurs or a relist is due.
    async fn session(&self, client: Client, failing: &mut Lasting) -> SessionEnd {
        let config = Config::default().page_size(PAGE).labels(self.selector);
        // A relist comes with new credentials. A plugin may give some that have hardly any time left.
        let relist = expires_in(&client).map_or(RELIST, |left| left.clamp(LASTING, RELIST));
        let client = tagged(client, StreamId(0), ANSWER_WITHIN, ANSWER_WITHIN);
        let session = Session { api: (self.api)(client), config, list_within: LIST_WITHIN };
        let stop = async {
            tokio::select! {
                () = self.pulse.silent(SILENCE) => {
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
                (self.record)(&object, listed, Some(self.rules));
            }
            Event::InitDone => self.observed.send_modify(|observed| {
                let Some(list) = observed.lists.get_mut(self.list) else { return };
                listed.order_cordons(list.take().unwrap_or_default().cordons);
                observed.deleted.retain(|key| !listed.services.contains_key(key));
                *list = Some(std::mem::take(listed));
            }),
            Event::Apply(object) => self.changed(&object, Some(self.rules)),
            Event::Delete(object) => self.changed(&object, None),
        }
    }

    fn changed(&self, object: &Object, rules: Option<&Policy>) {
        self.observed.send_if_modified(|observed| {
            let Some(list) = observed.lists.get_mut(self.list) else { return false };
            let list = list.get_or_insert_default();
            let recorded = (self.record)(object, list, rules);
            if recorded.is_news {
                let before = std::mem::take(&mut list.cordons);
                list.order_cordons(before);
            }
            observed.deleted.retain(|key| !list.services.contains_key(key));
            if observed.deleted.len() >= MAX_DELETED {
                observed.deleted.clear();
            }
            observed.deleted.extend(recorded.gone);
            recorded.is_news
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_silent_from_its_last_byte_on() {
        let (began, limit) = (Instant::now(), Duration::from_secs(75));
        let watch = Pulse::default();
        watch.accepted(StreamId(0), Connection::default());
        let bytes = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_mins(1)).await;
                watch.heard(StreamId(0));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! { () = watch.silent(limit) => {}, () = bytes => {} }
        assert_eq!(began.elapsed(), 3 * Duration::from_mins(1) + limit);
    }
}
