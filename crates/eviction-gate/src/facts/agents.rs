//! Queries the agents of draining nodes, for `review::gate`.

use super::reduced_objects::ReadNode;
use super::shared_reads::SharedReads;
use crate::decision::AgentReply;
use nodegate_agent_client::{AskError, ask_drain};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

const AT_ONCE: usize = 64;

pub(crate) struct Agents {
    port: u16,
    timeout: Duration,
    lookups: Semaphore,
    reads: SharedReads<Arc<AgentReply>>,
}

impl Agents {
    pub(crate) fn new(port: u16, timeout: Duration) -> Self {
        Self { port, timeout, lookups: Semaphore::new(AT_ONCE), reads: SharedReads::default() }
    }

    /// Asks the agent of a node. Reviews share an answer that the agent was asked for after each of them had arrived.
    pub(crate) async fn ask(&self, node: &ReadNode, arrival: Instant) -> Arc<AgentReply> {
        let read = async {
            let Ok(_lookup) = self.lookups.try_acquire() else { return Arc::new(AgentReply::Overloaded) };
            Arc::new(ask(node, self.port, self.timeout).await)
        };
        self.reads.get(node.key(), arrival, read).await
    }
}

async fn ask(node: &ReadNode, port: u16, timeout: Duration) -> AgentReply {
    let addresses: Vec<_> = node.addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    let Some(first) = addresses.first() else {
        return AgentReply::NoReply("the Node has no InternalIP and no ExternalIP".to_owned());
    };
    match ask_drain(&addresses, timeout).await {
        Err(error @ AskError::Foreign(..)) => AgentReply::WrongAgent(format!("{first}: {error}")),
        Err(error) => AgentReply::NoReply(format!("{first}: {error}")),
        Ok(summary) => match node.identity.confirm(&summary) {
            Ok(()) => AgentReply::Summary(Box::new(summary)),
            Err(wrong) => AgentReply::WrongAgent(wrong.at(first)),
        },
    }
}
