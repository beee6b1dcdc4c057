//! Follows one list with a reflector, and relists after every fault. The old objects stay until the new list
//! is complete.

use crate::NodeWatch;
use crate::driver::{Driver, Shared, StreamObserver};
use crate::first_list::FirstList;
use crate::followed::{Followed, OwnLease, OwnNode, Renewed, ServiceSlices};
use crate::freshness::{Input, NodeVersion, Why};
use crate::objects::Watched;
use crate::stream::Stream;
use kube::Client;
use kube::runtime::reflector;
use kube::runtime::watcher::Event;
use nodegate_kube_follow::{Backoff, FailureReason, Session, SessionEnd, StaticCredentials};
use nodegate_readiness::{Moment, ServiceName};
use std::future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;

/// A first list that takes longer is given up; the API server's own limit for it is a minute.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// A session that lived this long was a success, and the next fault starts with a short wait again.
const LASTING: Duration = Duration::from_secs(5);
/// Seconds a watch lives before the server ends it and it is resumed. The range is as wide as it is so that agents that
/// began together, after an API restart, are spread from the first time on: drawn from 500 to 600 they came at five times the
/// even rate. Silence is noticed by other means, so this only has to be rare: two watches cost 2.4 to 7.2 requests an hour, as
/// drawn, beside 44 to 45 questions.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 1000..=3000;
/// How long a forbidden Service is left alone.
const FORBIDDEN_WAIT: Duration = Duration::from_mins(5);
/// The same of a Lease, without which nothing is missing but thrift: these requests come on top of the questions.
const LEASE_FORBIDDEN_WAIT: Duration = Duration::from_mins(10);

/// An agent that starts holds its ports back for so long at the most (`--stale-after`, 20 s): it waits for less between two
/// attempts, or it would open them without an API server that has been back for seconds.
const STARTING: Duration = Duration::from_secs(20);
const LONGEST_WAIT_WHILE_STARTING: Duration = Duration::from_secs(3);

/// An API server that goes on failing may be one of several behind its address: a new connection is tried so often.
const TRY_ANOTHER_EVERY: Duration = Duration::from_mins(1);

/// Follows the own Node, forever, on a client that the others share. It is kept for as long as its server answers, be it with
/// errors: in a storm of them, five thousand agents that came back on new connections would be a storm of their own.
pub(crate) async fn node(
    watch: &NodeWatch,
    driver: Arc<Driver>,
    no_client: impl Fn(),
    first_list: FirstList,
    shared: Sender<Option<Client>>,
) {
    let (first_list, held) = (Some(first_list), NodeVersion::Unknown);
    let node = OwnNode { watch, first_list, held, shared: &shared, connecting: None };
    let mut follower = Follower::new(watch, driver.clone(), node);
    let mut kept = None;
    let mut server_errors = ServerErrors::default();
    loop {
        let observer = StreamObserver(driver.clone());
        let (client, is_new) = match (driver.take_move(), kept.take()) {
            (Some(client), _) => (Ok(client), true),
            (None, Some(client)) => (Ok(client), false),
            (None, None) => (watch.connector.connect::<StaticCredentials>(observer).await, true),
        };
        let ended = match &client {
            Ok(client) => {
                if is_new {
                    follower.followed.connecting = Some(client.clone());
                }
                follower.session(client.clone(), future::pending()).await
            }
            Err(error) => {
                no_client();
                SessionEnd::before_it_began(FailureReason::NoClient, error.to_string())
            }
        };
        // What is refused to the Node's follower may be granted to the others.
        if ended.reason == FailureReason::Forbidden {
            follower.followed.share();
        }
        if server_errors.keep(&ended, driver.now()) {
            kept = client.ok();
        } else {
            // On the old client the others would open a connection of their own.
            shared.send_replace(None);
        }
        follower.rest(&ended).await;
    }
}

