//! Watches: a stream of events, one chunk each, flushed as it comes.

use super::operation::Operation;
use crate::api_parts::Api;
use crate::counters::{Open, RequestKind};
use crate::faults::etcd::Cache;
use crate::faults::requests::Effect;
use crate::store::object::Obj;
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::store::{Change, Feed};
use crate::wire::format::ObjectFormat;
use crate::wire::options;
use crate::wire::reply::{self, ApiReply, StreamCut};
use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// `--min-request-timeout` in seconds, which a watch without a timeout lasts.
const DEFAULT_TIMEOUT: u64 = 1_800;

pub(super) fn watch(operation: &Operation<'_>) -> Result<ApiReply, ApiStatus> {
    let (api, resource, query) = (operation.api, operation.resource, operation.query());
    if query.get("sendInitialEvents").is_some() {
        return Err(ApiStatus::no_streaming_lists());
    }
    let asked = options::version(query)?;
    let cache = api.etcd.cache(resource);
    // Watches without a version, or from 0, start with the current objects: those of the cache, if the link to etcd is cut.
    let initial = asked == 0;
    let after = if initial { cache.as_ref().map(|cache| cache.version) } else { Some(asked) };
    let mut watch = Watch::new(operation, operation.selector()?, asked);
    if !operation.asked.effects.contains(&Effect::CloseWatch) {
        match api.store.watch(resource, &watch.selector, after) {
            Ok(mut subscription) => {
                if let Some(cache) = cache {
                    subscription.version = cache.version;
                    if initial {
                        subscription.initial = cache.list(&watch.selector);
                    }
                }
                if initial {
                    watch.from = subscription.version;
                }
                watch.pending.extend(subscription.initial.into_iter().map(Pending::Added));
                watch.pending.extend(subscription.replay.into_iter().map(Pending::Changed));
                watch.feed = Some(subscription.feed);
            }
            Err(oldest) => watch.pending.push_back(Pending::Expired(asked, oldest)),
        }
    }
    let events =
        stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (event, watch)) });
    Ok(reply::json_body(StreamBody::new(events).boxed_unsync()))
}

struct Watch {
    api: Arc<Api>,
    resource: &'static Resource,
    selector: Selector,
    format: ObjectFormat,
    request: RequestKind,
    from: u64,
    pending: VecDeque<Pending>,
    feed: Option<mpsc::Receiver<Feed>>,
    deadline: Instant,
    bookmark: Option<Instant>,
    broken: bool,
    _open: Open,
}

/// An event that is still to be sent. The watch renders it only then, since a list may have 100 MB.
enum Pending {
    Added(Obj),
    Changed(Arc<Change>),
    /// The history begins only at the second version, so changes since the first one are no longer known.
    Expired(u64, u64),
}

type Event = Result<Frame<Bytes>, StreamCut>;

