//! Follows one list with a reflector, and relists after every fault. The old objects stay until the new list
//! is complete.

use crate::broken_watches::BrokenWatches;
use crate::driver::Driver;
use crate::followed::{Followed, OwnNode};
use crate::freshness::{Input, NodeVersion};
use crate::link::LASTING;
use crate::node_watch::FirstList;
use crate::stream::{LEASE, NODE, StreamId};
use futures::FutureExt;
use kube::runtime::reflector;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use nodegate_kube_follow::{Backoff, FailureReason, Session, SessionEnd, tagged};
use nodegate_program::OngoingFault;
use nodegate_readiness::Moment;
use std::future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::field;

/// The first wait for the head of an answer; it is at least twice what the last check took, and doubles with each list that
/// took longer. The wait for a watch does not double: the cache would be stale before another attempt. A frozen API server
/// accepts connections and never answers, and another one may. One whose cache gets no more changes waits for it for 3 s, and then
/// answers a consistent list from etcd.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
const MAX_ANSWER_TIME: Duration = Duration::from_secs(16);
/// The time that the rest of a list may take.
const REST_OF_LIST: Duration = Duration::from_secs(1);
/// The lifetime of a watch in seconds, after which the server ends it and the agent resumes it. The range is
/// wide so that agents that started together, after an API restart, are spread from the first time on: drawn
/// from 500 to 600, they came at five times the even rate. Other means detect silence, so this may be rare:
/// two watches cost 2.4 to 7.2 requests an hour, as drawn, beside 44 to 45 checks.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 1000..=3000;
/// The wait after a watch of the Lease or of a Service was forbidden. Without the Lease the agent needs more checks;
/// these requests come on top of them.
const FORBIDDEN_WAIT: Duration = Duration::from_mins(10);

/// The time for which an agent that starts without a predecessor keeps its ports closed at most. Until then
/// it waits less between two attempts. Otherwise it might open the ports without data, although the API
/// server has been back for seconds.
const STARTING: Duration = Duration::from_secs(20);
const MAX_WAIT_WHILE_STARTING: Duration = Duration::from_secs(3);

/// Follows the own Node, forever.
pub(crate) async fn node(mut follower: Follower<OwnNode>, no_client: impl Fn()) {
    let driver = follower.driver.clone();
    let link = &driver.link;
    loop {
        let ended = match link.next(driver.clone()).await {
            Ok(client) => {
                let ended = follower.session(client.clone(), future::pending()).await;
                link.ended(client, &ended);
                ended
            }
            Err(error) => {
                no_client();
                SessionEnd::before_it_began(FailureReason::NoClient, error)
            }
        };
        follower.pause_after(&ended).await;
    }
}

