//! Follows one object, or the few that a selector picks: a reflector, begun anew after every fault.
//!
//! Every fault is answered in the same way: drop everything, wait with jitter, start over with fresh credentials, a
//! fresh connection and a fresh list. What is held stays until the new list is complete.

use crate::backoff::Backoff;
use crate::guard::BOOKMARK_OVERDUE;
use crate::objects::{LEASE_NAMESPACE, WatchedLease, WatchedNode, WatchedSlice};
use crate::progress::Progress;
use crate::proof::{Proof, StreamLife};
use crate::pulse::{Pulse, Stream};
use crate::reason::Reason;
use crate::{ClientError, NodeWatch, client};
use futures::TryStreamExt;
use kube::runtime::reflector::Lookup;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Resource};
use nodegate_readiness::{Node, ServiceFacts, ServiceName};
use serde::de::DeserializeOwned;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A first list that takes longer is given up; the API server's own limit for it is a minute.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// A session that lived this long was a success, and the next fault starts with a short wait again.
const LASTING: Duration = Duration::from_secs(30);
/// Seconds a watch lives before the server ends it and it is resumed; drawn from this range so that agents drift apart.
/// Silence is noticed by other means, so this only has to be rare: two watches cost about 13 requests an hour.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 500..=600;
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

/// Follows the own Node, forever.
pub(crate) async fn node(watch: &NodeWatch, proof: Arc<Proof>, progress: &Progress) {
    let follower = Follower {
        watch,
        proof,
        stream: Stream::Node,
        resource: "nodes",
        selected: own_name(watch),
        changed: |nodes: &[Arc<WatchedNode>]| {
            let node = nodes.first().map_or(Node::Absent, |node| Node::Present(node.facts()));
            watch.board.set_node(node, watch.timeline.at(std::time::Instant::now()), SystemTime::now());
            // Whatever told us of the Node, a list or an event, came from the API server just now.
            watch.board.prove(watch.timeline.at(std::time::Instant::now()));
            progress.node_synced();
        },
        failed: |reason| {
            if reason == Reason::NoClient {
                progress.no_client();
            }
        },
        api: Api::<WatchedNode>::all,
    };
    follower.run().await;
}

/// Follows the node's Lease, forever: its renewals are a heartbeat that costs no request.
pub(crate) async fn lease(watch: &NodeWatch, proof: Arc<Proof>) {
    let follower = Follower {
        watch,
        proof,
        stream: Stream::Lease,
        resource: "leases",
        selected: own_name(watch),
        changed: |_: &[Arc<WatchedLease>]| {},
        failed: |_| {},
        api: |client| Api::<WatchedLease>::namespaced(client, LEASE_NAMESPACE),
    };
    follower.run().await;
}

/// Follows the `EndpointSlices` of a Service, forever.
pub(crate) async fn service(
    watch: &NodeWatch,
    proof: Arc<Proof>,
    progress: &Progress,
    index: usize,
    name: &ServiceName,
) {
    let follower = Follower {
        watch,
        proof,
        stream: Stream::Service(index),
        resource: "endpointslices",
        selected: watcher::Config::default().labels(&format!("{SERVICE_LABEL}={}", name.name())),
        changed: |slices: &[Arc<WatchedSlice>]| {
            let slices: Vec<_> = slices.iter().map(|slice| slice.facts(&watch.node_name)).collect();
            let facts = ServiceFacts::count(&slices, &watch.node_name);
            let now = watch.timeline.at(std::time::Instant::now());
            watch.board.set_service(index, &facts, now, SystemTime::now());
            watch.board.prove_service(index, now);
            progress.service_settled(index);
        },
        // A Service that can't be watched holds nobody up.
        failed: |_| progress.service_settled(index),
        api: |client| Api::<WatchedSlice>::namespaced(client, name.namespace()),
    };
    follower.run().await;
}

/// Selects the object with the node's own name.
fn own_name(watch: &NodeWatch) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={}", watch.node_name))
}

struct Follower<'a, Changed, Failed, MakeApi> {
    watch: &'a NodeWatch,
    proof: Arc<Proof>,
    stream: Stream,
    resource: &'static str,
    selected: watcher::Config,
    changed: Changed,
    failed: Failed,
    api: MakeApi,
}

