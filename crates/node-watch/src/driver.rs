//! Drives [`FreshnessMonitor`]: passes it the time and all events, and executes its actions.

use crate::freshness::{Action, Check, Finding, FreshnessMonitor, Input, NodeVersion, Refusal};
use crate::link::Link;
use crate::node_watch::NodeWatch;
use crate::stream::{NODE, StreamId};
use futures::future::{BoxFuture, FutureExt, select_all};
use http::StatusCode;
use kube::Client;
use kube::api::{GetParams, PartialObjectMeta, Request};
use nodegate_kube_follow::{Connection, FailureReason, Reply, RequestOutcome, WatchObserver, send};
use nodegate_program::OngoingFault;
use nodegate_readiness::Moment;
use nodegate_readiness::liveness::REPORT_EVERY;
use std::fmt::Display;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The driver of the state machine.
pub(crate) struct Driver {
    pub(crate) watch: NodeWatch,
    pub(crate) link: Link,
    state: Mutex<State>,
    /// Wakes the loop for the clock or for the next check.
    wake: Notify,
}

/// The mutable state of the driver.
struct State {
    machine: FreshnessMonitor,
    followers: Vec<FollowerState>,
    /// The next consistency check to send.
    next_check: Option<Check>,
    /// The server of the last request that is neither a list nor a watch.
    server: Option<String>,
    failing: OngoingFault,
}

/// The driver's messages to a follower.
#[derive(Default)]
struct FollowerState {
    retry_after: Option<Duration>,
    /// The server of its last request.
    server: Option<String>,
    /// Tells it to drop its stream, and why.
    replace: watch::Sender<Option<FailureReason>>,
}

/// The result of a consistency check.
type Asked = Result<(Client, NodeVersion, Connection), Failure>;

/// The error of a consistency check.
struct Failure {
    refusal: Refusal,
    retry_after: Option<Duration>,
    error: String,
}

impl Driver {
    pub(crate) fn new(watch: NodeWatch) -> Self {
        let services = watch.board.catalog().services().count();
        let rng = fastrand::Rng::with_seed(fastrand::u64(..));
        let transitions = watch.metrics.transitions.clone();
        let machine = FreshnessMonitor::new(watch.board.policy().stale_after, services, rng, transitions);
        let followers = (0..services + 2).map(|_| FollowerState::default()).collect();
        let (next_check, server, failing) = Default::default();
        let state = State { machine, followers, next_check, server, failing };
        let link = Link::new(watch.connector.clone());
        Self { watch, link, state: Mutex::new(state), wake: Notify::new() }
    }

