//! The agent under test: its own watch, board and answers, without its sockets.

use crate::network::Network;
use crate::plan::World;
use crate::service::ServiceAnswer;
use crate::trace::{Trace, note};
use crate::truth::{ProbeKind, SimulatedAnswer};
use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use nodegate_node_watch::{Connector, NodeWatch, Startup, Transitions, WatchMetrics};
use nodegate_readiness::probers::DrainStatus;
use nodegate_readiness::{
    Begins, Board, Catalog, Liveness, LocalCheck, LocalResult, Memory, Outcome, Policy, Timeline, Verdict,
};
use nodegate_server::{App, AppParts, NoLocalChecks};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The node that the agent is on.
pub(crate) const NODE: &str = "n1";
/// Who asks.
const BALANCER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SECOND_BALANCER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// A clock that is set back while the memory is handed over makes it look younger by so much at most.
const SET_BACK: Duration = Duration::from_secs(2);
/// The check that decides about a `Ready=Unknown`.
const KUBELET: &str = "kubelet";
const TIMEOUT: Duration = Duration::from_secs(1);
/// By then the next run must have ended.
const RESULT_IS_GOOD_FOR: Duration = Duration::from_secs(7);
/// A Service that some agents watch.
const SERVICE: &str = "default/web";

/// A running agent; gone when dropped.
pub(crate) struct SimulatedAgent {
    app: Arc<App>,
    board: Arc<Board>,
    liveness: Arc<Liveness>,
    metrics: Arc<WatchMetrics>,
    timeline: Timeline,
    startup: watch::Receiver<Startup>,
    watch: JoinHandle<()>,
    starved: watch::Sender<bool>,
    /// When its verdict last went to Ready or from there.
    turned: Arc<Mutex<Instant>>,
    /// Whether its check of the kubelet runs.
    needs_kubelet: Arc<AtomicBool>,
    /// What it gets from its predecessor if it has heard nothing when it opens.
    handed_over: Option<HandedOver>,
}

/// An agent's memory, as it writes it.
struct HandedOver {
    json: Vec<u8>,
    /// How old the facts were, and when that was.
    age: Option<Duration>,
    at: Instant,
}

impl SimulatedAgent {
    pub(crate) fn start(world: &World, network: &Network, trace: &Trace) -> Self {
        let timeline = Timeline::new(nodegate_clock::now());
        let liveness = Arc::new(Liveness::new(timeline.at(nodegate_clock::now())));
        let policy =
            Policy { on_stale: world.on_stale, unknown_after: world.unknown_after, ..Policy::default() };
        let stale_after = policy.stale_after;
        let services = world.service.then(|| SERVICE.parse().expect("a Service's name"));
        let kubelet = LocalCheck { name: KUBELET.to_owned(), timeout: TIMEOUT, begins: Begins::OnDemand };
        let catalog = Catalog::new(vec![kubelet]).with_services(services.into_iter().collect());
        let default = catalog.find(nodegate_readiness::check::NODE_READY).into_iter().collect::<Vec<_>>();
        let turned = Arc::new(Mutex::new(nodegate_clock::now()));
        let (flips, turns) = (trace.clone(), turned.clone());
        let on_flip = move |flip: &nodegate_readiness::Flip| {
            if (flip.from == Verdict::Ready) != (flip.to == Verdict::Ready) {
                *turns.lock().unwrap_or_else(PoisonError::into_inner) = nodegate_clock::now();
            }
            note!(flips, "flip: {} to {}, {}", flip.from, flip.to, flip.reason.as_str());
        };
        let board = Board::new(Some(NODE.to_owned()), policy, catalog, &default, Box::new(on_flip));
        let board = Arc::new(board);
        let needs_kubelet = Arc::new(AtomicBool::new(false));
        let needed = needs_kubelet.clone();
        board.when_needed(move |_| needed.store(true, Ordering::Relaxed));
        let metrics = Arc::new(WatchMetrics::default());
        let network = network.clone();
        let node_watch = NodeWatch {
            node_name: NODE.to_owned(),
            stale_after,
            connector: Connector::Simulated(Arc::new(move || network.client())),
            board: board.clone(),
            timeline,
            liveness: liveness.clone(),
            metrics: metrics.clone(),
        };
        let mut app = App::new(AppParts {
            board: board.clone(),
            timeline,
            liveness: liveness.clone(),
            activator: Arc::new(NoLocalChecks),
            metrics: Arc::default(),
            version: "simulated",
            revision: None,
        });
        app.set_probers(world.strangers.settings());
        let (tell, startup) = watch::channel(Startup::Connecting);
        let (starved, starving) = watch::channel(false);
        let watch = tokio::task::spawn_local(in_its_turns(node_watch.run(tell), starving));
        let app = Arc::new(app);
        Self {
            app,
            board,
            liveness,
            metrics,
            timeline,
            startup,
            watch,
            starved,
            turned,
            needs_kubelet,
            handed_over: None,
        }
    }

