//! Follows one object: a reflector on a field selector, begun anew after every fault.
//!
//! Every fault is answered in the same way: drop everything, wait with jitter, start over with fresh credentials, a
//! fresh connection and a fresh list. What is held stays until the new list is complete.

use crate::backoff::Backoff;
use crate::objects::{LEASE_NAMESPACE, WatchedLease, WatchedNode};
use crate::proof::{Proof, StreamLife};
use crate::pulse::{Pulse, PulseError, Stream};
use crate::{ClientError, NodeWatch, Startup, client};
use futures::TryStreamExt;
use kube::runtime::reflector::Lookup;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, Resource};
use nodegate_readiness::Node;
use serde::de::DeserializeOwned;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch::Sender;
use tokio::time::Instant;

/// A first list that takes longer is given up; the API server's own limit for it is a minute.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// A session that lived this long was a success, and the next fault starts with a short wait again.
const LASTING: Duration = Duration::from_secs(30);
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

/// Follows the own Node, forever.
pub(crate) async fn node(watch: &NodeWatch, proof: Arc<Proof>, startup: Sender<Startup>) {
    let progress = |reached: Startup| {
        startup.send_if_modified(|at| *at != Startup::Synced && std::mem::replace(at, reached) != reached);
    };
    let follower = Follower {
        watch,
        proof,
        stream: Stream::Node,
        resource: "nodes",
        changed: |node: Option<&WatchedNode>| {
            let node = node.map_or(Node::Absent, |node| Node::Present(node.facts()));
            watch.board.set_node(node, watch.timeline.at(std::time::Instant::now()), SystemTime::now());
            // Whatever told us of the Node, a list or an event, came from the API server just now.
            watch.board.prove(watch.timeline.at(std::time::Instant::now()));
            progress(Startup::Synced);
        },
        no_client: || progress(Startup::NoClient),
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
        changed: |_: Option<&WatchedLease>| {},
        no_client: || {},
        api: |client| Api::<WatchedLease>::namespaced(client, LEASE_NAMESPACE),
    };
    follower.run().await;
}

struct Follower<'a, Changed, NoClient, MakeApi> {
    watch: &'a NodeWatch,
    proof: Arc<Proof>,
    stream: Stream,
    resource: &'static str,
    changed: Changed,
    no_client: NoClient,
    api: MakeApi,
}

impl<Changed, NoClient, MakeApi> Follower<'_, Changed, NoClient, MakeApi> {
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
        Changed: Fn(Option<&K>),
        NoClient: Fn(),
        MakeApi: Fn(kube::Client) -> Api<K>,
    {
        let mut backoff = Backoff::new();
        let mut failing = false;
        loop {
            let pulse = Pulse::new(self.stream, self.proof.clone(), self.watch.metrics.clone());
            let ended = match client::build(pulse).await {
                Ok(client) => self.session((self.api)(client), &mut failing).await,
                Err(error) => {
                    (self.no_client)();
                    no_client(&error)
                }
            };
            self.life().closed();
            self.watch.metrics.restart(self.resource, ended.reason.as_str());
            if ended.lasted > LASTING {
                backoff.reset();
            }
            let wait = if self.stream == Stream::Lease && ended.reason == Reason::Forbidden {
                FORBIDDEN_WAIT.mul_f64(0.9 + 0.2 * fastrand::f64())
            } else {
                backoff.next()
            };
            self.log(&ended, wait, failing);
            failing = true;
            tokio::time::sleep(wait).await;
        }
    }

    fn life(&self) -> &StreamLife {
        if self.stream == Stream::Lease { &self.proof.lease } else { &self.proof.node }
    }

    /// The first fault of an episode is news, the rest are details.
    fn log(&self, ended: &Ended, wait: Duration, failing: bool) {
        let (resource, reason, retry_ms) = (self.resource, ended.reason.as_str(), wait.as_millis());
        if !failing && self.stream == Stream::Lease && ended.reason == Reason::Forbidden {
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
        Changed: Fn(Option<&K>),
    {
        let began = Instant::now();
        let ended = |reason, detail: String| Ended { reason, detail, lasted: began.elapsed() };
        let selector = format!("metadata.name={}", self.watch.node_name);
        let config = watcher::Config::default().fields(&selector).timeout(fastrand::u32(WATCH_SECONDS));
        let (store, writer) = reflector::store();
        let events = watcher(api, config).modify(|object: &mut K| object.meta_mut().managed_fields = None);
        let mut events = pin!(events.reflect(writer));
        let mut synced = false;
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                () = self.life().replace.notified() => {
                    return ended(Reason::Deaf, "the watch has missed a change or has gone silent".to_owned());
                }
                () = tokio::time::sleep_until(began + SYNC_TIMEOUT), if !synced => {
                    return ended(Reason::Timeout, "the first list took too long".to_owned());
                }
            };
            match event {
                Ok(Some(event)) => synced |= self.take(&event, &store, failing),
                Ok(None) => return ended(Reason::Disconnected, "the stream of events ended".to_owned()),
                Err(error) => return ended(Reason::of(&error), detail(&error)),
            }
        }
    }

    /// Takes one event; says whether the object is known from now on.
    fn take<K>(&self, event: &Event<K>, store: &reflector::Store<K>, failing: &mut bool) -> bool
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
        } else if std::mem::take(failing) {
            tracing::debug!(resource = self.resource, "watching again");
        }
        (self.changed)(store.state().first().map(Arc::as_ref));
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
