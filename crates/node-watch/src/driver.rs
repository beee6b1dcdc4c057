//! Drives [`FreshnessMonitor`]: passes it the time and all events, and executes its actions.

use crate::NodeWatch;
use crate::freshness::{ASK_TIMEOUT, Action, Finding, FreshnessMonitor, Input, NodeVersion, Refusal, Why};
use crate::stream::{AsQuestion, Stream};
use bytes::Bytes;
use futures::future::{Fuse, FusedFuture, FutureExt};
use http::StatusCode;
use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::api::{GetParams, ListParams, Request};
use kube::core::{ObjectList, PartialObjectMeta};
use nodegate_kube_follow::{
    Connection, RequestOutcome, StaticCredentials, WatchObserver, WatchedNode, retry_after,
};
use nodegate_readiness::Moment;
use nodegate_readiness::liveness::REPORT_EVERY;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;

/// The client of the Node's watch, which the others use, too.
pub(crate) type Shared = Receiver<Option<Client>>;

/// A Node's metadata is some 10 kB; annotations may make it 256 kB.
const LONGEST_ANSWER: usize = 1 << 20;

/// Between the state machine and the world.
pub(crate) struct Driver {
    watch: NodeWatch,
    state: Mutex<State>,
    /// Tells the loop to look at the clock or at the next question.
    wake: Notify,
    /// Tells each follower to drop its stream.
    replace: Vec<Notify>,
}

/// All that changes.
struct State {
    machine: FreshnessMonitor,
    followers: Vec<FollowerLine>,
    /// The question that is to be asked next.
    next_question: Option<NextQuestion>,
    /// The client on which the last question was answered, if it was a new one.
    answered_on: Option<Client>,
    /// Where the Node's watch is to begin anew.
    moves_to: Option<Client>,
    /// The server of the last question.
    asked: String,
    /// Whether the last question was not answered.
    failing: bool,
    /// Whether we may list Nodes and not get one.
    may_not_get: bool,
}

/// What a follower is told.
#[derive(Default)]
struct FollowerLine {
    why: Option<Why>,
    retry_after: Option<Duration>,
    /// The server of its last request.
    server: String,
}

#[derive(Clone, Copy)]
struct NextQuestion {
    number: u64,
    on_a_new_connection: bool,
}

/// What became of a question.
type Asked = Result<(Client, NodeVersion, Connection), Failure>;

/// Why it has no answer that would help.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct Failure {
    refusal: Refusal,
    /// Whether it is for want of a right.
    forbidden: bool,
    error: String,
}

impl Driver {
    pub(crate) fn new(watch: NodeWatch) -> Self {
        let services = watch.board.catalog().services().count();
        let rng = fastrand::Rng::with_seed(fastrand::u64(..));
        let transitions = watch.metrics.transitions();
        let machine = FreshnessMonitor::new(watch.stale_after, services, rng, transitions);
        let state = State {
            machine,
            followers: (0..services + 2).map(|_| FollowerLine::default()).collect(),
            next_question: None,
            answered_on: None,
            moves_to: None,
            asked: String::new(),
            failing: false,
            may_not_get: false,
        };
        let replace = (0..services + 2).map(|_| Notify::new()).collect();
        Self { watch, state: Mutex::new(state), wake: Notify::new(), replace }
    }

