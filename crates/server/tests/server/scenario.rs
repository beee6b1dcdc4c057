//! A running server with a board in a chosen state, and a client that speaks bytes.

use nodegate_readiness::check::NODE_READY;
use nodegate_readiness::{
    Board, Catalog, Condition, ConditionStatus, Liveness, LocalCheck, LocalResult, Moment, Node, NodeFacts,
    Outcome, Policy, StartMode, Timeline,
};
use nodegate_server::prometheus_client::registry::Registry;
use nodegate_server::{
    Activate, App, AppParts, Limits, Metrics, PodSettings, PortSharing, ProberSettings, ServeOptions, bind,
};
use nodegate_testbed::{ProbeReply, http, until};
use std::future::ready as ready_at_once;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// The age of the timeline when a test begins.
const PAST: Duration = Duration::from_hours(1);

pub(crate) fn facts(ready: ConditionStatus, reason: &str) -> NodeFacts {
    let condition = Condition { kind: "Ready".to_owned(), status: ready, reason: reason.to_owned() };
    NodeFacts { conditions: vec![condition], ..NodeFacts::default() }
}

pub(crate) fn ready() -> NodeFacts {
    facts(ConditionStatus::True, "KubeletReady")
}

pub(crate) fn cordoned() -> NodeFacts {
    NodeFacts { unschedulable: true, ..ready() }
}

pub(crate) struct Scenario {
    pub(crate) node_name: Option<&'static str>,
    pub(crate) node: Node,
    /// The time since the last freshness proof.
    pub(crate) proof: Duration,
    /// The time since the loops last reported that they are alive.
    pub(crate) loops: Duration,
    pub(crate) local: Vec<&'static str>,
    pub(crate) activate: Activate,
    /// The watched Services with their local endpoints.
    pub(crate) services: Vec<(&'static str, usize)>,
    /// The maximum age of the big answers: zero, so that tests need not wait for them.
    pub(crate) render_every: Duration,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            node_name: Some("node-a"),
            node: Node::Present(ready()),
            proof: Duration::ZERO,
            loops: Duration::ZERO,
            local: Vec::new(),
            activate: Arc::new(|_| Box::pin(ready_at_once(()))),
            services: Vec::new(),
            render_every: Duration::ZERO,
        }
    }
}

impl Scenario {
    /// Returns the board and the app of an agent without sockets.
    pub(crate) fn build(self) -> (Arc<Board>, Arc<App>) {
        let timeline = Timeline::new(nodegate_clock::now().checked_sub(PAST).unwrap());
        let now = timeline.at(nodegate_clock::now());
        let ago = |age: Duration| Moment::from_start(now.since(Moment::default()).saturating_sub(age));
        let timeout = Duration::from_secs(5);
        let local = self
            .local
            .iter()
            .map(|name| LocalCheck { name: (*name).to_owned(), timeout, begins: StartMode::OnDemand })
            .collect();
        let names = self.services.iter().map(|(name, _)| name.parse().unwrap());
        let catalog = Catalog::new(local).with_services(names.collect());
        let default = [catalog.find(NODE_READY).unwrap()];
        let metrics = Arc::new(Metrics::default());
        let hook = Arc::clone(&metrics);
        let name = self.node_name.map(str::to_owned);
        let board = Arc::new(Board::new(name, Policy::default(), catalog, &default));
        let _ = board.on_flip.set(Box::new(move |flip| hook.flip(flip)));
        board.prove(ago(self.proof));
        board.set_node(self.node, now, nodegate_clock::wall());
        for (index, (_, local_endpoints)) in self.services.into_iter().enumerate() {
            board.set_service(index, local_endpoints, now, nodegate_clock::wall());
            // The Service is as fresh as the Node for as long as any test takes.
            let proved = now.plus(Duration::from_hours(1));
            board.prove_services(&[index], proved, now, nodegate_clock::wall());
        }
        board.open(now, nodegate_clock::wall());
        let liveness = Arc::new(Liveness::new(Moment::default()));
        liveness.watch.advance(ago(self.loops));
        liveness.timers.advance(ago(self.loops));
        let app = App::new(AppParts {
            board: Arc::clone(&board),
            timeline,
            liveness,
            activate: self.activate,
            metrics,
            registry: Registry::default(),
            probers: ProberSettings::default(),
            pods: PodSettings::default(),
        });
        app.render_every(self.render_every);
        (board, Arc::new(app))
    }