    /// Ignores poisoning: all values under the lock are replaced whole, so a panic elsewhere leaves them
    /// consistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Moment {
        self.watch.now()
    }

    /// Passes an input to the state machine, and executes its actions.
    pub(crate) fn step(&self, input: Input) {
        self.step_with(input, None);
    }

    /// Passes an input to the state machine, and executes its actions. If it is an answer on a new client, the watches
    /// may move to that; else the client is dropped: it would stay connected beside them.
    fn step_with(&self, input: Input, answered: Option<&Client>) {
        let mut state = self.state();
        let before = state.machine.wake_at();
        let actions = state.machine.step(input, self.now());
        let next = state.machine.wake_at();
        for action in actions {
            if let (Action::MoveToTheAnswer, Some(client)) = (&action, answered) {
                self.link.move_to(client);
            }
            self.act(action, &mut state);
        }
        drop(state);
        // The loop sleeps until the previous wake-up time, or forever.
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.wake.notify_one();
        }
    }

    fn act(&self, action: Action, state: &mut State) {
        match action {
            Action::Prove { at, by_node, services } => {
                let (board, wall) = (&self.watch.board, nodegate_clock::wall());
                board.prove(at);
                // The flip, if this ends a stale cache.
                board.tick(self.now(), wall);
                if !services.is_empty() {
                    board.prove_services(&services, at, self.now(), wall);
                }
                if by_node {
                    self.watch.metrics.node_proved.advance(at);
                }
            }
            Action::LeaseRenewed(at) => self.watch.metrics.lease_renewed.advance(at),
            Action::Check(check) => {
                state.next_check = Some(check);
                self.wake.notify_one();
            }
            Action::Found(Finding::Rewound, node) => tracing::warn!(
                newest = node.version(),
                "the API server's history does not match the watch; relisting"
            ),
            Action::Found(_, node) => tracing::info!(
                newest = node.version(),
                "the watch missed a change that the API server has; replacing the watch"
            ),
            Action::MoveToTheAnswer => {
                tracing::info!(server = state.server, "moving the watches to a new connection");
            }
            Action::Late(after) => {
                let error = format!("no answer within {} s", after.as_secs_f64());
                // The request has not told yet which server it goes to: the one of the watches, as a rule.
                state.server = state.follower(NODE).and_then(|follower| follower.server.clone());
                self.check_fails(state, Refusal::NoUsefulAnswer, &error);
            }
            Action::Replace(stream, why) => {
                if let Some(follower) = state.follower(stream) {
                    follower.replace.send_replace(Some(why));
                }
            }
        }
    }

    // === For followers ===

    /// Records that a follower restarts.
    pub(crate) fn begin(&self, stream: StreamId) {
        // This drops a notification for the previous watch.
        if let Some(follower) = self.state().follower(stream) {
            follower.replace.send_replace(None);
        }
        self.step(Input::Began(stream));
    }

    /// Returns true if this state of the Node, of an event, is older than the cached one, and must be ignored.
    pub(crate) fn is_outdated(&self, node: &NodeVersion) -> bool {
        node.is_before(&self.state().machine.cached)
    }

    /// Waits until the state machine replaces the stream.
    pub(crate) async fn replaced(&self, stream: StreamId) -> FailureReason {
        let replaced = self.state().follower(stream).map(|follower| follower.replace.subscribe());
        let Some(mut replaced) = replaced else { return pending().await };
        let why = replaced.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        why.unwrap_or(FailureReason::Unresponsive)
    }

    /// Records why this API server gives no proof.
    pub(crate) fn trouble(&self, server: Option<&str>, error: &str) {
        let server = server.map_or_else(String::new, |server| format!("{server}: "));
        self.watch.board.set_trouble(format!("{server}{error}"));
    }

    /// Returns the API server of the stream's last request, if there was one, and takes the `Retry-After` of its answer.
    pub(crate) fn last_answer(&self, stream: StreamId) -> (Option<String>, Option<Duration>) {
        let mut state = self.state();
        state.follower(stream).map_or((None, None), |own| (own.server.clone(), own.retry_after.take()))
    }

    // === The consistency check ===

    /// Returns the time that the last answer took, within bounds, and the age of a proof at which the next one is due.
    pub(crate) fn pace(&self) -> (Duration, Duration) {
        self.state().machine.pace()
    }

    /// Sends a consistency check, on the client of the watches or on a new one. An answer that takes longer than
    /// the cache stays fresh proves nothing.
    async fn ask(self: Arc<Self>, check: Check) -> Asked {
        let asked = async {
            let client = self.link.of_check(check.on_a_new_connection, self.clone()).await;
            let client = client.map_err(Failure::no_answer)?;
            let (node, connection) = self.check(&client).await?;
            Ok((client, node, connection))
        };
        let within = self.watch.board.policy().stale_after;
        let late = |_| Failure::no_answer(format_args!("no answer within {} s", within.as_secs_f64()));
        tokio::time::timeout(within, asked).await.map_err(late)?
    }

    /// Sends one metadata-only GET. Without a resourceVersion it is a quorum read: an API server that is cut
    /// off from etcd can't answer it, although it answers many other requests.
    async fn check(&self, client: &Client) -> Result<(NodeVersion, Connection), Failure> {
        let nodes = Request::new("/api/v1/nodes");
        let request = nodes.get_metadata(&self.watch.node_name, &GetParams::default());
        let reply = send(client, request.map_err(Failure::no_answer)?).await.map_err(Failure::no_answer)?;
        let node = match reply.status {
            // A 404 may also mean that the API server knows no Nodes at all; then the list fails with it, too.
            StatusCode::NOT_FOUND => NodeVersion::Absent,
            status if !status.is_success() => return Err(Failure::of(&reply)),
            _ => {
                let found: PartialObjectMeta = serde_json::from_str(&reply.answer.text)
                    .map_err(|error| Failure::no_answer(format_args!("unreadable answer: {error}")))?;
                NodeVersion::present(&found.metadata)
            }
        };
        let connection = reply.connection.ok_or_else(|| Failure::no_answer("from nowhere"))?;
        Ok((node, connection))
    }

    fn conclude(&self, check: Check, asked: Asked) {
        let Check { number, on_a_new_connection } = check;
        if !self.state().machine.waits_for(check) {
            return;
        }
        match asked {
            Ok((client, node, connection)) => {
                self.state().failing.ends(Duration::ZERO);
                let answered = Some(&client).filter(|_| on_a_new_connection);
                self.step_with(Input::Answered { number, node, connection }, answered);
            }
            Err(Failure { refusal, retry_after, error }) => {
                self.check_fails(&mut self.state(), refusal, &error);
                self.step(Input::Unanswered { number, refusal, retry_after });
            }
        }
    }

    /// Records why a check gives no proof, and logs that.
    fn check_fails(&self, state: &mut State, refusal: Refusal, error: &str) {
        self.trouble(state.server.as_deref(), error);
        let unauthorized = refusal == Refusal::Unauthorized;
        let kind = if unauthorized { "unauthorized" } else { "no answer" };
        if !state.failing.should_log(kind, self.now().since(Moment::default())) {
            return;
        }
        let server = &state.server;
        if unauthorized {
            tracing::warn!(server, error, "the API server refuses the credentials; reading them again");
        } else {
            tracing::info!(server, error, "the API server does not answer the consistency check; retrying");
        }
    }
}