/// Returns the wait, give or take a tenth.
pub(crate) fn around(wait: Duration) -> Duration {
    wait.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Follows one list.
pub(crate) struct Follower<F> {
    driver: Arc<Driver>,
    stream: StreamId,
    /// The selection of the objects.
    selected: watcher::Config,
    followed: F,
    /// Dropped when the first list is complete, or can't be had for the time being.
    first_list: Option<FirstList>,
    backoff: Backoff,
    answer_within: Duration,
    failing: OngoingFault,
    broken_watches: BrokenWatches,
}

impl<F: Followed> Follower<F> {
    pub(crate) fn new(
        driver: &Arc<Driver>,
        stream: StreamId,
        selected: watcher::Config,
        followed: F,
        first_list: Option<FirstList>,
    ) -> Self {
        let (driver, answer_within) = (driver.clone(), ANSWER_WITHIN);
        let (backoff, failing, broken_watches) = Default::default();
        Self {
            driver,
            stream,
            selected,
            followed,
            first_list,
            backoff,
            answer_within,
            failing,
            broken_watches,
        }
    }

    /// Follows on the client in use, forever, and moves to each new one.
    pub(crate) async fn follow(mut self) {
        let mut in_use = self.driver.link.in_use();
        loop {
            // The link lives as long as this future, which has the driver.
            let Ok(Some(client)) = in_use.wait_for(Option::is_some).await.map(|client| client.clone()) else {
                return future::pending().await;
            };
            let ended = self.session(client, in_use.changed().map(drop)).await;
            if ended.reason != FailureReason::Moved {
                self.first_list = None;
                self.pause_after(&ended).await;
            }
        }
    }

    /// Counts and logs the end of a session, and waits before the next.
    async fn pause_after(&mut self, ended: &SessionEnd) {
        self.driver.watch.metrics.restart(F::RESOURCE, ended.reason);
        let (now, (took, due_after)) = (self.driver.now(), self.driver.pace());
        let (server, retry_after) = self.driver.last_answer(self.stream);
        let server = server.as_deref();
        if self.broken_watches.ended(ended, now) && self.stream == NODE {
            tracing::warn!(
                error = field::display(&ended.detail),
                server,
                "no watch lasts; listing the Node instead, and rarely trying a watch. A proxy before the API server must \
                 not buffer its answers, and must keep connections that are idle for 70 s"
            );
        }
        let pause = self.broken_watches.pause(now);
        if ended.reason == FailureReason::Relist || !pause.is_zero() {
            self.backoff.reset();
            // Without the Node's watch, the Lease proves nothing.
            let wait = if self.stream == LEASE { pause } else { due_after.saturating_sub(ended.lasted) };
            return tokio::time::sleep(wait).await;
        }
        if self.stream == NODE && !matches!(ended.reason, FailureReason::Unresponsive | FailureReason::Moved)
        {
            self.driver.trouble(server, &ended.detail);
        }
        let is_timeout = ended.reason == FailureReason::Timeout;
        // The wait for an answer that did not come is no success.
        let waited = if is_timeout { self.answer_within.max(took * 2) } else { Duration::ZERO };
        if ended.lasted.saturating_sub(waited) > LASTING {
            self.backoff.reset();
            self.answer_within = ANSWER_WITHIN;
        } else if is_timeout && self.broken_watches.since.is_none() {
            self.answer_within = (self.answer_within * 2).min(MAX_ANSWER_TIME);
        }
        let wait = match ended.reason {
            // The agent works without them.
            FailureReason::Forbidden if self.stream != NODE => around(FORBIDDEN_WAIT),
            // The API server has just answered the check, and each agent sends its check at another time.
            FailureReason::Unresponsive | FailureReason::Moved if ended.lasted > LASTING => Duration::ZERO,
            _ if self.driver.now() < Moment::from_start(STARTING) => {
                self.backoff.wait().min(around(MAX_WAIT_WHILE_STARTING))
            }
            _ => self.backoff.wait(),
        };
        let wait =
            wait.max(retry_after.map_or(Duration::ZERO, |after| Backoff::spread(after, fastrand::f64())));
        self.log(ended, wait, server);
        tokio::time::sleep(wait).await;
    }

    /// Logs a fault: the first of a row, each other kind, because an API server that was restarted may come back
    /// without the agent's rights, and a reminder each minute. The rest are details.
    fn log(&mut self, ended: &SessionEnd, wait: Duration, server: Option<&str>) {
        let (resource, reason, retry_ms) = (F::RESOURCE, ended.reason.to_string(), wait.as_millis());
        // As it is: the API server quotes names in it.
        let error = field::display(&ended.detail);
        let again = if self.failing.is_on() { " again" } else { "" };
        let is_news = self.failing.should_log(&reason, self.driver.now().since(Moment::default()));
        // A fault of the Lease's watch also hits the Node's, whose line is enough.
        if !is_news || (self.stream == LEASE && ended.reason != FailureReason::Forbidden) {
            tracing::debug!(resource, reason, retry_ms, error, server, "watch failed again; retrying");
            return;
        }
        let service = self.followed.service().map(field::display);
        match ended.reason {
            FailureReason::Forbidden => tracing::warn!(resource, service, error, server, "{}", F::FORBIDDEN),
            // They do not pass by themselves.
            FailureReason::Tls | FailureReason::NoClient | FailureReason::Unauthorized => {
                tracing::warn!(resource, reason, retry_ms, error, server, "watch failed{again}; retrying");
            }
            _ => tracing::info!(resource, reason, retry_ms, error, server, "watch failed{again}; retrying"),
        }
    }

    /// Lists and watches until a fault, or until `moved` resolves.
    async fn session(&mut self, client: Client, moved: impl Future<Output = ()>) -> SessionEnd {
        self.driver.begin(self.stream);
        let asked_at = self.driver.now();
        let (pauses, list_done) = (!self.broken_watches.pause(asked_at).is_zero(), Notify::new());
        let watch_within = ANSWER_WITHIN.max(self.driver.pace().0 * 2);
        let within = self.answer_within.max(watch_within);
        let session = Session {
            api: self.followed.api(tagged(client, self.stream, within, watch_within)),
            config: self.selected.clone().timeout(fastrand::u32(WATCH_SECONDS)),
            list_within: within + REST_OF_LIST,
        };
        let driver = self.driver.clone();
        let replaced = driver.replaced(self.stream);
        let stop = async {
            tokio::select! {
                // A replacement also takes the client away. If `moved` came first, the replacement would be
                // reported once more.
                biased;
                why = replaced => {
                    let moved = why == FailureReason::Moved;
                    let why_not = if moved { "the API server answers on another connection" } else { "the watch has missed a change or has gone silent" };
                    (why, why_not.to_owned())
                }
                () = moved => (FailureReason::Moved, String::new()),
                () = list_done.notified(), if pauses => (FailureReason::Relist, String::new()),
            }
        };
        let (store, mut writer) = reflector::store();
        session
            .run(stop, |event: Event<F::Object>| {
                let event = event.modify(|object| {
                    object.meta_mut().managed_fields = None;
                    F::trim(object, &self.driver.watch.node_name);
                });
                self.count(&event);
                if let (NODE, Event::Apply(object) | Event::Delete(object)) = (self.stream, &event) {
                    let node = NodeVersion::present(object.meta());
                    if self.driver.is_outdated(&node) {
                        return self.driver.step(Input::Changed(node));
                    }
                }
                writer.apply_watcher_event(&event);
                let listed = match &event {
                    Event::Init | Event::InitApply(_) => return,
                    Event::InitDone => Some(asked_at),
                    Event::Apply(_) | Event::Delete(_) => None,
                };
                // The facts are stored first, then the proof of them.
                if let Some(input) = self.followed.changed(&self.driver.watch, &store.state(), listed) {
                    self.driver.step(input);
                }
                if listed.is_some() {
                    self.first_list = None;
                    if self.stream == NODE {
                        self.driver.link.connected();
                    }
                    list_done.notify_one();
                }
                let works = self.broken_watches.takes(listed.is_some(), self.driver.now().since(asked_at));
                if works && self.failing.ends(Duration::ZERO).is_some() && self.stream != LEASE {
                    tracing::info!(resource = F::RESOURCE, "watching again");
                }
            })
            .await
    }

    fn count(&self, event: &Event<F::Object>) {
        let kind = match event {
            Event::Init | Event::InitDone => return,
            Event::InitApply(_) => "init",
            Event::Apply(_) => "apply",
            Event::Delete(_) => "delete",
        };
        self.driver.watch.metrics.event(F::RESOURCE, kind, self.driver.watch.timeline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit is 60 with Leases. 45 of them are the most checks of an idle hour.
    #[test]
    fn in_the_worst_draw_an_hour_costs_fewer_than_60_requests() {
        let resumed = 2 * 3600_u32.div_ceil(*WATCH_SECONDS.start());
        assert!(45 + resumed < 60, "{resumed} watches resumed");
    }
}
