//! Queries agents for their whole status, at their node's address or through the API server's proxy of their
//! pod.

use crate::args::{ClusterArgs, Via};
use crate::cluster::{Cluster, FleetNode};
use crate::error::Error;
use futures::future::{Either, select};
use futures::stream::{self, Stream, StreamExt};
use nodegate_agent_api::{STATUS_PATH, WaitReply};
use nodegate_agent_client::{
    AgentReply, Answered, AskError, HELD, WrongAgent, ask_drain, get, parse_status, parse_wait,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// The label of the agents' pods in the manifests.
const AGENT_LABEL: &str = "app.kubernetes.io/name=nodegate";
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
    pub(crate) via: Via,
    pub(crate) timeout: Duration,
}

pub(crate) struct AgentAnswer {
    pub(crate) said: Answered,
    pub(crate) way: Way,
}

/// A query of an agent: its path, and the time for which the agent may hold it.
#[derive(Clone, Copy)]
struct Query<'a> {
    path: &'a str,
    held: Duration,
}

/// An answer of an agent, which names its Node.
trait Answer: Sized {
    fn parse(reply: AgentReply) -> Result<Self, AskError>;
    /// Returns the name and the UID of the Node.
    fn node(&self) -> (Option<&str>, Option<&str>);
}

impl Answer for Answered {
    fn parse(reply: AgentReply) -> Result<Self, AskError> {
        parse_status(reply)
    }

    fn node(&self) -> (Option<&str>, Option<&str>) {
        (self.status.node.as_deref(), self.status.uid.as_deref())
    }
}

impl Answer for WaitReply {
    fn parse(reply: AgentReply) -> Result<Self, AskError> {
        parse_wait(&reply)
    }

    fn node(&self) -> (Option<&str>, Option<&str>) {
        (self.drain.node.as_deref(), self.drain.uid.as_deref())
    }
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
    /// True if there was an answer that is not one of an agent.
    pub(crate) is_foreign: bool,
}

impl NoAgentAnswer {
    pub(crate) fn new(short: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { short: short.into(), detail: detail.into(), is_foreign: false }
    }

    fn of(address: impl fmt::Display, error: &AskError) -> Self {
        let hint = if matches!(error, AskError::Refused(_, 404)) { " (--port)" } else { "" };
        let is_foreign = is_foreign(error);
        Self { is_foreign, ..Self::new(error.short(), format!("{address}: {error}{hint}")) }
    }

    fn wrong(address: impl fmt::Display, wrong: &WrongAgent) -> Self {
        Self::new(wrong.short(), wrong.at(address))
    }

    /// Adds the error of the other way.
    pub(crate) fn and(self, proxied: &Self) -> Self {
        Self { detail: format!("{}; through the API server: {}", self.detail, proxied.detail), ..self }
    }
}