impl<Changed, Failed, MakeApi> Follower<'_, Changed, Failed, MakeApi> {
    async fn run<K>(self)
    where
        K: Resource<DynamicType = ()>
            + Lookup<DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
        <K as Resource>::DynamicType: Eq + Hash,
        Changed: Fn(&[Arc<K>]),
        Failed: Fn(Reason),
        MakeApi: Fn(kube::Client) -> Api<K>,
    {
        let mut backoff = Backoff::new();
        let mut failing = false;
        loop {
            let pulse = Pulse::new(self.stream, self.proof.clone(), self.watch.metrics.clone());
            let ended = match client::build(pulse).await {
                Ok(client) => self.session((self.api)(client), &mut failing).await,
                Err(error) => no_client(&error),
            };
            (self.failed)(ended.reason);
            if let Some(life) = self.proof.life(self.stream) {
                life.closed();
            }
            self.watch.metrics.restart(self.resource, ended.reason.as_str());
            if ended.lasted > LASTING {
                backoff.reset();
            }
            let wait = match (self.stream, ended.reason) {
                // The agent works without.
                (Stream::Lease | Stream::Service(_), Reason::Forbidden) => {
                    FORBIDDEN_WAIT.mul_f64(0.9 + 0.2 * fastrand::f64())
                }
                _ => backoff.next(),
            };
            self.log(&ended, wait, failing);
            failing = true;
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits until the stream is to be dropped, whatever it says itself.
    async fn condemned(&self, life: &StreamLife) {
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

    /// The first fault of an episode is news, the rest are details.
    fn log(&self, ended: &Ended, wait: Duration, failing: bool) {
        let (resource, reason, retry_ms) = (self.resource, ended.reason.as_str(), wait.as_millis());
        if let (false, Stream::Service(index), Reason::Forbidden) = (failing, self.stream, ended.reason) {
            let service = self.watch.board.catalog().services().nth(index);
            tracing::warn!(
                service = service.map(tracing::field::display),
                error = ended.detail,
                "not allowed to watch the Service's EndpointSlices: its check fails open; the rights are in manifests/components/services"
            );
        } else if !failing && self.stream == Stream::Lease && ended.reason == Reason::Forbidden {
            tracing::warn!(
                error = ended.detail,
                "not allowed to watch the node's Lease: going on without this heartbeat, at the price of more requests"
            );
        } else if failing || self.stream == Stream::Lease {
            // What befalls the Lease befalls the Node, whose line is enough.
            tracing::debug!(resource, reason, retry_ms, error = ended.detail, "watch failing");
        } else {
            tracing::info!(resource, reason, retry_ms, error = ended.detail, "watch lost, starting over");
        }
    }

    /// Lists and watches until something goes wrong.
    async fn session<K>(&self, api: Api<K>, failing: &mut bool) -> Ended
    where
        K: Resource<DynamicType = ()>
            + Lookup<DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
        <K as Resource>::DynamicType: Eq + Hash,
        Changed: Fn(&[Arc<K>]),
    {
        let began = Instant::now();
        let ended = |reason, detail: String| Ended { reason, detail, lasted: began.elapsed() };
        let Some(life) = self.proof.life(self.stream) else {
            return ended(Reason::NoClient, "no such stream".to_owned());
        };
        let config = self.selected.clone().timeout(fastrand::u32(WATCH_SECONDS));
        let (store, writer) = reflector::store();
        let events = watcher(api, config).modify(|object: &mut K| object.meta_mut().managed_fields = None);
        let mut events = pin!(events.reflect(writer));
        let mut synced = false;
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                () = self.condemned(life) => {
                    return ended(Reason::Deaf, "the watch has missed a change or has gone silent".to_owned());
                }
                () = tokio::time::sleep_until(began + SYNC_TIMEOUT), if !synced => {
                    return ended(Reason::Timeout, "the first list took too long".to_owned());
                }
            };
            match event {
                Ok(Some(event)) => synced |= self.take(&event, &store, life, failing),
                Ok(None) => return ended(Reason::Disconnected, "the stream of events ended".to_owned()),
                Err(error) => return ended(Reason::of(&error), detail(&error)),
            }
        }
    }

    /// Takes one event; says whether the object is known from now on.
    fn take<K>(
        &self,
        event: &Event<K>,
        store: &reflector::Store<K>,
        life: &StreamLife,
        failing: &mut bool,
    ) -> bool
    where
        K: Resource + Lookup<DynamicType = ()> + Clone + 'static,
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
            self.proof.event(life);
        } else if std::mem::take(failing) {
            tracing::debug!(resource = self.resource, "watching again");
        }
        (self.changed)(&store.state());
        true
    }
}

fn no_client(error: &ClientError) -> Ended {
    Ended { reason: Reason::NoClient, detail: error.to_string(), lasted: Duration::ZERO }
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
