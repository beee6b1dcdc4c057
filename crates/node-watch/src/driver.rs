//! Drives [`FreshnessMonitor`]: passes it the time and all events, and executes its actions.

use crate::freshness::{Action, Finding, FreshnessMonitor, Input, NodeVersion, Refusal};
use crate::link::Link;
use crate::node_watch::NodeWatch;
use crate::stream::Stream;
use futures::future::{BoxFuture, FutureExt, select_all};
use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{GetParams, ListParams, Request};
use nodegate_kube_follow::{Connection, FailureReason, Reply, RequestOutcome, StreamId, WatchObserver, send};
use nodegate_program::Episode;
use nodegate_readiness::Moment;
use nodegate_readiness::liveness::REPORT_EVERY;
use serde::Deserialize;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The most checks without an answer. Of those on a new client there is one: each has a connection.
const MAX_CHECKS: usize = 3;

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
    followers: Vec<FollowerLine>,
    /// The next consistency check to send.
    next_check: Option<NextCheck>,
    /// The number of the last check whose answer no longer counts.
    abandoned: u64,
    /// The server of the last single request.
    server: String,
    failing: Episode,
    /// True if the agent may list Nodes, but not get one.
    may_not_get: bool,
}

/// The driver's messages to a follower.
#[derive(Default)]
struct FollowerLine {
    retry_after: Option<Duration>,
    /// The server of its last request.
    server: String,
    /// Tells it to drop its stream, and why.
    replace: watch::Sender<Option<FailureReason>>,
}

#[derive(Clone, Copy)]
struct NextCheck {
    number: u64,
    on_a_new_connection: bool,
}

/// The result of a consistency check.
type Asked = Result<(Client, NodeVersion, Connection), Failure>;

/// The error of a consistency check.
struct Failure {
    refusal: Refusal,
    error: String,
}

