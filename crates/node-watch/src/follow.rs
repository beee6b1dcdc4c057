//! Follows one object: a reflector on a field selector, begun anew after every fault.
//!
//! Every fault is answered in the same way: drop everything, wait with jitter, start over with fresh credentials, a
//! fresh connection and a fresh list. What is held stays until the new list is complete.

use crate::backoff::Backoff;
use crate::objects::{LEASE_NAMESPACE, WatchedLease, WatchedNode};
use crate::proof::{Proof, StreamLife};
use crate::pulse::{PulseError, PulseLayer, Stream};
use crate::{NodeWatch, Startup, client};
use futures::{TryStreamExt, future};
use kube::runtime::reflector::Lookup;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Client, Resource};
use nodegate_readiness::Node;
use serde::de::DeserializeOwned;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::Instant;

/// A first list that takes longer is given up; the API server's own limit for it is a minute.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// A session that lived this long was a success, and the next fault starts with a short wait again.
const LASTING: Duration = Duration::from_secs(5);
/// Seconds a watch lives before the server ends it and it is resumed; drawn from this range so that agents drift apart.
/// Silence is noticed by other means, so this only has to be rare: two watches cost about 13 requests an hour.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 500..=600;
/// How long a forbidden Lease is left alone.
const FORBIDDEN_WAIT: Duration = Duration::from_mins(5);

/// Why a session ended; the values of a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    NoClient,
    Unauthorized,
    Forbidden,
    Expired,
    Throttled,
    ServerError,
    Rejected,
    Timeout,
    ClosedEarly,
    Disconnected,
    Malformed,
    Deaf,
    /// Not a fault: the Node's follower has made a new client, and the Lease's moves to it.
    Moved,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::NoClient => "no-client",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Expired => "expired",
            Self::Throttled => "throttled",
            Self::ServerError => "server-error",
            Self::Rejected => "rejected",
            Self::Timeout => "timeout",
            Self::ClosedEarly => "closed-early",
            Self::Disconnected => "disconnected",
            Self::Malformed => "malformed",
            Self::Deaf => "deaf",
            Self::Moved => "moved",
        }
    }

    fn of_status(code: u16) -> Self {
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            410 => Self::Expired,
            429 => Self::Throttled,
            500.. => Self::ServerError,
            _ => Self::Rejected,
        }
    }

    fn of(error: &watcher::Error) -> Self {
        let client = match error {
            watcher::Error::WatchError(status) => return Self::of_status(status.code),
            watcher::Error::NoResourceVersion => return Self::Malformed,
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error,
        };
        match client {
            kube::Error::Api(status) => Self::of_status(status.code),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Malformed,
            other => match find::<PulseError>(other) {
                Some(PulseError::Timeout) => Self::Timeout,
                Some(PulseError::ClosedEarly) => Self::ClosedEarly,
                None if find::<crate::lines::BadBody>(other).is_some() => Self::Malformed,
                None => Self::Disconnected,
            },
        }
    }
}

/// Looks for a certain error among the causes of another.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An io::Error shows the cause of what it wraps, not what it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let wrapped = wrapped.map(|inner| inner as &(dyn StdError + 'static));
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = wrapped.or_else(|| error.source());
    }
    None
}

/// How a session ended.
struct Ended {
    reason: Reason,
    detail: String,
    lasted: Duration,
}

/// Follows the own Node, forever. Each attempt makes a client, which the Lease's follower then shares.
pub(crate) async fn node(
    watch: &NodeWatch,
    proof: Arc<Proof>,
    startup: Sender<Startup>,
    share: Sender<Option<Client>>,
) {
    let progress = |reached: Startup| {
        startup.send_if_modified(|at| *at != Startup::Synced && std::mem::replace(at, reached) != reached);
    };
    let now = || watch.timeline.at(std::time::Instant::now());
    let changed = |node: Option<&WatchedNode>| {
        let node = node.map_or(Node::Absent, |node| Node::Present(node.facts()));
        watch.board.set_node(node, now(), SystemTime::now());
        // Whatever told us of the Node, a list or an event, came from the API server just now.
        watch.board.prove(now());
        progress(Startup::Synced);
    };
    let mut follower = Follower::new(watch, proof.clone(), Stream::Node, "nodes", changed);
    loop {
        let pulse = PulseLayer { proof: proof.clone(), metrics: watch.metrics.clone() };
        let ended = match client::build(pulse).await {
            Ok(client) => {
                share.send_replace(Some(client.clone()));
                follower.session(Api::all(client), future::pending()).await
            }
            Err(error) => {
                progress(Startup::NoClient);
                Ended { reason: Reason::NoClient, detail: error.to_string(), lasted: Duration::ZERO }
            }
        };
        follower.rest(&ended).await;
    }
}

