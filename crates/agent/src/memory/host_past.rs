//! The past as it is found on this host: the agent that listens on the same ports, and the files in
//! `--state-dir`.

use super::predecessor::{self, NotTold};
use super::state_file::{NotRead, StateFile};
use super::{Past, answering};
use crate::ports::PortSettings;
use crate::target::AgentAddress;
use nodegate_readiness::Memory;
use nodegate_readiness::probers::Handover;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longer than an agent that is there and a disk that works need: load balancers wait for this one, too. Enough to ask at both
/// ports of a predecessor, one after the other, and to hear why neither told anything.
pub(super) const WITHIN: Duration = Duration::from_secs(3);

/// The addresses of a predecessor, and the files of this agent.
pub(crate) struct HostPast {
    predecessors: Vec<AgentAddress>,
    state_file: Option<StateFile>,
}

/// Why there is nothing to take over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Nothing {
    #[error(transparent)]
    NotTold(#[from] NotTold),
    #[error(transparent)]
    NotRead(#[from] NotRead),
    #[error("not within {} s", WITHIN.as_secs())]
    Late,
}

impl HostPast {
    /// Returns the agent that listens where this one is going to, and its own file.
    pub(crate) fn new(ports: &PortSettings, state_file: Option<StateFile>) -> Self {
        Self { predecessors: predecessor::targets(ports), state_file }
    }
}

impl Past for HostPast {
    type Error = Nothing;

    async fn answered_recently(&self) -> bool {
        let Some(directory) = self.state_file.as_ref().map(|file| file.directory().to_owned()) else {
            return false;
        };
        on_a_thread(move || Ok(answering::is_recent(&directory))).await.unwrap_or(false)
    }

    async fn predecessor(&self) -> Result<Option<Memory>, Nothing> {
        let targets = self.predecessors.clone();
        on_a_thread(move || Ok(predecessor::memory(&targets)?)).await
    }

    async fn probers(&self, node: &str) -> Result<Option<Handover>, Nothing> {
        let (targets, node) = (self.predecessors.clone(), node.to_owned());
        on_a_thread(move || Ok(predecessor::probers(&targets, &node)?)).await
    }

    async fn recorded(&self) -> Result<Option<Memory>, Nothing> {
        let Some(file) = self.state_file.clone() else { return Ok(None) };
        on_a_thread(move || Ok(file.read()?)).await
    }
}

/// Does what may hang on a thread of its own, which is left behind if it does.
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
