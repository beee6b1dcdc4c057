//! Queries agents for their whole status, at their node's address or through the API server's proxy of their
//! pod.

use crate::args::{ClusterArgs, Via};
use crate::cluster::{Cluster, FleetNode};
use futures::future::{Either, select};
use futures::stream::{self, Stream, StreamExt};
use nodegate_agent_client::{AgentReply, Answered, AskError, STATUS_PATH, WrongAgent, ask, parse_status};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// The number of concurrent queries. A thousand hanging agents take four times the timeout of one.
const AT_ONCE: usize = 256;
/// The time that an agent may take before the plugin also queries it through the API server.
const DIRECT_FIRST: Duration = Duration::from_millis(500);
/// The lifetime of a list of pods: a replaced agent has another pod.
const KEPT: Duration = Duration::from_secs(10);

pub(crate) struct Agents {
    pub(crate) cluster: Cluster,
    pods: Pods,
    port: u16,
    via: Via,
    timeout: Duration,
}

pub(crate) struct AgentAnswer {
    pub(crate) said: Answered,
    pub(crate) way: Way,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Node(SocketAddr),
    Proxy { pod: String },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NoAgentAnswer {
    /// The short form, for a table.
    pub(crate) short: String,
    /// The reason in full, for wide output.
    pub(crate) detail: String,
}

impl NoAgentAnswer {
    pub(crate) fn new(short: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { short: short.into(), detail: detail.into() }
    }

    fn of(address: impl fmt::Display, error: &AskError) -> Self {
        let hint = if matches!(error, AskError::Refused(_, 404)) { " (--port)" } else { "" };
        Self::new(error.short(), format!("{address}: {error}{hint}"))
    }

    fn wrong(address: impl fmt::Display, wrong: &WrongAgent) -> Self {
        Self::new(wrong.short(), wrong.at(address))
    }

    /// Adds the error of the other way.
    fn and(self, proxied: &Self) -> Self {
        Self { detail: format!("{}; through the API server: {}", self.detail, proxied.detail), ..self }
    }
}

impl Agents {
    pub(crate) fn new(cluster: Cluster, args: &ClusterArgs) -> Self {
        let ClusterArgs { port, via, agent_timeout: timeout, .. } = *args;
        Self { cluster, pods: Pods::default(), port, via, timeout }
    }

    /// Queries the agents of these nodes concurrently; the stream yields each answer as it arrives.
    pub(crate) fn ask_all<'a>(
        &'a self,
        nodes: &'a [FleetNode],
    ) -> impl Stream<Item = (&'a FleetNode, Result<AgentAnswer, NoAgentAnswer>)> + 'a {
        stream::iter(nodes)
            .map(move |node| async move { (node, self.ask(node).await) })
            .buffer_unordered(AT_ONCE)
    }

    pub(crate) async fn ask(&self, node: &FleetNode) -> Result<AgentAnswer, NoAgentAnswer> {
        if !node.exists {
            return Err(NoAgentAnswer::new("no such node", format!("the cluster has no Node {}", node.name)));
        }
        match (self.via, node.address) {
            (Via::Proxy, _) | (Via::Auto, None) => self.within(self.proxied(node)).await,
            (Via::Node, Some(address)) => self.direct(node, address).await,
            (Via::Node, None) => Err(NoAgentAnswer::new(
                "no address",
                "the Node has no address of the types in --address-types",
            )),
            (Via::Auto, Some(address)) => self.first_of_both(node, address).await,
        }
    }

    /// Queries both ways and returns the first answer. If both fail, the error of the node's own address
    /// comes first, because balancers probe that address.
    async fn first_of_both(&self, node: &FleetNode, address: IpAddr) -> Result<AgentAnswer, NoAgentAnswer> {
        let mut direct = pin!(self.direct(node, address));
        let first = tokio::time::timeout(DIRECT_FIRST.min(self.timeout / 2), &mut direct).await;
        let proxied = pin!(self.within(self.proxied(node)));
        let (failed, error) = match first {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(failed)) => (failed, proxied.await),
            Err(_) => match select(direct, proxied).await {
                Either::Left((Ok(answer), _)) | Either::Right((Ok(answer), _)) => return Ok(answer),
                Either::Left((Err(failed), proxied)) => (failed, proxied.await),
                Either::Right((error, direct)) => match direct.await {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => (failed, error),
                },
            },
        };
        error.map_err(|error| failed.and(&error))
    }

