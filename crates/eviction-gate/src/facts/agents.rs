//! Queries the agents of draining nodes, for `review::gate`.

use super::reduced_objects::ReadNode;
use super::shared_reads::SharedReads;
use crate::decision::AgentReply;
use nodegate_agent_client::{AskError, ask_drain};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub(crate) const AT_ONCE: usize = 64;

pub(crate) struct Agents {
    port: u16,
    timeout: Duration,
    lookups: Arc<Semaphore>,
    reads: Arc<SharedReads<Arc<AgentReply>>>,
    counts_everyone: AtomicBool,
}

impl Agents {
    pub(crate) fn new(port: u16, timeout: Duration) -> Self {
        Self {
            port,
            timeout,
            lookups: Arc::new(Semaphore::new(AT_ONCE)),
            reads: Arc::default(),
            counts_everyone: AtomicBool::new(false),
        }
    }

    /// Asks the agent of a node. Reviews share an answer that the agent was asked for after each of them had arrived.
    pub(crate) async fn ask(&self, node: &ReadNode, arrival: Instant) -> Arc<AgentReply> {
        let (lookups, asked) = (self.lookups.clone(), node.clone());
        let (port, timeout) = (self.port, self.timeout);
        let read = async move {
            let Ok(_lookup) = lookups.try_acquire() else { return Arc::new(AgentReply::Overloaded) };
            Arc::new(ask(&asked, port, timeout).await)
        };
        let reply = self.reads.get(node.key(), arrival, read).await;
        if let AgentReply::Summary(summary) = &*reply {
            self.counts_everyone.store(!summary.balancers, Ordering::Relaxed);
        }
        reply
    }

    /// Returns true if the last agent that answered has no `--balancers`.
    pub(crate) fn count_everyone(&self) -> bool {
        self.counts_everyone.load(Ordering::Relaxed)
    }
}

async fn ask(node: &ReadNode, port: u16, timeout: Duration) -> AgentReply {
    let addresses: Vec<_> = node.addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    let Some(first) = addresses.first() else {
        return AgentReply::NoReply("the Node has no address of the types in --address-types".to_owned());
    };
    match ask_drain(&addresses, timeout).await {
        Err(error @ AskError::Foreign(..)) => AgentReply::WrongAgent(format!("{first}: {error}")),
        Err(error) => AgentReply::NoReply(format!("{first}: {error}")),
        Ok(summary) => match node.identity.confirm_drain(&summary) {
            Ok(()) => AgentReply::Summary(Box::new(summary)),
            Err(wrong) => AgentReply::WrongAgent(wrong.at(first)),
        },
    }
}