fn is_foreign(error: &AskError) -> bool {
    matches!(error, AskError::Refused(..) | AskError::NotHttp | AskError::TooLong | AskError::Foreign(..))
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
        let query = Query { path: STATUS_PATH, held: Duration::ZERO };
        let (said, way) = self.answer(node, query).await?;
        Ok(AgentAnswer { said, way })
    }

    /// Returns true if another program than an agent answers at the Node's own address. An agent with `--metrics-addr`
    /// answers there, too, but not with its whole state.
    pub(crate) async fn is_port_taken(&self, node: &FleetNode) -> bool {
        let Some(address) = node.address.map(|ip| SocketAddr::new(ip, self.port)) else { return false };
        ask_drain(&[address], self.timeout).await.is_err_and(|error| is_foreign(&error))
    }

    /// Asks how a wait stands, by the path of [`Waiting`](nodegate_agent_client::Waiting).
    pub(crate) async fn ask_wait(&self, node: &FleetNode, path: &str) -> Result<WaitReply, NoAgentAnswer> {
        Ok(self.answer(node, Query { path, held: HELD }).await?.0)
    }

    async fn answer<T: Answer>(&self, node: &FleetNode, query: Query<'_>) -> Result<(T, Way), NoAgentAnswer> {
        if !node.exists {
            return Err(NoAgentAnswer::new("no such node", Error::no_node(&node.name).why));
        }
        match (self.via, node.address) {
            (Via::Proxy, _) | (Via::Auto, None) => self.within(query, self.proxied(node, query)).await,
            (Via::Node, Some(address)) => self.direct(node, address, query).await,
            (Via::Node, None) => {
                Err(NoAgentAnswer::new("no address", "the Node has no InternalIP and no ExternalIP"))
            }
            (Via::Auto, Some(address)) => self.first_of_both(node, address, query).await,
        }
    }

    /// Queries both ways and returns the first answer. If both fail, the error of the node's own address
    /// comes first, because balancers probe that address.
    async fn first_of_both<T: Answer>(
        &self,
        node: &FleetNode,
        address: IpAddr,
        query: Query<'_>,
    ) -> Result<(T, Way), NoAgentAnswer> {
        let mut direct = pin!(self.direct(node, address, query));
        let first = DIRECT_FIRST.min(self.timeout / 2) + query.held;
        let first = tokio::time::timeout(first, &mut direct).await;
        let proxied = pin!(self.within(query, self.proxied(node, query)));
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

    async fn within<T>(
        &self,
        query: Query<'_>,
        asked: impl Future<Output = Result<(T, Way), NoAgentAnswer>>,
    ) -> Result<(T, Way), NoAgentAnswer> {
        tokio::time::timeout(self.timeout + query.held, asked).await.unwrap_or_else(|_| {
            let late = AskError::Late(self.timeout);
            Err(NoAgentAnswer::new(late.short(), late.to_string()))
        })
    }

    /// Queries the agent at the node's address, where another cluster's agent may answer.
    async fn direct<T: Answer>(
        &self,
        node: &FleetNode,
        ip: IpAddr,
        query: Query<'_>,
    ) -> Result<(T, Way), NoAgentAnswer> {
        let address = SocketAddr::new(ip, self.port);
        let asked = async {
            let reply = get(&[address], query.path).await;
            let answer = reply.and_then(T::parse).map_err(|error| NoAgentAnswer::of(address, &error))?;
            let (name, uid) = answer.node();
            node.identity().confirm(name, uid).map_err(|wrong| NoAgentAnswer::wrong(ip, &wrong))?;
            Ok((answer, Way::Node(address)))
        };
        self.within(query, asked).await
    }

    /// Queries the agent through the API server, which knows the pod's node. Accepts an agent that can't name
    /// its Node.
    async fn proxied<T: Answer>(
        &self,
        node: &FleetNode,
        query: Query<'_>,
    ) -> Result<(T, Way), NoAgentAnswer> {
        let pods =
            self.pods.get(&self.cluster).await.map_err(|error| NoAgentAnswer::new("no way to it", error))?;
        let Some(pod) = pods.get(&node.name) else {
            let namespace = &self.cluster.namespace;
            let detail = format!("no pod of an agent on this node in the namespace {namespace} (-n)");
            return Err(NoAgentAnswer::new("no agent", detail));
        };
        let reply = self.cluster.ask_pod(&self.cluster.namespace, pod, self.port, query.path).await;
        let reply = reply.map_err(|error| NoAgentAnswer::new("no way to it", error))?;
        if let Some(refusal) = refusal(&reply) {
            return Err(NoAgentAnswer::new("no way to it", refusal));
        }
        let at = format!("the pod {pod}");
        let answer = T::parse(reply).map_err(|error| NoAgentAnswer::of(&at, &error))?;
        let (name, uid) = answer.node();
        node.identity()
            .confirm_unless_contradicted(name, uid)
            .map_err(|wrong| NoAgentAnswer::wrong(&at, &wrong))?;
        Ok((answer, Way::Proxy { pod: pod.clone() }))
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
        let listed = list.get_or_init(|| async {
            cluster.pods(&cluster.namespace, AGENT_LABEL).await.map_err(|error| error.why)
        });
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
