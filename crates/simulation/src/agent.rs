//! The agent under test: its own watch, board and answers, without its sockets.

use crate::network::Network;
use crate::plan::World;
use crate::trace::{Trace, note};
use crate::truth::{Answer, Kind};
use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use nodegate_node_watch::{Connector, NodeWatch, Startup, Transitions, WatchMetrics};
use nodegate_readiness::probers::DrainStatus;
use nodegate_readiness::{Board, Catalog, Liveness, Policy, Timeline};
use nodegate_server::{App, AppParts, NoLocalChecks};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The node that the agent is on.
pub(crate) const NODE: &str = "n1";
/// Who asks.
const BALANCER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// A Service that some agents watch.
const SERVICE: &str = "default/web";

/// A running agent; gone when dropped.
pub(crate) struct Agent {
    app: Arc<App>,
    board: Arc<Board>,
    liveness: Arc<Liveness>,
    metrics: Arc<WatchMetrics>,
    timeline: Timeline,
    startup: watch::Receiver<Startup>,
    watch: JoinHandle<()>,
}

impl Agent {
    pub(crate) fn start(world: &World, network: &Network, trace: &Trace) -> Self {
        let timeline = Timeline::new(nodegate_clock::now());
        let liveness = Arc::new(Liveness::new(timeline.at(nodegate_clock::now())));
        let policy = Policy { on_stale: world.on_stale, ..Policy::default() };
        let stale_after = policy.stale_after;
        let services = world.service.then(|| SERVICE.parse().expect("a Service's name"));
        let catalog = Catalog::default().with_services(services.into_iter().collect());
        let default = catalog.find(nodegate_readiness::check::NODE_READY).into_iter().collect::<Vec<_>>();
        let flips = trace.clone();
        let on_flip = move |flip: &nodegate_readiness::Flip| {
            note!(flips, "flip: {} to {}, {}", flip.from, flip.to, flip.reason.as_str());
        };
        let board = Board::new(Some(NODE.to_owned()), policy, catalog, &default, Box::new(on_flip));
        let board = Arc::new(board);
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
        let app = App::new(AppParts {
            board: board.clone(),
            timeline,
            liveness: liveness.clone(),
            activator: Arc::new(NoLocalChecks),
            metrics: Arc::default(),
            version: "simulated",
            revision: None,
        });
        let (tell, startup) = watch::channel(Startup::Connecting);
        board.open(timeline.at(nodegate_clock::now()), nodegate_clock::wall());
        let watch = tokio::task::spawn_local(node_watch.run(tell));
        Self { app: Arc::new(app), board, liveness, metrics, timeline, startup, watch }
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

    /// What it answers a load balancer now.
    pub(crate) fn ask(&self, kind: Kind) -> Answer {
        let path = match kind {
            Kind::Health | Kind::AgentCheck => "/health",
            Kind::Drain => "/health?drain=404",
            Kind::NodeCheck => "/nodecheck",
            Kind::Conditions => "/health?check=node_ready,custom_conditions",
        };
        let request = Request::get(path).body(Empty::<Bytes>::new()).expect("a request");
        let answered =
            self.app.respond_to(request, self.timeline.at(nodegate_clock::now()), BALANCER).now_or_never();
        let Some(Ok(response)) = answered else { panic!("{path} is answered from memory") };
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never().expect("a body at hand");
        let body = body.expect("it is sent to nobody, and so in time").to_bytes();
        Answer { status, body: body.to_vec().into() }
    }

    /// What it says of who asks, and of a drain.
    pub(crate) fn drain(&self) -> Option<DrainStatus> {
        self.app.status(self.timeline.at(nodegate_clock::now())).drain
    }

    /// What its timers do, and whether it may go on.
    pub(crate) fn tick(&self) -> Result<(), String> {
        let now = self.timeline.at(nodegate_clock::now());
        self.board.tick(now, nodegate_clock::wall());
        self.liveness.report_timers(now);
        self.liveness.check(now).map_err(|stuck| stuck.to_string())?;
        if self.watch.is_finished() { Err("the watch task has ended".to_owned()) } else { Ok(()) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
