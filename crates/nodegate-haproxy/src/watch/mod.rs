//! Watches Nodes and Services. After every failure, reconnects with fresh credentials and relists.

pub mod counts;
pub mod life;
mod lists;
pub(crate) mod objects;
pub mod observed;
pub mod statuses;

use crate::watch::counts::Counts;
use crate::watch::life::Life;
use crate::watch::lists::{Lists, NodeLists, ServiceLists};
use crate::watch::observed::Observed;
use crate::watch::statuses::StatusSink;
use kube::Client;
use kube::runtime::watcher::Event;
use nodegate_kube_follow::{Backoff, FailureReason, KubectlCredentials, Session, SessionEnd, connect};
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
pub async fn run(
    scope: WatchScope,
    observed: Sender<Observed>,
    statuses: StatusSink,
    life: Arc<Life>,
    counts: Arc<Counts>,
) {
    let nodes = async {
        let (list, silence) = ("nodes".to_owned(), scope.silence);
        let watch = Watch { list, observed: &observed, life: &life, counts: &counts, silence };
        watch.run(&NodeLists { selector: scope.node_selector.clone(), rules: &scope.rules }).await;
    };
    let services = scope.service_lists().into_iter().map(|namespace| {
        let (observed, life, counts, silence) = (&observed, &life, &counts, scope.silence);
        let statuses = statuses.clone();
        async move {
            let list = list_name(namespace.as_deref());
            let watch = Watch { list, observed, life, counts, silence };
            watch.run(&ServiceLists { namespace, statuses }).await;
        }
    });
    tokio::join!(nodes, futures::future::join_all(services));
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
            let observer = self.life.observer(&self.list, self.counts.clone());
            let ended = match connect::<KubectlCredentials>(observer).await {
                Ok(client) => self.session(lists, client, by_field, &mut failing).await,
                Err(error) => SessionEnd::before_it_began(FailureReason::NoClient, error.to_string()),
            };
            self.life.closed(&self.list);
            self.counts.restart(ended.reason.as_str());
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
    async fn session<L: Lists>(
        &self,
        lists: &L,
        client: Client,
        by_field: bool,
        failing: &mut bool,
    ) -> SessionEnd {
        let session =
            Session { api: lists.api(client), config: lists.config(by_field), list_within: LIST_WITHIN };
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
        let mut listed = L::Listed::default();
        session
            .run(stop, |event| {
                let complete = matches!(event, Event::InitDone);
                self.take(lists, &mut listed, event);
                if complete && std::mem::take(failing) {
                    tracing::info!(list = self.list, "watching again");
                }
            })
            .await
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