    /// What is locked is replaced whole, so a panic elsewhere leaves nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Moment {
        self.watch.timeline.at(nodegate_clock::now())
    }

    /// Tells the machine, and does what it says.
    pub(crate) fn step(&self, input: Input) {
        let mut state = self.state();
        let before = state.machine.wake_at();
        let actions = state.machine.step(input, self.now());
        let next = state.machine.wake_at();
        let mut unused = None;
        for action in actions {
            unused = self.act(action, &mut state).or(unused);
        }
        // A client may close connections when it is dropped, and say so here.
        drop(state);
        drop(unused);
        // The loop sleeps until what was next before, or for ever.
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.wake.notify_one();
        }
    }

    /// Does what the machine says; returns a client that nobody needs any longer.
    fn act(&self, action: Action, state: &mut State) -> Option<Client> {
        match action {
            Action::Prove(at) => self.watch.board.prove(at),
            Action::ProveNode(at) => {
                self.watch.board.prove(at);
                self.watch.metrics.node_proved(at);
            }
            Action::FollowService(index) => {
                self.watch.board.follow_service(index, self.now(), nodegate_clock::wall());
            }
            Action::LoseService(index, at) => {
                self.watch.board.lose_service(index, at, self.now(), nodegate_clock::wall());
            }
            Action::LeaseRenewed(at) => self.watch.metrics.lease_renewed(at),
            Action::Ask { question: number, on_a_new_connection } => {
                state.next_question = Some(NextQuestion { number, on_a_new_connection });
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
                    server = state.asked,
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
                if let Some(replace) = self.replace.get(stream.index()) {
                    replace.notify_one();
                }
            }
        }
        None
    }

    /// A request was answered, or not at all.
    pub(crate) fn answered(&self, answer: &RequestOutcome<Stream>) {
        self.watch.metrics.request(answer.verb, answer.code);
        let up = answer.code.is_some_and(|code| code < 500);
        self.watch.metrics.server(&answer.server, &answer.named, up);
        let Some(stream) = answer.stream else {
            self.state().asked.clone_from(&answer.server);
            return;
        };
        if let Some(line) = self.state().line(stream) {
            line.retry_after = answer.retry_after;
            line.server.clone_from(&answer.server);
        }
    }

    // === What followers ask ===

    /// A follower begins anew.
    pub(crate) fn begin(&self, stream: Stream) {
        // What was meant for the last watch.
        if let Some(replace) = self.replace.get(stream.index()) {
            let _ = replace.notified().now_or_never();
        }
        self.step(Input::Began(stream));
    }

    /// Waits until the stream is to be dropped, whatever it says itself.
    pub(crate) async fn replaced(&self, stream: Stream) -> Why {
        let Some(replace) = self.replace.get(stream.index()) else { return std::future::pending().await };
        replace.notified().await;
        self.state().line(stream).and_then(|line| line.why.take()).unwrap_or(Why::Deaf)
    }

    /// For how long the last answer wanted no more requests.
    pub(crate) fn retry_after(&self, stream: Stream) -> Option<Duration> {
        self.state().line(stream)?.retry_after.take()
    }

    /// Returns the API server that received this stream's last request, or `None` before the first one.
    pub(crate) fn server(&self, stream: Stream) -> Option<String> {
        self.state().line(stream).map(|line| line.server.clone()).filter(|server| !server.is_empty())
    }

    /// The client on whose connection the Node's watch is to begin anew.
    pub(crate) fn take_move(&self) -> Option<Client> {
        self.state().moves_to.take()
    }

    // === The question ===

    /// Asks, on the client of the watches or on a new one.
    async fn ask(self: &Arc<Self>, next: NextQuestion, shared: Option<Client>) -> (NextQuestion, Asked) {
        let asked = async {
            let client = match shared.filter(|_| !next.on_a_new_connection) {
                Some(client) => client,
                None => self.connect().await?,
            };
            let (node, connection) = self.question(&client).await?;
            Ok((client, node, connection))
        };
        let late = || Err(Failure::unheard(format!("no answer within {} s", ASK_TIMEOUT.as_secs_f64())));
        let asked = tokio::time::timeout(ASK_TIMEOUT, asked).await.unwrap_or_else(|_| late());
        (next, asked)
    }

    async fn connect(self: &Arc<Self>) -> Result<Client, Failure> {
        let observer = StreamObserver(self.clone());
        let client = self.watch.connector.connect::<StaticCredentials>(observer).await;
        client.map_err(|error| Failure::unheard(error.to_string()))
    }

    /// One metadata-only GET. Without a resourceVersion it is a quorum read: an API server that is cut off from etcd can't
    /// answer it, though it answers much else.
    async fn question(&self, client: &Client) -> Result<(NodeVersion, Connection), Failure> {
        let may_not_get = self.state().may_not_get;
        let asked = self.ask_for(client, may_not_get).await;
        let Err(Failure { forbidden: true, error, .. }) = &asked else { return asked };
        if std::mem::replace(&mut self.state().may_not_get, true) {
            return asked;
        }
        tracing::warn!(error, "not allowed to get the Node; listing it instead for consistency checks");
        self.ask_for(client, true).await
    }

    /// The same as a list of one, which is a quorum read, too: for a role without the verb `get`.
    async fn ask_for(&self, client: &Client, as_list: bool) -> Result<(NodeVersion, Connection), Failure> {
        let request = Request::new(<WatchedNode as kube::Resource>::url_path(&(), None));
        let name = &self.watch.node_name;
        let request = if as_list {
            request.list_metadata(&ListParams::default().fields(&format!("metadata.name={name}")))
        } else {
            request.get_metadata(name, &GetParams::default())
        };
        let mut request = request.map_err(Failure::of)?.map(kube::client::Body::from);
        request.extensions_mut().insert(AsQuestion);
        let response = client.send(request).await.map_err(Failure::of)?;
        let connection = response.extensions().get::<Connection>().copied();
        let connection = connection.ok_or_else(|| Failure::unheard("from nowhere".to_owned()))?;
        let (status, retry_after) = (response.status(), retry_after(response.headers()));
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| Failure::unheard(error.to_string()))?.to_bytes();
        match status {
            StatusCode::NOT_FOUND => Ok((NodeVersion::Absent, connection)),
            status if status.is_success() && as_list => Ok((read_list(&body)?, connection)),
            status if status.is_success() => Ok((read(&body)?, connection)),
            status => Err(Failure::refused(status, retry_after)),
        }
    }

    fn conclude(&self, next: NextQuestion, asked: Asked) {
        let question = next.number;
        match asked {
            Ok((client, node, connection)) => {
                let mut state = self.state();
                state.failing = false;
                let unused =
                    std::mem::replace(&mut state.answered_on, next.on_a_new_connection.then_some(client));
                drop(state);
                drop(unused);
                self.step(Input::Answered { question, node, connection });
            }
            Err(failure) => {
                let mut state = self.state();
                let (server, failing) = (state.asked.clone(), std::mem::replace(&mut state.failing, true));
                drop(state);
                if failing {
                    tracing::debug!(
                        server,
                        error = %failure,
                        "the API server still does not answer the consistency check"
                    );
                } else {
                    tracing::info!(
                        server,
                        error = %failure,
                        "the API server does not answer the consistency check; retrying"
                    );
                }
                self.step(Input::Unanswered { question, refusal: failure.refusal });
            }
        }
    }
}

