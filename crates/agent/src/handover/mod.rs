//! The knowledge from before this agent started: the last known facts, and the predecessor's probers.

// If the API server does not answer, a new agent has no facts of its own. The previous agent had some, and
// so had this one before a crash. The probers are taken over at every start, from a running predecessor
// only.

mod host_sources;
mod recorder;
mod startup;
mod state_file;

pub(crate) use host_sources::{HostSources, targets};
pub(crate) use recorder::record;
pub(crate) use startup::wait;
pub(crate) use state_file::StateFile;

use nodegate_agent_client::sentence::last_known;
use nodegate_readiness::probers::Handover;
use nodegate_readiness::{Age, Board, LastFacts, Node, SavedFacts, Timeline};
use nodegate_server::App;
use std::future::Future;
use std::path::PathBuf;

/// The start of an agent whose API server does not answer.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HandoverArgs {
    /// Directory for the last known facts of the node, a file of a few kB: an agent that restarts while no
    /// API server answers reads them. It must exist, be writable, and belong to this agent alone
    #[arg(long, env = "NODEGATE_STATE_DIR", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

/// The agents that ran on this node before this one. Each method returns within seconds; an error is a text for the log.
pub trait LastKnownSources {
    /// Returns true if an agent of this boot answered here within the last minute.
    fn answered_recently(&self) -> impl Future<Output = bool>;

    /// Queries the predecessor, the agent on this agent's ports, for its facts; `None` if there is no
    /// predecessor.
    fn predecessor(&self) -> impl Future<Output = Result<Option<SavedFacts>, String>>;

    /// Queries the predecessor for its probers. A predecessor on another node is an error.
    fn probers(&self, node: &str) -> impl Future<Output = Result<Option<Handover>, String>>;

    /// Reads the facts in `--state-dir`; `None` if no agent has written any.
    fn recorded(&self) -> impl Future<Output = Result<Option<SavedFacts>, String>>;
}

/// Takes over the last known facts if the API server has not answered. `seen` are the facts of a fresh
/// predecessor that may have gone since. Must run right before the ports open: until then a predecessor may
/// still learn more, and this agent's own listener would hide it.
pub(crate) async fn take_over(
    sources: &impl LastKnownSources,
    seen: Option<SavedFacts>,
    board: &Board,
    timeline: Timeline,
) {
    let Some(node) = board.node_name() else { return };
    if board.published().state.node != Node::Unknown {
        return;
    }
    let (handed_over, recorded) = tokio::join!(sources.predecessor(), sources.recorded());
    let handed_over = handed_over.map(|memory| memory.or(seen));
    let found = [("predecessor", handed_over), ("state-dir", recorded)];
    let usable = found.into_iter().filter_map(|(from, memory)| Some((from, usable(from, node, memory)?)));
    if let Some((from, last)) = usable.min_by_key(|(_, last)| last.age) {
        let (now, wall) = (timeline.at(nodegate_clock::now()), nodegate_clock::wall());
        let age = Age(last.age.as_millis());
        if board.take_over(last, now, wall) {
            let last_known = board.last_known(now).map(|known| tracing::field::display(last_known(&known)));
            tracing::info!(from, %age, last_known, "taking over the last known facts of the node");
        }
    }
}

/// Returns the facts that can be taken over from one source. Logs the error if there is one.
fn usable(from: &str, node: &str, memory: Result<Option<SavedFacts>, String>) -> Option<LastFacts> {
    let dated = memory.and_then(|memory| match memory {
        Some(memory) => memory.last_facts(node, nodegate_clock::wall()).map_err(|error| error.to_string()),
        None => Ok(None),
    });
    let warn = |error: &String| {
        tracing::warn!(from, %error, "can't take over the last known facts of the node");
    };
    dated.inspect_err(warn).ok()?
}

/// Takes over the probers of the predecessor, which `acknowledged` would otherwise need 90 s to learn, and a
/// `Ready=False` that has not lasted for `--not-ready-after` yet. Must run right
/// before the ports open: until then the predecessor still receives probes.
pub(crate) async fn take_over_probers(sources: &impl LastKnownSources, board: &Board, app: &App) {
    let Some(node) = board.node_name() else { return };
    match sources.probers(node).await {
        Ok(None) => {}
        Ok(Some(handover)) => {
            let probers = app.take_over_probers(&handover);
            tracing::info!(probers, "took over the probers of the predecessor");
            if let Some(pending) = handover.not_ready_pending {
                board.take_over_pending(pending, app.now(), nodegate_clock::wall());
            }
        }
        Err(error) => tracing::warn!(
            %error,
            "can't take over the probers of the predecessor; learning them takes 90 s"
        ),
    }
}
