//! Watches: a stream of events, one chunk each, flushed as it comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use tokio::time::Instant;

use super::read::reach;
use super::{Api, Asked, bookmark};
use crate::counters::WatchGuard;
use crate::faults::etcd::Caches;
use crate::faults::requests::{Effect, RequestInfo};
use crate::kubectl::table::{self, Include};
use crate::store::object::{Obj, Object, meta_mut, render};
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::Status;
use crate::store::{Change, Feed, Start, Subscription};
use crate::wire::format::{Format, metadata_only};
use crate::wire::options;
use crate::wire::reply::{self, Cut, Reply};
use crate::wire::request::{Query, Target};

/// `--min-request-timeout`: a watch without a timeout lasts this long to twice as long.
const DEFAULT_TIMEOUT: u64 = 1_800;
/// A year is for ever; more would overflow the clock.
const MAX_TIMEOUT: u64 = 31_536_000;

/// Starts a watch.
pub(super) async fn watch(
    api: &Arc<Api>,
    request: &Asked,
    resource: &'static Resource,
    target: &Target,
    format: Format,
) -> Result<Reply, Status> {
    let query = &request.query;
    options::check_watch(query)?;
    let mut selector = options::selector(resource, query)?;
    if !target.name.is_empty() {
        selector = selector.named(&target.name);
    }
    let asked = options::version(query)?;
    // Watches without a version, or from 0, begin with what there is, as `sendInitialEvents` asks for.
    let initial = match query.get("sendInitialEvents") {
        Some(_) => query.flag("sendInitialEvents"),
        None => asked == 0,
    };
    let cache = api.etcd.cache(resource);
    let start = match &cache {
        // Whoever wants to begin with what etcd holds now waits until the end.
        Some(_) if query.flag("sendInitialEvents") && query.text("resourceVersion").is_empty() => {
            tokio::time::sleep(timeout(query)).await;
            let status = Status::failure(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "context deadline exceeded",
            );
            return Ok(reply::stream_reply(reply::chunks(vec![error_event(&status)])));
        }
        Some(cache) if initial => {
            cache.reach(asked).await?;
            Start::After(cache.version)
        }
        None if initial => {
            reach(api, asked).await?;
            Start::Everything
        }
        Some(cache) if asked == 0 => Start::After(cache.version),
        None if asked == 0 => Start::After(api.store.version()),
        _ => Start::After(asked),
    };
    let namespace = target.within();
    let mut watch = Watch::new(api, request, resource, selector, format);
    watch.from = if initial { 0 } else { asked };
    if !request.effects.contains(&Effect::CloseWatch) {
        match api.store.watch(resource, namespace, &watch.selector, start) {
            Ok(mut subscription) => {
                if let Some(cache) = cache {
                    watch.held = cache.hold_back(&mut subscription);
                    if initial {
                        subscription.initial = cache.list(namespace, &watch.selector);
                    }
                }
                watch.begin(subscription, initial && watch.bookmarks);
            }
            Err(oldest) => watch.pending.push_back(Pending::Line(too_old(asked, oldest))),
        }
    }
    let events =
        stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (event, watch)) });
    Ok(reply::stream_reply(StreamBody::new(events).boxed_unsync()))
}

/// How long a watch lasts at most.
fn timeout(query: &Query) -> Duration {
    match query.number("timeoutSeconds") {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.min(MAX_TIMEOUT)),
        _ => Duration::from_millis(fastrand::u64(DEFAULT_TIMEOUT * 1_000..DEFAULT_TIMEOUT * 2_000)),
    }
}

fn too_old(asked: u64, oldest: u64) -> Bytes {
    let status = Status::expired(format!("too old resource version: {asked} ({oldest})"));
    error_event(&status)
}

fn error_event(status: &Status) -> Bytes {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.json()).into()
}

#[allow(clippy::struct_excessive_bools, reason = "each is one answer to a query parameter")]
struct Watch {
    api: Arc<Api>,
    resource: &'static Resource,
    selector: Selector,
    format: Format,
    info: RequestInfo,
    include: Include,
    from: u64,
    pending: VecDeque<Pending>,
    subscription: Option<Subscription>,
    /// Changes that the cut link to etcd holds back; later ones wait in the feed.
    held: VecDeque<Arc<Change>>,
    cuts: tokio::sync::watch::Receiver<Caches>,
    deadline: Instant,
    bookmark: Option<Instant>,
    bookmarks: bool,
    columns_sent: bool,
    cut: bool,
    _open: WatchGuard,
}

