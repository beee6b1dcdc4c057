//! Requests to the API server, for every command.

mod config;
mod credential;

pub(crate) use credential::Credential;

use crate::args::ClusterArgs;
use crate::error::{Error, explained};
use http::Request;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Client, Resource, ResourceExt};
use nodegate_agent_client::hints::CONTROL_PLANE_LABEL;
use nodegate_agent_client::{AgentReply, MAX_REPLY, NodeIdentity, agent_addresses};
use nodegate_kubeconfig::Found;
use nodegate_program::with_causes;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

/// The timeout of a request without `--request-timeout`; a list of 5,000 Nodes over a slow link takes long.
const API_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of objects in one page, as in kubectl.
const PAGE: u32 = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetNode {
    pub(crate) name: String,
    /// `metadata.uid`, which distinguishes it from a node of another cluster.
    pub(crate) uid: Option<String>,
    /// Its first `InternalIP`, else its first `ExternalIP`.
    pub(crate) address: Option<IpAddr>,
    pub(crate) unschedulable: bool,
    pub(crate) is_control_plane: bool,
}

pub(crate) struct Cluster {
    client: Client,
    pub(crate) args: ClusterArgs,
    /// Context and server, for messages.
    pub(crate) name: String,
    found: Found,
    /// The credential of a plugin, which ran for the client.
    pub(crate) credential: Option<Credential>,
}

impl Cluster {
    /// Reads the kubeconfig, and runs its credential plugin if there is one. Sends no request to the API
    /// server yet.
    pub(crate) async fn connect(args: &ClusterArgs) -> Result<Self, Error> {
        let found = config::find(args)?;
        let server = found.config.cluster_url.to_string();
        let context = found.context.as_ref().map_or_else(String::new, |name| format!("context {name}, "));
        let name = format!("{context}server {}", server.trim_end_matches('/'));
        let client = credential::client(found.config.clone()).await;
        let (client, credential) = client.map_err(|error| found.unusable(error))?;
        Ok(Self { client, credential, args: args.clone(), name, found })
    }

    /// Returns the Nodes with these names; without names those with the labels, or all.
    pub(crate) async fn nodes(
        &self,
        names: &[String],
        selector: Option<&str>,
    ) -> Result<Vec<FleetNode>, Error> {
        if !names.is_empty() {
            let mut nodes = Vec::new();
            for name in names {
                let none = || format!("the cluster has no Node {name}; kubectl get nodes lists them");
                nodes.push(self.node(name).await?.ok_or_else(none)?);
            }
            return Ok(nodes);
        }
        let nodes = self.all("can't list Nodes", selector, |node: NodeObject| FleetNode::of(&node)).await;
        match (nodes, selector) {
            (Ok(nodes), Some(selector)) if nodes.is_empty() => {
                let why =
                    "the cluster has no Node with these labels; kubectl get nodes --show-labels lists them";
                Err(format!("--selector {selector:?}: {why}").into())
            }
            (Err(Error { why, rejected: Some(400), .. }), Some(selector)) => {
                Err(format!("--selector {selector:?}: {why}; write it like pool=edge").into())
            }
            (Err(Error { why, rejected: None, .. }), _) => {
                let hint = "each agent answers without the API server: curl http://<the node's address>:25001/health";
                Err(format!("{why}; {hint}").into())
            }
            (nodes, _) => nodes,
        }
    }