/// A tenth less or more.
fn around(wait: Duration) -> Duration {
    wait.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Whether a connection is worth keeping whose server fails.
#[derive(Default)]
struct ServerErrors {
    in_a_row: u32,
    tried_another: Option<Moment>,
}

impl ServerErrors {
    /// Whether the next attempt goes over the same connection.
    fn keep(&mut self, ended: &SessionEnd, now: Moment) -> bool {
        if ended.reason != FailureReason::ServerError || ended.lasted > LASTING {
            *self = Self::default();
        }
        match ended.reason {
            FailureReason::BadRequest
            | FailureReason::Forbidden
            | FailureReason::Expired
            | FailureReason::Throttled
            | FailureReason::Rejected => true,
            // It has just answered the question; but not twice.
            FailureReason::Deaf | FailureReason::Moved => ended.lasted > LASTING,
            FailureReason::ServerError => {
                self.in_a_row += 1;
                let tried = self.tried_another.is_some_and(|at| now.since(at) < TRY_ANOTHER_EVERY);
                let keep = self.in_a_row == 1 || tried;
                if !keep {
                    self.tried_another = Some(now);
                }
                keep
            }
            // A 401 wants fresh credentials, and what is left is no answer.
            _ => false,
        }
    }
}

/// Follows the node's Lease, forever.
pub(crate) async fn lease(watch: &NodeWatch, driver: Arc<Driver>, shared: Shared) {
    Follower::new(watch, driver, OwnLease { watch }).follow(shared).await;
}

/// Follows the `EndpointSlices` of a Service, forever.
pub(crate) async fn service(
    watch: &NodeWatch,
    driver: Arc<Driver>,
    first_list: FirstList,
    shared: Shared,
    (index, name): (usize, &ServiceName),
) {
    let slices = ServiceSlices { watch, index, name, first_list: Some(first_list) };
    Follower::new(watch, driver, slices).follow(shared).await;
}

struct Follower<'a, F> {
    watch: &'a NodeWatch,
    driver: Arc<Driver>,
    stream: Stream,
    followed: F,
    backoff: Backoff,
    /// What has been said of this row of faults.
    told: Vec<FailureReason>,
}

impl<'a, F: Followed> Follower<'a, F> {
    fn new(watch: &'a NodeWatch, driver: Arc<Driver>, followed: F) -> Self {
        let stream = followed.stream();
        Self { watch, driver, stream, followed, backoff: Backoff::new(), told: Vec::new() }
    }

    /// Follows on the shared client, forever, and moves to each new one.
    async fn follow(mut self, mut shared: Shared) {
        loop {
            // The sender lives as long as this: both are parts of one future.
            let Ok(Some(client)) = shared.wait_for(Option::is_some).await.map(|client| client.clone()) else {
                return future::pending().await;
            };
            let moved = async {
                let _ = shared.changed().await;
            };
            let ended = self.session(client, moved).await;
            if ended.reason != FailureReason::Moved {
                self.followed.settled();
                self.rest(&ended).await;
            }
        }
    }

    /// Counts and logs the end of a session, and waits before the next.
    async fn rest(&mut self, ended: &SessionEnd) {
        self.watch.metrics.restart(F::RESOURCE, ended.reason.as_str());
        if ended.lasted > LASTING {
            self.backoff.reset();
        }
        let wait = match ended.reason {
            // The agent works without.
            FailureReason::Forbidden if self.stream == Stream::Lease => around(LEASE_FORBIDDEN_WAIT),
            FailureReason::Forbidden if self.stream != Stream::Node => around(FORBIDDEN_WAIT),
            // The API server has just answered the question, and every agent asks at a time of its own.
            FailureReason::Deaf | FailureReason::Moved if ended.lasted > LASTING => Duration::ZERO,
            _ if self.driver.now() < Moment::from_start(STARTING) => {
                self.backoff.wait().min(around(LONGEST_WAIT_WHILE_STARTING))
            }
            _ => self.backoff.wait(),
        };
        let alone = self.driver.retry_after(self.stream);
        let wait =
            wait.max(alone.map_or(Duration::ZERO, |asked| Backoff::left_alone_for(asked, fastrand::f64())));
        self.log(ended, wait);
        if !self.told.contains(&ended.reason) {
            self.told.push(ended.reason);
        }
        tokio::time::sleep(wait).await;
    }

    /// The first fault of a row is news, and so is each other kind: an API server that was restarted may come back without
    /// our rights. The rest are details.
    fn log(&self, ended: &SessionEnd, wait: Duration) {
        let (resource, reason, retry_ms) = (F::RESOURCE, ended.reason.as_str(), wait.as_millis());
        let (error, server) = (&ended.detail, self.driver.server(self.stream));
        match (self.stream, ended.reason) {
            _ if self.told.contains(&ended.reason) => {
                tracing::debug!(resource, reason, retry_ms, error, server, "watch failed again; retrying");
            }
            (Stream::Service(index), FailureReason::Forbidden) => {
                let service = self.watch.board.catalog().services().nth(index);
                tracing::warn!(
                    service = service.map(tracing::field::display),
                    error,
                    "not allowed to watch the Service's EndpointSlices; its check uses the last known \
                     state, or passes. The rights are in manifests/components/services"
                );
            }
            (Stream::Lease, FailureReason::Forbidden) => tracing::warn!(
                error,
                "not allowed to watch the node's Lease; continuing without it, with more requests"
            ),
            // What befalls the Lease befalls the Node, whose line is enough.
            (Stream::Lease, _) => {
                tracing::debug!(resource, reason, retry_ms, error, server, "watch failed again; retrying");
            }
            _ if self.told.is_empty() => {
                tracing::info!(resource, reason, retry_ms, error, server, "watch failed; retrying");
            }
            _ => tracing::info!(
                resource,
                reason,
                retry_ms,
                error,
                server,
                "watch failed for another reason; retrying"
            ),
        }
    }

