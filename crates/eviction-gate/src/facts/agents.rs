//! Asks the agents of draining nodes.

use super::objects::ReadNode;
use super::shared_reads::SharedReads;
use crate::decision::AgentWord;
use nodegate_agent_client::{AskError, ask_drain};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The most agents that are asked at a time.
pub const AT_ONCE: usize = 64;

/// How agents are asked.
pub struct Agents {
    port: u16,
    timeout: Duration,
    places: Arc<Semaphore>,
    reads: Arc<SharedReads<Arc<AgentWord>>>,
}

impl Agents {
    /// Asks at this port, and waits for an answer for so long.
    pub fn new(port: u16, timeout: Duration) -> Self {
        Self { port, timeout, places: Arc::new(Semaphore::new(AT_ONCE)), reads: Arc::default() }
    }

    /// Asks the agent of a node. Reviews that wait at the same time share an answer that is younger than each of them.
    pub async fn ask(&self, node: &ReadNode) -> Arc<AgentWord> {
        let key = node.identity.uid.clone().unwrap_or_else(|| node.identity.name.clone());
        let (places, node) = (self.places.clone(), node.clone());
        let (port, timeout) = (self.port, self.timeout);
        self.reads
            .get(&key, async move {
                let Ok(_place) = places.try_acquire() else { return Arc::new(AgentWord::Overloaded) };
                Arc::new(word(&node, port, timeout).await)
            })
            .await
    }
}

async fn word(node: &ReadNode, port: u16, timeout: Duration) -> AgentWord {
    let addresses: Vec<_> = node.addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    let Some(first) = addresses.first() else {
        return AgentWord::Silent("the Node has no InternalIP".to_owned());
    };
    match ask_drain(&addresses, timeout).await {
        Err(error @ AskError::Foreign(..)) => AgentWord::Wrong(format!("{first}: {error}")),
        Err(error) => AgentWord::Silent(format!("{first}: {error}")),
        Ok(said) => match node.identity.confirm_drain(&said) {
            Ok(()) => AgentWord::Said(Box::new(said)),
            Err(wrong) => AgentWord::Wrong(wrong.at(first)),
        },
    }
}
