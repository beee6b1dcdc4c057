//! Queries agents at their node's address, or through the API server's proxy of their pod.

use crate::args::{ClusterArgs, Via};
use crate::cluster::{Cluster, FleetNode};
use nodegate_agent_api::{STATUS_PATH, Status, WaitReply};
use nodegate_agent_client::{AgentJson, AgentReply, AskError, WAIT_WITHIN, WrongAgent, get, parse};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// The label of the agents' pods in the manifests.
const AGENT_LABEL: &str = "app.kubernetes.io/name=nodegate";
/// The number of concurrent queries. Each needs an open file, and as many connections to the API server stay open for a
/// while; macOS allows 256.
pub(crate) const AT_ONCE: usize = 100;

/// An answer of the agent of the Node that was meant.
pub(crate) struct AgentAnswer<T = Status> {
    pub(crate) said: T,
    pub(crate) reply: AgentReply,
    /// The address, or the pod behind the API server.
    pub(crate) source: String,
    /// True if it came from the node's own address.
    pub(crate) is_direct: bool,
}

impl Cluster {
    pub(crate) async fn ask(&self, node: &FleetNode) -> Result<AgentAnswer, String> {
        self.answer(node, STATUS_PATH, Duration::ZERO).await
    }

    /// Asks how a wait stands, by the path of [`Waiting`](nodegate_agent_client::Waiting).
    pub(crate) async fn ask_wait(&self, node: &FleetNode, path: &str) -> Result<WaitReply, String> {
        Ok(self.answer(node, path, WAIT_WITHIN).await?.said)
    }

    /// Gets a path from the agent, which may hold the request for a while. Of two ways each has half of the time; the
    /// error of the node's own address comes first, because balancers probe that address.
    async fn answer<T: AgentJson>(
        &self,
        node: &FleetNode,
        path: &str,
        held: Duration,
    ) -> Result<AgentAnswer<T>, String> {
        let ClusterArgs { via, agent_timeout, .. } = self.args;
        let within = held + if via == Via::Auto { agent_timeout / 2 } else { agent_timeout };
        let mut failed = String::new();
        if via != Via::Proxy {
            // Boxed: the future of a client's request is large.
            match Box::pin(self.direct(node, path, within)).await {
                Err(error) if via == Via::Auto => failed = format!("{error}; through the API server: "),
                answer => return answer,
            }
        }
        let proxied = timeout(within, Box::pin(self.proxied(node, path))).await;
        proxied.unwrap_or_else(|_| Err(AskError::Late(within).to_string())).map_err(|error| failed + &error)
    }

    /// Queries the agent at the node's address, where another Node's agent may answer.
    async fn direct<T: AgentJson>(
        &self,
        node: &FleetNode,
        path: &str,
        within: Duration,
    ) -> Result<AgentAnswer<T>, String> {
        let ip = node.address.ok_or("the Node has no InternalIP and no ExternalIP")?;
        let address = SocketAddr::new(ip, self.args.port);
        let reply = get(&[address], path, within).await;
        let reply = reply.and_then(|reply| Ok((parse::<T>(&reply)?, reply)));
        let (said, reply) = reply.map_err(|error| match error {
            AskError::Late(_) => error.to_string(),
            error => format!("{error} ({address})"),
        })?;
        node.identity().confirm(&said).map_err(|wrong| wrong.at(ip))?;
        Ok(AgentAnswer { said, reply, source: address.to_string(), is_direct: true })
    }

    /// Queries the agent through the API server, which knows the pod's node. Accepts an agent that can't name
    /// its Node.
    async fn proxied<T: AgentJson>(&self, node: &FleetNode, path: &str) -> Result<AgentAnswer<T>, String> {
        let namespace = &self.args.namespace;
        let pods = self.pods(namespace, AGENT_LABEL, Some(&node.name)).await;
        let pods = pods.map_err(|error| error.why)?;
        let none = || format!("no pod of an agent on this node in the namespace {namespace} (-n)");
        let pod = pods.into_iter().next().ok_or_else(none)?;
        let reply = self.ask_pod(namespace, &pod, self.args.port, path).await?;
        let at = format!("the pod {pod}");
        let said: T = parse(&reply).map_err(|error| format!("{error} ({at})"))?;
        match node.identity().confirm(&said) {
            Err(wrong @ WrongAgent::OtherNode(_)) => Err(wrong.at(at)),
            Ok(()) | Err(WrongAgent::NotYetKnown) => {
                Ok(AgentAnswer { said, reply, source: format!("proxy of {pod}"), is_direct: false })
            }
        }
    }
}
