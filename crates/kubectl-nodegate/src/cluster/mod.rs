//! Requests to the API server, for every command.

mod config;
mod credential;

pub(crate) use credential::Credential;

use crate::args::{ClusterArgs, KubectlArgs};
use crate::error::{Error, explained};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Request;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, Resource, ResourceExt};
use nodegate_agent_client::{AgentReply, MAX_REPLY, NodeIdentity, agent_addresses};
use nodegate_kubeconfig::Found;
use nodegate_program::with_causes;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

/// The timeout of a request without `--request-timeout`; a list of 5,000 Nodes over a slow link takes long.
const API_TIMEOUT: Duration = Duration::from_secs(30);
/// The number of objects in one page, as in kubectl.
const PAGE: u32 = 500;
const BY_NAME_AT_ONCE: usize = 16;
/// The label that kubeadm and Talos put on control-plane nodes.
const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetNode {
    pub(crate) name: String,
    /// `metadata.uid`, which distinguishes it from a node of another cluster.
    pub(crate) uid: Option<String>,
    /// Its first `InternalIP`, else its first `ExternalIP`.
    pub(crate) address: Option<IpAddr>,
    pub(crate) unschedulable: bool,
    pub(crate) is_control_plane: bool,
    pub(crate) exists: bool,
}

pub(crate) struct Cluster {
    client: Client,
    pub(crate) namespace: String,
    timeout: Duration,
    /// Context and server, for messages.
    pub(crate) name: String,
    found: Found,
    /// The flags with which kubectl acts in the same cluster as the same user.
    pub(crate) kubectl_flags: Vec<String>,
    /// The credential of a plugin, which ran for the client.
    pub(crate) credential: Option<Credential>,
}

impl Cluster {
    /// Reads the kubeconfig, and runs its credential plugin if there is one. Sends no request to the API
    /// server yet.
    pub(crate) async fn connect(args: &ClusterArgs) -> Result<Self, Error> {
        let found = config::find(&args.kubectl)?;
        let (server, context) = (found.config.cluster_url.to_string(), found.context.clone());
        let name = context.as_ref().map_or_else(String::new, |context| format!("context {context}, "));
        let name = format!("{name}server {}", server.trim_end_matches('/'));
        let client = credential::client(found.config.clone()).await;
        let (client, credential) = client.map_err(|error| found.unusable(error))?;
        Ok(Self {
            client,
            namespace: args.namespace.clone(),
            timeout: args.kubectl.request_timeout.unwrap_or(API_TIMEOUT),
            name,
            found,
            kubectl_flags: kubectl_flags(&args.kubectl, context),
            credential,
        })
    }

    pub(crate) async fn nodes(&self, selector: Option<&str>) -> Result<Vec<FleetNode>, Error> {
        let mut nodes = Vec::new();
        let listed =
            self.all("can't list Nodes", selector, |node: NodeObject| nodes.push(FleetNode::of(&node)));
        listed.await.map_err(|error| {
            let hint =
                "each agent answers without the API server: curl http://<the node's address>:25001/health";
            let hint = if error.rejected.is_none() { format!("; {hint}") } else { String::new() };
            Error { why: error.why + &hint, ..error }
        })?;
        Ok(nodes)
    }

    /// Lists the objects of a kind in all namespaces, and passes each to `keep`.
    pub(crate) async fn all<T>(
        &self,
        what: &str,
        selector: Option<&str>,
        keep: impl FnMut(T),
    ) -> Result<(), Error>
    where
        T: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
    {
        let labels = ListParams { label_selector: selector.map(str::to_owned), ..ListParams::default() };
        self.pages(what, &Api::all(self.client.clone()), labels, keep).await
    }

