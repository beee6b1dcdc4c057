//! Follows one object: a reflector on a field selector, begun anew after every fault.
//!
//! Every fault is answered in the same way: drop everything, wait with jitter, start over with fresh credentials, a
//! fresh connection and a fresh list. What is held stays until the new list is complete.

use crate::backoff::Backoff;
use crate::guard::{BOOKMARK_OVERDUE, Shared};
use crate::held::Held;
use crate::objects::{LEASE_NAMESPACE, Watched, WatchedLease, WatchedNode, WatchedSlice};
use crate::progress::Progress;
use crate::proof::{Proof, StreamLife};
use crate::pulse::Pulse;
use crate::reason::Reason;
use crate::stream::Stream;
use crate::{NodeWatch, client};
use futures::{TryStreamExt, future};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client};
use nodegate_readiness::{Moment, Node, ServiceFacts, ServiceName};
use std::cell::RefCell;
use std::error::Error as StdError;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;
use tokio::time::Instant;

/// A first list that takes longer is given up; the API server's own limit for it is a minute.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// A session that lived this long was a success, and the next fault starts with a short wait again.
const LASTING: Duration = Duration::from_secs(5);
/// Seconds a watch lives before the server ends it and it is resumed. The range is as wide as it is so that agents that
/// began together, after an API restart, are spread from the first time on: drawn from 500 to 600 they came at five times the
/// even rate. Silence is noticed by other means, so this only has to be rare: two watches cost about 15 requests an hour.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 200..=900;
/// How long a forbidden Lease or Service is left alone.
const FORBIDDEN_WAIT: Duration = Duration::from_mins(5);
/// The label by which slices name their Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// How a session ended.
struct Ended {
    reason: Reason,
    detail: String,
    lasted: Duration,
}

/// Follows the own Node, forever. Each attempt makes a client, which the others share once it has a connection: whoever
/// asked on it any sooner would open a second one, and a thousand agents that come back together would come back twice.
pub(crate) async fn node(
    watch: &NodeWatch,
    proof: Arc<Proof>,
    progress: &Progress,
    share: Sender<Option<Client>>,
) {
    let now = || watch.timeline.at(nodegate_clock::now());
    let connecting = RefCell::new(None);
    let connected = || {
        if let Some(client) = connecting.take() {
            share.send_replace(Some(client));
        }
    };
    let changed = |nodes: &[Arc<WatchedNode>]| {
        let node = nodes.first();
        proof.hold(node.map_or(Held::Absent, |node| node.held()));
        let facts = node.map_or(Node::Absent, |node| Node::Present(node.facts()));
        watch.board.set_node(facts, now(), nodegate_clock::wall());
    };
    let synced = || {
        progress.node_synced();
        connected();
    };
    let mut follower = Follower::new(watch, proof.clone(), Stream::Node, "nodes", changed);
    let own = own_name(watch);
    loop {
        let pulse = Pulse { proof: proof.clone(), metrics: watch.metrics.clone() };
        let client = match proof.take_move() {
            Some(client) => Ok(client),
            None => client::build(pulse).await,
        };
        let ended = match client {
            Ok(client) => {
                connecting.replace(Some(client.clone()));
                follower.session(Api::all(client), own.clone(), &synced, future::pending()).await
            }
            Err(error) => {
                progress.no_client();
                Ended { reason: Reason::NoClient, detail: error.to_string(), lasted: Duration::ZERO }
            }
        };
        match ended.reason {
            // It answered: what is refused to the Node's follower may be granted to the others, who stay where they are.
            Reason::Forbidden if share.borrow().is_none() => connected(),
            Reason::Forbidden => {}
            // On the old client the others would open a connection of their own.
            _ => drop(share.send_replace(None)),
        }
        follower.rest(&ended).await;
    }
}

/// Follows the node's Lease, forever: its renewals are a heartbeat that costs no request.
pub(crate) async fn lease(watch: &NodeWatch, proof: Arc<Proof>, shared: Shared) {
    let follower = Follower::new(watch, proof, Stream::Lease, "leases", |_: &[Arc<WatchedLease>]| {});
    let api = |client| Api::namespaced(client, LEASE_NAMESPACE);
    follower.follow(shared, api, &own_name(watch), &|| {}).await;
}