impl Driver {
    pub(crate) fn new(watch: NodeWatch) -> Self {
        let services = watch.board.catalog().services().count();
        let rng = fastrand::Rng::with_seed(fastrand::u64(..));
        let transitions = watch.metrics.transitions();
        let machine = FreshnessMonitor::new(watch.board.policy().stale_after, services, rng, transitions);
        let state = State {
            machine,
            followers: (0..services + 2).map(|_| FollowerLine::default()).collect(),
            next_check: None,
            abandoned: 0,
            server: String::new(),
            failing: Episode::default(),
            may_not_get: false,
        };
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
        let mut state = self.state();
        let before = state.machine.wake_at();
        let actions = state.machine.step(input, self.now());
        let next = state.machine.wake_at();
        let mut unused = None;
        for action in actions {
            unused = self.act(action, &mut state).or(unused);
        }
        if !state.machine.is_awaiting_watch() {
            unused = unused.or_else(|| self.link.unneeded());
        }
        // A dropped client may close connections, and report that here.
        drop(state);
        drop(unused);
        // The loop sleeps until the previous wake-up time, or forever.
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.wake.notify_one();
        }
    }

    /// Records proof, and the flip if it ends a stale cache.
    fn prove(&self, at: Moment) {
        self.watch.board.prove(at);
        self.watch.board.tick(self.now(), nodegate_clock::wall());
    }

    /// Executes an action; returns a client that is no longer needed.
    fn act(&self, action: Action, state: &mut State) -> Option<Client> {
        match action {
            Action::Prove(at) => self.prove(at),
            Action::ProveNode(at) => {
                self.prove(at);
                self.watch.metrics.node_proved.advance(at);
            }
            Action::ProveServices(indices, at) => {
                self.watch.board.prove_services(&indices, at, self.now(), nodegate_clock::wall());
            }
            Action::LeaseRenewed(at) => self.watch.metrics.lease_renewed.advance(at),
            Action::Check { number, on_a_new_connection } => {
                state.next_check = Some(NextCheck { number, on_a_new_connection });
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
                return self.link.move_to_the_answer();
            }
            Action::Abandon(number) => state.abandoned = number,
            Action::Late(after) => {
                let error = format!("no answer within {} s", after.as_secs_f64());
                // The request has not told yet which server it goes to: the one of the watches, as a rule.
                let watched = state.line(Stream::Node).map(|line| line.server.clone());
                state.server = watched.unwrap_or_default();
                self.check_fails(state, Refusal::NoAnswer { retry_after: None }, &error);
            }
            Action::Replace(stream, why) => {
                if let Some(line) = state.line(stream) {
                    line.replace.send_replace(Some(why));
                }
            }
        }
        None
    }

    // === For followers ===

    /// Records that a follower restarts.
    pub(crate) fn begin(&self, stream: Stream) {
        // This drops a notification for the previous watch.
        if let Some(line) = self.state().line(stream) {
            line.replace.send_replace(None);
        }
        self.step(Input::Began(stream));
    }

    /// Waits until the state machine replaces the stream.
    pub(crate) async fn replaced(&self, stream: Stream) -> FailureReason {
        let replaced = self.state().line(stream).map(|line| line.replace.subscribe());
        let Some(mut replaced) = replaced else { return pending().await };
        let why = replaced.wait_for(Option::is_some).await.ok().and_then(|why| *why);
        why.unwrap_or(FailureReason::Unresponsive)
    }

    /// Records why this API server gives no proof.
    pub(crate) fn trouble(&self, server: Option<String>, error: &str) {
        let server = server.map_or_else(String::new, |server| format!("{server}: "));
        self.watch.board.set_trouble(format!("{server}{error}"));
    }

    /// Takes the `Retry-After` of the stream's last answer.
    pub(crate) fn retry_after(&self, stream: Stream) -> Option<Duration> {
        self.state().line(stream)?.retry_after.take()
    }

    /// Returns the API server that received this stream's last request, or `None` before the first one.
    pub(crate) fn server(&self, stream: Stream) -> Option<String> {
        self.state().line(stream).map(|line| line.server.clone()).filter(|server| !server.is_empty())
    }

    // === The consistency check ===

    /// Returns the time that the last answer took, within bounds, and the age of a proof at which the next one is due.
    pub(crate) fn pace(&self) -> (Duration, Duration) {
        self.state().machine.pace()
    }

    /// Sends a consistency check, on the client of the watches or on a new one. An answer that takes longer than
    /// the cache stays fresh proves nothing.
    async fn ask(self: Arc<Self>, next: NextCheck) -> Asked {
        let asked = async {
            let in_use = self.link.in_use().borrow().clone().filter(|_| !next.on_a_new_connection);
            let client = if let Some(client) = in_use {
                client
            } else {
                let client = self.link.connect(self.clone()).await;
                client.map_err(|error| Failure::no_answer(error.to_string()))?
            };
            let (node, connection) = self.check(&client).await?;
            Ok((client, node, connection))
        };
        let within = self.watch.board.policy().stale_after;
        let late = |_| Failure::no_answer(format!("no answer within {} s", within.as_secs_f64()));
        tokio::time::timeout(within, asked).await.map_err(late)?
    }

    /// Sends one metadata-only GET. Without a resourceVersion it is a quorum read: an API server that is cut
    /// off from etcd can't answer it, although it answers many other requests.
    async fn check(&self, client: &Client) -> Result<(NodeVersion, Connection), Failure> {
        let may_not_get = self.state().may_not_get;
        let reply = self.ask_for(client, may_not_get).await?;
        if reply.status != StatusCode::FORBIDDEN || std::mem::replace(&mut self.state().may_not_get, true) {
            return judge(&reply);
        }
        let error = reply.refusal();
        tracing::warn!(error, "not allowed to get the Node; listing it instead for consistency checks");
        judge(&self.ask_for(client, true).await?)
    }

    /// Sends the GET or a list of one, which is a quorum read, too, for a role without the verb `get`.
    async fn ask_for(&self, client: &Client, as_list: bool) -> Result<Reply, Failure> {
        let (nodes, name) = (Request::new("/api/v1/nodes"), &self.watch.node_name);
        let request = if as_list {
            nodes.list_metadata(&ListParams::default().fields(&format!("metadata.name={name}")))
        } else {
            nodes.get_metadata(name, &GetParams::default())
        };
        let request = request.map_err(|error| Failure::no_answer(error.to_string()))?;
        send(client, request).await.map_err(|error| Failure::no_answer(error.to_string()))
    }

    fn conclude(&self, next: NextCheck, asked: Asked) {
        let number = next.number;
        if number <= self.state().abandoned {
            return;
        }
        match asked {
            Ok((client, node, connection)) => {
                self.state().failing.ends(Duration::ZERO);
                if next.on_a_new_connection {
                    self.link.answered(client);
                }
                self.step(Input::Answered { number, node, connection });
            }
            Err(failure) => {
                self.check_fails(&mut self.state(), failure.refusal, &failure.error);
                self.step(Input::Unanswered { number, refusal: failure.refusal });
            }
        }
    }

    /// Records why a check gives no proof, and logs that.
    fn check_fails(&self, state: &mut State, refusal: Refusal, error: &str) {
        self.trouble(Some(state.server.clone()).filter(|server| !server.is_empty()), error);
        let unauthorized = refusal == Refusal::Unauthorized;
        let kind = if unauthorized { "unauthorized" } else { "no answer" };
        if !state.failing.lasts(kind, self.now().since(Moment::default())) {
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

/// The part of an answer that tells the Node's state, of the Node itself or of a list of one.
#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    metadata: ObjectMeta,
    items: Option<Vec<Found>>,
}

/// Returns the state of the Node in an answer.
fn judge(reply: &Reply) -> Result<(NodeVersion, Connection), Failure> {
    let node = match reply.status {
        // A 404 may also mean that the API server knows no Nodes at all; then the list fails with it, too.
        StatusCode::NOT_FOUND => NodeVersion::Absent,
        status if !status.is_success() => return Err(Failure::of(reply)),
        _ => {
            let found: Found = serde_json::from_str(&reply.answer.text)
                .map_err(|error| Failure::no_answer(format!("unreadable answer: {error}")))?;
            let node =
                found.items.map_or(Some(found.metadata), |items| Some(items.into_iter().next()?.metadata));
            node.map_or(NodeVersion::Absent, |meta| NodeVersion::present(&meta))
        }
    };
    let connection = reply.connection.ok_or_else(|| Failure::no_answer("from nowhere".to_owned()))?;
    Ok((node, connection))
}

impl State {
    fn line(&mut self, stream: Stream) -> Option<&mut FollowerLine> {
        self.followers.get_mut(StreamId::from(stream).0)
    }
}

impl Failure {
    fn no_answer(error: String) -> Self {
        Self { refusal: Refusal::NoAnswer { retry_after: None }, error }
    }

    /// Converts an answer that is an error. A server that fails may be one of several; all servers refuse the other
    /// requests alike.
    fn of(reply: &Reply) -> Self {
        let retry_after = reply.retry_after;
        let refusal = match reply.status {
            StatusCode::TOO_MANY_REQUESTS => Refusal::Throttled { retry_after },
            StatusCode::UNAUTHORIZED => Refusal::Unauthorized,
            status if status.is_redirection() || status.is_client_error() => {
                Refusal::Answered { retry_after }
            }
            _ => Refusal::NoAnswer { retry_after },
        };
        Self { refusal, error: reply.refusal() }
    }
}

/// Drives the state machine, forever.
pub(crate) async fn run(driver: Arc<Driver>) {
    let mut checks: Vec<(NextCheck, BoxFuture<'_, Asked>)> = Vec::new();
    loop {
        let now = driver.now();
        driver.watch.liveness.watch.advance(now);
        if driver.link.must_be_replaced() {
            driver.step(Input::NewClientDue);
        }
        // It is taken first: in the condition itself the lock would be held through the block.
        let (next, abandoned) = {
            let mut state = driver.state();
            (state.next_check.take(), state.abandoned)
        };
        checks.retain(|(check, _)| check.number > abandoned);
        if let Some(next) = next {
            checks.retain(|(other, _)| !(other.on_a_new_connection && next.on_a_new_connection));
            if checks.len() == MAX_CHECKS {
                drop(checks.remove(0));
            }
            checks.push((next, driver.clone().ask(next).boxed()));
        }
        let wake_at = driver.state().machine.wake_at();
        let pause = wake_at.map_or(REPORT_EVERY, |at| at.since(now)).min(REPORT_EVERY);
        let expires = driver.link.expires().unwrap_or_else(|| Instant::now() + REPORT_EVERY);
        tokio::select! {
            biased;
            (next, asked) = first_of(&mut checks) => driver.conclude(next, asked),
            () = driver.wake.notified() => {}
            () = tokio::time::sleep(pause) => driver.step(Input::Woke { wall: nodegate_clock::wall() }),
            () = tokio::time::sleep_until(expires) => {}
        }
    }
}

/// Waits for the first result of these checks, and takes it.
async fn first_of(checks: &mut Vec<(NextCheck, BoxFuture<'_, Asked>)>) -> (NextCheck, Asked) {
    if checks.is_empty() {
        return pending().await;
    }
    let (asked, index, _) = select_all(checks.iter_mut().map(|(_, check)| check)).await;
    (checks.remove(index).0, asked)
}

impl WatchObserver for Driver {
    fn accepted(&self, stream: StreamId, connection: Connection) {
        self.step(Input::Accepted(stream.into(), connection));
    }

    fn heard(&self, stream: StreamId) {
        self.step(Input::Bytes(stream.into()));
    }

    fn closed(&self, stream: StreamId) {
        self.step(Input::Closed(stream.into()));
    }

    fn answered(&self, answer: &RequestOutcome) {
        self.watch.metrics.request(answer.verb, answer.code);
        let up = answer.code.is_some_and(|code| code < 500);
        self.watch.metrics.server(&answer.server, up);
        let mut state = self.state();
        let Some(stream) = answer.stream else {
            return state.server.clone_from(&answer.server);
        };
        if let Some(line) = state.line(stream.into()) {
            line.retry_after = answer.retry_after;
            line.server.clone_from(&answer.server);
        }
        drop(state);
        // The Node's follower itself gets a new client.
        if answer.code == Some(401) && Stream::from(stream) != Stream::Node {
            self.step(Input::NewClientDue);
        }
    }
}
