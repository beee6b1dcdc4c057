//! The knowledge from before this agent started: the last known facts, and the predecessor's probers.

// If the API server does not answer, a new agent has no facts of its own. The previous agent had some, and
// so had this one before a crash. The probers are taken over at every start, from a running predecessor
// only. Both are read in one form.

mod host_sources;
mod recorder;
mod startup;
mod state_file;

pub(crate) use host_sources::{HostSources, targets};
pub(crate) use recorder::record;
pub(crate) use startup::wait;
pub(crate) use state_file::StateFile;

use nodegate_agent_api::Predecessor;
use nodegate_agent_client::sentence::last_known;
use nodegate_readiness::{Age, Board, Cordon, LastFacts, Node, Timeline};
use nodegate_server::App;
use std::future::Future;
use std::time::Instant;

/// The agents that ran on this node before this one. Each method returns within seconds; an error is a text for the log.
pub trait LastKnownSources {
    /// Queries the predecessor, the agent of this node on this agent's ports; `None` if there is no predecessor.
    fn predecessor(&self, node: &str) -> impl Future<Output = Result<Option<Predecessor>, String>>;

    /// Reads what is in `--state-dir`; `None` if no agent has written anything.
    fn recorded(&self, node: &str) -> impl Future<Output = Result<Option<Predecessor>, String>>;
}

/// The facts of a fresh predecessor that may have gone since, and when they were read.
pub(crate) type Seen = Option<(LastFacts, Instant)>;

/// Takes over what the agents before this one knew: the probers, which the acknowledgement would otherwise need 90 s
/// to learn, whether a cordon takes the node out, and the last known facts if the API server has not answered. Must run
/// right before the ports open: until then a predecessor may still learn more, and this agent's own listener would
/// hide it.
pub(crate) async fn take_over(
    sources: &impl LastKnownSources,
    seen: Seen,
    board: &Board,
    app: &App,
    timeline: Timeline,
) {
    let Some(node) = board.node_name() else { return };
    let needs_facts = board.state().node == Node::Unknown;
    let needs_record = needs_facts || board.state().cordon != Cordon::None;
    let recorded = async { if needs_record { sources.recorded(node).await } else { Ok(None) } };
    let (predecessor, recorded) = tokio::join!(sources.predecessor(node), recorded);
    let predecessor = usable("predecessor", predecessor);
    let (now, wall) = (timeline.at(nodegate_clock::now()), nodegate_clock::wall());
    if let Some(before) = &predecessor {
        let probers = app.take_over_probers(before);
        tracing::info!(probers, "took over the probers of the predecessor");
    }
    let seen = seen.map(|(facts, at)| LastFacts { age: facts.age + (nodegate_clock::now() - at), ..facts });
    let found = [
        ("predecessor", predecessor.and_then(|before| before.facts).or(seen)),
        ("state-dir", usable("state-dir", recorded).and_then(|before| before.facts)),
    ];
    let known = found.into_iter().filter_map(|(from, facts)| Some((from, facts?)));
    if let Some((from, last)) = known.min_by_key(|(_, last)| last.age) {
        let age = Age::from(last.age);
        if board.take_over(last, now, wall) {
            let last_known = board.last_known(now).map(|known| tracing::field::display(last_known(&known)));
            tracing::info!(from, %age, last_known, "taking over the last known facts of the node");
        }
    }
}

/// Returns what an earlier agent knew, and logs what can't be taken over.
fn usable(from: &str, found: Result<Option<Predecessor>, String>) -> Option<Predecessor> {
    let error = match &found {
        Ok(found) => found.as_ref().and_then(|found| found.not_taken.as_ref()),
        Err(error) => Some(error),
    };
    if let Some(error) = error {
        tracing::warn!(from, error, "can't take over all that an earlier agent knew");
    }
    found.ok().flatten()
}