impl Watch {
    fn new(operation: &Operation<'_>, selector: Selector, from: u64) -> Self {
        let (api, query) = (operation.api, operation.query());
        let now = Instant::now();
        let timeout =
            query.number("timeoutSeconds").filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_TIMEOUT);
        let deadline = now + Duration::from_secs(timeout);
        Watch {
            api: api.clone(),
            resource: operation.resource,
            selector,
            format: operation.format,
            request: operation.asked.kind.clone(),
            from,
            pending: VecDeque::new(),
            feed: None,
            deadline,
            bookmark: query.flag("allowWatchBookmarks").then(|| next_bookmark(now, deadline)).flatten(),
            broken: false,
            _open: api.counters.watch(),
        }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.broken {
                return Some(Err(StreamCut));
            }
            // The watch also ends in time if it always has an event to send.
            if Instant::now() >= self.deadline {
                return None;
            }
            let unresponsive = self.api.faults.loses_events(&self.request);
            let cache = self.api.etcd.cache(self.resource);
            // A server that is cut off from etcd holds back the changes that its cache has not seen.
            let known = |pending: &mut Pending| match (pending, &cache) {
                (Pending::Changed(change), Some(cache)) => change.version <= cache.version,
                _ => true,
            };
            if let Some(pending) = self.pending.pop_front_if(known) {
                // An unresponsive watch loses its events, like a connection whose packets are dropped silently.
                if unresponsive.is_none()
                    && let Some(line) = self.render(pending)
                {
                    return Some(Ok(Frame::data(self.damaged(line))));
                }
                continue;
            }
            let wake = self.bookmark.map_or(self.deadline, |b| b.min(self.deadline));
            let feed = self.feed.as_mut()?;
            tokio::select! {
                biased;
                () = self.api.etcd.until_not(self.resource, cache.as_ref()) => {}
                fed = feed.recv(), if cache.is_none() => self.take(fed)?,
                () = tokio::time::sleep_until(wake) => {
                    let now = Instant::now();
                    if now < self.deadline
                        && let Some(line) = self.due_bookmark(now, cache.as_deref())
                        && unresponsive.is_none_or(|with_bookmarks| with_bookmarks) {
                            return Some(Ok(Frame::data(line)));
                        }
                }
            }
        }
    }

    /// Takes in one change of the feed. `None` ends the watch.
    fn take(&mut self, fed: Option<Feed>) -> Option<()> {
        match fed {
            Some(Feed::Change(change)) => self.pending.push_back(Pending::Changed(change)),
            Some(Feed::Expired(oldest)) => {
                self.feed = None;
                self.pending.push_back(Pending::Expired(self.from, oldest));
            }
            // The watch was too slow, or was closed by a fault.
            None => return None,
        }
        Some(())
    }

    /// Returns a bookmark, unless changes are still waiting in the feed: a bookmark must not overtake them.
    fn due_bookmark(&mut self, now: Instant, cache: Option<&Cache>) -> Option<Bytes> {
        self.bookmark = next_bookmark(now, self.deadline);
        let version = cache.map_or_else(|| self.api.store.version(), |cache| cache.version);
        // There can be nothing new since the start, or the start was a version that does not exist yet.
        if version < self.from || (cache.is_some() && version == self.from) {
            return None;
        }
        if cache.is_none() && !self.feed.as_ref()?.is_empty() {
            self.bookmark = Some(now + Duration::from_millis(1));
            return None;
        }
        Some(self.line("BOOKMARK", &bookmark(self.resource, version)))
    }

    fn render(&self, pending: Pending) -> Option<Bytes> {
        match pending {
            Pending::Added(object) => Some(self.line("ADDED", &object.value)),
            Pending::Changed(change) => self.change_line(&change),
            Pending::Expired(asked, oldest) => {
                let message = format!("too old resource version: {asked} ({oldest})");
                let status = ApiStatus::expired(message).json();
                Some(format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into())
            }
        }
    }

    fn change_line(&self, change: &Change) -> Option<Bytes> {
        // If etcd was restored before a server that was cut off saw a change, the server never sees it.
        if change.version <= self.from || change.restores != self.api.store.restores() {
            return None;
        }
        let was = change.old.as_ref().is_some_and(|old| self.selector.matches(old));
        let is = !change.deleted && self.selector.matches(&change.object);
        match (was, is) {
            (false, true) => Some(self.line("ADDED", &change.object.value)),
            (true, true) => Some(self.line("MODIFIED", &change.object.value)),
            (true, false) if change.deleted => Some(self.line("DELETED", &change.object.value)),
            (true, false) => {
                // The selector no longer matches: the old content with the new version, as from the watch cache.
                let mut gone = change.old.as_ref()?.value.clone();
                gone["metadata"]["resourceVersion"] = json!(change.version.to_string());
                Some(self.line("DELETED", &gone))
            }
            (false, false) => None,
        }
    }

    fn line(&self, kind: &str, object: &Value) -> Bytes {
        format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", self.format.render(object)).into()
    }

    fn damaged(&mut self, line: Bytes) -> Bytes {
        match self.api.faults.on_event(&self.request) {
            Some(Effect::Malformed) => {
                Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"Node\",]}\n")
            }
            Some(Effect::CutEvent) => {
                self.broken = true;
                line.slice(..line.len() / 2)
            }
            _ => line,
        }
    }
}

const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// The time between the API server's last bookmark and the end of the watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Returns the time of the next bookmark: after a jittered interval, or shortly before the end.
fn next_bookmark(now: Instant, deadline: Instant) -> Option<Instant> {
    let jittered = BOOKMARK_INTERVAL.mul_f64(1.0 - fastrand::f64() / 50.0);
    let last = deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now)?;
    Some((now + jittered).min(last))
}

/// Returns an object with only a type and a version: no client reads more of a bookmark.
fn bookmark(resource: &Resource, version: u64) -> Value {
    json!({
        "kind": resource.kind, "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": version.to_string()},
    })
}
