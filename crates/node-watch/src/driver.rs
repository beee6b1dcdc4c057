//! Drives [`FreshnessMonitor`]: passes it the time and all events, and executes its actions.

use crate::NodeWatch;
use crate::freshness::{
    Action, CHECK_TIMEOUT, Finding, FreshnessMonitor, Input, NodeVersion, Refusal, ReplacementReason,
};
use crate::stream::Stream;
use futures::future::{Fuse, FusedFuture, FutureExt};
use http::StatusCode;
use kube::api::ListParams;
use kube::{Api, Client};
use nodegate_kube_follow::{Connection, RequestOutcome, StreamId, WatchObserver, WatchedNode};
use nodegate_readiness::Moment;
use nodegate_readiness::liveness::REPORT_EVERY;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;

/// The client of the Node's watch, which the other watches share.
pub(crate) type Shared = Receiver<Option<Client>>;

/// The driver of the state machine.
pub(crate) struct Driver {
    watch: NodeWatch,
    state: Mutex<State>,
    /// Wakes the loop for the clock or for the next check.
    wake: Notify,
    /// Tells each follower to drop its stream.
    replace: Vec<Notify>,
}

/// The mutable state of the driver.
struct State {
    machine: FreshnessMonitor,
    followers: Vec<FollowerLine>,
    /// The next consistency check to send.
    next_check: Option<NextCheck>,
    /// The client that got the last answer to a check, if it was a new one.
    answered_on: Option<Client>,
    /// The client for the next watch of the Node.
    moves_to: Option<Client>,
    /// The outcome of the last check.
    outcome: RequestOutcome,
    /// True if the last check was not answered.
    failing: bool,
    /// True if the agent may list Nodes, but not get one.
    may_not_get: bool,
}

/// The driver's messages to a follower.
#[derive(Default)]
struct FollowerLine {
    why: Option<ReplacementReason>,
    retry_after: Option<Duration>,
    /// The server of its last request.
    server: String,
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
            answered_on: None,
            moves_to: None,
            outcome: RequestOutcome::default(),
            failing: false,
            may_not_get: false,
        };
        let replace = (0..services + 2).map(|_| Notify::new()).collect();
        Self { watch, state: Mutex::new(state), wake: Notify::new(), replace }
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
                tracing::info!(
                    server = state.outcome.server,
                    "the API server answered only on a new connection; moving the watches to it"
                );
                let answered_on = state.answered_on.take();
                return std::mem::replace(&mut state.moves_to, answered_on);
            }
            Action::DropTheAnswer => return state.answered_on.take(),
            Action::Replace(stream, why) => {
                if let Some(line) = state.line(stream) {
                    line.why = Some(why);
                }
                if let Some(replace) = self.replace.get(index(stream)) {
                    replace.notify_one();
                }
            }
        }
        None
    }

    // === For followers ===

    /// Records that a follower restarts.
    pub(crate) fn begin(&self, stream: Stream) {
        // This drops a notification for the previous watch.
        if let Some(replace) = self.replace.get(index(stream)) {
            let _ = replace.notified().now_or_never();
        }
        self.step(Input::Began(stream));
    }

    /// Waits until the state machine replaces the stream.
    pub(crate) async fn replaced(&self, stream: Stream) -> ReplacementReason {
        let Some(replace) = self.replace.get(index(stream)) else { return std::future::pending().await };
        replace.notified().await;
        self.state().line(stream).and_then(|line| line.why.take()).unwrap_or(ReplacementReason::Unresponsive)
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

    /// Takes the client whose connection the next watch of the Node must use.
    pub(crate) fn take_move(&self) -> Option<Client> {
        self.state().moves_to.take()
    }

    // === The consistency check ===

    /// Sends a consistency check, on the client of the watches or on a new one.
    async fn ask(self: &Arc<Self>, next: NextCheck, shared: Option<Client>) -> (NextCheck, Asked) {
        let connect = || self.watch.connector.connect(self.clone());
        let asked = async {
            let client = match shared.filter(|_| !next.on_a_new_connection) {
                Some(client) => client,
                None => connect().await.map_err(|error| Failure::no_answer(error.to_string()))?,
            };
            let (node, connection) = self.check(&client).await?;
            Ok((client, node, connection))
        };
        let late = || Err(Failure::no_answer(format!("no answer within {} s", CHECK_TIMEOUT.as_secs_f64())));
        let asked = tokio::time::timeout(CHECK_TIMEOUT, asked).await.unwrap_or_else(|_| late());
        (next, asked)
    }

    /// Sends one metadata-only GET. Without a resourceVersion it is a quorum read: an API server that is cut
    /// off from etcd can't answer it, although it answers many other requests.
    async fn check(&self, client: &Client) -> Result<(NodeVersion, Connection), Failure> {
        let may_not_get = self.state().may_not_get;
        let asked = self.ask_for(client, may_not_get).await;
        let Err(Failure { error, .. }) = &asked else { return asked };
        let forbidden = self.state().outcome.code == Some(StatusCode::FORBIDDEN.as_u16());
        if !forbidden || std::mem::replace(&mut self.state().may_not_get, true) {
            return asked;
        }
        tracing::warn!(error, "not allowed to get the Node; listing it instead for consistency checks");
        self.ask_for(client, true).await
    }

    /// Sends the GET or a list of one, which is a quorum read, too, for a role without the verb `get`.
    async fn ask_for(&self, client: &Client, as_list: bool) -> Result<(NodeVersion, Connection), Failure> {
        self.state().outcome = RequestOutcome::default();
        let (api, name) = (Api::<WatchedNode>::all(client.clone()), &self.watch.node_name);
        let read = if as_list {
            let one = ListParams::default().fields(&format!("metadata.name={name}"));
            api.list_metadata(&one).await.map(|nodes| nodes.items.into_iter().next())
        } else {
            api.get_metadata(name).await.map(Some)
        };
        let outcome = self.state().outcome.clone();
        let node = match (read, outcome.code) {
            (Ok(Some(node)), _) => NodeVersion::present(&node.metadata),
            // A 404 may also mean that the API server knows no Nodes at all; then the list fails with it, too.
            (Ok(None), _) | (Err(_), Some(404)) => NodeVersion::Absent,
            (Err(error), _) => return Err(Failure::of(&error, &outcome)),
        };
        let connection = outcome.connection.ok_or_else(|| Failure::no_answer("from nowhere".to_owned()))?;
        Ok((node, connection))
    }

    fn conclude(&self, next: NextCheck, asked: Asked) {
        let number = next.number;
        match asked {
            Ok((client, node, connection)) => {
                let mut state = self.state();
                state.failing = false;
                let unused =
                    std::mem::replace(&mut state.answered_on, next.on_a_new_connection.then_some(client));
                drop(state);
                drop(unused);
                self.step(Input::Answered { number, node, connection });
            }
            Err(failure) => {
                let mut state = self.state();
                let failing = std::mem::replace(&mut state.failing, true);
                let server = state.outcome.server.clone();
                drop(state);
                self.trouble((!server.is_empty()).then(|| server.clone()), &failure.error);
                if !failing {
                    tracing::info!(
                        server,
                        error = failure.error,
                        "the API server does not answer the consistency check; retrying"
                    );
                }
                self.step(Input::Unanswered { number, refusal: failure.refusal });
            }
        }
    }
}