impl State {
    fn line(&mut self, stream: Stream) -> Option<&mut FollowerLine> {
        self.followers.get_mut(stream.index())
    }
}

/// A 404 may also say that the API server knows no Nodes at all; then so does the list.
fn read(body: &Bytes) -> Result<NodeVersion, Failure> {
    let node: PartialObjectMeta<WatchedNode> =
        serde_json::from_slice(body).map_err(|error| Failure::unheard(error.to_string()))?;
    Ok(NodeVersion::present(&node.metadata))
}

/// The first one; there is none of another name.
fn read_list(body: &Bytes) -> Result<NodeVersion, Failure> {
    let nodes: ObjectList<PartialObjectMeta<WatchedNode>> =
        serde_json::from_slice(body).map_err(|error| Failure::unheard(error.to_string()))?;
    Ok(nodes.items.first().map_or(NodeVersion::Absent, |node| NodeVersion::present(&node.metadata)))
}

impl Failure {
    fn unheard(error: String) -> Self {
        Self { refusal: Refusal::Unheard { retry_after: None }, forbidden: false, error }
    }

    fn of(error: impl std::error::Error) -> Self {
        Self::unheard(nodegate_kube_follow::detail(&error))
    }

    /// A server that fails is one of several, maybe; what others refuse all do.
    fn refused(status: StatusCode, retry_after: Option<Duration>) -> Self {
        let refusal = match status {
            StatusCode::TOO_MANY_REQUESTS => Refusal::Throttled { retry_after },
            status if status.is_server_error() => Refusal::Unheard { retry_after },
            _ => Refusal::Answered { retry_after },
        };
        Self { refusal, forbidden: status == StatusCode::FORBIDDEN, error: status.to_string() }
    }
}

/// Drives the machine, forever.
pub(crate) async fn run(driver: Arc<Driver>, shared: Shared) {
    let mut question = pin!(Fuse::terminated());
    loop {
        let now = driver.now();
        driver.watch.liveness.report_watch(now);
        // Taken first: in the condition itself the lock would be held through the block.
        let next = driver.state().next_question.take();
        if let Some(next) = next {
            let client = shared.borrow().clone();
            question.set(driver.ask(next, client).fuse());
        }
        let wake_at = driver.state().machine.wake_at();
        let pause = wake_at.map_or(REPORT_EVERY, |at| at.since(now)).min(REPORT_EVERY);
        tokio::select! {
            biased;
            (next, asked) = &mut question, if !question.is_terminated() => driver.conclude(next, asked),
            () = driver.wake.notified() => {}
            () = tokio::time::sleep(pause) => driver.step(Input::Woke { wall: nodegate_clock::wall() }),
        }
    }
}

/// Told of the traffic of the agent's clients; tells the driver.
#[derive(Clone)]
pub(crate) struct StreamObserver(pub(crate) Arc<Driver>);

impl WatchObserver for StreamObserver {
    type Stream = Stream;

    fn stream(&self, request: &Parts) -> Option<Stream> {
        Stream::of(request)
    }

    fn accepted(&self, stream: Stream, connection: Connection) {
        self.0.step(Input::Accepted(stream, connection));
    }

    fn heard(&self, stream: Stream) {
        self.0.step(Input::Bytes(stream));
    }

    fn closed(&self, stream: Stream) {
        self.0.step(Input::Closed(stream));
    }

    fn answered(&self, answer: &RequestOutcome<Stream>) {
        self.0.answered(answer);
    }
}