/// Follows the `EndpointSlices` of a Service, forever.
pub(crate) async fn service(
    watch: &NodeWatch,
    proof: Arc<Proof>,
    progress: &Progress,
    shared: Shared,
    index: usize,
    name: &ServiceName,
) {
    let changed = |slices: &[Arc<WatchedSlice>]| {
        let slices: Vec<_> = slices.iter().map(|slice| slice.facts(&watch.node_name)).collect();
        let facts = ServiceFacts::count(&slices, &watch.node_name);
        let now = watch.timeline.at(nodegate_clock::now());
        watch.board.set_service(index, &facts, now, nodegate_clock::wall());
    };
    let stream = Stream::Service(index);
    let follower = Follower::new(watch, proof, stream, "endpointslices", changed);
    let api = |client| Api::namespaced(client::tagged(client, stream), name.namespace());
    let selected = watcher::Config::default().labels(&format!("{SERVICE_LABEL}={}", name.name()));
    // A Service that can't be watched holds nobody up.
    follower.follow(shared, api, &selected, &|| progress.service_settled(index)).await;
}

/// Selects the object with the node's own name.
fn own_name(watch: &NodeWatch) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={}", watch.node_name))
}

struct Follower<'a, Changed> {
    watch: &'a NodeWatch,
    proof: Arc<Proof>,
    stream: Stream,
    resource: &'static str,
    changed: Changed,
    backoff: Backoff,
    /// What has been said of this row of faults.
    told: Vec<Reason>,
}

impl<'a, Changed> Follower<'a, Changed> {
    fn new(
        watch: &'a NodeWatch,
        proof: Arc<Proof>,
        stream: Stream,
        resource: &'static str,
        changed: Changed,
    ) -> Self {
        Self { watch, proof, stream, resource, changed, backoff: Backoff::new(), told: Vec::new() }
    }

    /// Follows on the shared client, forever, and moves to each new one.
    async fn follow<K>(
        mut self,
        mut shared: Shared,
        api: impl Fn(Client) -> Api<K>,
        selected: &watcher::Config,
        settled: &impl Fn(),
    ) where
        K: Watched,
        Changed: Fn(&[Arc<K>]),
    {
        loop {
            // The sender lives as long as this: both are parts of one future.
            let Ok(Some(client)) = shared.wait_for(Option::is_some).await.map(|client| client.clone()) else {
                return future::pending().await;
            };
            let moved = async {
                let _ = shared.changed().await;
            };
            let ended = self.session(api(client), selected.clone(), settled, moved).await;
            if ended.reason != Reason::Moved {
                settled();
                self.rest(&ended).await;
            }
        }
    }

    /// Counts and logs the end of a session, and waits before the next.
    async fn rest(&mut self, ended: &Ended) {
        self.watch.metrics.restart(self.resource, ended.reason.as_str());
        if ended.lasted > LASTING {
            self.backoff.reset();
        }
        let wait = match ended.reason {
            // The agent works without.
            Reason::Forbidden if self.stream != Stream::Node => {
                FORBIDDEN_WAIT.mul_f64(0.9 + 0.2 * fastrand::f64())
            }
            // The API server has just answered the guard, and every agent's guard asks at a time of its own.
            Reason::Deaf if ended.lasted > LASTING => Duration::ZERO,
            _ => self.backoff.wait(),
        };
        self.log(ended, wait);
        if !self.told.contains(&ended.reason) {
            self.told.push(ended.reason);
        }
        tokio::time::sleep(wait).await;
    }

    fn life(&self) -> Option<&StreamLife> {
        self.proof.life(self.stream)
    }

    /// Waits until the stream is to be dropped, whatever it says itself.
    async fn condemned(&self) {
        let Some(life) = self.life() else { return future::pending().await };
        let Stream::Service(_) = self.stream else { return life.replace.notified().await };
        // The guard asks for the Node only; here a missing bookmark has to be enough.
        let overdue = async {
            loop {
                let heard = life.last_bytes().unwrap_or_default();
                let left = BOOKMARK_OVERDUE.saturating_sub(self.proof.now().since(heard));
                if left.is_zero() && life.is_open() {
                    return;
                }
                tokio::time::sleep(left.max(Duration::from_secs(1))).await;
            }
        };
        tokio::select! {
            () = life.replace.notified() => {}
            () = overdue => {}
        }
    }

