//! Watches: a stream of events, one chunk each, flushed as it comes.

use super::bookmark;
use super::operation::Operation;
use super::server::Api;
use crate::counters::Open;
use crate::faults::etcd::{Cache, Caches};
use crate::faults::requests::{Effect, RequestInfo};
use crate::observed::Observer;
use crate::store::object::{Obj, Object, meta_mut, render};
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::store::{Change, Feed, Start, Subscription};
use crate::wire::format::{ObjectFormat, metadata_only};
use crate::wire::options;
use crate::wire::reply::{self, ApiReply, StreamCut};
use crate::wire::request::QueryString;
use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// `--min-request-timeout` in seconds: a watch without a timeout lasts between this time and twice this time.
const DEFAULT_TIMEOUT: u64 = 1_800;
/// The longest timeout in seconds: one year. A larger value could overflow the clock.
const MAX_TIMEOUT: u64 = 31_536_000;

pub(super) fn watch(operation: &Operation<'_>) -> Result<ApiReply, ApiStatus> {
    let (api, resource, query) = (operation.api, operation.resource, operation.query());
    if query.get("sendInitialEvents").is_some() {
        return Err(ApiStatus::no_streaming_lists());
    }
    let mut selector = options::selector(resource, query)?;
    if !operation.target.name.is_empty() {
        selector = selector.named(&operation.target.name);
    }
    let asked = options::version(query)?;
    // Watches without a version, or from 0, start with the current objects.
    let initial = asked == 0;
    let cache = api.etcd.cache(resource);
    let start = start(cache.as_deref(), asked);
    let namespace = operation.target.within();
    let mut watch = Watch::new(operation, selector);
    watch.from = asked;
    if !operation.asked.effects.contains(&Effect::CloseWatch) {
        match api.store.watch(resource, namespace, &watch.selector, start) {
            Ok(mut subscription) => {
                if let Some(cache) = cache {
                    subscription.version = cache.version;
                    if initial {
                        subscription.initial = cache.list(namespace, &watch.selector);
                    }
                }
                if initial {
                    watch.from = subscription.version;
                }
                watch.begin(subscription);
            }
            Err(oldest) => watch.pending.push_back(Pending::Expired(asked, oldest)),
        }
    }
    let events =
        stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (event, watch)) });
    Ok(reply::stream_reply(StreamBody::new(events).boxed_unsync()))
}

/// Returns the start of a watch: in the store, or, if the link to etcd is cut, with the content of the cache.
fn start(cache: Option<&Cache>, asked: u64) -> Start {
    match cache {
        Some(cache) if asked == 0 => Start::After(cache.version),
        None if asked == 0 => Start::Everything,
        _ => Start::After(asked),
    }
}

fn timeout(query: &QueryString) -> Duration {
    match query.number("timeoutSeconds") {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.min(MAX_TIMEOUT)),
        _ => Duration::from_millis(fastrand::u64(DEFAULT_TIMEOUT * 1_000..DEFAULT_TIMEOUT * 2_000)),
    }
}

fn error_event(status: &ApiStatus) -> Bytes {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.json()).into()
}

struct Watch {
    api: Arc<Api>,
    resource: &'static Resource,
    selector: Selector,
    format: ObjectFormat,
    info: RequestInfo,
    from: u64,
    pending: VecDeque<Pending>,
    subscription: Option<Subscription>,
    /// Observes each cut and repair of the link to etcd.
    cuts: Observer<Caches>,
    deadline: Instant,
    bookmark: Option<Instant>,
    bookmarks: bool,
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
    fn new(operation: &Operation<'_>, selector: Selector) -> Self {
        let (api, query) = (operation.api, operation.query());
        let now = Instant::now();
        let deadline = now + timeout(query);
        let bookmarks = query.flag("allowWatchBookmarks");
        let bookmark = bookmarks.then(|| bookmark::next(now, deadline));
        Watch {
            api: api.clone(),
            resource: operation.resource,
            selector,
            format: operation.format,
            info: operation.asked.info(),
            from: 0,
            pending: VecDeque::new(),
            subscription: None,
            cuts: api.etcd.changes(),
            deadline,
            bookmark: bookmark.flatten(),
            bookmarks,
            broken: false,
            _open: api.counters.watch(),
        }
    }