/// Follows the node's Lease, forever: its renewals are a heartbeat that costs no request. It moves to each new client.
pub(crate) async fn lease(watch: &NodeWatch, proof: Arc<Proof>, mut shared: Receiver<Option<Client>>) {
    let mut follower = Follower::new(watch, proof, Stream::Lease, "leases", |_: Option<&WatchedLease>| {});
    loop {
        // The sender lives as long as this: both are parts of one future.
        let Ok(Some(client)) = shared.wait_for(Option::is_some).await.map(|client| client.clone()) else {
            return future::pending().await;
        };
        let moved = async {
            let _ = shared.changed().await;
        };
        let ended = follower.session(Api::namespaced(client, LEASE_NAMESPACE), moved).await;
        if ended.reason != Reason::Moved {
            follower.rest(&ended).await;
        }
    }
}

struct Follower<'a, Changed> {
    watch: &'a NodeWatch,
    proof: Arc<Proof>,
    stream: Stream,
    resource: &'static str,
    changed: Changed,
    backoff: Backoff,
    failing: bool,
}

impl<'a, Changed> Follower<'a, Changed> {
    fn new(
        watch: &'a NodeWatch,
        proof: Arc<Proof>,
        stream: Stream,
        resource: &'static str,
        changed: Changed,
    ) -> Self {
        Self { watch, proof, stream, resource, changed, backoff: Backoff::new(), failing: false }
    }

    /// Counts and logs the end of a session, and waits before the next.
    async fn rest(&mut self, ended: &Ended) {
        self.watch.metrics.restart(self.resource, ended.reason.as_str());
        if ended.lasted > LASTING {
            self.backoff.reset();
        }
        let wait = match ended.reason {
            Reason::Forbidden if self.stream == Stream::Lease => {
                FORBIDDEN_WAIT.mul_f64(0.9 + 0.2 * fastrand::f64())
            }
            // The API server has just answered the guard, and every agent's guard asks at a time of its own.
            Reason::Deaf if ended.lasted > LASTING => Duration::ZERO,
            _ => self.backoff.next(),
        };
        self.log(ended, wait);
        self.failing = true;
        tokio::time::sleep(wait).await;
    }

    fn life(&self) -> &StreamLife {
        self.stream.life(&self.proof)
    }

    /// The first fault of an episode is news, the rest are details.
    fn log(&self, ended: &Ended, wait: Duration) {
        let (resource, reason, retry_ms) = (self.resource, ended.reason.as_str(), wait.as_millis());
        if !self.failing && self.stream == Stream::Lease && ended.reason == Reason::Forbidden {
            tracing::warn!(
                error = ended.detail,
                "not allowed to watch the node's Lease: going on without this heartbeat, at the price of more requests"
            );
        } else if self.failing || self.stream == Stream::Lease {
            // What befalls the Lease befalls the Node, whose line is enough.
            tracing::debug!(resource, reason, retry_ms, error = ended.detail, "watch failing");
        } else {
            tracing::info!(resource, reason, retry_ms, error = ended.detail, "watch lost, starting over");
        }
    }

    /// Lists and watches until something goes wrong, or `moved` is done.
    async fn session<K>(&mut self, api: Api<K>, moved: impl Future<Output = ()>) -> Ended
    where
        K: Resource<DynamicType = ()>
            + Lookup<DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
        Changed: Fn(Option<&K>),
    {
        self.life().begin();
        let began = Instant::now();
        let ended = |reason, detail: String| Ended { reason, detail, lasted: began.elapsed() };
        let selector = format!("metadata.name={}", self.watch.node_name);
        let config = watcher::Config::default().fields(&selector).timeout(fastrand::u32(WATCH_SECONDS));
        let (store, writer) = reflector::store();
        let events = watcher(api, config).modify(|object: &mut K| object.meta_mut().managed_fields = None);
        let mut events = pin!(events.reflect(writer));
        let mut moved = pin!(moved);
        let mut synced = false;
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                () = self.life().replace.notified() => {
                    return ended(Reason::Deaf, "the watch has missed a change or has gone silent".to_owned());
                }
                () = &mut moved => return ended(Reason::Moved, String::new()),
                () = tokio::time::sleep_until(began + SYNC_TIMEOUT), if !synced => {
                    return ended(Reason::Timeout, "the first list took too long".to_owned());
                }
            };
            match event {
                Ok(Some(event)) => synced |= self.take(&event, &store),
                Ok(None) => return ended(Reason::Disconnected, "the stream of events ended".to_owned()),
                Err(error) => return ended(Reason::of(&error), detail(&error)),
            }
        }
    }

    /// Takes one event; says whether the object is known from now on.
    fn take<K>(&mut self, event: &Event<K>, store: &reflector::Store<K>) -> bool
    where
        K: Resource + Lookup<DynamicType = ()> + Clone + 'static,
        Changed: Fn(Option<&K>),
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
            self.proof.event(self.life());
        } else if std::mem::take(&mut self.failing) {
            tracing::debug!(resource = self.resource, "watching again");
        }
        (self.changed)(store.state().first().map(Arc::as_ref));
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