    /// Starts the agent after this one, with its memory if `remembers`.
    pub(crate) fn successor(&self, world: &World, network: &Network, trace: &Trace, remembers: bool) -> Self {
        let now = self.timeline.at(nodegate_clock::now());
        let memory = self.board.memory(now);
        let usable = remembers && memory.knows_something();
        let handed_over = usable.then(|| HandedOver {
            json: serde_json::to_vec(&memory.written_at(nodegate_clock::wall())).expect("a memory"),
            age: self.board.freshness(now).age,
            at: nodegate_clock::now(),
        });
        let mut successor = Self::start(world, network, trace);
        successor.handed_over = handed_over;
        successor
    }

    /// Takes over what its predecessor knew, if it has heard nothing itself. Returns whether it did.
    pub(crate) fn takes_over(&mut self) -> bool {
        let Some(handed_over) = &self.handed_over else { return false };
        let memory = Memory::parse(&handed_over.json).expect("what an agent has written");
        // A clock that was set back far enough makes it unusable.
        let Ok(Some(last)) = memory.last_facts(NODE, nodegate_clock::wall()) else { return false };
        let (now, wall) = (self.timeline.at(nodegate_clock::now()), nodegate_clock::wall());
        self.board.take_over(last, now, wall)
    }

    /// It listens from now on.
    pub(crate) fn opens(&self) {
        self.board.open(self.timeline.at(nodegate_clock::now()), nodegate_clock::wall());
    }

    /// What it gets no turn for: everything but its answers.
    pub(crate) fn starve(&self, starved: bool) {
        self.starved.send_replace(starved);
    }

    /// Whether it has read the Node once.
    pub(crate) fn is_synced(&self) -> bool {
        *self.startup.borrow() == Startup::Synced
    }

    /// The ways that its freshness has gone.
    pub(crate) fn transitions(&self) -> Arc<Transitions> {
        self.metrics.transitions()
    }

    /// Whether its last proof is from after this.
    pub(crate) fn has_proof_since(&self, instant: Instant) -> bool {
        self.board.last_proof().is_some_and(|proof| proof >= self.timeline.at(instant))
    }

    /// Its check of the kubelet runs, if it is needed, with this result.
    pub(crate) fn kubelet_answers(&self, answers: bool) {
        let Some(id) = self.board.catalog().find(KUBELET) else { return };
        if !self.needs_kubelet.load(Ordering::Relaxed) {
            return;
        }
        let (at, wall) = (self.timeline.at(nodegate_clock::now()), nodegate_clock::wall());
        let outcome = if answers { Outcome::Pass } else { Outcome::fail("ConnectionRefused") };
        let good_until = at.plus(RESULT_IS_GOOD_FOR);
        let result = LocalResult { outcome, duration: Duration::ZERO, at, good_until };
        self.board.set_local(id, Some(result), at, wall);
    }

    /// What it answers a load balancer now.
    pub(crate) fn ask(&self, kind: ProbeKind) -> SimulatedAnswer {
        self.ask_as(BALANCER, kind)
    }

