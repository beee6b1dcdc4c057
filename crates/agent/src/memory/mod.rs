//! The knowledge from before this agent started: the last known facts, and the predecessor's probers.
//!
//! If the API server does not answer, a new agent has no facts of its own. The previous agent had some, and
//! so had this one before a crash. The probers are taken over at every start, from a running predecessor
//! only.

mod answering;
mod first_answer;
mod predecessor;
mod probers;
mod recorder;
mod state_file;

pub(crate) use first_answer::{Opens, Patience};
pub(crate) use probers::ProberSource;
pub(crate) use recorder::record;
pub(crate) use state_file::StateFile;

use crate::ports::PortSettings;
use crate::target::AgentAddress;
use nodegate_readiness::memory::Unusable;
use nodegate_readiness::{Age, Board, LastFacts, Memory, Node, Timeline};
use predecessor::NotTold;
use state_file::NotRead;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The time limit for one source: longer than a running agent and a working disk need, because load balancers
/// wait for this agent, too. It suffices to query both ports of a predecessor in sequence, and to learn why
/// neither had facts.
const WITHIN: Duration = Duration::from_secs(3);

/// The sources of the last known facts.
pub(crate) struct Sources {
    predecessors: Vec<AgentAddress>,
    state_file: Option<StateFile>,
    /// The answer of a predecessor while it was fresh.
    seen: Option<Memory>,
}

/// The reason why nothing can be taken over.
#[derive(Debug, thiserror::Error)]
enum Nothing {
    #[error(transparent)]
    NotTold(#[from] NotTold),
    #[error(transparent)]
    NotRead(#[from] NotRead),
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error("not within {} s", WITHIN.as_secs())]
    Late,
}

impl Sources {
    /// Creates the sources: the agent that listens on this agent's ports, and this agent's file.
    pub(crate) fn new(ports: &PortSettings, state_file: Option<StateFile>) -> Self {
        Self { predecessors: predecessor::targets(ports), state_file, seen: None }
    }

    /// Returns true if an agent of this boot answered here within the last minute.
    async fn answered_recently(&self) -> bool {
        let Some(directory) = self.state_file.as_ref().map(|file| file.directory().to_owned()) else {
            return false;
        };
        on_a_thread(move || Ok(answering::is_recent(&directory))).await.unwrap_or(false)
    }

    /// Queries the predecessor on this agent's ports for this node's facts; `None` if there is no
    /// predecessor.
    async fn ask_predecessor(&self, node: &str) -> Option<Memory> {
        let predecessors = self.predecessors.clone();
        let asked = on_a_thread(move || Ok(predecessor::ask(&predecessors)?)).await;
        let told = asked.ok().flatten().filter(|memory| memory.is_about(node));
        told.map(|memory| memory.written_at(nodegate_clock::wall()))
    }

    /// Takes over the last known facts if the API server has not answered. Must run right before the ports
    /// open: until then a predecessor may still learn more, and this agent's own listener would hide it.
    pub(crate) async fn take_over(self, board: &Board, timeline: Timeline) {
        let Some(node) = board.node_name().map(str::to_owned) else { return };
        if board.published().state.node != Node::Unknown {
            return;
        }
        let Self { predecessors, state_file, seen } = self;
        let ask = move || predecessor::ask(&predecessors).map_err(Nothing::from);
        let read = move || state_file.map_or(Ok(None), |file| file.read()).map_err(Nothing::from);
        let (told, read) = tokio::join!(on_a_thread(ask), on_a_thread(read));
        // The predecessor may have gone since.
        let told = told.map(|told| told.or(seen));
        let found = [("predecessor", told), ("state-dir", read)];
        let usable = found.into_iter().filter_map(|(from, memory)| {
            Some((from, usable(&node, memory).unwrap_or_else(|nothing| warn(from, &nothing))?))
        });
        if let Some((from, last)) = usable.min_by_key(|(_, last)| last.age) {
            let (now, wall) = (timeline.at(nodegate_clock::now()), nodegate_clock::wall());
            let age = Age(last.age.as_millis());
            if board.take_over(last, now, wall) {
                let last_known = board.last_known(now).map(tracing::field::display);
                tracing::info!(from, %age, last_known, "taking over the last known facts of the node");
            }
        }
    }
}

fn usable(node: &str, memory: Result<Option<Memory>, Nothing>) -> Result<Option<LastFacts>, Nothing> {
    let Some(memory) = memory? else { return Ok(None) };
    Ok(memory.last_facts(node, nodegate_clock::wall())?)
}

fn warn(from: &str, nothing: &Nothing) -> Option<LastFacts> {
    tracing::warn!(from, error = %nothing, "can't take over the last known facts of the node");
    None
}

/// Runs work that may hang on its own thread, and abandons the thread if it does.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Nothing> + Send + 'static,
) -> Result<T, Nothing> {
    let (done, waiting) = oneshot::channel();
    let started = thread::Builder::new().name("memory".to_owned()).spawn(move || drop(done.send(work())));
    match timeout(WITHIN, waiting).await {
        Ok(Ok(found)) if started.is_ok() => found,
        _ => Err(Nothing::Late),
    }
}