/// What is still to be said. Objects are rendered when their turn comes: a list may be 100 MB.
enum Pending {
    Added(Obj),
    Line(Bytes),
}

type Event = Result<Frame<Bytes>, Cut>;

impl Watch {
    /// One that has nothing to say yet.
    fn new(
        api: &Arc<Api>,
        request: &Asked,
        resource: &'static Resource,
        selector: Selector,
        format: Format,
    ) -> Self {
        let query = &request.query;
        let now = Instant::now();
        let deadline = now + timeout(query);
        let bookmarks = query.flag("allowWatchBookmarks");
        Watch {
            api: api.clone(),
            resource,
            selector,
            format,
            info: request.info(),
            include: Include::of(query),
            from: 0,
            pending: VecDeque::new(),
            subscription: None,
            held: VecDeque::new(),
            cuts: api.etcd.changes(),
            deadline,
            bookmark: bookmarks
                .then(|| bookmark::next(api.settings.bookmark_interval, now, deadline))
                .flatten(),
            bookmarks,
            columns_sent: false,
            cut: false,
            _open: api.counters.watch(),
        }
    }

    fn begin(&mut self, mut subscription: Subscription, mark_end: bool) {
        for object in std::mem::take(&mut subscription.initial) {
            self.pending.push_back(Pending::Added(object));
        }
        if mark_end {
            let line = self.bookmark_line(subscription.version, true);
            self.pending.push_back(Pending::Line(line));
        }
        for change in std::mem::take(&mut subscription.replay) {
            if let Some(line) = self.change_line(&change) {
                self.pending.push_back(Pending::Line(line));
            }
        }
        self.subscription = Some(subscription);
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.cut {
                return Some(Err(Cut));
            }
            // Also while there is always something to say.
            if Instant::now() >= self.deadline {
                return None;
            }
            let deaf = self.api.faults.deaf(&self.info);
            let cut = self.api.etcd.cache(self.resource).is_some();
            while let Some(change) = self.held.pop_front_if(|_| !cut) {
                let line = self.change_line(&change);
                self.pending.extend(line.map(Pending::Line));
            }
            if let Some(pending) = self.pending.pop_front() {
                // A deaf watch loses what it should have said, as one that was silently dropped does.
                if deaf.is_some() {
                    continue;
                }
                let line = match pending {
                    Pending::Added(object) => self.line("ADDED", &object),
                    Pending::Line(line) => line,
                };
                return Some(Ok(Frame::data(self.spoil(line))));
            }
            let wake = self.bookmark.map_or(self.deadline, |b| b.min(self.deadline));
            let feed = &mut self.subscription.as_mut()?.feed;
            tokio::select! {
                biased;
                _ = self.cuts.changed() => {}
                fed = feed.recv(), if !cut => self.take(fed)?,
                () = tokio::time::sleep_until(wake) => {
                    let now = Instant::now();
                    if now < self.deadline
                        && let Some(line) = self.due_bookmark(now)
                        && deaf.is_none_or(|with_bookmarks| with_bookmarks) {
                            return Some(Ok(Frame::data(line)));
                        }
                }
            }
        }
    }

    /// Takes in what the watch was fed. `None` if that ends it.
    fn take(&mut self, fed: Option<Feed>) -> Option<()> {
        let line = match fed {
            Some(Feed::Change(change)) => self.change_line(&change),
            Some(Feed::Expired(oldest)) => {
                self.subscription = None;
                self.bookmark = None;
                Some(too_old(self.from, oldest))
            }
            // Too slow, or told to close.
            Some(Feed::Close) | None => return None,
        };
        self.pending.extend(line.map(Pending::Line));
        Some(())
    }

    /// A bookmark, unless changes are still waiting in the feed: it must not overtake them.
    fn due_bookmark(&mut self, now: Instant) -> Option<Bytes> {
        self.bookmark = bookmark::next(self.api.settings.bookmark_interval, now, self.deadline);
        let cache = self.api.etcd.cache(self.resource);
        let version = cache.as_ref().map_or_else(|| self.api.store.version(), |cache| cache.version);
        let subscription = self.subscription.as_mut()?;
        if cache.is_none() && !subscription.feed.is_empty() {
            self.bookmark = Some(now + Duration::from_millis(1));
            return None;
        }
        self.bookmarks.then(|| self.bookmark_line(version, false))
    }

    /// The event for a change, as this selector sees it.
    fn change_line(&mut self, change: &Arc<Change>) -> Option<Bytes> {
        if change.version <= self.from {
            return None;
        }
        let was = change.old.as_ref().is_some_and(|old| self.selector.matches(old));
        let is = !change.deleted && self.selector.matches(&change.object);
        match (was, is) {
            (false, true) => Some(self.line("ADDED", &change.object)),
            (true, true) => Some(self.line("MODIFIED", &change.object)),
            (true, false) if change.deleted => Some(self.line("DELETED", &change.object)),
            (true, false) => {
                // No longer selected: the old content under the new version, as the watch cache sends it.
                let old = change.old.as_ref()?;
                let mut value = old.value.clone();
                let version = Value::String(change.version.to_string());
                meta_mut(&mut value).insert("resourceVersion".to_owned(), version);
                let gone = Object::new(self.resource, old.key.clone(), change.version, value);
                Some(self.line("DELETED", &gone))
            }
            (false, false) => None,
        }
    }

    fn line(&mut self, kind: &str, object: &Obj) -> Bytes {
        let mut out = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
        match self.format {
            Format::Object => {
                out.extend(object.type_prefix());
                out.extend_from_slice(&object.rest());
            }
            Format::Metadata => out.extend_from_slice(&render(&metadata_only(&object.value))),
            Format::Table => {
                out.extend(table::head(self.resource, object.version, None, !self.columns_sent));
                out.extend(table::row(object, self.include));
                out.extend_from_slice(b"]}");
                self.columns_sent = true;
            }
        }
        out.extend_from_slice(b"}\n");
        out.into()
    }

    fn bookmark_line(&mut self, version: u64, end: bool) -> Bytes {
        self.line("BOOKMARK", &bookmark::object(self.resource, version, end))
    }

    /// What the fault switches make of a line.
    fn spoil(&mut self, line: Bytes) -> Bytes {
        match self.api.faults.on_event(&self.info) {
            Some(Effect::Malformed) => {
                Bytes::from_static(b"{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"Node\",]}\n")
            }
            Some(Effect::CutEvent) => {
                self.cut = true;
                line.slice(..line.len() / 2)
            }
            _ => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::auth::Tokens;
    use crate::api::{Anonymous, Settings};
    use crate::counters::{Counters, Kind};
    use crate::store::limits::Limits;
    use crate::store::object::Key;
    use crate::store::resource::nodes;
    use crate::store::{Edit, Store};
    use crate::wire::request::Route;
    use serde_json::json;

    fn api() -> Arc<Api> {
        let settings = Settings {
            bookmark_interval: Duration::from_mins(1),
            anonymous: Anonymous::Refused,
            lifecycle: false,
        };
        Arc::new(Api {
            store: Arc::new(Store::new(Limits::default())),
            tokens: Arc::new(Tokens::new()),
            faults: Arc::default(),
            counters: Arc::new(Counters::default()),
            etcd: Arc::default(),
            settings,
            flow: (String::new(), String::new()),
        })
    }

    #[tokio::test]
    async fn a_busy_watch_ends_in_time() {
        let api = api();
        let request = Asked {
            method: http::Method::GET,
            route: Route::parse("/api/v1/nodes"),
            query: Query::parse("watch=1&timeoutSeconds=1"),
            headers: http::HeaderMap::new(),
            kind: Kind::default(),
            effects: Vec::new(),
        };
        let began = Instant::now();
        let reply = watch(&api, &request, nodes(), &Target::default(), Format::Object).await;
        let mut body = reply.expect("a watch").into_body();
        loop {
            // Whenever the watch looks, there is something new.
            let node = json!({"metadata": {"name": "a"}});
            api.store.write(nodes(), &Key::new("", "a"), |_| Ok(Edit::Put(node))).expect("stored");
            if body.frame().await.is_none() {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it goes on for ever");
        }
        assert!(began.elapsed() >= Duration::from_secs(1));
    }
}