impl State {
    fn line(&mut self, stream: Stream) -> Option<&mut FollowerLine> {
        self.followers.get_mut(index(stream))
    }
}

/// Returns the index of a stream among all streams.
fn index(stream: Stream) -> usize {
    StreamId::from(stream).0
}

impl Failure {
    fn no_answer(error: String) -> Self {
        Self { refusal: Refusal::NoAnswer { retry_after: None }, error }
    }

    /// Converts an error. A server that fails may be one of several; all servers refuse the other requests
    /// alike.
    fn of(error: &kube::Error, outcome: &RequestOutcome) -> Self {
        let retry_after = outcome.retry_after;
        let status = outcome.code.and_then(|code| StatusCode::from_u16(code).ok());
        let refusal = match status {
            Some(StatusCode::TOO_MANY_REQUESTS) => Refusal::Throttled { retry_after },
            Some(status) if status.is_redirection() || status.is_client_error() => {
                Refusal::Answered { retry_after }
            }
            _ => Refusal::NoAnswer { retry_after },
        };
        let status = status.filter(|status| !status.is_success());
        let error = status.map_or_else(|| nodegate_kube_follow::detail(error), |status| status.to_string());
        Self { refusal, error }
    }
}

/// Drives the state machine, forever.
pub(crate) async fn run(driver: Arc<Driver>, shared: Shared) {
    let mut check = pin!(Fuse::terminated());
    loop {
        let now = driver.now();
        driver.watch.liveness.watch.advance(now);
        // It is taken first: in the condition itself the lock would be held through the block.
        let next = driver.state().next_check.take();
        if let Some(next) = next {
            let client = shared.borrow().clone();
            check.set(driver.ask(next, client).fuse());
        }
        let wake_at = driver.state().machine.wake_at();
        let pause = wake_at.map_or(REPORT_EVERY, |at| at.since(now)).min(REPORT_EVERY);
        tokio::select! {
            biased;
            (next, asked) = &mut check, if !check.is_terminated() => driver.conclude(next, asked),
            () = driver.wake.notified() => {}
            () = tokio::time::sleep(pause) => driver.step(Input::Woke { wall: nodegate_clock::wall() }),
        }
    }
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
        self.watch.metrics.server(&answer.server, &answer.named, up);
        let mut state = self.state();
        match answer.stream {
            None => state.outcome = answer.clone(),
            Some(stream) => {
                if let Some(line) = state.line(stream.into()) {
                    line.retry_after = answer.retry_after;
                    line.server.clone_from(&answer.server);
                }
            }
        }
    }
}