impl State {
    fn follower(&mut self, stream: StreamId) -> Option<&mut FollowerState> {
        self.followers.get_mut(stream.0)
    }
}

impl Failure {
    fn no_answer(error: impl Display) -> Self {
        Self { refusal: Refusal::NoUsefulAnswer, retry_after: None, error: error.to_string() }
    }

    /// Converts an answer that is an error. A server that fails may be one of several; all servers refuse the other
    /// requests alike.
    fn of(reply: &Reply) -> Self {
        let refusal = match reply.status {
            StatusCode::TOO_MANY_REQUESTS => Refusal::Throttled,
            StatusCode::UNAUTHORIZED => Refusal::Unauthorized,
            status if status.is_redirection() || status.is_client_error() => Refusal::Refused,
            _ => Refusal::NoUsefulAnswer,
        };
        Self { refusal, retry_after: reply.retry_after, error: reply.refusal() }
    }
}

/// Drives the state machine, forever.
pub(crate) async fn run(driver: Arc<Driver>) {
    let mut checks: Vec<(Check, BoxFuture<'_, Asked>)> = Vec::new();
    loop {
        let now = driver.now();
        driver.watch.liveness.watch.advance(now);
        // Each is dropped without the lock: a request that is given up reports that to the driver.
        checks.retain(|(check, _)| driver.state().machine.waits_for(*check));
        let next = driver.state().next_check.take();
        if let Some(next) = next {
            // Of those on a new client there is one: each has a connection.
            checks.retain(|(other, _)| !(other.on_a_new_connection && next.on_a_new_connection));
            checks.push((next, driver.clone().ask(next).boxed()));
        }
        let wake_at = driver.state().machine.wake_at();
        let pause = wake_at.map_or(REPORT_EVERY, |at| at.since(now)).min(REPORT_EVERY);
        tokio::select! {
            biased;
            (check, asked) = first_of(&mut checks) => driver.conclude(check, asked),
            () = driver.wake.notified() => {}
            () = tokio::time::sleep(pause) => driver.step(Input::Woke { wall: nodegate_clock::wall() }),
            () = driver.link.expired() => driver.step(Input::NewClientDue),
        }
    }
}

/// Waits for the first result of these checks, and takes it.
async fn first_of(checks: &mut Vec<(Check, BoxFuture<'_, Asked>)>) -> (Check, Asked) {
    if checks.is_empty() {
        return pending().await;
    }
    let (asked, index, _) = select_all(checks.iter_mut().map(|(_, check)| check)).await;
    (checks.remove(index).0, asked)
}

impl WatchObserver for Driver {
    fn accepted(&self, stream: StreamId, connection: Connection) {
        self.step(Input::Accepted(stream, connection));
    }

    fn heard(&self, stream: StreamId) {
        self.step(Input::Bytes(stream));
    }

    fn closed(&self, stream: StreamId) {
        self.step(Input::Closed(stream));
    }

    fn answered(&self, answer: &RequestOutcome) {
        self.watch.metrics.request(answer.verb, answer.code);
        let up = answer.code.is_some_and(|code| code < 500);
        self.watch.metrics.server(&answer.server, up);
        let mut state = self.state();
        let server = Some(answer.server.clone());
        let Some(stream) = answer.stream else {
            state.server = server;
            return;
        };
        if let Some(follower) = state.follower(stream) {
            follower.retry_after = answer.retry_after;
            follower.server = server;
        }
        drop(state);
        // The Node's follower itself gets a new client.
        if answer.code == Some(401) && stream != NODE {
            self.step(Input::NewClientDue);
        }
    }
}