    /// What it answers the second load balancer now.
    pub(crate) fn ask_as_second(&self) -> SimulatedAnswer {
        self.ask_as(SECOND_BALANCER, ProbeKind::Health)
    }

    pub(crate) fn ask_as(&self, peer: IpAddr, kind: ProbeKind) -> SimulatedAnswer {
        let path = match kind {
            ProbeKind::Health | ProbeKind::AgentCheck => "/health",
            ProbeKind::Drain => "/health?drain=404",
            ProbeKind::NodeCheck => "/nodecheck",
            ProbeKind::Conditions => "/health?check=node_ready,custom_conditions",
        };
        if kind == ProbeKind::AgentCheck {
            let line = self.app.respond_to_agent_check(peer, b"").now_or_never();
            return SimulatedAnswer::new(0, &line.expect("an agent-check is answered from memory"));
        }
        self.get(peer, path)
    }

    /// What it answers of its Service now.
    pub(crate) fn ask_for_service(&self) -> ServiceAnswer {
        let read =
            |path: &str| -> Value { serde_json::from_slice(&self.get(BALANCER, path).body).expect("JSON") };
        let check = &read(&format!("/health?check=service:{SERVICE}"))["checks"][0];
        ServiceAnswer {
            local_endpoints: read(&format!("/services/{SERVICE}"))["localEndpoints"]
                .as_u64()
                .expect("a number") as usize,
            passed: check["passed"] == true,
            stale: check["stale"] == true,
        }
    }

    fn get(&self, peer: IpAddr, path: &str) -> SimulatedAnswer {
        let request = Request::get(path).body(Empty::<Bytes>::new()).expect("a request");
        let answered =
            self.app.respond_to(request, self.timeline.at(nodegate_clock::now()), peer).now_or_never();
        let Some(Ok(response)) = answered else { panic!("{path} is answered from memory") };
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never().expect("a body at hand");
        let body = body.expect("it is sent to nobody, and so in time").to_bytes();
        SimulatedAnswer { status, body: body.to_vec().into() }
    }

    /// What it says of who asks, and of a drain.
    pub(crate) fn drain(&self) -> Option<DrainStatus> {
        self.app.status(self.timeline.at(nodegate_clock::now())).drain
    }

    /// When its verdict last went to Ready or from there.
    pub(crate) fn turned(&self) -> Instant {
        *self.turned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its timers do, and whether it may go on.
    pub(crate) fn tick(&self) -> Result<(), String> {
        let now = self.timeline.at(nodegate_clock::now());
        self.board.tick(now, nodegate_clock::wall());
        self.liveness.report_timers(now);
        self.keeps_the_date()?;
        self.liveness.check(now).map_err(|stuck| stuck.to_string())?;
        if self.watch.is_finished() { Err("the watch task has ended".to_owned()) } else { Ok(()) }
    }
}

impl SimulatedAgent {
    /// What was taken over is as old as it is.
    fn keeps_the_date(&self) -> Result<(), String> {
        let taken_over = self.handed_over.as_ref().filter(|_| self.board.has_only_taken_over());
        let Some(HandedOver { age: Some(age), at, .. }) = taken_over else { return Ok(()) };
        let now = nodegate_clock::now();
        let least = (*age + now.saturating_duration_since(*at)).saturating_sub(SET_BACK);
        match self.board.freshness(self.timeline.at(now)).age {
            Some(told) if told < least => Err(format!("{told:?} old is what it took over at {least:?}")),
            _ => Ok(()),
        }
    }
}

/// Polls the work in its turns only: not while the agent is starved.
async fn in_its_turns(work: impl Future<Output = ()>, mut starved: watch::Receiver<bool>) {
    let mut work = std::pin::pin!(work);
    loop {
        if starved.wait_for(|starved| !starved).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            _ = starved.changed() => {}
            () = &mut work => return,
        }
    }
}

impl Drop for SimulatedAgent {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