    async fn within(
        &self,
        asked: impl Future<Output = Result<AgentAnswer, NoAgentAnswer>>,
    ) -> Result<AgentAnswer, NoAgentAnswer> {
        tokio::time::timeout(self.timeout, asked).await.unwrap_or_else(|_| {
            let late = AskError::Late(self.timeout);
            Err(NoAgentAnswer::new(late.short(), late.to_string()))
        })
    }

    /// Queries the agent at the node's address, where another cluster's agent may answer.
    async fn direct(&self, node: &FleetNode, ip: IpAddr) -> Result<AgentAnswer, NoAgentAnswer> {
        let address = SocketAddr::new(ip, self.port);
        let said = ask(address, self.timeout).await.map_err(|error| match error {
            error @ AskError::Late(_) => NoAgentAnswer::new(error.short(), error.to_string()),
            error => NoAgentAnswer::of(address, &error),
        })?;
        node.identity().confirm(&said.status).map_err(|wrong| NoAgentAnswer::wrong(ip, &wrong))?;
        Ok(AgentAnswer { said, way: Way::Node(address) })
    }

    /// Queries the agent through the API server, which knows the pod's node. Accepts an agent that can't name
    /// its Node.
    async fn proxied(&self, node: &FleetNode) -> Result<AgentAnswer, NoAgentAnswer> {
        let pods =
            self.pods.get(&self.cluster).await.map_err(|error| NoAgentAnswer::new("no way to it", error))?;
        let Some(pod) = pods.get(&node.name) else {
            let namespace = &self.cluster.namespace;
            let detail = format!("no pod of an agent on this node in the namespace {namespace} (-n)");
            return Err(NoAgentAnswer::new("no agent", detail));
        };
        let reply = self.cluster.ask_pod(pod, self.port, STATUS_PATH).await;
        let reply = reply.map_err(|error| NoAgentAnswer::new("no way to it", error))?;
        if let Some(refusal) = refusal(&reply) {
            return Err(NoAgentAnswer::new("no way to it", refusal));
        }
        let at = format!("the pod {pod}");
        let said = parse_status(reply).map_err(|error| NoAgentAnswer::of(&at, &error))?;
        node.identity()
            .confirm_unless_contradicted(&said.status)
            .map_err(|wrong| NoAgentAnswer::wrong(&at, &wrong))?;
        Ok(AgentAnswer { said, way: Way::Proxy { pod: pod.clone() } })
    }
}

/// The pods by the names of their nodes, or the reason why they are not known.
type Listed = Result<BTreeMap<String, String>, String>;

/// The agents' pods, listed when they are first needed, with the time when the list began.
#[derive(Default)]
struct Pods(Mutex<Option<(Instant, Arc<OnceCell<Listed>>)>>);

impl Pods {
    /// Returns the pods. Concurrent callers wait for the same list.
    async fn get(&self, cluster: &Cluster) -> Listed {
        let list = {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = last.take().filter(|(began, _)| began.elapsed() < KEPT);
            last.insert(kept.unwrap_or_else(|| (Instant::now(), Arc::default()))).1.clone()
        };
        let listed = list.get_or_init(|| async { cluster.agents().await.map_err(|error| error.why) });
        listed.await.clone()
    }
}

/// Returns the API server's own error message; `None` if the agent itself has answered.
fn refusal(answer: &AgentReply) -> Option<String> {
    #[derive(Deserialize)]
    struct Status {
        kind: String,
        message: String,
    }
    let status: Status = serde_json::from_slice(&answer.body).ok()?;
    (answer.status >= 400 && status.kind == "Status").then_some(status.message)
}
