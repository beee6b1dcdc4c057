//! Wires the parts together and runs them on two threads.
//!
//! The main thread only answers; the server starts threads of its own for known requests. The background
//! thread runs everything that waits for something else (the API server, the local checks, timers), so that a
//! slow one can't delay an answer.

use crate::memory::{self, Opens, Patience, ProberSource, Sources};
use crate::ports::{PortSettings, Ports};
use crate::settings::Settings;
use crate::timer_task;
use crate::traffic;
use nodegate_local_checks::{DEFAULT_TIMEOUT, Runner};
use nodegate_node_watch::{Connector, NodeWatch, Startup, WatchMetrics};
use nodegate_readiness::{Board, CheckId, Flip, Liveness, Timeline};
use nodegate_server::{Activate, App, AppParts, BindError, Metrics, ProberSettings, ServeError};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout_at;

/// The reason why the agent could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("could not start the {what}: {source}")]
    Start { what: &'static str, source: io::Error },
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

fn starting(what: &'static str) -> impl Fn(io::Error) -> AgentError {
    move |source| AgentError::Start { what, source }
}

/// The steps of tasks after which a runtime polls for events. With tokio's default, 61, a client with a
/// thousand pipelined requests delays a balancer's probe by a second where the agent has a tenth of a
/// processor.
const EVENT_INTERVAL: u32 = 4;

fn runtime(what: &'static str) -> Result<Runtime, AgentError> {
    Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build().map_err(starting(what))
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(settings: Settings) -> Result<(), AgentError> {
    let timeline = Timeline::new(nodegate_clock::now());
    let liveness = Arc::new(Liveness::new(timeline.at(nodegate_clock::now())));
    let metrics = Arc::new(Metrics::default());
    let Settings { node_name, policy, local_checks, catalog, default_checks, state_file, .. } = settings;
    let traffic = traffic::count(settings.traffic_ports).map_err(starting("count of connections"))?;
    let stale_after = policy.stale_after;
    let (flipped, flips) = sync_channel(1);
    let on_flip = on_flip(node_name.clone(), metrics.clone(), flipped);
    let board = Arc::new(Board::new(node_name.clone(), policy, catalog, &default_checks, on_flip));

    let background = runtime("background runtime")?;
    let runner = Arc::new(Runner::start(&local_checks, &board, timeline, background.handle()));
    let first_results = runner.eager_ready();
    let needed = runner.clone();
    let watch_metrics = Arc::new(WatchMetrics::default());
    let mut app = app(&board, timeline, &liveness, runner, metrics);
    app.set_probers(ProberSettings { balancers: settings.balancers, traffic, told: settings.told });
    watch_metrics.register(app.registry_mut(), board.clone(), timeline);

    let (startup, started) = watch::channel(Startup::Connecting);
    let node_watch = node_name.map(|node_name| NodeWatch {
        node_name,
        stale_after,
        connector: Connector::default(),
        board: board.clone(),
        timeline,
        liveness: liveness.clone(),
        metrics: watch_metrics,
    });
    let (opened, open) = watch::channel(false);
    let timer_task = timer_task::run(board.clone(), liveness, timeline, open);
    start_background(background, background_tasks(node_watch, startup, timer_task))?;

    let probers = ProberSource::new(&settings.ports);
    let mut sources = Sources::new(&settings.ports, state_file.clone());
    let patience = Patience { grace: settings.startup_grace, stale_after };
    runtime("server runtime")?.block_on(async {
        let mut shutdown = Shutdown::listen()?;
        tokio::select! {
            () = wait_for_the_truth(&board, &mut sources, started, first_results, patience) => {}
            () = shutdown.next() => {
                tracing::info!("shutting down before the ports were opened");
                return Ok(());
            }
        }
        // The verdict of this Node may depend on its kubelet.
        needed.needed_ready().await;
        sources.take_over(&board, timeline).await;
        probers.hand_over(board.node_name(), &app).await;
        let ports = open_ports(&board, timeline, settings.ports, &opened)?;
        if let Some(file) = state_file {
            memory::record(file, board.clone(), timeline, flips).map_err(starting("recorder"))?;
        }
        ports.serve(Arc::new(app), shutdown.requested()).await?;
        tracing::info!("bye");
        Ok(())
    })
}

/// Returns the parts that answer.
fn app(
    board: &Arc<Board>,
    timeline: Timeline,
    liveness: &Arc<Liveness>,
    runner: Arc<Runner>,
    metrics: Arc<Metrics>,
) -> App {
    App::new(AppParts {
        board: board.clone(),
        timeline,
        liveness: liveness.clone(),
        activator: Arc::new(Activator(runner)),
        metrics,
        version: env!("CARGO_PKG_VERSION"),
        revision: option_env!("NODEGATE_REVISION"),
    })
}

/// Opens the ports: from here on, probes get answers.
fn open_ports(
    board: &Board,
    timeline: Timeline,
    settings: PortSettings,
    opened: &watch::Sender<bool>,
) -> Result<Ports, AgentError> {
    let agent_check_port = settings.agent_check_port;
    let ports = Ports::bind(settings)?;
    board.open(timeline.at(nodegate_clock::now()), nodegate_clock::wall());
    opened.send_replace(true);
    let address = ports.address().map_err(starting("server"))?;
    tracing::info!(
        %address,
        agent_check_port,
        metrics_addr = ports.metrics_address().map(display),
        node = board.node_name(),
        version = env!("CARGO_PKG_VERSION"),
        "listening"
    );
    Ok(ports)
}

/// Returns the function that counts and logs each change of verdict. `flipped` wakes the recorder, if there
/// is one.
fn on_flip(
    node: Option<String>,
    metrics: Arc<Metrics>,
    flipped: SyncSender<()>,
) -> Box<dyn Fn(&Flip) + Send + Sync> {
    Box::new(move |flip| {
        metrics.flip(flip);
        let _ = flipped.try_send(());
        tracing::info!(node, from = %flip.from, to = %flip.to, reason = flip.reason.as_str(), "flip");
    })
}

async fn background_tasks(
    node_watch: Option<NodeWatch>,
    startup: watch::Sender<Startup>,
    timer_task: impl Future<Output = ()>,
) {
    match node_watch {
        Some(node_watch) => {
            tokio::join!(node_watch.run(startup), timer_task);
        }
        None => timer_task.await,
    }
}

fn start_background(
    background: Runtime,
    tasks: impl Future<Output = ()> + Send + 'static,
) -> Result<(), AgentError> {
    let run = move || run_background(&background, tasks);
    thread::Builder::new().name("background".to_owned()).spawn(run).map_err(starting("background thread"))?;
    Ok(())
}

/// Runs the background tasks, which never end. If they end nevertheless, by a panic (its message is already
/// on stderr), the agent exits, because it would fail open forever without them. The kubelet or another
/// supervisor must restart it.
fn run_background(background: &Runtime, tasks: impl Future<Output = ()>) {
    let _ = catch_unwind(AssertUnwindSafe(|| background.block_on(tasks)));
    tracing::error!("the background tasks have ended; the agent exits");
    std::process::exit(1);
}

/// Waits for the first sync and the first results of the local checks that always run, so that no load
/// balancer gets an answer that may be wrong. Waits no longer than `patience`, and not for missing
/// credentials. Waits for first results at least as long as a run may take by default: a load balancer's
/// probe would have to wait for them, too, and the previous agent still answers.
async fn wait_for_the_truth(
    board: &Board,
    sources: &mut Sources,
    started: watch::Receiver<Startup>,
    first_results: impl Future<Output = ()>,
    patience: Patience,
) {
    let Some(node) = board.node_name() else {
        tracing::error!("{}", nodegate_readiness::board::NODE_NAME_MISSING);
        return;
    };
    let began = tokio::time::Instant::now();
    if sources.wait(node, started, patience).await == Opens::NoClient {
        tracing::warn!("no Kubernetes client; answering without one and retrying");
    }
    if timeout_at(began + patience.grace.max(DEFAULT_TIMEOUT), first_results).await.is_err() {
        tracing::warn!("a local check has no first result yet; listening without it");
    }
}

/// The code that lets the server start local checks.
struct Activator(Arc<Runner>);

impl Activate for Activator {
    fn activate(&self, checks: Vec<CheckId>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.0.activate(&checks)
    }
}

/// SIGTERM and SIGINT: the first one requests an orderly shutdown, a second one ends the agent at once.
struct Shutdown {
    terminate: Signal,
    interrupt: Signal,
}

impl Shutdown {
    fn listen() -> Result<Self, AgentError> {
        let on = |kind| signal(kind).map_err(starting("signal handler"));
        Ok(Self { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    async fn requested(mut self) {
        self.next().await;
        tracing::info!("shutting down; a second signal ends the agent at once");
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(1);
        });
    }
}
