//! The thin driver of [`Freshness`]: brings it the time and what has happened, and does what it says.

use crate::NodeWatch;
use crate::freshness::{ASK_TIMEOUT, Action, Finding, Freshness, Input, NodeState, Refusal, Why};
use crate::stream::{AsQuestion, Stream};
use bytes::Bytes;
use futures::future::{Fuse, FusedFuture, FutureExt};
use http::StatusCode;
use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::api::{GetParams, ListParams, Request};
use kube::core::{ObjectList, PartialObjectMeta};
use nodegate_kube_follow::{Answer, Connection, StaticCredentials, WatchObserver, WatchedNode, retry_after};
use nodegate_readiness::Moment;
use nodegate_readiness::liveness::REPORT_EVERY;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
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
    machine: Mutex<Freshness>,
    followers: Vec<FollowerLine>,
    /// Tells the loop to look at the clock or at the next question.
    wake: Notify,
    /// The question that is to be asked next.
    next_question: Mutex<Option<NextQuestion>>,
    /// The client on which the last question was answered, if it was a new one.
    answered_on: Mutex<Option<Client>>,
    /// Where the Node's watch is to begin anew.
    moves_to: Mutex<Option<Client>>,
    /// Who was asked the last question, and whether those before it were in vain.
    asked: Mutex<String>,
    failing: AtomicBool,
    /// Whether we may list Nodes and not get one.
    may_not_get: AtomicBool,
}

/// What a follower is told.
#[derive(Default)]
struct FollowerLine {
    replace: Notify,
    why: Mutex<Option<Why>>,
    retry_after: Mutex<Option<Duration>>,
    /// Whom its last request went to.
    server: Mutex<String>,
}

#[derive(Clone, Copy)]
struct NextQuestion {
    number: u64,
    on_a_new_connection: bool,
}