    fn begin(&mut self, mut subscription: Subscription) {
        self.pending.extend(std::mem::take(&mut subscription.initial).into_iter().map(Pending::Added));
        self.pending.extend(std::mem::take(&mut subscription.replay).into_iter().map(Pending::Changed));
        self.subscription = Some(subscription);
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
            let unresponsive = self.api.faults.loses_events(&self.info);
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
            let feed = &mut self.subscription.as_mut()?.feed;
            tokio::select! {
                biased;
                () = self.cuts.changed() => {}
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
                self.subscription = None;
                self.bookmark = None;
                self.pending.push_back(Pending::Expired(self.from, oldest));
            }
            // The watch was too slow, or was closed by a fault.
            Some(Feed::Close) | None => return None,
        }
        Some(())
    }

    /// Returns a bookmark, unless changes are still waiting in the feed: a bookmark must not overtake them.
    fn due_bookmark(&mut self, now: Instant, cache: Option<&Cache>) -> Option<Bytes> {
        self.bookmark = bookmark::next(now, self.deadline);
        let version = cache.map_or_else(|| self.api.store.version(), |cache| cache.version);
        let subscription = self.subscription.as_mut()?;
        // There is nothing new since the start and there can be nothing new, or the start was a version that
        // does not exist yet.
        if version < self.from || (cache.is_some() && version == self.from) {
            return None;
        }
        if cache.is_none() && !subscription.feed.is_empty() {
            self.bookmark = Some(now + Duration::from_millis(1));
            return None;
        }
        self.bookmarks.then(|| self.line("BOOKMARK", &bookmark::object(self.resource, version)))
    }

    fn render(&self, pending: Pending) -> Option<Bytes> {
        match pending {
            Pending::Added(object) => Some(self.line("ADDED", &object)),
            Pending::Changed(change) => self.change_line(&change),
            Pending::Expired(asked, oldest) => Some(error_event(&ApiStatus::expired(format!(
                "too old resource version: {asked} ({oldest})"
            )))),
        }
    }

    /// Returns the event for a change, as this selector sees it.
    fn change_line(&self, change: &Change) -> Option<Bytes> {
        // If etcd was restored before a server that was cut off saw a change, the server never sees it.
        if change.version <= self.from || change.restores != self.api.store.restores() {
            return None;
        }
        let was = change.old.as_ref().is_some_and(|old| self.selector.matches(old));
        let is = !change.deleted && self.selector.matches(&change.object);
        match (was, is) {
            (false, true) => Some(self.line("ADDED", &change.object)),
            (true, true) => Some(self.line("MODIFIED", &change.object)),
            (true, false) if change.deleted => Some(self.line("DELETED", &change.object)),
            (true, false) => {
                // The selector no longer matches: the watch sends the old content with the new version, as
                // the watch cache does.
                let old = change.old.as_ref()?;
                let mut value = old.value.clone();
                let version = Value::String(change.version.to_string());
                meta_mut(&mut value).insert("resourceVersion".to_owned(), version);
                let gone = Object::new(self.resource, old.key.clone(), value);
                Some(self.line("DELETED", &gone))
            }
            (false, false) => None,
        }
    }

    fn line(&self, kind: &str, object: &Obj) -> Bytes {
        let mut out = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
        out.extend(match self.format {
            ObjectFormat::Metadata => render(&metadata_only(&object.value)),
            ObjectFormat::Object => object.full(),
        });
        out.extend_from_slice(b"}\n");
        out.into()
    }

    fn damaged(&mut self, line: Bytes) -> Bytes {
        match self.api.faults.on_event(&self.info) {
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
