//! Runs an agent on two threads of this host, for `args`. The main thread only answers; the background thread runs
//! everything that waits (the API server, the local checks, timers), so that a slow one can't delay an answer.

use crate::agent_ports::{PortArgs, Ports};
use crate::assembly::{AgentSettings, AssembledAgent, Environment};
use crate::handover::{self, HostSources, StateFile, targets};
use crate::own_port::OwnPort;
use crate::traffic::count;
use nodegate_local_checks::{LocalChecks, follow_host_directory};
use nodegate_program::{List, Signals, start_thread};
use nodegate_readiness::Flip;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::mpsc::sync_channel;
use tokio::runtime::{Builder, Runtime};

/// Returns the reason why the agent could not start, for the log.
fn starting(what: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("could not start the {what}: {error}")
}

fn runtime(what: &'static str) -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(starting(what))
}

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(
    mut settings: AgentSettings,
    local_checks: LocalChecks,
    ports: PortArgs,
    traffic_ports: List<u16>,
    host_signals: Option<PathBuf>,
    state_file: Option<StateFile>,
) -> Result<(), String> {
    settings.probers.traffic = count(traffic_ports).map_err(starting("count of connections"))?;
    // Wakes the recorder, if there is one.
    let (flipped, flips) = sync_channel(1);
    let on_flip = Box::new(move |_: &Flip| {
        let _ = flipped.try_send(());
    });
    let environment = Environment { local_checks, on_flip, ..Environment::default() };
    let background = runtime("background runtime")?;
    let in_background = background.handle().clone();
    let (agent, tasks) = AssembledAgent::new(settings, environment, background.handle());
    start_background(background, tasks)?;
    if let Some(directory) = host_signals {
        let (board, timeline) = (agent.board.clone(), agent.timeline);
        let record =
            move |host| board.set_host(host, timeline.at(nodegate_clock::now()), nodegate_clock::wall());
        follow_host_directory(directory, record).map_err(starting("watch of --host-signals"))?;
    }

    let sources = HostSources { predecessors: targets(&ports), state_file: state_file.clone() };
    runtime("server runtime")?.block_on(async {
        let mut shutdown = pin!(Signals::listen().map_err(starting("signal handler"))?.shutdown());
        tokio::select! {
            () = agent.prepare(&sources) => {}
            // No client has a connection yet.
            () = &mut shutdown => return Ok(()),
        }
        let address = ports.address();
        let ports = open_ports(&agent, ports)?;
        let (app, board, port) = (agent.app.clone(), agent.board.clone(), ports.http.local_addr().port());
        // Finds out whether another program answers at the agent's address.
        in_background.spawn(OwnPort { app, board, address, port }.watch());
        if let Some(file) = state_file {
            handover::record(file, agent.board.clone(), agent.timeline, flips)
                .map_err(starting("recorder"))?;
        }
        let served = ports.serve(agent.app.clone(), shutdown).await;
        served.map_err(|error| format!("can't wait for connections: {error}"))?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// Opens the ports: from here on, probes get answers.
fn open_ports(agent: &AssembledAgent, settings: PortArgs) -> Result<Ports, String> {
    let agent_check_port = settings.agent_check();
    let ports = Ports::bind(settings)?;
    agent.open();
    tracing::info!(
        address = %ports.http.local_addr(),
        agent_check_port,
        metrics_addr = ports.metrics_moved_to.map(tracing::field::display),
        node = agent.board.node_name(),
        version = env!("CARGO_PKG_VERSION"),
        "listening"
    );
    Ok(ports)
}

/// Runs the background tasks, which never end. If they end nevertheless, by a panic (its message is already
/// on stderr), the agent exits, because it would fail open forever without them. The kubelet or another
/// supervisor must restart it.
fn start_background(
    background: Runtime,
    tasks: impl Future<Output = ()> + Send + 'static,
) -> Result<(), String> {
    let run = move || {
        let _ = catch_unwind(AssertUnwindSafe(|| background.block_on(tasks)));
        tracing::error!("the background tasks have ended; the agent exits");
        std::process::exit(1);
    };
    start_thread("background", Box::new(run)).map_err(starting("background thread"))
}
