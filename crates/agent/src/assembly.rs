//! Assembles an agent from its settings and its environment.

// The program, the simulation, the benchmarks and the tests that run an agent in their own process all use
// this assembly, so all of them run the same wiring: board, freshness, timers, local checks, probers,
// handover. `Environment` and `LastKnownSources` hold what differs between them. The simulation does not run what
// `crate::agent` adds, because no simulated clock can drive it: the two runtimes and their threads, the
// sockets, the signals, and the thread that writes to `--state-dir`.

use crate::handover::{self, LastKnownSources};
use crate::timer_task;
use nodegate_local_checks::{DEFAULT_TIMEOUT, LocalChecks, Runner};
use nodegate_node_watch::{Connector, NodeWatch, Startup, WatchMetrics};
use nodegate_readiness::check::NODE_READY;
use nodegate_readiness::{Board, Catalog, CheckId, Flip, Liveness, Policy, Timeline};
use nodegate_server::prometheus_client::registry::Registry;
use nodegate_server::{App, AppParts, Metrics, PodSettings, ProberSettings};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout_at;

/// The settings of an agent, without those of its ports.
pub struct AgentSettings {
    /// The name of the node; `None` if `NODE_NAME` is not set.
    pub node_name: Option<String>,
    /// The settings of the readiness rules.
    pub policy: Policy,
    /// The checks that exist.
    pub catalog: Catalog,
    /// The checks of a request that names none.
    pub default_checks: Vec<CheckId>,
    /// The settings of `acknowledged`, and the counter of connections.
    pub probers: ProberSettings,
    /// How the node's pods are known.
    pub pods: PodSettings,
}

impl AgentSettings {
    /// Returns the default settings of an agent with these checks.
    pub fn new(node_name: &str, catalog: Catalog) -> Self {
        Self {
            node_name: Some(node_name.to_owned()),
            policy: Policy::default(),
            default_checks: catalog.find(NODE_READY).into_iter().collect(),
            catalog,
            probers: ProberSettings::default(),
            pods: PodSettings::default(),
        }
    }
}

/// The clock, the network and the host of an agent.
pub struct Environment {
    /// The start of the agent.
    pub started: Instant,
    /// The connections to the API server.
    pub connector: Connector,
    /// The local checks that can run. The catalog of the settings decides which of them a request may start.
    pub local_checks: LocalChecks,
    /// Called for each flip, after the agent has counted and logged it.
    pub on_flip: Box<dyn Fn(&Flip) + Send + Sync>,
}

/// An agent that starts now, with the credentials of this host and without local checks.
impl Default for Environment {
    fn default() -> Self {
        Self {
            started: nodegate_clock::now(),
            connector: Connector::default(),
            local_checks: LocalChecks::none(),
            on_flip: Box::new(|_| {}),
        }
    }
}

/// An agent that can answer.
pub struct AssembledAgent {
    /// The facts and the answers.
    pub board: Arc<Board>,
    /// Turns instants into moments.
    pub timeline: Timeline,
    /// The signs of life of the background tasks.
    pub liveness: Arc<Liveness>,
    /// The routes of the HTTP server.
    pub app: Arc<App>,
    /// The metrics of the watches.
    pub watch_metrics: Arc<WatchMetrics>,
    runner: Arc<Runner>,
    started: watch::Receiver<Startup>,
    opened: watch::Sender<bool>,
}

impl AssembledAgent {
    /// Assembles an agent whose local checks run on this runtime, and returns the rest of its background tasks: the
    /// watches, and the timers from when the ports are open. They run forever.
    pub fn new(
        settings: AgentSettings,
        environment: Environment,
        checks_run_on: &Handle,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let AgentSettings { node_name, policy, catalog, default_checks, probers, pods } = settings;
        let Environment { started, connector, local_checks, on_flip } = environment;
        let timeline = Timeline::new(started);
        let liveness = Arc::new(Liveness::new(timeline.at(nodegate_clock::now())));
        let metrics = Arc::new(Metrics::default());
        let (node, counts) = (node_name.clone(), metrics.clone());
        let on_flip = Box::new(move |flip: &Flip| {
            counts.flip(flip);
            on_flip(flip);
            tracing::info!(node, from = %flip.from, to = %flip.to, reason = flip.reason.as_str(), "flip");
        });
        let board = Arc::new(Board::new(node_name.clone(), policy, catalog, &default_checks));
        let _ = board.on_flip.set(on_flip);
        let runner = Arc::new(Runner::start(&local_checks, &board, timeline, checks_run_on));
        let watch_metrics = Arc::new(WatchMetrics::default());
        let activator = runner.clone();
        let mut registry = Registry::default();
        watch_metrics.register(registry.sub_registry_with_prefix("nodegate"), board.clone(), timeline);
        let app = Arc::new(App::new(AppParts {
            board: board.clone(),
            timeline,
            liveness: liveness.clone(),
            activate: Arc::new(move |checks| activator.activate(&checks)),
            metrics,
            registry,
            probers,
            pods,
        }));
        let node_watch = node_name.map(|node_name| NodeWatch {
            node_name,
            connector,
            board: board.clone(),
            timeline,
            liveness: liveness.clone(),
            metrics: watch_metrics.clone(),
        });
        let (startup, started) = watch::channel(Startup::Connecting);
        let (opened, open) = watch::channel(false);
        let timers = timer_task::run(board.clone(), liveness.clone(), timeline, open);
        let watch = async move {
            match node_watch {
                Some(node_watch) => node_watch.run(startup).await,
                None => drop(startup),
            }
        };
        let background = async {
            tokio::join!(watch, timers);
        };
        let agent = Self { board, timeline, liveness, app, watch_metrics, runner, started, opened };
        (agent, background)
    }

    /// Waits until this agent can answer, and takes over the facts and the probers of the agents before it.
    /// The caller opens the ports next.
    ///
    /// Waits for the first sync and the first results of the local checks that always run, so that no load
    /// balancer gets an answer that may be wrong. Waits for a limited time, and not for missing
    /// credentials. Waits for first results at least as long as a run may take by default: a load balancer's
    /// probe would have to wait for them, too, and the previous agent still answers.
    pub async fn prepare(&self, sources: &impl LastKnownSources) {
        let mut seen = None;
        if let Some(node) = self.board.node_name() {
            let deadline = tokio::time::Instant::now() + DEFAULT_TIMEOUT;
            let stale_after = self.board.policy().stale_after;
            seen = handover::wait(sources, node, self.started.clone(), stale_after).await;
            if timeout_at(deadline, self.runner.eager_ready()).await.is_err() {
                tracing::warn!("a local check has no first result yet; listening without it");
            }
        } else {
            tracing::error!("{}", nodegate_readiness::board::NODE_NAME_MISSING);
        }
        // The verdict of this Node may depend on its kubelet.
        self.runner.needed_ready().await;
        handover::take_over(sources, seen, &self.board, &self.app, self.timeline).await;
    }

    /// Records that the ports are open: from here on, a change of verdict is a flip.
    pub fn open(&self) {
        self.board.open(self.timeline.at(nodegate_clock::now()), nodegate_clock::wall());
        self.opened.send_replace(true);
    }
}