    /// Returns the number of objects of a kind that may not exist here, with these labels.
    pub(crate) async fn count(&self, kind: &ApiResource, labels: &str) -> Result<usize, Error> {
        let mut count = 0;
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), kind);
        let what = format!("can't list {}", kind.plural);
        self.pages(&what, &api, ListParams::default().labels(labels), |_| count += 1).await?;
        Ok(count)
    }

    /// Returns these Nodes, with a mark on those that do not exist.
    pub(crate) async fn named(&self, names: &[String]) -> Result<Vec<FleetNode>, Error> {
        let get = |name: String| async move { self.node(&name).await };
        stream::iter(names.to_vec()).map(get).buffered(BY_NAME_AT_ONCE).try_collect().await
    }

    /// Returns a Node, with a mark if it does not exist.
    pub(crate) async fn node(&self, name: &str) -> Result<FleetNode, Error> {
        let api: Api<NodeObject> = Api::all(self.client.clone());
        let found = self.in_time(&format!("can't get Node {name}"), api.get_opt(name)).await?;
        Ok(match found {
            Some(node) => FleetNode::of(&node),
            None => FleetNode { name: name.to_owned(), ..FleetNode::default() },
        })
    }

    /// Returns the pods with these labels by the names of their nodes.
    pub(crate) async fn pods(
        &self,
        namespace: &str,
        labels: &str,
    ) -> Result<BTreeMap<String, String>, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut pods = BTreeMap::new();
        // Two agents on a node share one port; a running pod is the better way to it.
        let keep = |pod: Pod| {
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let runs = phase == Some("Running") && pod.metadata.deletion_timestamp.is_none();
            if runs || !pods.contains_key(&node) {
                pods.insert(node, pod.name_any());
            }
        };
        let what = format!("can't list Pods in {namespace}");
        self.pages(&what, &api, ListParams::default().labels(labels), keep).await?;
        Ok(pods)
    }

    pub(crate) async fn set_unschedulable(&self, name: &str, unschedulable: bool) -> Result<(), Error> {
        let api: Api<NodeObject> = Api::all(self.client.clone());
        let value = if unschedulable { json!(true) } else { json!(null) };
        let patch = Patch::Merge(json!({"spec": {"unschedulable": value}}));
        let what = if unschedulable { "can't cordon" } else { "can't uncordon" };
        let params = PatchParams::default();
        let done = api.patch(name, &params, &patch);
        self.in_time(&format!("{what} {name}"), done).await.map(drop)
    }

    /// Sends a request to a port of a pod through the API server.
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
        Ok(AgentReply { status, body })
    }

    /// Lists page by page, and passes each object to `keep`.
    async fn pages<T: Clone + Debug + DeserializeOwned>(
        &self,
        what: &str,
        api: &Api<T>,
        wanted: ListParams,
        mut keep: impl FnMut(T),
    ) -> Result<(), Error> {
        let mut page = wanted.limit(PAGE);
        loop {
            let found = self.in_time(what, api.list(&page)).await?;
            found.items.into_iter().for_each(&mut keep);
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    async fn in_time<T>(&self, what: &str, asked: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        let Ok(answer) = tokio::time::timeout(self.timeout, asked).await else {
            let (name, within) = (&self.name, humantime::format_duration(self.timeout));
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
            exists: true,
        }
    }

    /// Returns the identity that the Node's agent must have.
    pub(crate) fn identity(&self) -> NodeIdentity {
        NodeIdentity { name: self.name.clone(), uid: self.uid.clone() }
    }
}

/// Returns flags for kubectl. They name the context even if it is the current one, because the current one may
/// change while a drain waits.
fn kubectl_flags(args: &KubectlArgs, context: Option<String>) -> Vec<String> {
    let file = args.kubeconfig.as_ref().map(|file| format!("--kubeconfig={}", file.display()));
    let context = context.map(|name| format!("--context={name}"));
    let user = args.impersonate.as_ref().map(|user| format!("--as={user}"));
    let timeout = args.request_timeout.map(|timeout| format!("--request-timeout={}", go_duration(timeout)));
    let groups = args.impersonate_groups.iter().map(|group| format!("--as-group={group}"));
    [file, context, user, timeout].into_iter().flatten().chain(groups).collect()
}

/// Formats a duration as Go parses it.
pub(crate) fn go_duration(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_millis()) {
        (seconds, 0) => format!("{seconds}s"),
        _ => format!("{}ms", duration.as_millis()),
    }
}
