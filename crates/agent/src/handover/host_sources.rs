//! The sources of the last known facts on this host, the agent on the same ports and `--state-dir`, for `agent`.

use super::state_file::StateFile;
use super::{LastKnownSources, answering, predecessor};
use crate::agent_ports::PortArgs;
use crate::target::AgentAddress;
use nodegate_readiness::Memory;
use nodegate_readiness::probers::Handover;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The time limit for one source: longer than a running agent and a working disk need, because load balancers
/// wait for this agent, too. It suffices to query both ports of a predecessor in sequence, and to learn why
/// neither had facts.
pub(super) const WITHIN: Duration = Duration::from_secs(3);

/// The sources of the last known facts.
pub(crate) struct HostSources {
    predecessors: Vec<AgentAddress>,
    state_file: Option<StateFile>,
}

impl HostSources {
    /// Creates the sources: the agent that listens on this agent's ports, and this agent's file.
    pub(crate) fn new(ports: &PortArgs, state_file: Option<StateFile>) -> Self {
        Self { predecessors: predecessor::targets(ports), state_file }
    }
}

impl LastKnownSources for HostSources {
    type Error = String;

    async fn answered_recently(&self) -> bool {
        let Some(directory) = self.state_file.as_ref().map(|file| file.directory().to_owned()) else {
            return false;
        };
        on_a_thread(move || Ok(answering::is_recent(&directory))).await.unwrap_or(false)
    }

    async fn predecessor(&self) -> Result<Option<Memory>, String> {
        let targets = self.predecessors.clone();
        on_a_thread(move || predecessor::memory(&targets)).await
    }

    async fn probers(&self, node: &str) -> Result<Option<Handover>, String> {
        let (targets, node) = (self.predecessors.clone(), node.to_owned());
        on_a_thread(move || predecessor::probers(&targets, &node)).await
    }

    async fn recorded(&self) -> Result<Option<Memory>, String> {
        let Some(file) = self.state_file.clone() else { return Ok(None) };
        on_a_thread(move || file.read()).await
    }
}

/// Runs work that may hang on its own thread, and abandons the thread if it does.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (done, waiting) = oneshot::channel();
    let started = thread::Builder::new().name("handover".to_owned()).spawn(move || drop(done.send(work())));
    match timeout(WITHIN, waiting).await {
        Ok(Ok(found)) if started.is_ok() => found,
        _ => Err(format!("not within {} s", WITHIN.as_secs())),
    }
}
