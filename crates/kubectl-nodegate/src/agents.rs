//! Queries agents at their node's address, or through the API server's proxy of their pod.

use crate::args::{ClusterArgs, Via};
use crate::cluster::{Cluster, FleetNode};
use futures::stream::{self, Stream, StreamExt};
use nodegate_agent_api::{STATUS_PATH, Status, WaitReply};
use nodegate_agent_client::{AgentReply, AskError, HELD, get, parse_status, parse_wait};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The label of the agents' pods in the manifests.
const AGENT_LABEL: &str = "app.kubernetes.io/name=nodegate";
/// The number of concurrent queries. Each needs one open file or two, and macOS allows 256.
pub(crate) const AT_ONCE: usize = 100;
/// The time that an agent may take before the plugin also queries it through the API server.
const DIRECT_FIRST: Duration = Duration::from_millis(500);

pub(crate) struct Agents {
    pub(crate) cluster: Cluster,
    port: u16,
    pub(crate) via: Via,
    pub(crate) timeout: Duration,
}

/// An answer of the agent of the Node that was meant.
pub(crate) struct AgentAnswer<T = Status> {
    pub(crate) said: T,
    pub(crate) reply: AgentReply,
    /// The address, or the pod behind the API server.
    pub(crate) source: String,
    /// True if it came from the node's own address.
    pub(crate) is_direct: bool,
}

/// The content of an answer, which names its Node.
trait Said: Sized {
    fn parse(reply: &AgentReply) -> Result<Self, AskError>;
    /// Returns the name and the UID of the Node.
    fn node(&self) -> (Option<&str>, Option<&str>);
}

impl Said for Status {
    fn parse(reply: &AgentReply) -> Result<Self, AskError> {
        parse_status(reply)
    }

    fn node(&self) -> (Option<&str>, Option<&str>) {
        (self.node.as_deref(), self.uid.as_deref())
    }
}

impl Said for WaitReply {
    fn parse(reply: &AgentReply) -> Result<Self, AskError> {
        parse_wait(reply)
    }

    fn node(&self) -> (Option<&str>, Option<&str>) {
        (self.drain.node.as_deref(), self.drain.uid.as_deref())
    }
}

impl Agents {
    pub(crate) fn new(cluster: Cluster, args: &ClusterArgs) -> Self {
        let ClusterArgs { port, via, agent_timeout: timeout, .. } = *args;
        Self { cluster, port, via, timeout }
    }

    /// Queries the agents of these nodes concurrently; the stream yields each answer as it arrives.
    pub(crate) fn ask_all<'a>(
        &'a self,
        nodes: &'a [FleetNode],
    ) -> impl Stream<Item = (&'a FleetNode, Result<AgentAnswer, String>)> + 'a {
        stream::iter(nodes)
            .map(move |node| async move { (node, self.ask(node, self.via).await) })
            .buffer_unordered(AT_ONCE)
    }

    pub(crate) async fn ask(&self, node: &FleetNode, via: Via) -> Result<AgentAnswer, String> {
        self.answer(node, via, STATUS_PATH, Duration::ZERO).await
    }

    /// Asks how a wait stands, by the path of [`Waiting`](nodegate_agent_client::Waiting).
    pub(crate) async fn ask_wait(&self, node: &FleetNode, path: &str) -> Result<WaitReply, String> {
        Ok(self.answer(node, self.via, path, HELD).await?.said)
    }

    /// Gets a path from the agent, which may hold the request for a while.
    async fn answer<T: Said>(
        &self,
        node: &FleetNode,
        via: Via,
        path: &str,
        held: Duration,
    ) -> Result<AgentAnswer<T>, String> {
        // Boxed: the future of a client's request is large.
        let direct = |ip| Box::pin(self.direct(node, SocketAddr::new(ip, self.port), path));
        let proxied = Box::pin(self.proxied(node, path));
        let head_start = DIRECT_FIRST.min(self.timeout / 2) + held;
        let within = self.timeout + held;
        let late = |_| Err(AskError::Late(self.timeout).to_string());
        match (via, node.address) {
            (Via::Proxy, _) | (Via::Auto, None) => timeout(within, proxied).await.unwrap_or_else(late),
            (Via::Node, Some(ip)) => timeout(within, direct(ip)).await.unwrap_or_else(late),
            (Via::Node, None) => Err("the Node has no InternalIP and no ExternalIP".to_owned()),
            (Via::Auto, Some(ip)) => {
                let direct = async { timeout(within, direct(ip)).await.unwrap_or_else(late) };
                let proxied = async { timeout(within, proxied).await.unwrap_or_else(late) };
                first_of_both(direct, head_start, proxied).await
            }
        }
    }

    /// Queries the agent at the node's address, where another cluster's agent may answer.
    async fn direct<T: Said>(
        &self,
        node: &FleetNode,
        address: SocketAddr,
        path: &str,
    ) -> Result<AgentAnswer<T>, String> {
        let reply = get(&[address], path).await.map_err(|error| format!("{error} ({address})"))?;
        let said = T::parse(&reply).map_err(|error| format!("{error} ({address})"))?;
        let (name, uid) = said.node();
        node.identity().confirm(name, uid).map_err(|wrong| wrong.at(address.ip()))?;
        Ok(AgentAnswer { said, reply, source: address.to_string(), is_direct: true })
    }

    /// Queries the agent through the API server, which knows the pod's node. Accepts an agent that can't name
    /// its Node.
    async fn proxied<T: Said>(&self, node: &FleetNode, path: &str) -> Result<AgentAnswer<T>, String> {
        let namespace = &self.cluster.namespace;
        let pods = self.cluster.pods(namespace, AGENT_LABEL, Some(&node.name)).await;
        let pods = pods.map_err(|error| error.why)?;
        let none = || format!("no pod of an agent on this node in the namespace {namespace} (-n)");
        let pod = pods.into_iter().next().ok_or_else(none)?;
        let reply = self.cluster.ask_pod(namespace, &pod, self.port, path).await?;
        let at = format!("the pod {pod}");
        let said = T::parse(&reply).map_err(|error| format!("{error} ({at})"))?;
        let (name, uid) = said.node();
        node.identity().confirm_unless_contradicted(name, uid).map_err(|wrong| wrong.at(&at))?;
        Ok(AgentAnswer { said, reply, source: format!("proxy of {pod}"), is_direct: false })
    }
}

/// Returns the first answer. The second way begins when the first one has failed, or after its head start. If both
/// fail, the error of the node's own address comes first, because balancers probe that address.
async fn first_of_both<T>(
    direct: impl Future<Output = Result<T, String>>,
    head_start: Duration,
    proxied: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let (running, ended) = oneshot::channel::<()>();
    let direct = async move {
        let answer = direct.await;
        drop(running);
        answer.map_or_else(Ok, Err)
    };
    let proxied = async move {
        // It begins in either case.
        let _ = timeout(head_start, ended).await;
        proxied.await.map_or_else(Ok, Err)
    };
    // An answer ends both, as an error would.
    match tokio::try_join!(direct, proxied) {
        Err(answer) => Ok(answer),
        Ok((direct, proxied)) => Err(both(&direct, &proxied)),
    }
}

/// Returns the errors of both ways in one.
pub(crate) fn both(direct: &str, proxied: &str) -> String {
    format!("{direct}; through the API server: {proxied}")
}