/// What became of a question.
type Asked = Result<(Client, NodeState, Connection), Failure>;

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
        let machine = Freshness::new(watch.stale_after, services, rng, transitions);
        Self {
            machine: Mutex::new(machine),
            followers: (0..services + 2).map(|_| FollowerLine::default()).collect(),
            wake: Notify::new(),
            next_question: Mutex::default(),
            answered_on: Mutex::default(),
            moves_to: Mutex::default(),
            asked: Mutex::default(),
            failing: AtomicBool::new(false),
            may_not_get: AtomicBool::new(false),
            watch,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.watch.timeline.at(nodegate_clock::now())
    }

    /// Tells the machine, and does what it says.
    pub(crate) fn step(&self, input: Input) {
        let mut machine = lock(&self.machine);
        let before = machine.wake_at();
        let actions = machine.step(input, self.now());
        let next = machine.wake_at();
        drop(machine);
        for action in actions {
            self.act(action);
        }
        // The loop sleeps until what was next before, or for ever.
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.wake.notify_one();
        }
    }

    fn act(&self, action: Action) {
        match action {
            Action::Prove(at) => self.watch.board.prove(at),
            Action::ProveNode(at) => {
                self.watch.board.prove(at);
                self.watch.metrics.node_proved(at);
            }
            Action::ProveService(index, at) => self.watch.board.prove_service(index, at),
            Action::LeaseRenewed(at) => self.watch.metrics.lease_renewed(at),
            Action::Ask { question: number, on_a_new_connection } => {
                *lock(&self.next_question) = Some(NextQuestion { number, on_a_new_connection });
                self.wake.notify_one();
            }
            Action::Found(Finding::Rewound, node) => tracing::warn!(
                newest = node.version(),
                "the API server's history is not the one that the watch told: beginning anew"
            ),
            Action::Found(_, node) => tracing::info!(
                newest = node.version(),
                "the API server knows of a change that the watch did not tell: replacing it"
            ),
            Action::MoveToTheAnswer => {
                tracing::info!(
                    server = lock(&self.asked).as_str(),
                    "the API server was asked in vain, and answers on a new connection: moving there"
                );
                let client = lock(&self.answered_on).take();
                *lock(&self.moves_to) = client;
            }
            Action::DropTheAnswer => drop(lock(&self.answered_on).take()),
            Action::Replace(stream, why) => {
                if let Some(line) = self.line(stream) {
                    *lock(&line.why) = Some(why);
                    line.replace.notify_one();
                }
            }
        }
    }

    /// A request was answered, or not at all.
    pub(crate) fn answered(&self, answer: &Answer<Stream>) {
        self.watch.metrics.request(answer.verb, answer.code);
        let up = answer.code.is_some_and(|code| code < 500);
        self.watch.metrics.server(&answer.server, &answer.named, up);
        let Some(stream) = answer.stream else {
            lock(&self.asked).clone_from(&answer.server);
            return;
        };
        if let Some(line) = self.line(stream) {
            *lock(&line.retry_after) = answer.retry_after;
            lock(&line.server).clone_from(&answer.server);
        }
        if let (Some(connection), "list") = (answer.connection, answer.verb) {
            self.step(Input::ListAnswered(stream, connection));
        }
    }

    // === What followers ask ===

    /// A follower begins anew.
    pub(crate) fn begin(&self, stream: Stream) {
        // What was meant for the last watch.
        if let Some(line) = self.line(stream) {
            let _ = line.replace.notified().now_or_never();
        }
        self.step(Input::Began(stream));
    }

    /// Waits until the stream is to be dropped, whatever it says itself.
    pub(crate) async fn replaced(&self, stream: Stream) -> Why {
        let Some(line) = self.line(stream) else { return std::future::pending().await };
        line.replace.notified().await;
        lock(&line.why).take().unwrap_or(Why::Deaf)
    }

    /// For how long the last answer wanted no more requests.
    pub(crate) fn retry_after(&self, stream: Stream) -> Option<Duration> {
        lock(&self.line(stream)?.retry_after).take()
    }

    /// Whom the last request of this stream went to.
    pub(crate) fn server(&self, stream: Stream) -> Option<String> {
        self.line(stream).map(|line| lock(&line.server).clone()).filter(|server| !server.is_empty())
    }

    /// The client on whose connection the Node's watch is to begin anew.
    pub(crate) fn take_move(&self) -> Option<Client> {
        lock(&self.moves_to).take()
    }

    fn line(&self, stream: Stream) -> Option<&FollowerLine> {
        self.followers.get(match stream {
            Stream::Node => 0,
            Stream::Lease => 1,
            Stream::Service(index) => index + 2,
        })
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
    async fn question(&self, client: &Client) -> Result<(NodeState, Connection), Failure> {
        let may_not_get = self.may_not_get.load(Ordering::Relaxed);
        let asked = self.ask_for(client, may_not_get).await;
        let Err(Failure { forbidden: true, error, .. }) = &asked else { return asked };
        if self.may_not_get.swap(true, Ordering::Relaxed) {
            return asked;
        }
        tracing::warn!(
            error,
            "not allowed to get the Node; listing it instead when the cache is to be verified"
        );
        self.ask_for(client, true).await
    }

    /// The same as a list of one, which is a quorum read, too: for a role without the verb `get`.
    async fn ask_for(&self, client: &Client, as_list: bool) -> Result<(NodeState, Connection), Failure> {
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
            StatusCode::NOT_FOUND => Ok((NodeState::Absent, connection)),
            status if status.is_success() && as_list => Ok((read_list(&body)?, connection)),
            status if status.is_success() => Ok((read(&body)?, connection)),
            status => Err(Failure::refused(status, retry_after)),
        }
    }

    fn conclude(&self, next: NextQuestion, asked: Asked) {
        let question = next.number;
        match asked {
            Ok((client, node, connection)) => {
                self.failing.store(false, Ordering::Relaxed);
                *lock(&self.answered_on) = next.on_a_new_connection.then_some(client);
                self.step(Input::Answered { question, node, connection });
            }
            Err(failure) => {
                let server = lock(&self.asked).clone();
                if self.failing.swap(true, Ordering::Relaxed) {
                    tracing::debug!(server, error = %failure, "the API server still does not answer whether the cache is current");
                } else {
                    tracing::info!(server, error = %failure, "the API server does not answer whether the cache is current");
                }
                self.step(Input::Unanswered { question, refusal: failure.refusal });
            }
        }
    }
}

/// A 404 may also say that the API server knows no Nodes at all; then so does the list.
fn read(body: &Bytes) -> Result<NodeState, Failure> {
    let node: PartialObjectMeta<WatchedNode> =
        serde_json::from_slice(body).map_err(|error| Failure::unheard(error.to_string()))?;
    Ok(NodeState::present(&node.metadata))
}

/// The first one; there is none of another name.
fn read_list(body: &Bytes) -> Result<NodeState, Failure> {
    let nodes: ObjectList<PartialObjectMeta<WatchedNode>> =
        serde_json::from_slice(body).map_err(|error| Failure::unheard(error.to_string()))?;
    Ok(nodes.items.first().map_or(NodeState::Absent, |node| NodeState::present(&node.metadata)))
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
        let next = lock(&driver.next_question).take();
        if let Some(next) = next {
            let client = shared.borrow().clone();
            question.set(driver.ask(next, client).fuse());
        }
        let wake_at = lock(&driver.machine).wake_at();
        let pause = wake_at.map_or(REPORT_EVERY, |at| at.since(now)).min(REPORT_EVERY);
        tokio::select! {
            biased;
            (next, asked) = &mut question, if !question.is_terminated() => driver.conclude(next, asked),
            () = driver.wake.notified() => {}
            () = tokio::time::sleep(pause) => driver.step(Input::Woke { wall: nodegate_clock::wall() }),
        }
    }
}

/// What is locked is replaced whole, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn answered(&self, answer: &Answer<Stream>) {
        self.0.answered(answer);
    }
}