    /// Lists the objects of a kind in all namespaces, page by page, and keeps a part of each.
    pub(crate) async fn all<T, R>(
        &self,
        what: &str,
        selector: Option<&str>,
        part: impl Fn(T) -> R,
    ) -> Result<Vec<R>, Error>
    where
        T: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
    {
        let api: Api<T> = Api::all(self.client.clone());
        let mut page = ListParams::default().limit(PAGE);
        page.label_selector = selector.map(str::to_owned);
        let mut parts = Vec::new();
        loop {
            let found = self.in_time(what, api.list(&page)).await?;
            parts.extend(found.items.into_iter().map(&part));
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(parts),
            }
        }
    }

    /// Returns a Node; `None` if it does not exist.
    pub(crate) async fn node(&self, name: &str) -> Result<Option<FleetNode>, Error> {
        let api: Api<NodeObject> = Api::all(self.client.clone());
        let found = self.in_time(&format!("can't get Node {name}"), api.get_opt(name)).await?;
        Ok(found.as_ref().map(FleetNode::of))
    }

    /// Returns the pods with these labels, of one node or of all. Those that run come first: two agents of a node share
    /// one port.
    pub(crate) async fn pods(
        &self,
        namespace: &str,
        labels: &str,
        node: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // From the API server's memory, which has them by node.
        let mut wanted = ListParams::default().labels(labels).match_any();
        wanted.field_selector = node.map(|node| format!("spec.nodeName={node}"));
        let what = format!("can't list Pods in {namespace}");
        let mut pods = self.in_time(&what, api.list(&wanted)).await?.items;
        pods.sort_by_key(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase != Some("Running") || pod.metadata.deletion_timestamp.is_some()
        });
        Ok(pods.iter().map(ResourceExt::name_any).collect())
    }

    pub(crate) async fn set_unschedulable(&self, name: &str, unschedulable: bool) -> Result<(), Error> {
        let api: Api<NodeObject> = Api::all(self.client.clone());
        let what = if unschedulable { "can't cordon" } else { "can't uncordon" };
        let patch = Patch::Strategic(json!({"spec": {"unschedulable": unschedulable}}));
        let patched = async { api.patch(name, &PatchParams::default(), &patch).await };
        self.in_time(&format!("{what} {name}"), patched).await.map(drop)
    }

    /// Sends a request to a port of a pod through the API server. An answer of the API server itself is an error.
    pub(crate) async fn ask_pod(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        path: &str,
    ) -> Result<AgentReply, String> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}");
        let request = Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
        let answer = self.client.send(request).await.map_err(|error| explained(&error))?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), MAX_REPLY).collect().await;
        let body = body.map_err(|error| with_causes(&*error))?.to_bytes();
        let refusal: Value = serde_json::from_slice(&body).unwrap_or_default();
        match refusal.get("message").and_then(Value::as_str) {
            Some(why) if status >= 400 && refusal.get("kind").is_some_and(|kind| kind == "Status") => {
                Err(why.to_owned())
            }
            _ => Ok(AgentReply { status, body }),
        }
    }

    /// Returns the flags with which kubectl acts in the same cluster as the same user. They name the context even if it is
    /// the current one, because the current one may change while a drain waits.
    pub(crate) fn kubectl_flags(&self) -> Vec<String> {
        let args = &self.args;
        let file = args.kubeconfig.as_ref().map(|file| format!("--kubeconfig={}", file.display()));
        let context = self.found.context.as_ref().map(|name| format!("--context={name}"));
        let user = args.impersonate.as_ref().map(|user| format!("--as={user}"));
        let timeout =
            args.request_timeout.map(|timeout| format!("--request-timeout={}", go_duration(timeout)));
        let groups = args.impersonate_groups.iter().map(|group| format!("--as-group={group}"));
        [file, context, user, timeout].into_iter().flatten().chain(groups).collect()
    }

    async fn in_time<T>(&self, what: &str, asked: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        let timeout = self.args.request_timeout.unwrap_or(API_TIMEOUT);
        let Ok(answer) = tokio::time::timeout(timeout, asked).await else {
            let (name, within) = (&self.name, humantime::format_duration(timeout));
            return Err(format!("{what}: {name} did not answer within {within} (--request-timeout)").into());
        };
        answer.map_err(|error| Error::of_request(what, &self.name, &self.found, &error))
    }
}

impl FleetNode {
    fn of(node: &NodeObject) -> Self {
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let addresses = addresses.filter_map(|address| Some((&address.type_, address.address.parse().ok()?)));
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
        Self {
            name: node.name_any(),
            uid: node.metadata.uid.clone(),
            address: agent_addresses(addresses).first().copied(),
            unschedulable,
            is_control_plane: node.labels().contains_key(CONTROL_PLANE_LABEL),
        }
    }

    /// Returns the identity that the Node's agent must have.
    pub(crate) fn identity(&self) -> NodeIdentity {
        NodeIdentity { name: self.name.clone(), uid: self.uid.clone() }
    }
}

/// Formats a duration as Go parses it.
pub(crate) fn go_duration(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_millis()) {
        (seconds, 0) => format!("{seconds}s"),
        _ => format!("{}ms", duration.as_millis()),
    }
}