    /// The first fault of a row is news, and so is each other kind: an API server that was restarted may come back without
    /// our rights. The rest are details.
    fn log(&self, ended: &Ended, wait: Duration) {
        let (resource, reason, retry_ms) = (self.resource, ended.reason.as_str(), wait.as_millis());
        let error = &ended.detail;
        match (self.stream, ended.reason) {
            _ if self.told.contains(&ended.reason) => {
                tracing::debug!(resource, reason, retry_ms, error, "watch failing");
            }
            (Stream::Service(index), Reason::Forbidden) => {
                let service = self.watch.board.catalog().services().nth(index);
                tracing::warn!(
                    service = service.map(tracing::field::display),
                    error,
                    "not allowed to watch the Service's EndpointSlices: its check goes by what was known last, or \
                     passes; the rights are in manifests/components/services"
                );
            }
            (Stream::Lease, Reason::Forbidden) => tracing::warn!(
                error,
                "not allowed to watch the node's Lease: going on without this heartbeat, at the price of more requests"
            ),
            // What befalls the Lease befalls the Node, whose line is enough.
            (Stream::Lease, _) => tracing::debug!(resource, reason, retry_ms, error, "watch failing"),
            _ if self.told.is_empty() => {
                tracing::info!(resource, reason, retry_ms, error, "watch lost, starting over");
            }
            _ => tracing::info!(resource, reason, retry_ms, error, "the watch fails for another reason"),
        }
    }

    /// Lists and watches until something goes wrong, or `moved` is done. What was listed is `settled` then.
    async fn session<K>(
        &mut self,
        api: Api<K>,
        selected: watcher::Config,
        settled: &impl Fn(),
        moved: impl Future<Output = ()>,
    ) -> Ended
    where
        K: Watched,
        Changed: Fn(&[Arc<K>]),
    {
        if let Some(life) = self.life() {
            life.begin();
        }
        let asked_at = self.proof.now();
        let began = Instant::now();
        let ended = |reason, detail: String| Ended { reason, detail, lasted: began.elapsed() };
        let config = selected.timeout(fastrand::u32(WATCH_SECONDS));
        let (store, writer) = reflector::store();
        let node_name = self.watch.node_name.clone();
        let events = watcher(api, config).modify(|object: &mut K| object.trim(&node_name));
        let mut events = pin!(events.reflect(writer));
        let mut moved = pin!(moved);
        let mut synced = false;
        loop {
            let event = tokio::select! {
                // A replacement also takes the client away; whoever saw that first would be told of the replacement once more.
                biased;
                () = self.condemned() => {
                    return ended(Reason::Deaf, "the watch has missed a change or has gone silent".to_owned());
                }
                () = &mut moved => return ended(Reason::Moved, String::new()),
                event = events.try_next() => event,
                () = tokio::time::sleep_until(began + SYNC_TIMEOUT), if !synced => {
                    return ended(Reason::Timeout, "the first list took too long".to_owned());
                }
            };
            match event {
                Ok(Some(event)) => {
                    if self.take(&event, &store, asked_at) && !std::mem::replace(&mut synced, true) {
                        settled();
                    }
                }
                Ok(None) => return ended(Reason::Disconnected, "the stream of events ended".to_owned()),
                Err(error) => return ended(Reason::of(&error), detail(&error)),
            }
        }
    }

    /// Takes one event; says whether the object is known from now on.
    fn take<K>(&mut self, event: &Event<K>, store: &reflector::Store<K>, asked_at: Moment) -> bool
    where
        K: Watched,
        Changed: Fn(&[Arc<K>]),
    {
        let kind = match event {
            Event::Init => return false,
            Event::InitApply(_) => {
                self.watch.metrics.event(self.resource, "init", self.watch.timeline);
                return false;
            }
            Event::InitDone => None,
            Event::Apply(_) => Some("apply"),
            Event::Delete(_) => Some("delete"),
        };
        if let Some(kind) = kind {
            self.watch.metrics.event(self.resource, kind, self.watch.timeline);
        } else if !self.told.is_empty() {
            self.told.clear();
            if self.stream == Stream::Lease {
                tracing::debug!(resource = self.resource, "watching again");
            } else {
                tracing::info!(resource = self.resource, "watching again");
            }
        }
        (self.changed)(&store.state());
        // The truth first, and then that it may be believed.
        if kind.is_some() {
            self.proof.event(self.stream);
        } else {
            self.proof.listed(self.stream, asked_at);
        }
        true
    }
}

/// The error with its causes, each said once.
fn detail(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
