//! What was known before this agent started. An agent that starts while the API server is silent knows nothing
//! by itself; the agent before it did, and so did this one before a crash.

mod answering;
mod first_answer;
mod host_past;
mod predecessor;
mod recorder;
mod state_file;

pub(crate) use first_answer::{Opens, Patience, wait};
pub(crate) use host_past::HostPast;
pub(crate) use recorder::record;
pub(crate) use state_file::StateFile;

use nodegate_readiness::memory::Unusable;
use nodegate_readiness::probers::Handover;
use nodegate_readiness::{Age, Board, LastFacts, Memory, Node, Timeline};
use nodegate_server::App;
use std::fmt;
use std::future::Future;

/// The agents that ran on this node before this one, and what they left. Each answer comes within seconds.
pub trait Past {
    /// The reason why something is not known.
    type Error: fmt::Display;

    /// Returns true if an agent of this boot answered here within the last minute.
    fn answered_recently(&self) -> impl Future<Output = bool>;

    /// Returns what the agent that listens where this one is going to says of its node; `None` if there is none.
    fn predecessor(&self) -> impl Future<Output = Result<Option<Memory>, Self::Error>>;

    /// Returns the probers of that agent, if it is about this node; `None` if there is none.
    fn probers(&self, node: &str) -> impl Future<Output = Result<Option<Handover>, Self::Error>>;

    /// Returns what an agent recorded in `--state-dir`; `None` if none did.
    fn recorded(&self) -> impl Future<Output = Result<Option<Memory>, Self::Error>>;
}

/// Takes over what was last known, if the API server has told nothing. Not before that is due: a predecessor that
/// listens already may still be told something, and a listener of our own would hide it. `seen` is what a
/// predecessor said that may have gone since.
pub(crate) async fn take_over(past: &impl Past, seen: Option<Memory>, board: &Board, timeline: Timeline) {
    let Some(node) = board.node_name() else { return };
    if board.published().state.node != Node::Unknown {
        return;
    }
    let (told, read) = tokio::join!(past.predecessor(), past.recorded());
    let told = told.map(|told| told.or(seen));
    let found = [("predecessor", told), ("state-dir", read)];
    let usable = found.into_iter().filter_map(|(from, memory)| Some((from, usable(from, node, memory)?)));
    if let Some((from, last)) = usable.min_by_key(|(_, last)| last.age) {
        let (now, wall) = (timeline.at(nodegate_clock::now()), nodegate_clock::wall());
        let age = Age(last.age.as_millis());
        if board.take_over(last, now, wall) {
            let last_known = board.last_known(now).map(tracing::field::display);
            tracing::info!(from, %age, last_known, "taking over the last known facts of the node");
        }
    }
}

/// Returns what there is to take over. Logs why there is nothing if something is wrong.
fn usable(from: &str, node: &str, memory: Result<Option<Memory>, impl fmt::Display>) -> Option<LastFacts> {
    let warn = |error: &dyn fmt::Display| {
        tracing::warn!(from, %error, "can't take over the last known facts of the node");
    };
    let dated = |memory: Memory| -> Result<Option<LastFacts>, Unusable> {
        memory.last_facts(node, nodegate_clock::wall())
    };
    let memory = memory.inspect_err(|error| warn(error)).ok()??;
    dated(memory).inspect_err(|error| warn(error)).ok()?
}

/// Takes over the probers of the predecessor, which `told` would otherwise have to get to know for 90 s. Called
/// right before the ports open: what the predecessor is asked until then counts, too.
pub(crate) async fn take_over_probers(past: &impl Past, node: Option<&str>, app: &App) {
    let Some(node) = node else { return };
    match past.probers(node).await {
        Ok(None) => {}
        Ok(Some(handover)) => {
            let probers = app.take_over_probers(&handover);
            tracing::info!(probers, "took over the probers of the predecessor");
        }
        Err(error) => tracing::warn!(
            %error,
            "can't take over the probers of the predecessor; learning them takes 90 s"
        ),
    }
}