    /// Lists and watches until something goes wrong, or `moved` is done.
    async fn session(&mut self, client: Client, moved: impl Future<Output = ()>) -> SessionEnd {
        self.driver.begin(self.stream);
        let asked_at = self.driver.now();
        let session = Session {
            api: self.followed.api(client),
            config: self.followed.selected().timeout(fastrand::u32(WATCH_SECONDS)),
            list_within: SYNC_TIMEOUT,
        };
        let driver = self.driver.clone();
        let replaced = driver.replaced(self.stream);
        let stop = async {
            tokio::select! {
                // A replacement also takes the client away; whoever saw that first would be told of the replacement once more.
                biased;
                why = replaced => match why {
                    Why::Deaf => (FailureReason::Deaf, "the watch has missed a change or has gone silent".to_owned()),
                    Why::Moved => (FailureReason::Moved, "the API server answers on another connection".to_owned()),
                },
                () = moved => (FailureReason::Moved, String::new()),
            }
        };
        let (store, mut writer) = reflector::store();
        session
            .run(stop, |event: Event<F::Object>| {
                let event = event.modify(|object| object.trim(&self.watch.node_name));
                self.count(&event);
                if let Event::Apply(object) | Event::Delete(object) = &event
                    && let Some(outdated) = self.followed.outdated(object)
                {
                    return self.driver.step(Input::Changed(outdated));
                }
                writer.apply_watcher_event(&event);
                // The truth first, and then that it may be believed.
                let node = match &event {
                    Event::Init | Event::InitApply(_) => return,
                    Event::Apply(_) | Event::Delete(_) | Event::InitDone => {
                        self.followed.changed(&store.state())
                    }
                };
                if let Event::Apply(object) = &event
                    && let Some(Renewed { at, every }) = F::renewed(object)
                {
                    self.driver.step(Input::Renewed { at, every, wall: nodegate_clock::wall() });
                }
                let listed = matches!(event, Event::InitDone);
                match (node, self.stream) {
                    (Some(node), _) if listed => self.driver.step(Input::Listed { asked_at, node }),
                    (Some(node), _) => self.driver.step(Input::Changed(node)),
                    (None, Stream::Service(index)) if listed => {
                        self.driver.step(Input::ServiceListed { index, asked_at });
                    }
                    (None, _) => {}
                }
                if listed {
                    self.followed.settled();
                    self.watching_again();
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
        self.watch.metrics.event(F::RESOURCE, kind, self.watch.timeline);
    }

    fn watching_again(&mut self) {
        if self.told.is_empty() {
            return;
        }
        self.told.clear();
        let resource = F::RESOURCE;
        if self.stream == Stream::Lease {
            tracing::debug!(resource, "watching again");
        } else {
            tracing::info!(resource, "watching again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the connection is kept after each of these, that many seconds after the first.
    fn kept(ends: &[(u64, FailureReason)]) -> Vec<bool> {
        let mut errors = ServerErrors::default();
        let keep = |(seconds, reason): &(u64, FailureReason)| {
            let ended = SessionEnd { reason: *reason, detail: String::new(), lasted: Duration::ZERO };
            errors.keep(&ended, Moment::from_start(Duration::from_secs(1000 + seconds)))
        };
        ends.iter().map(keep).collect()
    }

    /// The bound is 60 with Leases. 45 of them are the most questions of an idle hour (`freshness::tests::world`).
    #[test]
    fn in_the_worst_draw_an_hour_costs_fewer_than_60_requests() {
        let resumed = 2 * 3600_u32.div_ceil(*WATCH_SECONDS.start());
        assert!(45 + resumed < 60, "{resumed} watches resumed");
    }

    #[test]
    fn an_answer_keeps_the_connection_and_silence_does_not() {
        for reason in [
            FailureReason::Forbidden,
            FailureReason::Expired,
            FailureReason::Throttled,
            FailureReason::BadRequest,
        ] {
            assert_eq!(kept(&[(0, reason), (1, reason), (300, reason)]), [true; 3], "{reason:?}");
        }
        for reason in [
            FailureReason::Timeout,
            FailureReason::Disconnected,
            FailureReason::Malformed,
            FailureReason::Unauthorized,
        ] {
            assert_eq!(kept(&[(0, reason)]), [false], "{reason:?}");
        }
    }

    #[test]
    fn a_server_that_goes_on_failing_is_not_the_only_one_tried() {
        let failing = [0, 1, 5, 60, 62, 70, 130].map(|at| (at, FailureReason::ServerError));
        assert_eq!(kept(&failing), [true, false, true, true, false, true, false]);
        let interrupted =
            [(0, FailureReason::ServerError), (1, FailureReason::Throttled), (2, FailureReason::ServerError)];
        assert_eq!(kept(&interrupted), [true; 3]);
    }
}