    pub(crate) fn serve(self) -> Running {
        self.serve_within(Limits::default())
    }

    pub(crate) fn serve_within(self, limits: Limits) -> Running {
        self.start(limits, false)
    }

    pub(crate) fn serve_agent_check(self) -> Running {
        self.start(Limits::default(), true)
    }

    fn start(self, limits: Limits, of_agent_checks: bool) -> Running {
        let (board, app) = self.build();
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into(), PortSharing::WithSuccessor).unwrap();
        let address = listener.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = Arc::clone(&app);
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
            let stop = async { drop(stopped.await) };
            let options = ServeOptions { limits, ..ServeOptions::default() };
            let ended = if of_agent_checks {
                runtime.block_on(nodegate_server::serve_agent_check(listener, served, options, stop))
            } else {
                runtime.block_on(nodegate_server::serve(listener, served, options, None, stop))
            };
            ended.unwrap();
        });
        Running { board, app, address, stop: Some(stop), thread: Some(thread) }
    }
}

pub(crate) struct Running {
    pub(crate) board: Arc<Board>,
    pub(crate) app: Arc<App>,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn now(&self) -> Moment {
        self.app.now()
    }

    /// Returns each prober's probe request, and the number of its probes.
    pub(crate) fn probers(&self) -> Vec<(String, u32)> {
        let probers = self.app.status(self.now()).probers.into_iter();
        probers.map(|prober| (prober.request, prober.asked)).collect()
    }

    pub(crate) fn set_node(&self, facts: NodeFacts) {
        self.board.prove(self.now());
        self.board.set_node(Node::Present(facts), self.now(), nodegate_clock::wall());
    }

    pub(crate) fn connect(&self) -> Client {
        Client(http::connect(self.address).unwrap())
    }

    /// Sends these bytes on a new connection.
    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) -> Client {
        let mut client = self.connect();
        client.send(bytes);
        client
    }

    pub(crate) fn get(&self, target: &str) -> ProbeReply {
        self.request("GET", target)
    }

    pub(crate) fn request(&self, method: &str, target: &str) -> ProbeReply {
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
            .last_response()
    }

    /// Sends these bytes and the end on a new connection, and returns all that the server sends.
    pub(crate) fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.send(bytes);
        client.finish_sending();
        client.read_to_close()
    }

    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has ended. Returns true if it ended in order.
    pub(crate) fn ended(&mut self) -> bool {
        until("the server to end", || self.thread.as_ref().is_none_or(JoinHandle::is_finished).then_some(()));
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }
}

/// Returns a local result that is valid for a minute.
pub(crate) fn local_result(outcome: Outcome, now: Moment) -> LocalResult {
    LocalResult {
        outcome,
        duration: Duration::from_millis(12),
        at: now,
        good_until: now.plus(Duration::from_mins(1)),
    }
}

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    pub(crate) fn finish_sending(&self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads until the server closes. A reset or a timeout fails the test.
    pub(crate) fn read_to_close(&mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).expect("the server closes cleanly");
        text
    }

    /// Reads the last answer, after which the server closes.
    pub(crate) fn last_response(&mut self) -> ProbeReply {
        let text = self.read_to_close();
        ProbeReply::parse(&text).unwrap_or_else(|| panic!("no answer: {text:?}"))
    }

    /// Returns true if the server closes, cleanly or not, without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn response(&mut self) -> ProbeReply {
        http::read_answer(&mut self.0).unwrap().expect("an answer")
    }

    pub(crate) fn ask(&mut self, target: &str) -> ProbeReply {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\n\r\n"));
        self.response()
    }
}
